-- SPDX-License-Identifier: Apache-2.0
-- What bench/train/train.py has Lua do: a table of records that lives on, and work that comes and goes. SEED and ROUNDS are globals.
local state = SEED
local function random(below)
  state = (state * 1103515245 + 12345) % 2147483648
  return (state // 256) % below
end
local records, recent, names = {}, {}, setmetatable({}, {__mode = "k"})
local Record = {}
Record.__index = Record
function Record.new(id)
  local self = setmetatable({id = id, name = "record " .. id, tags = {random(50), random(50)}}, Record)
  names[self] = string.rep(self.name, 3)
  return self
end
function Record:text() return string.format("%d:%s:%s", self.id, self.name, table.concat(self.tags, ",")) end
local function report(round)
  local lines = {}
  for _, each in pairs(records) do
    lines[#lines + 1] = each:text()
    if #lines > 120 then break end
  end
  table.sort(lines)
  local text = table.concat(lines, "\n")
  local count = 0
  for word in text:gmatch("%a+") do count = count + #word end
  recent[#recent + 1] = text:gsub("record", "r"):sub(1, 2000)
  if #recent > 8 then table.remove(recent, 1) end
  return count + #text:upper():reverse()
end
local function counter()
  local n = 0
  return function() n = n + 1 return n end
end
local total = 0
for round = 1, ROUNDS do
  for _ = 1, 40 do
    local id = random(3000)
    if random(5) == 0 then records[id] = nil else records[id] = Record.new(id) end
  end
  total = total + report(round)
  local step = coroutine.wrap(function() for i = 1, 20 do coroutine.yield({i, tostring(i)}) end end)
  for _ = 1, 10 do total = total + step()[1] end
  local made = (loadstring or load)("local a = ... local t = {a, " .. round .. ", x = 'y" .. round .. "'} return function() return #t + a end")
  total = total + made(round)()
  local tick = counter()
  for _ = 1, 5 do total = total + tick() end
  local ok, message = pcall(error, {code = round})
  total = total + (ok and 1 or message.code)
  local sparse = {}
  for i = 1, 200 do sparse[i * random(7)] = {} end
end
print(total)

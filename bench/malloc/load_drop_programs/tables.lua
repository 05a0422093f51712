-- SPDX-License-Identifier: Apache-2.0
-- Lua: tables of strings per player, most players leave. Marks as in marks.py.
local scale = tonumber(os.getenv("LOAD_DROP_SCALE") or 1)
local settle = os.getenv("LOAD_DROP_SETTLE") or "6"
local players = {}

local function mark(name)
  print("phase " .. name)
  io.stdout:flush()
  os.execute("sleep 0.2")
end

for cycle = 1, tonumber(os.getenv("LOAD_DROP_CYCLES") or 3) do
  math.randomseed(cycle)
  while #players < math.max(1, 6000 * scale) do
    local items = {}
    for i = 1, math.random(20, 120) do
      items[i] = { name = string.rep("x", math.random(4, 40 * cycle)) .. i, price = math.random(), tags = { i, -i } }
    end
    players[#players + 1] = items
  end
  mark("full" .. cycle)
  local kept = {}
  for _, items in ipairs(players) do
    if math.random(10) == 1 then kept[#kept + 1] = items end
  end
  players = kept
  collectgarbage()
  os.execute("sleep " .. settle)
  mark("settled" .. cycle)
end

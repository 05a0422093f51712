// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/csv_tables.h"

#include <algorithm>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/base/whole_file.h"
#include "memoir/plan/files/csv_text.h"

namespace memoir {
namespace {

std::unordered_map<std::string_view, std::uint32_t> by_id(const std::vector<std::string>& ids) {
  std::unordered_map<std::string_view, std::uint32_t> index;
  index.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) index.emplace(ids[i], static_cast<std::uint32_t>(i));
  return index;
}

}  // namespace

std::vector<Constraints::Pair> parse_conflicts(const std::string& text, const std::string& name,
                                               const std::vector<std::string>& ids) {
  const auto index = by_id(ids);
  CsvReader reader(text, name);
  Fields fields;
  if (!reader.next(fields)) throw Error(name + ": is empty; the first line must name the columns: a,b");
  if (fields != Fields{"a", "b"}) reader.refuse("the columns must be a,b: two buffers that conflict");
  std::vector<Constraints::Pair> pairs;
  while (reader.next(fields)) {
    if (fields.size() != 2)
      reader.refuse("has " + std::to_string(fields.size()) + " fields; there must be 2");
    std::uint32_t found[2];
    for (int k = 0; k < 2; ++k) {
      const auto at = index.find(fields[k]);
      if (at == index.end())
        reader.refuse("'" + std::string(fields[k].substr(0, 40)) + "' is not the ID of a buffer");
      found[k] = at->second;
    }
    if (found[0] == found[1]) reader.refuse("a buffer conflicts with itself");
    pairs.emplace_back(found[0], found[1]);
  }
  return pairs;
}

std::vector<OldPlace> parse_old_plan(const std::string& text, const std::string& name,
                                     const std::vector<std::string>& ids,
                                     const std::vector<ArenaChoice>& arenas) {
  const auto index = by_id(ids);
  CsvReader reader(text, name);
  Fields fields;
  if (!reader.next(fields)) throw Error(name + ": is empty; the first line must name the columns");
  const std::size_t count = fields.size();
  std::size_t id = count, offset = count, arena = count;
  for (std::size_t k = 0; k < count; ++k) {
    if (fields[k] == "id" || fields[k] == "buffer" || fields[k] == "buffer_id") id = k;
    if (fields[k] == "offset") offset = k;
    if (fields[k] == "arena") arena = k;
  }
  if (id == count) reader.refuse("no column 'id'; an earlier plan has id and offset");
  if (offset == count) reader.refuse("no column 'offset'; an earlier plan has id and offset");
  std::vector<OldPlace> old(ids.size());
  while (reader.next(fields)) {
    if (fields.size() != count) {
      reader.refuse("has " + std::to_string(fields.size()) + " fields; the header has " +
                    std::to_string(count) + " columns");
    }
    const auto at = index.find(fields[id]);
    if (at == index.end()) continue;
    OldPlace& place = old[at->second];
    if (place.offset != kNoOffset) reader.refuse("id '" + std::string(fields[id]) + "' is used twice");
    place.offset = reader.number(fields[offset], "offset");
    if (place.offset >= kMaxConstrainedBytes) reader.refuse("offset is 2^60 or more");
    if (arena == count || arenas.size() < 2) continue;
    const auto known = std::find_if(arenas.begin(), arenas.end(),
                                    [&](const ArenaChoice& choice) { return choice.name == fields[arena]; });
    if (known == arenas.end())
      reader.refuse("arena is '" + std::string(fields[arena].substr(0, 40)) +
                    "', which is none that was given");
    place.arena = static_cast<std::uint32_t>(known - arenas.begin());
  }
  return old;
}

std::vector<Constraints::Pair> read_conflicts(const std::string& path, const std::vector<std::string>& ids) {
  return parse_conflicts(read_whole_file(path), path, ids);
}

std::vector<OldPlace> read_old_plan(const std::string& path, const std::vector<std::string>& ids,
                                    const std::vector<ArenaChoice>& arenas) {
  return parse_old_plan(read_whole_file(path), path, ids, arenas);
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/csv_said.h"

#include <algorithm>

#include "memoir/base/units.h"

namespace memoir {
namespace {

constexpr std::string_view kSaidWords = "arena, forbid, banks, moves, locality, bandwidth";

std::string quoted_word(std::string_view text) { return "'" + std::string(text.substr(0, 40)) + "'"; }

/// A whole number, perhaps of KiB, MiB or GiB.
Size said_bytes(std::string_view text, std::string_view what, const CsvReader& reader) {
  Size unit = 1;
  for (const auto& [name, size] :
       {std::pair<std::string_view, Size>{"KiB", kKiB}, {"MiB", kMiB}, {"GiB", kGiB}}) {
    if (!text.ends_with(name)) continue;
    text = trim(text.substr(0, text.size() - name.size()));
    unit = size;
  }
  Size value = reader.number(text, what);
  if (__builtin_mul_overflow(value, unit, &value) || value >= kMaxConstrainedBytes)
    reader.refuse(std::string(what) + " is 2^60 bytes or more");
  return value;
}

}  // namespace

bool is_said(std::string_view line) {
  line = trim(line);
  return !line.empty() && line.front() == '#';
}

void SaidLines::take(std::string_view line, const CsvReader& reader) {
  line = trim(trim(line).substr(1));
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end), value = trim(line.substr(end));
  const auto once = [&](bool given) {
    if (given) reader.refuse("says " + std::string(word) + " a second time");
  };
  if (word == "arena") {
    arena(value, reader);
  } else if (word == "forbid") {
    forbid(value, reader);
  } else if (word == "banks") {
    once(constraints_.banks.count != 0);
    banks(value, reader);
  } else if (word == "moves") {
    once(constraints_.moves.has_value());
    constraints_.moves = reader.number(value, "moves");
  } else if (word == "locality") {
    once(constraints_.locality);
    if (!value.empty()) reader.refuse("locality takes no value, and has " + quoted_word(value));
    constraints_.locality = true;
  } else if (word == "bandwidth") {
    once(bandwidth_.has_value());
    bandwidth_ = said_bytes(value, "bandwidth", reader);
    if (*bandwidth_ == 0) reader.refuse("bandwidth is 0: it must be at least 1 byte per tick");
  } else {
    reader.refuse("unknown word " + quoted_word(word) + " in a line that begins with #; there are " +
                  std::string(kSaidWords));
  }
}

void SaidLines::arena(std::string_view value, const CsvReader& reader) {
  std::string_view first = value.substr(0, value.find(','));
  std::string_view cost = first.size() == value.size() ? "" : trim(value.substr(first.size() + 1));
  const std::size_t equals = first.find('=');
  const std::string_view name = trim(first.substr(0, equals));
  if (name.empty() || name.find_first_of(" \t\":") != std::string_view::npos)
    reader.refuse("arena " + quoted_word(name) + ": an arena needs a name without blanks, quotes and colons");
  ArenaChoice arena{std::string(name), kNoLimit, 0, {}};
  if (equals != std::string_view::npos)
    arena.capacity = said_bytes(trim(first.substr(equals + 1)), "an arena's limit", reader);
  if (!cost.empty()) {
    if (!cost.starts_with("cost="))
      reader.refuse(quoted_word(cost) + " is not a setting of an arena: there is cost=N");
    arena.cost = reader.number(cost.substr(5), "an arena's cost");
    if (arena.cost >> 62 != 0) reader.refuse("an arena's cost is 2^62 or more");
  }
  auto& arenas = constraints_.arenas;
  if (std::any_of(arenas.begin(), arenas.end(), [&](const ArenaChoice& one) { return one.name == name; }))
    reader.refuse("arena " + quoted_word(name) + " is named a second time");
  if (forbidden_ != 0) reader.refuse("arenas must stand before what is forbidden in them");
  if (arenas.size() == kMaxArenas) reader.refuse("there are more than 64 arenas");
  arenas.push_back(std::move(arena));
}

void SaidLines::forbid(std::string_view value, const CsvReader& reader) {
  const std::size_t last = value.rfind(':');
  if (last == std::string_view::npos)
    reader.refuse(quoted_word(value) + " is not a range: give BEGIN:END or ARENA:BEGIN:END");
  const std::size_t first = last == 0 ? std::string_view::npos : value.rfind(':', last - 1);
  const bool named = first != std::string_view::npos;
  const std::string_view from = named ? value.substr(first + 1, last - first - 1) : value.substr(0, last);
  const Offset begin = said_bytes(trim(from), "a forbidden range's begin", reader);
  const Offset end = said_bytes(trim(value.substr(last + 1)), "a forbidden range's end", reader);
  if (begin >= end) reader.refuse("the forbidden range " + quoted_word(value) + " is empty or inverted");
  if (++forbidden_ > kMaxForbidden) reader.refuse("there are more than 4096 forbidden ranges");
  auto& arenas = constraints_.arenas;
  if (arenas.empty()) arenas.emplace_back();
  if (!named && arenas.size() > 1)
    reader.refuse("a forbidden range is of one arena: say which of the several");
  const std::string_view name = named ? trim(value.substr(0, first)) : std::string_view(arenas.front().name);
  const auto at =
      std::find_if(arenas.begin(), arenas.end(), [&](const ArenaChoice& one) { return one.name == name; });
  if (at == arenas.end() || (named && name.empty()))
    reader.refuse("a range is forbidden in " + quoted_word(name) +
                  ", which is not an arena of the lines before");
  at->forbidden.push_back({begin, end - begin});
}

void SaidLines::banks(std::string_view value, const CsvReader& reader) {
  const std::size_t colon = value.find(':');
  if (colon == std::string_view::npos)
    reader.refuse("banks " + quoted_word(value) + ": give their number and their width, 8:4KiB");
  const Size count = reader.number(trim(value.substr(0, colon)), "the number of banks");
  const Size width = said_bytes(trim(value.substr(colon + 1)), "a bank's width", reader);
  if (count < 2 || width < 1 || count >= kMaxConstrainedBytes)
    reader.refuse("banks " + quoted_word(value) + ": there must be 2 or more, of 1 byte or more each");
  constraints_.banks = {count, width};
}

}  // namespace memoir

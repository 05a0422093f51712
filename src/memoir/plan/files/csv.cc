// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/csv.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/base/whole_file.h"
#include "memoir/plan/files/csv_said.h"
#include "memoir/plan/files/csv_text.h"

namespace memoir {
namespace {

enum Column : size_t {
  kId,
  kLower,
  kUpper,
  kSize,
  kSizeLow,
  kAlignment,
  kGaps,
  kFixed,
  kHint,
  kAlias,
  kAfter,
  kInPlace,
  kApart,
  kArenas,
  kWeight,
  kIdle,
  kRecompute,
  kLoop,
  kConflicts,
  kOldOffset,
  kOldArena,
  kClass,
  kPrice,
  kOffset,
  kArena,
  kColumns
};
constexpr std::array<std::string_view, kColumns> kNames = {
    "id",        "lower",      "upper",     "size",  "size_low", "alignment", "gaps", "fixed",     "hint",
    "alias",     "after",      "in_place",  "apart", "arenas",   "weight",    "idle", "recompute", "loop",
    "conflicts", "old_offset", "old_arena", "class", "price",    "offset",    "arena"};
constexpr std::string_view kKnown =
    "id, lower, upper (or end, inclusive), size; alignment, gaps, size_low, fixed, hint, alias, after, "
    "in_place, apart, "
    "arenas, weight, idle, recompute, loop, conflicts, old_offset, old_arena, class, price, offset, arena";

constexpr std::size_t kMostPrices = 10'000'000;  // pairs: 160 MB

class Parser {
 public:
  explicit Parser(CsvProblem& csv) : csv_(csv), reader_(csv.text, csv.name) {}

  void parse() {
    SaidLines said(csv_.constraints, csv_.bandwidth);
    std::string_view line;
    do {
      if (!reader_.next_line(line))
        throw Error(csv_.name + ": is empty; the first line must name the columns: " + std::string(kKnown));
      if (is_said(line)) said.take(line, reader_);
    } while (is_said(line));
    split(line, fields_);
    read_header();
    while (reader_.next(fields_)) read_row();
    resolve();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { reader_.refuse(what); }

  void read_header() {
    positions_.fill(kAbsent);
    for (size_t position = 0; position < fields_.size(); ++position) {
      std::string_view name = fields_[position];
      if (name == "buffer" || name == "buffer_id") name = "id";
      if (name == "start" || name == "begin") name = "lower";
      if (name == "size_high") name = "size";
      if (name == "end") {
        name = "upper";
        inclusive_ = true;
      }
      const auto column = static_cast<size_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
      if (column == kColumns) {
        refuse("unknown column '" + std::string(name) + "'; there are " + std::string(kKnown));
      }
      if (positions_[column] != kAbsent) refuse("two columns give '" + std::string(name) + "'");
      positions_[column] = position;
    }
    csv_.inclusive = inclusive_;
    count_ = fields_.size();
    csv_.constraints.timed = has(kLower) || has(kUpper);
    for (const Column column : {kId, kLower, kUpper, kSize}) {
      if (!has(column) && (csv_.constraints.timed || column == kId || column == kSize)) {
        refuse("no column '" + std::string(kNames[column]) + "'; there must be " + std::string(kKnown));
      }
    }
  }

  bool has(Column column) const { return positions_[column] != kAbsent; }
  std::string_view field(Column column) const { return fields_[positions_[column]]; }

  std::uint64_t number(std::string_view text, std::string_view what) const {
    return reader_.number(text, what);
  }
  std::uint64_t number(Column column) const { return number(field(column), kNames[column]); }
  /// Or `none` where it is empty, or -1, which minimalloc writes for none.
  std::uint64_t number_or(Column column, std::uint64_t none) const {
    return field(column).empty() || field(column) == "-1" ? none : number(column);
  }

  Tick end_tick(std::string_view text, std::string_view what) const {
    const Tick tick = number(text, what);
    if (inclusive_ && tick == ~Tick{0})
      refuse(std::string(what) + " is the last tick of 64 bits, with none after it");
    return tick + (inclusive_ ? 1 : 0);
  }

  void read_row() {
    if (fields_.size() != count_) {
      refuse("has " + std::to_string(fields_.size()) + " fields; the header has " + std::to_string(count_) +
             " columns");
    }
    const Lifetime always{0, 1};
    Buffer buffer{has(kLower)
                      ? Lifetime{number(kLower), end_tick(field(kUpper), inclusive_ ? "end" : "upper")}
                      : always,
                  number(kSize), has(kAlignment) && !field(kAlignment).empty() ? number(kAlignment) : 1};
    if (buffer.lifetime.begin >= buffer.lifetime.end) {
      refuse("the lifetime [" + std::to_string(buffer.lifetime.begin) + ", " +
             std::to_string(buffer.lifetime.end) + ") is " +
             (buffer.lifetime.begin == buffer.lifetime.end ? "empty" : "inverted") +
             ": it must end after it begins");
    }
    if (buffer.alignment == 0) refuse("the alignment is 0: it must be at least 1");
    if (__builtin_add_overflow(total_, buffer.size, &total_) ||
        __builtin_add_overflow(total_, buffer.alignment - 1, &total_) || total_ >> 63 != 0) {
      refuse("a size of " + std::to_string(buffer.size) +
             " bytes brings the sum of all sizes to 2^63 bytes or more");
    }
    const std::string_view id = field(kId);
    if (id.empty()) refuse("id is missing");
    const auto [earlier, fresh] = rows_.emplace(std::string(id), csv_.ids.size());
    if (!fresh)
      refuse("id '" + std::string(id) + "' is used twice; first in line " +
             std::to_string(csv_.lines[earlier->second]));

    csv_.problem.push_back(buffer);
    csv_.ids.emplace_back(id);
    csv_.lines.push_back(static_cast<std::uint32_t>(reader_.line()));
    Constraints& said = csv_.constraints;
    if (has(kGaps)) {
      said.gaps.push_back(read_gaps(field(kGaps), buffer));
      if (!said.timed && !said.gaps.back().empty()) refuse("has gaps, but there are no times");
    }
    if (has(kSizeLow)) said.low_sizes.push_back(number_or(kSizeLow, buffer.size));
    if (has(kFixed)) said.fixed.push_back(number_or(kFixed, kNoOffset));
    if (has(kHint)) said.hints.push_back(number_or(kHint, kNoOffset));
    if (has(kWeight)) said.weights.push_back(number_or(kWeight, buffer.size));
    if (has(kIdle)) read_idle(buffer);
    if (has(kLoop)) {
      const auto number = static_cast<std::uint32_t>(loops_.size());
      said.loops.push_back(
          field(kLoop).empty() ? kNoBuffer : loops_.emplace(std::string(field(kLoop)), number).first->second);
    }
    if (has(kRecompute)) {
      csv_.recompute.push_back(field(kRecompute).empty() ? std::nullopt : std::optional(number(kRecompute)));
    }
    if (has(kOffset)) {
      csv_.offsets.push_back(field(kOffset).empty() ? std::nullopt : std::optional(number(kOffset)));
    }
    if (has(kArena)) csv_.arenas.emplace_back(field(kArena));
    if (has(kOldOffset)) said.old.push_back(old_place());
    if (has(kArenas)) {
      const Fields names = words(field(kArenas));
      csv_.arena_names.emplace_back(names.begin(), names.end());
    }
    for (const Column column : {kAlias, kAfter, kInPlace, kApart, kConflicts, kClass, kPrice}) {
      if (has(column)) references_[column].push_back(field(column));
    }
  }

  /// The rows that others name: they may come later.
  void resolve() {
    Constraints& said = csv_.constraints;
    const auto row = [&](std::size_t from, Column column, std::string_view id) {
      const auto at = rows_.find(std::string(id));
      if (at == rows_.end()) {
        reader_.refuse(csv_.lines[from], std::string(kNames[column]) + " is '" +
                                             std::string(id.substr(0, 40)) +
                                             "', which is not the ID of a buffer");
      }
      return static_cast<std::uint32_t>(at->second);
    };
    const auto singles = [&](Column column, std::vector<std::uint32_t>& out) {
      for (std::size_t i = 0; i < references_[column].size(); ++i) {
        const std::string_view id = references_[column][i];
        out.push_back(id.empty() ? kNoBuffer : row(i, column, id));
      }
    };
    singles(kAlias, said.alias);
    singles(kAfter, said.after);
    const auto pairs = [&](Column column, std::vector<Constraints::Pair>& out) {
      for (std::uint32_t i = 0; i < references_[column].size(); ++i) {
        for (const std::string_view id : words(references_[column][i]))
          out.emplace_back(i, row(i, column, id));
      }
    };
    pairs(kInPlace, said.in_place);
    pairs(kApart, said.apart);
    pairs(kConflicts, said.conflicts);
    for (const auto& [a, b] : said.conflicts) {
      if (a == b) reader_.refuse(csv_.lines[a], "conflicts with itself");
    }
    resolve_prices(row);
    const auto drop = [](auto& list, auto none) {  // a column that says nothing
      if (std::all_of(list.begin(), list.end(), [&](const auto& value) { return value == none; }))
        list.clear();
    };
    drop(said.gaps, std::vector<Gap>{});
    drop(said.fixed, kNoOffset);
    drop(said.hints, kNoOffset);
    drop(said.alias, kNoBuffer);
    drop(said.after, kNoBuffer);
    drop(said.loops, kNoBuffer);
    drop(said.old, OldPlace{});
    if (said.moves && said.old.empty())
      throw Error(csv_.name + ": moves needs the column old_offset, the earlier plan that may change");
  }

  /// Empty: the buffer is new.
  OldPlace old_place() const {
    OldPlace place;
    if (field(kOldOffset).empty()) return place;
    place.offset = number(kOldOffset);
    if (place.offset >= kMaxConstrainedBytes) refuse("old_offset is 2^60 or more");
    const std::vector<ArenaChoice>& arenas = csv_.constraints.arenas;
    if (!has(kOldArena) || arenas.size() < 2) return place;
    const auto at = std::find_if(arenas.begin(), arenas.end(),
                                 [&](const auto& arena) { return arena.name == field(kOldArena); });
    if (at == arenas.end()) {
      refuse("old_arena is '" + std::string(field(kOldArena).substr(0, 40)) +
             "', which is not an arena of the lines before the columns");
    }
    place.arena = static_cast<std::uint32_t>(at - arenas.begin());
    return place;
  }

  /// A price names a buffer, or with an @ all others of a class.
  template <class Row>
  void resolve_prices(const Row& row) {
    std::unordered_map<std::string_view, std::vector<std::uint32_t>> members;
    for (std::uint32_t i = 0; i < references_[kClass].size(); ++i) {
      if (!references_[kClass][i].empty()) members[references_[kClass][i]].push_back(i);
    }
    for (std::uint32_t i = 0; i < references_[kPrice].size(); ++i) {
      for (const std::string_view word : words(references_[kPrice][i])) {
        const auto refuse = [&](const std::string& what) {
          reader_.refuse(csv_.lines[i], "price '" + std::string(word.substr(0, 60)) + "' " + what);
        };
        const std::size_t at = word.rfind(':');
        if (at == std::string_view::npos) refuse("is not id:bytes or @class:bytes");
        const std::string_view name = word.substr(0, at);
        const std::uint64_t price = number(word.substr(at + 1), "a price");
        if (!name.starts_with('@')) {
          csv_.constraints.prices.push_back({i, row(i, kPrice, name), price});
          continue;
        }
        const auto found = members.find(name.substr(1));
        if (found == members.end()) refuse("names a class that no buffer has");
        for (const std::uint32_t j : found->second) {
          if (j != i) csv_.constraints.prices.push_back({i, j, price});
          if (csv_.constraints.prices.size() > kMostPrices)
            refuse("brings the number of priced pairs above " + std::to_string(kMostPrices));
        }
      }
    }
  }

  void read_idle(const Buffer& buffer) {
    std::vector<Lifetime>& idle = csv_.idle.emplace_back();
    for (const Gap& gap : read_gaps(field(kIdle), buffer)) {
      if (gap.window) refuse("idle has a window: a buffer is recomputed or fetched as a whole");
      idle.push_back(gap.lifetime);
    }
    if (!csv_.constraints.timed && !idle.empty()) refuse("is idle, but there are no times");
  }

  std::vector<Gap> read_gaps(std::string_view text, const Buffer& buffer) const {
    std::vector<Gap> gaps;
    for (const std::string_view word : words(text)) gaps.push_back(read_gap(word, buffer));
    std::sort(gaps.begin(), gaps.end(),
              [](const Gap& a, const Gap& b) { return a.lifetime.begin < b.lifetime.begin; });
    for (size_t i = 1; i < gaps.size(); ++i) {
      if (gaps[i].lifetime.begin < gaps[i - 1].lifetime.end) {
        refuse("two gaps overlap at " + std::to_string(gaps[i].lifetime.begin));
      }
    }
    return gaps;
  }

  Gap read_gap(std::string_view text, const Buffer& buffer) const {
    const auto shown = [&] { return "gap '" + std::string(text.substr(0, 60)) + "' "; };
    const auto pair = [&](std::string_view part, char separator) {
      const size_t at = part.find(separator);
      if (at == std::string_view::npos) refuse(shown() + "is not lower-upper or lower-upper@begin:end");
      return std::pair(part.substr(0, at), part.substr(at + 1));
    };
    const size_t at = text.find('@');
    const auto [lower, upper] = pair(text.substr(0, at), '-');
    Gap gap{{number(lower, "a gap's lower"), end_tick(upper, "a gap's upper")}, std::nullopt};
    if (gap.lifetime.begin >= gap.lifetime.end) refuse(shown() + "is empty or inverted");
    if (gap.lifetime.begin < buffer.lifetime.begin || gap.lifetime.end > buffer.lifetime.end) {
      refuse(shown() + "leaves the lifetime [" + std::to_string(buffer.lifetime.begin) + ", " +
             std::to_string(buffer.lifetime.end) + ")");
    }
    if (at != std::string_view::npos) {
      const auto [first, last] = pair(text.substr(at + 1), ':');
      const Offset begin = number(first, "a window's begin"), end = number(last, "a window's end");
      if (begin >= end || end > buffer.size) {
        refuse(shown() + "has a window that is not within the size of " + std::to_string(buffer.size) +
               " bytes");
      }
      gap.window = Range{begin, end - begin};
    }
    return gap;
  }

  static constexpr size_t kAbsent = ~size_t{0};

  CsvProblem& csv_;
  CsvReader reader_;
  Fields fields_;
  std::array<size_t, kColumns> positions_{};
  size_t count_ = 0;  // columns in the header
  bool inclusive_ = false;
  Size total_ = 0;
  std::unordered_map<std::string, size_t> rows_;                    // the buffer of each id
  std::unordered_map<std::string, std::uint32_t> loops_;            // by what was said
  std::array<std::vector<std::string_view>, kColumns> references_;  // to other rows, one per buffer
};

}  // namespace

bool CsvProblem::has_gaps() const noexcept { return !constraints.gaps.empty(); }

bool CsvProblem::has_constraints() const noexcept {
  return !constraints.none() || std::any_of(arena_names.begin(), arena_names.end(),
                                            [](const auto& names) { return !names.empty(); });
}

CsvProblem parse_csv(std::string text, const std::string& name) {
  CsvProblem csv;
  csv.text = std::move(text);
  csv.name = name;
  Parser(csv).parse();
  return csv;
}

CsvProblem read_csv(const std::string& path) { return parse_csv(read_whole_file(path), path); }

ConstrainedProblem to_constrained(const CsvProblem& csv, const std::vector<ArenaChoice>& given) {
  ConstrainedProblem problem{csv.problem, csv.constraints, csv.name, csv.lines};
  if (!given.empty()) problem.constraints.arenas = given;
  const std::vector<ArenaChoice>& arenas = problem.constraints.arenas;
  bool any = false;
  std::vector<std::uint64_t> allowed;
  for (std::size_t i = 0; i < csv.arena_names.size(); ++i) {
    std::uint64_t mask = csv.arena_names[i].empty() ? ~std::uint64_t{0} : 0;
    for (const std::string& name : csv.arena_names[i]) {
      const auto at =
          std::find_if(arenas.begin(), arenas.end(), [&](const auto& arena) { return arena.name == name; });
      if (at == arenas.end()) {
        throw Error(problem.refusal(
            i, "arenas names '" + name.substr(0, 40) + "', which is not an arena that was given"));
      }
      mask |= std::uint64_t{1} << (at - arenas.begin());
    }
    any |= !csv.arena_names[i].empty();
    allowed.push_back(mask);
  }
  if (any) problem.constraints.allowed = std::move(allowed);
  return problem;
}

namespace {

/// The text with one more column, or with that column's fields replaced.
template <class Value>
std::string with_column(std::string_view text, std::string_view name, const Value& value) {
  std::string output;
  output.reserve(text.size() + text.size() / 4);
  std::string_view rest = without_mark(text);
  Fields fields;
  bool header = true;
  size_t column = ~size_t{0}, row = 0;
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    if (trim(line).empty()) continue;
    if (header && is_said(line)) {
      output.append(line) += '\n';
      continue;
    }
    const std::string added = header ? std::string(name) : value(row++);
    split(line, fields);
    if (header) {
      column = static_cast<size_t>(std::find(fields.begin(), fields.end(), name) - fields.begin());
      header = false;
    }
    if (column == fields.size()) {
      output.append(line).append(",").append(added);
    } else {
      for (size_t i = 0; i < fields.size(); ++i) {
        output.append(i == 0 ? "" : ",").append(i == column ? std::string_view(added) : fields[i]);
      }
    }
    output += '\n';
  }
  return output;
}

}  // namespace

std::string write_csv(const CsvProblem& csv, const Plan& plan) {
  return with_column(csv.text, "offset", [&](size_t row) { return std::to_string(plan.offsets[row]); });
}

std::string write_csv(const CsvProblem& csv, const ConstrainedPlan& plan,
                      const std::vector<ArenaChoice>& arenas) {
  std::string text = write_csv(csv, Plan{plan.offsets, 0});
  if (arenas.size() < 2) return text;
  return with_column(text, "arena", [&](size_t row) { return arenas[plan.arenas[row]].name; });
}

std::string write_column(const std::string& text, const std::string& name,
                         const std::vector<std::string>& values) {
  size_t rows = 0;
  std::string out = with_column(text, name, [&](size_t row) {
    ++rows;
    return row < values.size() ? values[row] : std::string();
  });
  if (rows != values.size()) {
    throw Error("there are " + std::to_string(values.size()) + " values of " + name + " for " +
                std::to_string(rows) + " rows");
  }
  return out;
}

std::string write_csv(const Problem& problem, const std::vector<std::string>& ids, const Plan* plan) {
  std::string output = "id,lower,upper,size,alignment";
  output += plan != nullptr ? ",offset\n" : "\n";
  for (size_t i = 0; i < problem.size(); ++i) {
    const auto& [lifetime, size, alignment] = problem[i];
    output.append(ids[i]);
    for (const std::uint64_t value : {lifetime.begin, lifetime.end, size, alignment}) {
      output.append(",").append(std::to_string(value));
    }
    if (plan != nullptr) output.append(",").append(std::to_string(plan->offsets[i]));
    output += '\n';
  }
  return output;
}

}  // namespace memoir

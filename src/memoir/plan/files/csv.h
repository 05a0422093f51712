// SPDX-License-Identifier: Apache-2.0
//
// Problems and plans as CSV, in the format that minimalloc reads and writes (docs/reference/formats-plan.md
// has every detail):
//
//   id,lower,upper,size,alignment,gaps,offset
//   b1,0,3,4,1,,8                     lives in [0, 3)
//   b2,3,9,4,2,4-5 6-8@0:2,0          not live in [4, 5); in [6, 8) only its bytes [0, 2) are
//
// Columns come in any order; all but id, lower, upper and size may be left out, and lower and upper may be
// left out together (then only the column `conflicts` counts). Lines that begin with # before the columns say
// what is of the whole problem (csv_said.h). A column named `end` instead of `upper` is
// inclusive, and so are the ends of the gaps then. What each column says: docs/reference/constraints.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memoir/plan/constrained/constraints.h"

namespace memoir {

struct CsvProblem {
  Problem problem;          // without times, every buffer lives in [0, 1)
  Constraints constraints;  // what the lines and columns say, but for where a buffer may be: to_constrained()
  std::vector<std::string> ids;                       // one per buffer, all different
  std::vector<std::optional<Offset>> offsets;         // or empty without the column
  std::vector<std::string> arenas;                    // the plan's, or empty without the column
  std::vector<std::vector<std::string>> arena_names;  // where a buffer may be; or empty without the column
  // When a buffer is not touched, so that its bytes could be let go and had again later; or empty
  std::vector<std::vector<Lifetime>> idle;
  std::vector<std::optional<std::uint64_t>> recompute;  // what that costs each time; nullopt: it cannot be
  std::optional<Size> bandwidth;     // bytes per tick to other memory and back, for those that are idle
  bool inclusive = false;            // the column of the ends is `end`, and gaps end so too
  std::vector<std::uint32_t> lines;  // of each buffer, for errors
  std::string name;                  // of the file
  std::string text;                  // the file as it was, from which write_csv() makes its output

  bool has_gaps() const noexcept;
  /// Something is said beyond what a plain problem can.
  bool has_constraints() const noexcept;
};

/// Throws Error, naming file and line: a column that is missing, double or unknown; a field that is missing,
/// too much, no number, negative or beyond 64 bits; a lifetime that is empty or inverted; an alignment
/// of 0; an id used twice, or named by another row and not there; gaps that leave the lifetime, overlap, or
/// have a window outside the size; sizes that add up to 2^63 bytes or more. The rest is validate()'s.
CsvProblem parse_csv(std::string text, const std::string& name);
/// The same of a file; throws Error when it cannot be read.
CsvProblem read_csv(const std::string& path);

/// Its problem with all that it says. The arenas that a buffer may be in are looked up among its own, or in
/// `given` instead. Throws Error, naming file and line, for a name that is none of them.
ConstrainedProblem to_constrained(const CsvProblem& csv, const std::vector<ArenaChoice>& given = {});

/// The input with the plan's offsets: its columns in their order, then `offset` unless it had one, which is
/// replaced; with several arenas the same for `arena`, by name.
std::string write_csv(const CsvProblem& csv, const Plan& plan);
std::string write_csv(const CsvProblem& csv, const ConstrainedPlan& plan,
                      const std::vector<ArenaChoice>& arenas);

/// CSV with that column added, or replaced where it is there: one value per row, which must hold no comma,
/// quote or newline. Throws Error when there is another number of rows.
std::string write_column(const std::string& text, const std::string& name,
                         const std::vector<std::string>& values);

/// A problem that was not read from a file, as CSV with the columns id, lower, upper, size, alignment and,
/// when there is a plan, offset. `ids` are written as they are and must hold no comma, quote or newline.
std::string write_csv(const Problem& problem, const std::vector<std::string>& ids, const Plan* plan);

}  // namespace memoir

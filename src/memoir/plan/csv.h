// SPDX-License-Identifier: Apache-2.0
//
// Problems and plans as CSV, in the format that minimalloc reads and writes (docs/formats-plan.md has every
// detail):
//
//   id,lower,upper,size,alignment,gaps,offset
//   b1,0,3,4,1,,8                     lives in [0, 3)
//   b2,3,9,4,2,4-5 6-8@0:2,0          not live in [4, 5); in [6, 8) only its bytes [0, 2) are
//
// Columns come in any order; `alignment`, `gaps`, `hint` and `offset` may be left out. A column named `end`
// instead of `upper` is inclusive, and so are the ends of the gaps then.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

/// A time within a buffer's lifetime in which none of it is needed, or with a window only those of its bytes.
struct Gap {
  Lifetime lifetime;            // within the buffer's own, half-open
  std::optional<Range> window;  // bytes counted from the buffer's offset, within its size

  bool operator==(const Gap&) const = default;
};

struct CsvProblem {
  Problem problem;
  std::vector<std::string> ids;                // one per buffer, all different
  std::vector<std::vector<Gap>> gaps;          // one list per buffer, by time; or empty without the column
  std::vector<Offset> hints;                   // or kNoOffset; or empty without the column
  std::vector<std::optional<Offset>> offsets;  // or empty without the column
  std::string text;                            // the file as it was, from which write_csv() makes its output

  bool has_gaps() const noexcept;
};

/// Throws Error, naming file and line: a column that is missing, double or unknown; a field that is missing,
/// too much, no number, negative or beyond 64 bits; a lifetime that is empty or inverted; a size or alignment
/// of 0; an id used twice; gaps that leave the lifetime, overlap, or have a window outside the size; sizes
/// that add up to 2^63 bytes or more.
CsvProblem parse_csv(std::string text, const std::string& name);
/// The same of a file; throws Error when it cannot be read.
CsvProblem read_csv(const std::string& path);

/// The input with the plan's offsets: its columns in their order, then `offset` unless it had one, which is
/// replaced.
std::string write_csv(const CsvProblem& csv, const Plan& plan);

/// A problem that was not read from a file, as CSV with the columns id, lower, upper, size, alignment and,
/// when there is a plan, offset. `ids` are written as they are and must hold no comma, quote or newline.
std::string write_csv(const Problem& problem, const std::vector<std::string>& ids, const Plan* plan);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// What a problem says as a whole stands in lines before its columns (docs/reference/constraints.md):
//
//   # arena sram=64KiB,cost=1     several arenas, each with its limit and the cost of what lies there
//   # arena dram,cost=20
//   # forbid sram:0:4KiB          bytes that no buffer may touch
//   # banks 8:4KiB                COUNT:WIDTH
//   # moves 3                     with the column old_offset: how many buffers may lie elsewhere
//   # locality
//   # bandwidth 64                bytes per tick to other memory, and back
//   id,lower,upper,size
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "memoir/plan/constrained/constraints.h"
#include "memoir/plan/files/csv_text.h"

namespace memoir {

/// Whether the line is one of these. Only before the columns: a row of buffers may begin so too.
bool is_said(std::string_view line);

/// Takes such lines one after another. Not thread-safe.
class SaidLines {
 public:
  SaidLines(Constraints& constraints, std::optional<Size>& bandwidth)
      : constraints_(constraints), bandwidth_(bandwidth) {}

  /// Throws Error through `reader`, naming file and line: a word that is unknown or said twice, an arena that
  /// is named twice or not there, more than kMaxArenas arenas or kMaxForbidden ranges, a range that is empty,
  /// bytes that are none or kMaxConstrainedBytes and more.
  void take(std::string_view line, const CsvReader& reader);

  static constexpr std::size_t kMaxForbidden = 4096;  // each is looked at for every buffer

 private:
  void arena(std::string_view value, const CsvReader& reader);
  void forbid(std::string_view value, const CsvReader& reader);
  void banks(std::string_view value, const CsvReader& reader);

  Constraints& constraints_;
  std::optional<Size>& bandwidth_;
  std::size_t forbidden_ = 0;
};

}  // namespace memoir

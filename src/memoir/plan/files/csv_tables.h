// SPDX-License-Identifier: Apache-2.0
//
// Files next to a problem's CSV that name its buffers by their ids.
#pragma once

#include <string>
#include <vector>

#include "memoir/plan/constrained/constraints.h"

namespace memoir {

/// Two columns `a,b`: each row two buffers that conflict. Throws Error, naming file and line: other columns,
/// an id that is not one of `ids`, a buffer that conflicts with itself.
std::vector<Constraints::Pair> parse_conflicts(const std::string& text, const std::string& name,
                                               const std::vector<std::string>& ids);
std::vector<Constraints::Pair> read_conflicts(const std::string& path, const std::vector<std::string>& ids);

/// Of an earlier plan the columns `id`, `offset` and perhaps `arena`; others are skipped. One entry per id of
/// `ids`; those that it does not know are new, and what it knows besides is gone. Throws Error, naming file
/// and line: a column that is missing, no number, an arena that is none of `arenas`.
std::vector<OldPlace> parse_old_plan(const std::string& text, const std::string& name,
                                     const std::vector<std::string>& ids,
                                     const std::vector<ArenaChoice>& arenas);
std::vector<OldPlace> read_old_plan(const std::string& path, const std::vector<std::string>& ids,
                                    const std::vector<ArenaChoice>& arenas);

}  // namespace memoir

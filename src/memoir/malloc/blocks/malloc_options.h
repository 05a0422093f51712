// SPDX-License-Identifier: Apache-2.0
//
// The settings of memoir's malloc, MEMOIR_MALLOC="key=value,...". Read once, before the first block is handed
// out, by a reader that neither throws nor calls malloc; what it cannot read it reports in one line and
// leaves as it was.
#pragma once

#include <tuple>

#include "memoir/base/option.h"
#include "memoir/heap/lifetime/lifetime_options.h"
#include "memoir/malloc/blocks/checked.h"

namespace memoir::malloc_ {

/// A path without a comma; "" or "none": none.
struct PathText {
  char text[1024] = "";
};

struct MallocOptions : LifetimeOptions {
  bool background = true;
  double huge_cost = 0.05;
  Size limit = ~Size{0};
  PathText model;
  bool all_calls = false;
  bool stats = false;
  bool secure = kChecked;
  bool help = false;

  static constexpr auto fields() {
    using Options = MallocOptions;
    return std::tuple_cat(
        LifetimeOptions::fields(),
        std::tuple{
            OptionField{
                "background", &Options::background, Unit::kFlag,
                "give memory back and restore huge pages on a thread of its own, not on the program's"},
            OptionField{"huge_cost", &Options::huge_cost, Unit::kShare,
                        "most of the program's CPU time to spend on huge pages, beyond twice what small "
                        "ones cost"},
            OptionField{"limit", &Options::limit, Unit::kBytes,
                        "memory that the program should not exceed; the system's limits hold as well"},
            OptionField{"model", &Options::model, Unit::kText,
                        "model file of memoir train that predicts how long objects live; needs `background`"},
            OptionField{
                "all_calls", &Options::all_calls, Unit::kFlag,
                "the program's filter of system calls, if one is set at the start, allows all of memoir's"},
            OptionField{"stats", &Options::stats, Unit::kFlag, "print figures to standard error at exit"},
            OptionField{"secure", &Options::secure, Unit::kFlag,
                        "load the checked library, which ends a program that misuses the heap"},
            OptionField{"help", &Options::help, Unit::kFlag, "print these settings to standard error"},
        });
  }
};

/// The environment, for a malloc that is called before the C library has set `environ`.
inline constinit char** environment_before_libc = nullptr;

/// Reads the environment's MEMOIR_MALLOC; nothing of it in a program that runs with more rights than who
/// started it has (setuid, file capabilities). Complaints go to standard error.
MallocOptions read_malloc_options() noexcept;
/// A line for each setting, "name\tunit\tinitial value\thelp\n", into `out`; returns the length without the
/// final zero.
size_t describe_malloc_options(char* out, size_t room) noexcept;

}  // namespace memoir::malloc_

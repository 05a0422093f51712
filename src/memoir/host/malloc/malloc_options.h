// SPDX-License-Identifier: Apache-2.0
//
// The settings of memoir's malloc, MEMOIR_MALLOC="key=value,...". Read once, before the first block is handed
// out, by a reader that neither throws nor calls malloc; what it cannot read it reports in one line and
// leaves as it was.
#pragma once

#include <tuple>

#include "memoir/base/option.h"

namespace memoir::host_malloc {

struct MallocOptions {
  bool split = true;
  double tau = 2;
  Size sample = 128 * kKiB;
  Size split_from = 16 * kMiB;
  bool background = true;
  Size background_from = 16 * kMiB;
  bool release = true;
  double slack = 0.02;
  bool huge = true;
  Size cache = 64 * kMiB;
  bool stats = false;
  bool help = false;

  static constexpr auto fields() {
    using Options = MallocOptions;
    return std::tuple{
        OptionField{"split", &Options::split, Unit::kFlag,
                    "keep short-lived and long-lived objects in regions of their own"},
        OptionField{"tau", &Options::tau, Unit::kShare,
                    "an object is long-lived when it outlives the allocation of this many times the heap"},
        OptionField{"sample", &Options::sample, Unit::kBytes,
                    "allocated between two samples of lifetimes, at least"},
        OptionField{"split_from", &Options::split_from, Unit::kBytes, "smaller heaps are in one class"},
        OptionField{"background", &Options::background, Unit::kFlag,
                    "a thread that gives memory back and restores huge pages"},
        OptionField{"background_from", &Options::background_from, Unit::kBytes,
                    "smaller heaps have no such thread"},
        OptionField{"release", &Options::release, Unit::kFlag,
                    "give pages without objects back to the system"},
        OptionField{"slack", &Options::slack, Unit::kShare,
                    "of the heap that is kept ready for demand, never given back"},
        OptionField{"huge", &Options::huge, Unit::kFlag, "ask for huge pages where the heap is dense"},
        OptionField{"cache", &Options::cache, Unit::kBytes,
                    "of freed blocks above 512KiB kept ready, at most"},
        OptionField{"stats", &Options::stats, Unit::kFlag, "print figures to standard error at exit"},
        OptionField{"help", &Options::help, Unit::kFlag, "print these settings to standard error"},
    };
  }
};

/// Reads the environment's MEMOIR_MALLOC. Complaints go to standard error.
MallocOptions read_malloc_options() noexcept;
/// A line for each setting, "name\tunit\tinitial value\thelp\n", into `out`; returns the length without the
/// final zero.
size_t describe_malloc_options(char* out, size_t room) noexcept;

}  // namespace memoir::host_malloc

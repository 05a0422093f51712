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
    return std::tuple{
        OptionField{"split", &MallocOptions::split,
                    "keep short-lived and long-lived objects in regions of their own"},
        OptionField{"tau", &MallocOptions::tau,
                    "an object is long-lived when it outlives the allocation of this many times the heap"},
        OptionField{"sample", &MallocOptions::sample,
                    "bytes allocated between two samples of lifetimes, at least"},
        OptionField{"split_from", &MallocOptions::split_from, "bytes: smaller heaps are in one class"},
        OptionField{"background", &MallocOptions::background,
                    "a thread that gives memory back and restores huge pages"},
        OptionField{"background_from", &MallocOptions::background_from,
                    "bytes: smaller heaps have no such thread"},
        OptionField{"release", &MallocOptions::release, "give pages without objects back to the system"},
        OptionField{"slack", &MallocOptions::slack,
                    "share of the heap that is kept ready for demand, never given back"},
        OptionField{"huge", &MallocOptions::huge, "ask for huge pages where the heap is dense"},
        OptionField{"cache", &MallocOptions::cache, "bytes of freed blocks above 512KiB kept ready, at most"},
        OptionField{"stats", &MallocOptions::stats, "print figures to standard error at exit"},
        OptionField{"help", &MallocOptions::help, "print these settings to standard error"},
    };
  }
};

/// Reads the environment's MEMOIR_MALLOC. Complaints go to standard error.
MallocOptions read_malloc_options() noexcept;
/// A line for each setting, "name\tkind\tinitial value\thelp\n", into `out`; returns the length without the
/// final zero.
size_t describe_malloc_options(char* out, size_t room) noexcept;

}  // namespace memoir::host_malloc

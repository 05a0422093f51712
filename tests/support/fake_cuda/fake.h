// SPDX-License-Identifier: Apache-2.0
//
// For C++ tests: the fake driver in the real one's place, and a device of the wanted size. A test ends with
// CHECK(misuses() == "").
#pragma once

#include <cstdlib>
#include <string>

#include "memoir/base/units.h"
#include "support/fake_cuda/fake_cuda.h"

namespace fake {

/// Before the first use of the driver in the process; later calls make fresh devices.
inline void fresh(memoir::Size capacity = 64 * memoir::kMiB, memoir::Size granularity = 2 * memoir::kMiB,
                  int devices = 1) {
  ::setenv("MEMOIR_CUDA_DRIVER", MEMOIR_FAKE_CUDA, 1);
  fake_reset(devices, capacity, granularity);
}

inline std::string misuses() {
  std::string all;
  for (int i = 0; i < fake_misuse_count(); ++i) all += fake_misuse(i) + std::string("\n");
  return all;
}

}  // namespace fake

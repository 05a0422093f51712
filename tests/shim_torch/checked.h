// SPDX-License-Identifier: Apache-2.0
//
// What every single-threaded test of the CPU shim checks at its end.
#pragma once

#include "doctest/doctest.h"
#include "shim_torch/program.h"

namespace memoir {

/// Every test begins with the shim in place, and ends with no tensor overwritten and no block lost.
struct Checked {
  Checked() { torch_shim::install(); }
  ~Checked() {
    CHECK(Tensor::mismatches() == mismatches);
    CHECK(fake_c10::live_blocks() == blocks);
    CHECK(fake_c10::callbacks().empty());
    CHECK_FALSE(torch_shim::in_pass());
  }
  const std::int64_t mismatches = Tensor::mismatches(), blocks = fake_c10::live_blocks();
};

inline bool repeated(const torch_shim::PassResult& result) { return result.in_step && result.at_end; }

}  // namespace memoir

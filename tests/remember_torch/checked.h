// SPDX-License-Identifier: Apache-2.0
//
// What every single-threaded test of the door to PyTorch checks at its end.
#pragma once

#include "doctest/doctest.h"
#include "remember_torch/program.h"

namespace memoir {

/// Every test begins with the door in place, and ends with no tensor overwritten and no block lost.
struct Checked {
  Checked() { torch_door::install(); }
  ~Checked() {
    CHECK(Tensor::mismatches() == mismatches);
    CHECK(fake_c10::live_blocks() == blocks);
    CHECK(fake_c10::callbacks().empty());
    CHECK_FALSE(torch_door::in_pass());
  }
  const std::int64_t mismatches = Tensor::mismatches(), blocks = fake_c10::live_blocks();
};

inline bool repeated(const torch_door::PassResult& result) { return result.in_step && result.at_end; }

}  // namespace memoir

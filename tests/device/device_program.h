// SPDX-License-Identifier: Apache-2.0
//
// A program that uses one device of the fake driver through a runtime, as PyTorch would.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "memoir/device/device_runtime.h"
#include "support/fake_cuda/fake.h"

namespace memoir::run {

inline cuda::Stream as_stream(void* stream) { return static_cast<cuda::Stream>(stream); }
inline std::uint64_t as_address(void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

struct Program {
  explicit Program(std::string_view policy = "span", DeviceRuntimeOptions options = {})
      : runtime(0, choose_policy(policy, Substrate::kDevice), std::move(options)) {}
  void* allocate(Size size, void* stream = nullptr, SiteId site = kNoSite) {
    return runtime.allocate(size, as_stream(stream), site, refusal);
  }
  bool free(void* pointer) { return runtime.free(pointer); }

  DeviceRuntime runtime;
  std::string refusal;
};

}  // namespace memoir::run

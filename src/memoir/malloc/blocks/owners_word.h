// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace memoir::malloc_ {

/// A number that its owner alone writes, without a lock. Others may read it at any time, and get the old
/// value or the new one.
template <class T>
class OwnersWord {
 public:
  operator T() const noexcept { return value_.load(std::memory_order_relaxed); }
  void operator=(T value) noexcept { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{};
};

}  // namespace memoir::malloc_

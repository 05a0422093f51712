// SPDX-License-Identifier: Apache-2.0
//
// A program that runs on memoir's door to PyTorch as memoir.torch.remember runs one: tensors that know what
// they hold, operators, and passes that record or follow.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memoir/remember/slab/slab_set.h"
#include "memoir/remember/torch/allocator.h"
#include "support/fake_c10/fake_c10.h"

namespace memoir {

/// Memory from the CPU allocator in place, filled with a number that no other tensor has. Its end reads the
/// bytes back: had they been handed out twice, or lost, mismatches() shows it.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(size_t bytes);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() { reset(); }

  void reset() noexcept;
  bool holds_its_bytes() const noexcept;
  /// A copy by the allocator, with the same contents.
  Tensor clone() const;

  void* data() const noexcept { return data_.get(); }
  size_t bytes() const noexcept { return bytes_; }
  /// In a slab or in SeparateMemory, not in PyTorch's allocator's.
  bool in_memoirs_memory() const noexcept;
  /// Of the CPU allocator that is in place.
  bool has_the_deleter_in_place() const {
    return data_.get_deleter() == c10::GetCPUAllocator()->raw_deleter();
  }

  /// Tensors whose bytes were not theirs any more. Thread-safe.
  static std::int64_t mismatches() noexcept;

 private:
  c10::DataPtr data_;
  size_t bytes_ = 0;
  std::uint64_t number_ = 0;
};

/// An operator scope.
using Op = at::RecordFunction;

using Layout = std::shared_ptr<const PlannedLayout>;

/// Runs `body` as one recorded pass and plans it with the quick planners. An exception ends the pass and is
/// passed on.
Layout record(const std::function<void()>& body, bool large_apart = false);

/// Runs `body` as one pass that follows `layout` in one of the slabs. False when there is no slab; `body`
/// then runs without. An exception ends the pass and is passed on; `result` is set in any case.
bool follow(SlabSet& slabs, const Layout& layout, bool scoped, const std::function<void()>& body,
            torch_door::PassResult& result);

/// A small network: `layers` times a convolution with a workspace and an activation, a tensor of 0 bytes, and
/// the last activation as the result, which outlives the pass. `extra`: a layer after which one more operator
/// allocates, or -1.
Tensor network(int layers, int extra = -1);
/// How many allocations of network() are planned, when it is followed in step: all but the result.
constexpr std::uint64_t planned_in(int layers) { return 3 * static_cast<std::uint64_t>(layers); }

}  // namespace memoir

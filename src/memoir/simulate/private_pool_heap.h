// SPDX-License-Identifier: Apache-2.0
//
// A private pool of PyTorch's allocator as a heap of its own: every request is one that a program makes while
// a graph is captured into the pool, so that on a full device nothing is given back for it.
#pragma once

#include "memoir/heap/peers/pytorch/pytorch_pools.h"

namespace memoir {

class PrivatePoolHeap final : public Heap {
 public:
  /// `pools`, kept alive by the caller, has the pool already.
  PrivatePoolHeap(PyTorchPools& pools, PoolId pool) noexcept : pools_(&pools), pool_(pool) {}

  Offset allocate(const Request& request) noexcept override {
    if (!pools_->begin_allocate_to_pool(pool_)) return kNoOffset;
    const Offset offset = pools_->allocate(request);
    pools_->end_allocate_to_pool(pool_);
    pools_->release_pool(pool_);  // the use that began here
    return offset;
  }
  bool free(Offset offset) noexcept override { return pools_->free(offset); }
  Size size_of(Offset offset) const noexcept override { return pools_->size_of(offset); }
  /// Of all pools.
  Size live() const noexcept override { return pools_->live(); }

 private:
  PyTorchPools* pools_;
  PoolId pool_;
};

}  // namespace memoir

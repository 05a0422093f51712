// SPDX-License-Identifier: Apache-2.0
//
// A heap behind finalizers, for simulation: whoever replays a trace frees as ever, and the free reaches the
// heap when the model says so (simulate/finalizer_model.h). The model's clock counts operations.
#pragma once

#include <memory>
#include <unordered_map>

#include "memoir/heap/heap.h"
#include "memoir/simulate/finalizer_model.h"

namespace memoir {

class FinalizedHeap final : public Heap {
 public:
  /// `finalizers` is the collector that `inner` was made with, and is attached to nothing else.
  FinalizedHeap(std::unique_ptr<FinalizerModel> finalizers, std::unique_ptr<Heap> inner)
      : finalizers_(std::move(finalizers)), inner_(std::move(inner)) {
    finalizers_->attach(*inner_);
  }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override {
    return objects_.contains(offset) ? inner_->size_of(offset) : 0;
  }
  void trim() noexcept override { inner_->trim(); }
  Tick tick(Tick now) noexcept override { return inner_->tick(now); }
  /// Of objects that are not dead.
  Size live() const noexcept override { return live_; }

 private:
  struct Object {
    Size size;
    Tick born;
  };

  std::unique_ptr<FinalizerModel> finalizers_;
  std::unique_ptr<Heap> inner_;  // goes first: it knows the collector
  std::unordered_map<Offset, Object> objects_;
  Size live_ = 0;
  Tick clock_ = 0;  // operations
};

}  // namespace memoir

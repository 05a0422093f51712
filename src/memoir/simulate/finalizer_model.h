// SPDX-License-Identifier: Apache-2.0
//
// The finalizers of a language with a collector, for simulation: what a program drops is dead at once, and is
// freed only when the collector comes by, on its own some time later, or because a pool that ran out asked.
//
//   dropped at 10, delay 100   |------------------ dead ------------------| freed at 110, by advance()
//                              |--- dead ---| freed at once, by a collect()
//
// collect(false) frees what was young when it died, collect(true) all that is dead. Allocates with malloc: it
// belongs to simulations, not to a pool that serves a program. Not thread-safe.
#pragma once

#include <deque>
#include <tuple>

#include "memoir/base/option.h"
#include "memoir/heap/collector.h"
#include "memoir/heap/heap.h"

namespace memoir {

struct FinalizerOptions {
  Size delay = 1000;
  Size young = 10'000;

  static constexpr auto fields() {
    using Options = FinalizerOptions;
    return std::tuple{OptionField{"delay", &Options::delay, Unit::kOperations,
                                  "ticks between an object's death and its free"},
                      OptionField{"young", &Options::young, Unit::kOperations,
                                  "what lived longer is freed by a full collection only"}};
  }
};

class FinalizerModel final : public Collector {
 public:
  explicit FinalizerModel(const FinalizerOptions& options = {}) : options_(options) {}

  /// The heap that it frees in, which is made after it and outlives its use. Before that, nothing dies.
  void attach(Heap& heap) noexcept { heap_ = &heap; }

  /// Instead of heap.free(offset): the object that was allocated at `born` is dead from `now` on. Moments
  /// never go back.
  void died(Offset offset, Tick born, Tick now);
  /// Frees what has been dead for `delay` ticks or more at `now`.
  void advance(Tick now) noexcept;
  void collect(bool full) noexcept override;

  /// Objects that are dead and not freed.
  size_t waiting() const noexcept { return dead_.size(); }
  /// Calls of collect(false) and of collect(true).
  std::uint64_t young_collections() const noexcept { return collections_[0]; }
  std::uint64_t full_collections() const noexcept { return collections_[1]; }

 private:
  struct Dead {
    Offset offset;
    Tick died;
    bool young;
  };

  FinalizerOptions options_;
  Heap* heap_ = nullptr;
  std::deque<Dead> dead_;  // in the order of their deaths
  std::uint64_t collections_[2] = {};
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// A model (predict/model) in a running program, behind learning/model_door.h: what it says of a context is an
// expectation of the learner before any sample of it, and the samples overrule it.
//
//   at the start     contexts that the model knows by address, in the modules that are loaded
//   a new context    its first sample leaves its stack here; the background names the frames from the symbol
//                    tables of their files, asks the model, and tells the learner
//
// No allocation asks a model. The program's threads do no more than to find a stack, once for each context;
// files are opened and read by the background alone, which calls no malloc for it.
#pragma once

#include <atomic>

#include "memoir/base/lock.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/malloc/blocks/owners_word.h"
#include "memoir/malloc/learning/model_door.h"
#include "memoir/malloc/model/symbol_names.h"
#include "memoir/predict/context_table.h"
#include "memoir/predict/model/lifetime_model.h"
#include "memoir/predict/model/model_stack.h"

namespace memoir::malloc_ {

/// An object that is there after destructors ran.
template <class T>
union Lasting {
  constexpr Lasting() noexcept : value() {}
  ~Lasting() {}
  T value;
};

class Predictor {
 public:
  /// ModelDoor's, as are those that follow.
  bool begin(const ModelHost& host, const char* path) noexcept;
  bool sampled(ContextKey key, Size size, std::uintptr_t stack_base) noexcept {
    if (!active_.load(std::memory_order_acquire)) return false;
    std::atomic<std::uint64_t>& word = seen_[key / 64];
    if ((word.load(std::memory_order_relaxed) >> key % 64 & 1) != 0) return false;
    return remember(key, size, stack_base);
  }
  bool answer() noexcept;
  bool active() const noexcept { return active_.load(std::memory_order_acquire); }
  Foreseen figures() const noexcept;
  Lock& lock() noexcept { return lock_; }
  bool after_fork() noexcept;

 private:
  static constexpr size_t kMostFrames = 96, kMostPending = 32;
  struct Pending {
    ContextKey key;
    std::uint32_t count;
    Size size;
    std::uintptr_t frames[kMostFrames];  // return addresses, innermost first
  };

  struct Counts {  // as in Foreseen
    OwnersWord<Size> known, asked, by_stage[Foreseen::kStages], long_lived;
  };
  class Working;

  bool remember(ContextKey key, Size size, std::uintptr_t stack_base) noexcept;
  bool take_pending(Pending& out, bool first) noexcept;
  bool read_file(const char* path) noexcept;
  void tell_known() noexcept;
  void predict(const Pending& one) noexcept;
  void tell(ContextKey key, const LifetimeModel::Prediction& prediction) noexcept;

  std::atomic<bool> active_{false};
  std::atomic<std::uint64_t> seen_[ContextTable::kEntries / 64] = {};  // contexts that were asked for
  Lock lock_;             // of the stacks that wait, and held during a fork
  bool working_ = false;  // the background is between two states of its own; under the lock
  size_t waiting_ = 0;
  MetadataArray<Pending> pending_;
  void* walker_ = nullptr;  // a StackWalker
  // The background's own.
  const ModelHost* host_ = nullptr;
  LifetimeModel model_;
  LifetimeModel::Program program_ = LifetimeModel::Program::kUnknown;
  SymbolNames names_;
  NameCache* name_cache_ = nullptr;
  Counts counts_;
};

}  // namespace memoir::malloc_

// SPDX-License-Identifier: Apache-2.0
//
// A model (predict/model) in a running program: what it says of a context is an expectation of the learner
// before any sample of it, and the samples overrule it.
//
//   at the start     contexts that the model knows by address, in the modules that are loaded
//   a new context    its first sample leaves its stack here; the background names the frames from the symbol
//                    tables of their files, asks the model, and tells the learner
//
// No allocation asks a model. The program's threads do no more than to find a stack, once for each context;
// files are opened and read by the background alone, which calls no malloc for it. Without a background
// there is no foresight.
#pragma once

#include <atomic>

#include "memoir/base/lock.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/malloc/blocks/owners_word.h"
#include "memoir/malloc/central.h"
#include "memoir/malloc/learning/symbol_names.h"
#include "memoir/predict/context_table.h"
#include "memoir/predict/model/lifetime_model.h"
#include "memoir/predict/model/model_stack.h"

namespace memoir::malloc_ {

class Foresight {
 public:
  struct Figures {
    Size known = 0;                             // contexts told at the start, by address
    Size asked = 0;                             // contexts whose stack was looked at
    Size by_stage[model_format::kStages] = {};  // that the model answered, by stage
    Size foreseen() const noexcept {            // contexts that the model answered for
      Size sum = known;
      for (const Size one : by_stage) sum += one;
      return sum;
    }
    Size long_lived = 0;  // of all of them, called long
  };

  /// The background, in each round: once the learner is active, reads the model's file and tells the learner
  /// what it knows by address. What is wrong with the file is said in one line, and then there is none.
  void begin(const char* path) noexcept {
    if (!begun_ && path[0] != '\0' && central().sampler().active()) begin_slowly(path);
  }
  /// A sample of that context was taken. Any thread, without locks. True when there is work for the
  /// background.
  bool sampled(ContextKey key, Size size, std::uintptr_t stack_base) noexcept {
    if (!active_.load(std::memory_order_acquire)) return false;
    std::atomic<std::uint64_t>& word = seen_[key / 64];
    if ((word.load(std::memory_order_relaxed) >> key % 64 & 1) != 0) return false;
    return remember(key, size, stack_base);
  }
  /// The background: answers what was left here. True when there was something.
  bool answer() noexcept;
  bool active() const noexcept { return active_.load(std::memory_order_acquire); }
  /// Any thread.
  Figures figures() const noexcept;
  Lock& lock() noexcept { return lock_; }
  /// In a forked child. One whose parent's background was at work has no model: what that changed may be half
  /// done.
  void after_fork() noexcept;

 private:
  static constexpr size_t kMostFrames = 96, kMostPending = 32;
  struct Pending {
    ContextKey key;
    std::uint32_t count;
    Size size;
    std::uintptr_t frames[kMostFrames];  // return addresses, innermost first
  };

  struct Counts {  // as in Figures
    OwnersWord<Size> known, asked, by_stage[model_format::kStages], long_lived;
  };
  class Working;

  bool remember(ContextKey key, Size size, std::uintptr_t stack_base) noexcept;
  bool take_pending(Pending& out, bool first) noexcept;
  void begin_slowly(const char* path) noexcept;
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
  bool begun_ = false;
  LifetimeModel model_;
  LifetimeModel::Program program_ = LifetimeModel::Program::kUnknown;
  SymbolNames names_;
  NameCache* name_cache_ = nullptr;
  Counts counts_;
};

inline constinit Forever<Foresight> foresight_storage;
inline Foresight& foresight() noexcept { return foresight_storage.value; }

}  // namespace memoir::malloc_

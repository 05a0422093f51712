// SPDX-License-Identifier: Apache-2.0
//
// A model in a running program: what it says of a context is an expectation of the learner before any sample
// of it, and the samples overrule it. The model itself is behind learning/model_door.h, in a library that the
// background loads once the learner is active. No allocation asks a model; without a background there is no
// foresight.
#pragma once

#include <atomic>

#include "memoir/malloc/central.h"
#include "memoir/malloc/learning/model_door.h"

namespace memoir::malloc_ {

class Foresight {
 public:
  /// The background, in each round: once the learner is active, loads the library and has it read the model's
  /// file. What is wrong with one of them is said in one line, and then there is no model.
  void begin(const char* path) noexcept {
    if (!begun_ && path[0] != '\0' && central().sampler().active()) begin_slowly(path);
  }
  /// A sample of that context was taken. Any thread, without locks. True when there is work for the
  /// background.
  bool sampled(ContextKey key, Size size, std::uintptr_t stack_base) noexcept {
    const ModelDoor* const door = door_.load(std::memory_order_acquire);
    return door != nullptr && door->sampled(key, size, stack_base);
  }
  /// The background: answers what was left. True when there was something.
  bool answer() noexcept {
    const ModelDoor* const door = door_.load(std::memory_order_acquire);
    return door != nullptr && door->answer();
  }
  bool active() const noexcept { return door_.load(std::memory_order_acquire) != nullptr; }
  /// Any thread.
  Foreseen figures() const noexcept {
    Foreseen now;
    if (const ModelDoor* const door = door_.load(std::memory_order_acquire); door != nullptr)
      door->figures(now);
    return now;
  }

  /// Before a fork, without locks: waits for the dynamic loader to be done with the library, for a moment at
  /// most, so that a child does not find it half loaded.
  void wait_for_loading() noexcept;
  /// Around a fork. In a child whose parent's background was at work on the model there is none.
  void prepare_fork() noexcept;
  void after_fork(bool child) noexcept;

 private:
  void begin_slowly(const char* path) noexcept;

  std::atomic<const ModelDoor*> door_{nullptr};  // nullptr: there is no model
  std::atomic<bool> loading_{false};
  bool begun_ = false;                 // the background's own
  const ModelDoor* locked_ = nullptr;  // during a fork
};

inline constinit Forever<Foresight> foresight_storage;
inline Foresight& foresight() noexcept { return foresight_storage.value; }

}  // namespace memoir::malloc_

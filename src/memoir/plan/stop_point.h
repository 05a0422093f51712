// SPDX-License-Identifier: Apache-2.0
//
// A way out of planners that place once and are told nothing: whoever calls one and may have to stop it names
// a flag, and places that are passed often look at it.
//
//   const StopScope scope(options.stop);
//   try { best_fit(problem); } catch (const Stopped&) { ... }      // stop_point() in its loop
#pragma once

#include <atomic>

namespace memoir {

/// Thrown by stop_point(). Not an error: nobody outside of plan/search sees it.
struct Stopped {};

/// The flag for this thread, until the end of the scope; nullptr: none. The flag outlives the scope.
class StopScope {
 public:
  explicit StopScope(const std::atomic<bool>* flag) : before_(flag_) { flag_ = flag; }
  ~StopScope() { flag_ = before_; }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

  static const std::atomic<bool>* flag() noexcept { return flag_; }

 private:
  static inline thread_local const std::atomic<bool>* flag_ = nullptr;
  const std::atomic<bool>* before_;
};

/// Throws Stopped when this thread's flag is up.
inline void stop_point() {
  const std::atomic<bool>* flag = StopScope::flag();
  if (flag != nullptr && flag->load(std::memory_order_relaxed)) throw Stopped{};
}

}  // namespace memoir

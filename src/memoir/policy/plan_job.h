// SPDX-License-Identifier: Apache-2.0
//
// Planning that nobody waits for: a heap hands a job to a runner, and looks now and then whether it is
// done. A job has all that it needs in itself; while it runs, the heap goes on.
//
//   simulation   the job runs at once, where it is handed over: no thread, and the same on every machine
//   device       a thread runs it (device/plan_thread.h), outside of the lock of the device's runtime
//
// What comes of it takes effect at a fixed event of the program, the start of a round. So a device whose jobs
// are done by then serves a program as a simulation does.
#pragma once

#include <atomic>
#include <memory>

namespace memoir {

class PlanJob {
 public:
  virtual ~PlanJob() = default;
  /// On any thread, once.
  void run() noexcept {
    plan();
    done_.store(true, std::memory_order_release);
  }
  /// When it is, the results may be read.
  bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }

 private:
  virtual void plan() noexcept = 0;

  std::atomic<bool> done_{false};
};

class PlanRunner {
 public:
  virtual ~PlanRunner() = default;
  /// Runs the job sooner or later; never, when there is no memory or no thread. Does not block.
  virtual void start(std::shared_ptr<PlanJob> job) noexcept = 0;
};

}  // namespace memoir

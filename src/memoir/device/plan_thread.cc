// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/plan_thread.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace memoir {

struct PlanThread::State {
  std::mutex mutex;  // guards all below but the thread
  std::condition_variable changed;
  std::deque<std::shared_ptr<PlanJob>> jobs;  // the first may be under way
  bool ends = false;
  const pid_t process = ::getpid();
  std::thread thread;

  void work() noexcept {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ends || !jobs.empty(); });
      if (ends) return;
      const std::shared_ptr<PlanJob> job = jobs.front();
      lock.unlock();
      job->run();
      lock.lock();
      if (!jobs.empty()) jobs.pop_front();
      changed.notify_all();
    }
  }
};

bool PlanThread::is_own() const noexcept { return state_ != nullptr && state_->process == ::getpid(); }

PlanThread::~PlanThread() {
  if (!is_own()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
    state_->changed.notify_all();
  }
  state_->thread.join();
  delete state_;
}

void PlanThread::start(std::shared_ptr<PlanJob> job) noexcept try {
  if (!is_own()) {
    auto state = std::make_unique<State>();
    state->thread = std::thread(&State::work, state.get());
    state_ = state.release();
  }
  const std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_all();
} catch (const std::exception&) {  // no memory, or no thread: no plan
}

void PlanThread::wait() noexcept {
  if (!is_own()) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->jobs.empty(); });
}

}  // namespace memoir

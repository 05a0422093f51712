// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace memoir {

/// Runs `work` next to this thread, which releases the GIL and looks out for Ctrl-C: Python's handlers run
/// only on the main one. At Ctrl-C it sets `stop` and waits for the work to come back. True: interrupted.
/// What the work throws is thrown here.
template <class Work>
bool in_background(std::atomic<bool>& stop, Work work) {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false, interrupted = false;
  std::exception_ptr error;
  {
    const nanobind::gil_scoped_release release;
    std::thread worker([&] {
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      done = true;
      ended.notify_one();
    });
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; })) {
      lock.unlock();
      {
        const nanobind::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) {
          PyErr_Clear();
          interrupted = stop = true;
        }
      }
      lock.lock();
    }
    lock.unlock();
    worker.join();
  }
  if (error) std::rethrow_exception(error);
  return interrupted;
}

}  // namespace memoir

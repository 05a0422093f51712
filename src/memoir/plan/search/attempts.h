// SPDX-License-Identifier: Apache-2.0
//
// Many ways to the same answer, on several threads, with a winner that does not depend on who was faster.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "memoir/plan/stop_point.h"

namespace memoir {

/// Calls run(attempt, worker, enough) for attempts 0, 1, ... in order, each on one of `threads` threads, and
/// returns the lowest attempt for which it said true, or `count`. What comes after a winner is told by
/// `enough` to stop. When `exactly`, what comes before a winner is left to end, so that the result is the
/// same for any number of threads.
template <class Run>
std::size_t first_attempt(std::size_t count, unsigned threads, bool exactly, Run&& run) {
  if (threads <= 1 || count <= 1) {
    const std::atomic<bool> never{false};
    for (std::size_t k = 0; k < count; ++k) {
      if (run(k, 0u, never)) return k;
    }
    return count;
  }
  const std::unique_ptr<std::atomic<bool>[]> enough(new std::atomic<bool>[count]());
  std::atomic<std::size_t> next{0}, winner{count};
  const auto work = [&](unsigned worker) {
    for (std::size_t k = next++; k < count; k = next++) {
      if (enough[k] || !run(k, worker, enough[k])) continue;
      std::size_t lowest = winner;
      while (k < lowest && !winner.compare_exchange_weak(lowest, k)) {
      }
      for (std::size_t other = exactly ? k + 1 : 0; other < count; ++other) {
        if (other != k) enough[other] = true;
      }
    }
  };
  const StopScope none(nullptr);  // the others have none, and are waited for
  std::vector<std::thread> helpers;
  for (unsigned worker = 1; worker < threads && worker < count; ++worker) helpers.emplace_back(work, worker);
  work(0);
  for (std::thread& helper : helpers) helper.join();
  return winner;
}

}  // namespace memoir

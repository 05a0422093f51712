// SPDX-License-Identifier: Apache-2.0
// Producers and consumers: half of the threads only allocate, the other half only free what they are handed,
// in batches through a bounded queue. With one thread it plays both parts in turn. The pattern of
// `xmalloc-test` (Lever & Boreham, "malloc() Performance in a Multithreaded Linux Environment", USENIX 2000,
// FREENIX track, section 4.3). What it shows: an allocator that returns memory only to the thread that frees
// it grows here without bound.
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "workload.h"

using namespace memoir::bench;

namespace {

constexpr size_t kBatch = 256;
constexpr size_t kQueued = 64;  // batches that may wait: producers may not run away, so memory is bounded

using Batch = std::array<void*, kBatch>;

class Queue {
 public:
  void push(const Batch& batch) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return batches_.size() < kQueued; });
    batches_.push_back(batch);
    filled_.notify_one();
  }

  // False when all producers are done and nothing is left.
  bool pop(Batch& batch) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return !batches_.empty() || producers_ == 0; });
    if (batches_.empty()) return false;
    batch = batches_.front();
    batches_.pop_front();
    room_.notify_one();
    return true;
  }

  void add_producers(int number) {
    std::lock_guard lock(mutex_);
    producers_ += number;
    if (producers_ == 0) filled_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::deque<Batch> batches_;
  int producers_ = 0;
};

void produce(Batch& batch, Random& random) {
  for (void*& block : batch) {
    block = allocate(random.size(256));
    *static_cast<char*>(block) = 1;
  }
}

void consume(const Batch& batch) {
  for (void* block : batch) std::free(block);
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  const uint64_t batches = workload.operations(12'000) * static_cast<uint64_t>(workload.threads);
  const double start = seconds();
  if (workload.threads == 1) {
    Random random(workload.seed);
    std::deque<Batch> waiting;
    for (uint64_t i = 0; i < batches; ++i) {
      produce(waiting.emplace_back(), random);
      if (waiting.size() < kQueued) continue;
      consume(waiting.front());
      waiting.pop_front();
    }
    for (const Batch& batch : waiting) consume(batch);
  } else {
    Queue queue;
    const int producers = workload.threads / 2;
    queue.add_producers(producers);
    run_threads(workload.threads, [&](int thread) {
      Batch batch;
      if (thread < producers) {
        Random random(workload.seed + static_cast<uint64_t>(thread));
        const uint64_t own = batches * static_cast<uint64_t>(thread + 1) / static_cast<uint64_t>(producers) -
                             batches * static_cast<uint64_t>(thread) / static_cast<uint64_t>(producers);
        for (uint64_t i = 0; i < own; ++i) {
          produce(batch, random);
          queue.push(batch);
        }
        queue.add_producers(-1);
      } else {
        while (queue.pop(batch)) consume(batch);
      }
    });
  }
  report(batches * kBatch, seconds() - start);
}

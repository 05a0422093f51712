// SPDX-License-Identifier: Apache-2.0
//
// Three ways to give a tensor library its memory, timed call by call.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace example {

using Handle = void*;  // a tensor's descriptor

class Memory {
 public:
  virtual ~Memory() = default;
  virtual Handle create(std::size_t bytes) = 0;
  /// Bytes [offset, offset + bytes) of another tensor, which they keep alive.
  virtual Handle view(Handle of, std::size_t offset, std::size_t bytes) = 0;
  virtual void release(Handle tensor) = 0;
  virtual float* data(Handle tensor) = 0;
};

/// malloc for the descriptor, aligned_alloc for the bytes.
std::unique_ptr<Memory> make_malloc_memory();
/// Fixed arrays and an address-ordered list, all scanned from one end for every tensor: the original's way,
/// without its two faults.
std::unique_ptr<Memory> make_scanned_memory(std::size_t pool, std::size_t objects);
/// memoir's static tensors, through their C interface.
std::unique_ptr<Memory> make_memoir_memory(std::size_t pool, std::size_t objects);

/// Nanoseconds that this thread had a processor: what others do on the machine is not in them.
inline std::uint64_t thread_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Nanoseconds of many calls, one read of the clock in each included.
class Times {
 public:
  void add(std::uint64_t spent) { spent_.push_back(static_cast<std::uint32_t>(spent)); }
  void clear() { spent_.clear(); }
  std::uint64_t calls() const { return spent_.size(); }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const std::uint32_t one : spent_) sum += one;
    return sum;
  }
  double mean() const {
    return spent_.empty() ? 0 : static_cast<double>(total()) / static_cast<double>(calls());
  }
  /// The time that this share of the calls does not exceed; 1: the worst.
  std::uint64_t quantile(double share) const {
    if (spent_.empty()) return 0;
    std::vector<std::uint32_t> sorted = spent_;
    const auto last = static_cast<double>(sorted.size() - 1);
    const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(share * last);
    std::nth_element(sorted.begin(), at, sorted.end());
    return *at;
  }

 private:
  std::vector<std::uint32_t> spent_;
};

/// A call as a trace has it; nanoseconds of the thread's time.
struct Call {
  const char* name;
  std::size_t bytes;
  std::uint64_t begin, end;
};

/// Passes everything on, and times it.
class TimedMemory {
  template <class Function>
  auto timed(Times& times, const char* name, std::size_t bytes, Function function) {
    const std::uint64_t begin = thread_time();
    const auto result = function();
    const std::uint64_t end = thread_time();
    times.add(end - begin);
    if (log != nullptr) log->push_back({name, bytes, begin, end});
    return result;
  }

 public:
  explicit TimedMemory(Memory& inner) : inner_(inner) {}

  Handle create(std::size_t bytes) {
    return timed(made, "new", bytes, [&] { return inner_.create(bytes); });
  }
  Handle view(Handle of, std::size_t offset, std::size_t bytes) {
    ++views;
    return timed(made, "view", bytes, [&] { return inner_.view(of, offset, bytes); });
  }
  void release(Handle tensor) {
    timed(released, "free", 0, [&] {
      inner_.release(tensor);
      return 0;
    });
  }
  float* data(Handle tensor) { return inner_.data(tensor); }

  Times made;      // tensors and views
  Times released;  // both
  std::uint64_t views = 0;
  std::vector<Call>* log = nullptr;  // where calls are written to as well

 private:
  Memory& inner_;
};

}  // namespace example

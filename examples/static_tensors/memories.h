// SPDX-License-Identifier: Apache-2.0
//
// Three ways to give a tensor library its memory, timed call by call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

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

/// Nanoseconds of many calls, the two reads of the clock around each included.
struct Times {
  std::uint64_t calls = 0;
  std::uint64_t total = 0;
  std::uint64_t worst = 0;

  void add(std::uint64_t spent) {
    ++calls;
    total += spent;
    if (spent > worst) worst = spent;
  }
  double mean() const { return calls == 0 ? 0 : static_cast<double>(total) / static_cast<double>(calls); }
};

/// Passes everything on, and times it.
class TimedMemory {
  template <class Call>
  auto timed(Times& times, Call call) {
    const auto begin = std::chrono::steady_clock::now();
    const auto result = call();
    const auto spent = std::chrono::steady_clock::now() - begin;
    times.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(spent).count()));
    return result;
  }

 public:
  explicit TimedMemory(Memory& inner) : inner_(inner) {}

  Handle create(std::size_t bytes) {
    return timed(made, [&] { return inner_.create(bytes); });
  }
  Handle view(Handle of, std::size_t offset, std::size_t bytes) {
    ++views;
    return timed(made, [&] { return inner_.view(of, offset, bytes); });
  }
  void release(Handle tensor) {
    timed(released, [&] {
      inner_.release(tensor);
      return 0;
    });
  }
  float* data(Handle tensor) { return inner_.data(tensor); }

  Times made;      // tensors and views
  Times released;  // both
  std::uint64_t views = 0;

 private:
  Memory& inner_;
};

}  // namespace example

// SPDX-License-Identifier: Apache-2.0
//
// Samples the allocations of this process by bytes (predict/profile/byte_sampling.h) and keeps what it learns
// in an image (predict/profile/sample_image.h) that another process reads.
//
//   allocation   due(thread, size)            a subtraction and a comparison
//                  -> allocated(...)          once in `every` bytes: stack, time, a place among the live ones
//   free         maybe_sampled(block)         a bit of a filter
//                  -> freed(...)              is it one of the live ones? the tallies of its context
//
// The hot halves take no lock and make no call. The others take one lock, never malloc, never wait for the
// dynamic loader, and keep errno. A free is told before the memory is given back.
#pragma once

#include <atomic>
#include <cstdint>

#include "memoir/base/lock.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/predict/profile/byte_sampling.h"
#include "memoir/predict/profile/sample_image.h"

namespace memoir {

/// What a thread knows; a thread_local of its owner, all zero at first.
struct SamplerThread {
  std::int64_t remaining = 0;  // bytes until the next sample
  std::int64_t gap = 0;        // `remaining` when the clock was last told
  std::uint32_t period = 0;    // of the sampler that `remaining` is of
  std::uint32_t number = 0;    // from 1 on
  bool inside = false;         // a slow half runs: a signal handler's allocations are not sampled
  byte_sampling::Random random;
};

struct SamplerOptions {
  Size every = 512 * kKiB;  // bytes between samples, on average
  std::uint64_t seed = 0;   // of the sample; 0: the system's random numbers
};

/// A stack as it was found: return addresses, innermost first.
struct SampledStack {
  static constexpr size_t kMost = 258;

  std::uintptr_t frames[kMost];
  size_t count = 0;
  bool cut = false;  // some are missing
  Size height = 0;   // bytes of the thread's stack in use at the call; 0: not known
};

class Sampler {
 public:
  /// Finds the stack of an allocation. `entry` is what allocated() was given. Called with the sampler's lock.
  using Capture = void (*)(const void* entry, SampledStack& stack) noexcept;
  /// Puts memory behind bytes [begin, end) of the image; false: there is none.
  using Take = bool (*)(void* owner, Size begin, Size end) noexcept;

  /// `image`: kSize bytes of addresses, zero where they have memory; the sampler does not unmap them. False,
  /// and nothing is sampled, when there is no memory.
  bool start(void* image, Take take, void* owner, Capture capture, const SamplerOptions& options) noexcept;
  /// No more samples; the image stays as it is. Frees are told no more.
  void stop() noexcept;
  /// Writes down how late it is, in case that nothing follows.
  void tell_time() noexcept;
  /// In a forked child: forgets everything, without touching the image, which is the parent's.
  void forget() noexcept;
  bool active() const noexcept { return active_.load(std::memory_order_acquire); }

  [[gnu::always_inline]] static bool due(SamplerThread& thread, Size size) noexcept {
    return (thread.remaining -= static_cast<std::int64_t>(size)) < 0;
  }
  [[gnu::always_inline]] bool maybe_sampled(const void* block) const noexcept {
    const size_t bit = filter_bit(reinterpret_cast<std::uintptr_t>(block));
    return (filter_[bit / 8].load(std::memory_order_relaxed) >> bit % 8 & 1) != 0;
  }

  /// due() said so.
  void allocated(SamplerThread& thread, const void* block, Size size, const void* entry) noexcept;
  /// due() was asked, but there was no memory for the object.
  static void not_allocated(SamplerThread& thread, Size size) noexcept {
    thread.remaining += static_cast<std::int64_t>(size);
  }
  /// maybe_sampled() said so, and the block is about to be freed.
  void freed(SamplerThread& thread, const void* block) noexcept;

  /// Its last bytes count too.
  void thread_ended(SamplerThread& thread) noexcept;

  /// A sample that a realloc took out: it may have to be put back.
  struct Taken {
    LifetimeProfile::Pair pair;  // its end is now
    bool found = false;
  };
  /// As freed(), but the outcome is open until finish() or put_back().
  Taken take_out(SamplerThread& thread, const void* block) noexcept;
  void finish(SamplerThread& thread, const Taken& taken) noexcept;
  void put_back(SamplerThread& thread, const void* block, const Taken& taken) noexcept;

  /// A library was unloaded: another one may come to its addresses.
  void modules_changed() noexcept { modules_stale_.store(true, std::memory_order_relaxed); }
  std::uint32_t period() const noexcept { return period_.load(std::memory_order_relaxed); }

 private:
  using P = LifetimeProfile;
  static constexpr size_t kFilterBits = 1 << 17;
  static constexpr size_t kHeads = 1 << 16;

  static size_t filter_bit(std::uintptr_t address) noexcept {
    return (address >> 4) * 0x9e3779b97f4a7c15ull >> (64 - 17);
  }
  struct Stack {
    sample_image::Frame frames[SampledStack::kMost];
    size_t count = 0;
    bool cut = false;
    std::uint64_t hash = 0;
  };
  class Change;

  sample_image::Header& header() noexcept { return *static_cast<sample_image::Header*>(image_); }
  template <class T>
  T* records(sample_image::Region region) noexcept {
    return reinterpret_cast<T*>(static_cast<char*>(image_) + sample_image::region_begin(region));
  }
  bool room_for(sample_image::Region region, std::uint64_t count) noexcept;
  std::uint64_t now() noexcept;
  void draw_gap(SamplerThread& thread) noexcept;
  std::uint64_t clock(SamplerThread& thread) noexcept;

  // With the lock held.
  void normalize(const SampledStack& found, Stack& stack) noexcept;
  sample_image::Frame normal(std::uintptr_t address) noexcept;
  void read_modules() noexcept;
  bool add_module(std::uint64_t begin, std::uint64_t end, std::uint64_t bias, std::string_view path,
                  const unsigned char* id, std::uint32_t id_size) noexcept;
  std::uint32_t context_of(const Stack& stack) noexcept;
  bool insert_live(const void* block, const P::Pair& pair) noexcept;
  sample_image::Live* find(std::uintptr_t address, std::uint32_t* before) noexcept;
  void unlink(sample_image::Live* live, std::uint32_t before) noexcept;
  bool absent(std::uintptr_t address) noexcept;
  void count(const P::Pair& pair) noexcept;
  void count_cell(sample_image::Context& context, P::Clock clock, std::uint64_t lifetime,
                  const P::Estimate& one) noexcept;
  void keep_pair(const P::Pair& pair) noexcept;
  void note_live(std::uint64_t time, std::uint64_t clock) noexcept;

  Lock lock_;
  std::atomic<bool> active_{false};
  std::atomic<std::uint32_t> period_{0};
  std::atomic<bool> modules_stale_{false};
  void* image_ = nullptr;
  Take take_ = nullptr;
  void* owner_ = nullptr;
  Capture capture_ = nullptr;
  Size every_ = 0, taken_bytes_ = 0;
  byte_sampling::Random random_;
  std::uint64_t read_modules_from_ = 0;  // ms; not before
  std::uint64_t points_pending_ = 0;     // samples in the last point
  Size last_clock_ = 0;
  std::uint32_t free_live_ = 0;                  // a chain of free slots
  std::atomic<std::uint32_t>* heads_ = nullptr;  // of chains of live samples, by address
  std::uint32_t* context_heads_ = nullptr;
  std::uint16_t* module_order_ = nullptr;  // by address
  size_t modules_ = 0;                     // in module_order_
  std::uint8_t filter_counts_[kFilterBits] = {};
  std::atomic<std::uint8_t> filter_[kFilterBits / 8] = {};
};

}  // namespace memoir

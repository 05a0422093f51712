// SPDX-License-Identifier: Apache-2.0
#include "contract/soak_walk.h"

#include <algorithm>
#include <cstring>

#include "contract/live_ranges.h"
#include "contract/watched_arena.h"

namespace memoir::contract {

namespace {

constexpr Size kPage = 4 * kKiB;

/// Calls `body(at, size)` for the pieces of an object that bear its pattern: both ends and a word of every
/// page between, of a large object of some 64 pages: to touch them all would cost more than the heap does.
template <class Body>
void for_each_mark(Range range, Body body) {
  const Size word = std::min<Size>(8, range.size);
  const Size step = align_up(std::max(kPage, range.size / 64), kPage);
  body(range.begin, word);
  for (Offset at = align_up(range.begin + 1, kPage); at + word <= range.end(); at += step) body(at, word);
  body(range.end() - word, word);
}

class SoakWalker {
 public:
  SoakWalker(std::uint64_t seed, const MakeHeap& make, Arena& arena, const WalkOptions& options)
      : random_(seed), arena_(arena), heap_(make(arena_)), options_(options) {
    most_live_ = 16u << random_() % 7;
    phase_ = 64 << random_() % 6;
    // Those that secure their memory begin a pass when they are trimmed; for others it is a device's or
    // system's calls.
    trim_every_ = (options.traits.secures ? 64 : 1024) << random_() % 7;
    live_.reserve(most_live_ + 1);
  }

  SoakResult run(std::uint64_t operations) {
    SoakResult result;
    while (result.operations < operations && failure_.empty()) {
      step(result.operations++);
    }
    if (failure_.empty()) finish();
    result.allocations = allocations_;
    result.refusals = refusals_;
    result.failure = std::move(failure_);
    return result;
  }

 private:
  void step(std::uint64_t number) {
    const bool growing = number / phase_ % 2 == 0;
    const std::uint64_t dice = random_();
    if (dice % trim_every_ == 0) {
      heap_->trim();
      check_all();
    } else if (dice >> 8 & 63) {
      if ((dice >> 16 & 255) < (growing ? 190u : 70u) && live_.size() < most_live_) {
        allocate(dice >> 24 & 31 ? menu_request(random_) : any_request());
      } else if (live_.size() != 0) {
        release(dice >> 24 & 3 ? random_() % live_.size() : live_.find(last_));
      }
    } else if (dice >> 16 & 1) {
      wild_free(dice >> 17 & 1 ? random_() : random_() % arena_.capacity());
    } else {
      allocate(impossible());
    }
    if (heap_->live() != live_bytes_) {
      fail("live() is " + std::to_string(heap_->live()) + ", not " + std::to_string(live_bytes_));
    }
    if (arena_.outside()) fail("the heap commits outside of its arena");
  }

  void allocate(const Request& request) {
    const Offset offset = heap_->allocate(request);
    const bool possible = request.size != 0 && is_power_of_two(request.alignment);
    if (offset == kNoOffset) {
      ++refusals_;
      if (options_.traits.serves_all && possible && request.alignment <= options_.traits.strictest &&
          has_room(request)) {
        fail("a request of " + std::to_string(request.size) + " bytes is refused, though there is room");
      }
      return;
    }
    ++allocations_;
    if (!possible) return fail("an impossible request is served", offset);
    if (request.alignment > options_.traits.strictest)
      return fail("aligned more strictly than promised", offset);
    if (offset % request.alignment != 0) return fail("misaligned", offset);
    if (offset > arena_.capacity() || request.size > arena_.capacity() - offset) {
      return fail("outside of the arena", offset);
    }
    const Range range{offset, request.size};
    const auto pattern = static_cast<std::uint8_t>(1 + allocations_ % 255);
    if (!live_.insert(range, pattern)) return fail("overlaps what is live", offset);
    if (heap_->size_of(offset) < request.size) return fail("size_of() is smaller than the request", offset);
    if (!arena_.holds(range)) return fail("not committed", offset);
    live_bytes_ += request.size;
    last_ = offset;
    if (options_.memory == nullptr) return;
    for_each_mark(range, [&](Offset at, Size size) { std::memset(options_.memory + at, pattern, size); });
  }

  void release(size_t at) {
    if (at == live_.size()) at = 0;
    const LiveRanges::Object object = live_[at];
    const Offset offset = object.range.begin;
    check(object);
    live_.erase(at);
    live_bytes_ -= object.range.size;
    if (!heap_->free(offset)) return fail("a live object is not freed", offset);
    if (heap_->size_of(offset) != 0) return fail("size_of() knows a freed object", offset);
    if (random_() % 64 == 0 && heap_->free(offset)) fail("takes a double free", offset);
  }

  void wild_free(Offset offset) {
    if (live_.begins_at(offset)) return;
    if (heap_->size_of(offset) != 0) return fail("size_of() knows an object that is not there", offset);
    if (heap_->free(offset)) fail("takes a wild free", offset);
  }

  void check(const LiveRanges::Object& object) {
    const Offset offset = object.range.begin;
    if (heap_->size_of(offset) < object.range.size) return fail("forgot an object", offset);
    if (!arena_.holds(object.range)) return fail("gave back the memory of an object", offset);
    if (options_.memory == nullptr) return;
    bool same = true;
    for_each_mark(object.range, [&](Offset at, Size size) {
      for (Size i = 0; i < size; ++i) same &= options_.memory[at + i] == std::byte{object.pattern};
    });
    if (!same) fail("changed the contents of an object", offset);
  }
  void check_all() {
    for (const LiveRanges::Object& object : live_) check(object);
  }

  void finish() {
    check_all();
    while (failure_.empty() && live_.size() != 0) release(live_.size() - 1);
    if (!failure_.empty()) return;
    if (heap_->live() != 0) return fail("live() is not 0 when nothing is live");
    heap_->trim();
    if (is_to_be_empty(options_.traits, arena_) && arena_.committed() != 0) {
      return fail(std::to_string(arena_.committed()) + " bytes stay committed in an empty heap");
    }
    if (!options_.traits.joins) return;
    if (heap_->allocate({arena_.capacity(), 1, kNoSite}) != 0) {
      return fail("an empty heap does not give out the whole arena: its free spans did not join");
    }
    if (!heap_->free(0)) fail("the whole arena is not taken back");
  }

  /// Whether a gap between the live objects holds the request, which a heap may round up to its alignment and
  /// grain.
  bool has_room(const Request& request) const {
    const Size capacity = arena_.capacity();
    if (request.size > capacity || request.alignment > capacity) return false;
    const Size size = align_up(request.size, std::max(request.alignment, options_.traits.grain));
    const auto fits = [&](Offset gap, Offset end) {
      const Offset begin = align_up(gap, request.alignment);
      return begin <= end && size <= end - begin;
    };
    Offset gap = 0;
    for (const LiveRanges::Object& object : live_) {
      if (fits(gap, object.range.begin)) return true;
      gap = object.range.begin + heap_->size_of(object.range.begin);
    }
    return fits(gap, capacity);
  }

  /// Any size, any alignment; no site of a plan.
  Request any_request() {
    const Size size = 1 + random_() % (arena_.capacity() >> random_() % 20);
    return {size, Size{1} << random_() % 20, 99};
  }
  Request impossible() {
    const auto all = impossible_requests(arena_.capacity());
    return all[random_() % all.size()];
  }

  void fail(std::string what, Offset at = kNoOffset) {
    if (!failure_.empty()) return;  // the first says it
    failure_ = std::move(what);
    if (at != kNoOffset) failure_ += " at " + std::to_string(at);
  }

  std::mt19937_64 random_;
  WatchedArena arena_;
  std::unique_ptr<Heap> heap_;
  WalkOptions options_;
  LiveRanges live_;
  Size live_bytes_ = 0;
  Offset last_ = 0;  // of the last allocation
  std::uint64_t allocations_ = 0, refusals_ = 0;
  size_t most_live_;          // objects
  std::uint64_t phase_;       // operations, in which the walk rather grows or shrinks
  std::uint64_t trim_every_;  // operations
  std::string failure_;
};

}  // namespace

SoakResult soak_walk(std::uint64_t seed, std::uint64_t operations, const MakeHeap& make, Arena& arena,
                     const WalkOptions& options) {
  return SoakWalker(seed, make, arena, options).run(operations);
}

}  // namespace memoir::contract

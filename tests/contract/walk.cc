// SPDX-License-Identifier: Apache-2.0
#include "contract/walk.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "contract/watched_arena.h"

namespace memoir::contract {

namespace {

class Walker {
 public:
  Walker(const MakeHeap& make, Arena& arena, const WalkOptions& options)
      : arena_(arena), heap_(make(arena_)), options_(options) {}

  /// What the heap did wrong in this step; empty when nothing.
  std::string take(const Step& step, std::vector<Offset>& offsets) {
    std::string wrong;
    switch (step.kind) {
      case Step::Kind::kAllocate:
        wrong = take_allocate(step, offsets);
        break;
      case Step::Kind::kFree:
        wrong = take_free(step.object);
        break;
      case Step::Kind::kWildFree:
        wrong = take_wild_free(step.offset);
        break;
      case Step::Kind::kTrim:
        heap_->trim();
        wrong = check_all();
    }
    if (!wrong.empty()) return wrong;
    if (heap_->live() != live_bytes_) {
      return "live() is " + std::to_string(heap_->live()) + ", not " + std::to_string(live_bytes_);
    }
    if (arena_.outside()) return "the heap commits outside of its arena";
    return "";
  }

  /// Frees everything: the heap is then as it was.
  std::string finish() {
    std::string wrong = check_all();
    while (wrong.empty() && !live_.empty()) wrong = take_free(live_.begin()->second.object);
    if (!wrong.empty()) return wrong;
    if (heap_->live() != 0) return "live() is not 0 when nothing is live";
    heap_->trim();
    if (is_to_be_empty(options_.traits, arena_) && arena_.committed() != 0)
      return std::to_string(arena_.committed()) + " bytes stay committed in an empty heap";
    if (!options_.traits.joins) return "";
    const Offset whole = heap_->allocate({arena_.capacity(), 1, kNoSite});
    if (whole != 0) return "an empty heap does not give out the whole arena: its free spans did not join";
    return heap_->free(0) ? "" : "the whole arena is not taken back";
  }

 private:
  struct Object {
    std::uint64_t object;
    Size size;
  };

  std::string take_allocate(const Step& step, std::vector<Offset>& offsets) {
    const Request& request = step.request;
    const Offset offset = heap_->allocate(request);
    offsets.push_back(offset);
    const bool possible = request.size != 0 && is_power_of_two(request.alignment);
    if (offset == kNoOffset) {
      const bool promised =
          options_.traits.serves_all && possible && request.alignment <= options_.traits.strictest;
      const Offset room = promised ? find_room(request) : kNoOffset;
      return room == kNoOffset ? "" : "refused, though there is room at " + std::to_string(room);
    }
    const std::string at = " at " + std::to_string(offset);
    if (!possible) return "an impossible request is served" + at;
    if (request.alignment > options_.traits.strictest) return "aligned more strictly than promised" + at;
    if (offset % request.alignment != 0) return "misaligned" + at;
    if (offset > arena_.capacity() || request.size > arena_.capacity() - offset)
      return "outside of the arena" + at;
    const Range range{offset, request.size};
    for (const auto& [begin, other] : live_) {
      if (range.overlaps({begin, other.size}))
        return "overlaps the live object at " + std::to_string(begin) + at;
    }
    if (heap_->size_of(offset) < request.size) return "size_of() is smaller than the request" + at;
    if (!arena_.holds(range)) return "not committed" + at;
    live_[offset] = {step.object, request.size};
    placed_[step.object] = offset;
    live_bytes_ += request.size;
    if (options_.memory != nullptr) std::memset(options_.memory + offset, pattern(step.object), request.size);
    return "";
  }

  std::string take_free(std::uint64_t object) {
    const auto placed = placed_.find(object);
    if (placed == placed_.end()) return "";  // it was sent elsewhere
    const Offset offset = placed->second;
    const auto found = live_.find(offset);
    if (found == live_.end()) return take_wild_free(offset);  // a double free
    if (found->second.object != object) return "";            // the address lives again: nobody could tell
    if (std::string wrong = check(offset, found->second); !wrong.empty()) return wrong;
    live_bytes_ -= found->second.size;
    live_.erase(found);
    if (!heap_->free(offset)) return "a live object at " + std::to_string(offset) + " is not freed";
    return heap_->size_of(offset) == 0 ? "" : "size_of() knows a freed object";
  }

  std::string take_wild_free(Offset offset) {
    if (live_.contains(offset)) return "";
    if (heap_->size_of(offset) != 0) return "size_of() knows an object at " + std::to_string(offset);
    if (heap_->free(offset)) return "takes the wild or double free of " + std::to_string(offset);
    return check_all(false);  // contents are looked at when an object dies: here it would be slow
  }

  std::string check(Offset offset, const Object& object, bool contents = true) const {
    const std::string where = " the object at " + std::to_string(offset);
    if (heap_->size_of(offset) < object.size) return "forgot" + where;
    if (!arena_.holds({offset, object.size})) return "gave back the memory of" + where;
    if (options_.memory == nullptr || !contents) return "";
    const auto* const bytes = options_.memory + offset;
    const bool same =
        bytes[0] == std::byte{pattern(object.object)} && std::memcmp(bytes, bytes + 1, object.size - 1) == 0;
    return same ? "" : "changed the contents of" + where;
  }
  std::string check_all(bool contents = true) const {
    for (const auto& [offset, object] : live_) {
      if (std::string wrong = check(offset, object, contents); !wrong.empty()) return wrong;
    }
    return "";
  }

  /// The first aligned offset with room, by looking at every gap. A heap may round a size up to its
  /// alignment, and to its grain.
  Offset find_room(const Request& request) const {
    const Size capacity = arena_.capacity();
    if (request.size > capacity || request.alignment > capacity) return kNoOffset;
    const Size size = align_up(request.size, std::max(request.alignment, options_.traits.grain));
    Offset gap = 0;
    for (auto at = live_.begin();; ++at) {
      const Offset end = at == live_.end() ? capacity : at->first;
      const Size skipped = (request.alignment - gap % request.alignment) % request.alignment;
      if (skipped <= end - gap && size <= end - gap - skipped) return gap + skipped;
      if (at == live_.end()) return kNoOffset;
      gap = at->first + heap_->size_of(at->first);
    }
  }

  static unsigned char pattern(std::uint64_t object) { return static_cast<unsigned char>(object * 151 + 17); }

  WatchedArena arena_;
  std::unique_ptr<Heap> heap_;
  WalkOptions options_;
  std::map<Offset, Object> live_;
  std::map<std::uint64_t, Offset> placed_;  // every object ever placed
  Size live_bytes_ = 0;
};

}  // namespace

Request menu_request(std::mt19937_64& random) {
  static constexpr Size kSizes[] = {1,    24,   64,        100,    256,       1000,
                                    4096, 4097, 16 * kKiB, 60'000, 64 * kKiB, 300'000};
  const SiteId site = 1 + random() % std::size(kSizes);
  return {kSizes[site - 1], site % 4 == 0 ? Size{1} << (site + 4) : Size{64}, site};
}

std::array<Request, 7> impossible_requests(Size capacity) {
  return {{{0, 64, 1},
           {64, 0, 1},
           {64, 48, 1},
           {~Size{0}, 1, 1},
           {capacity + 1, 1},
           {~Size{0} - 63, 64, 1},
           {64, Size{1} << 63, 1}}};
}

std::vector<Step> random_steps(std::mt19937_64& random, size_t count, Size capacity) {
  const auto impossible = impossible_requests(capacity);
  std::vector<Step> steps;
  std::uint64_t objects = 0;
  while (steps.size() < count) {
    const bool growing = steps.size() / 250 % 2 == 0;
    const auto dice = random() % 100;
    if (dice < 1) {
      steps.push_back(trim());
    } else if (dice < 3) {
      steps.push_back(wild_free(random() % 2 == 0 ? random() : random() % capacity));
    } else if (dice < 5) {
      const Request& request = impossible[random() % std::size(impossible)];
      steps.push_back(allocate(objects++, request.size, request.alignment, request.site));
    } else if (dice < 8) {  // any size, any alignment
      steps.push_back(
          allocate(objects++, 1 + random() % (capacity >> random() % 20), Size{1} << random() % 20, 99));
    } else if (dice < (growing ? 75 : 35)) {
      const Request request = menu_request(random);
      steps.push_back(allocate(objects++, request.size, request.alignment, request.site));
    } else if (objects != 0) {
      steps.push_back(release(random() % 4 == 0 ? objects - 1 - random() % std::min<std::uint64_t>(objects, 8)
                                                : random() % objects));
    }
  }
  return steps;
}

Outcome walk(const std::vector<Step>& steps, const MakeHeap& make, Arena& arena, const WalkOptions& options) {
  Walker walker(make, arena, options);
  Outcome outcome;
  for (const Step& step : steps) {
    outcome.failure = walker.take(step, outcome.offsets);
    if (!outcome.failure.empty()) return outcome;
    ++outcome.failed_at;
  }
  outcome.failure = walker.finish();
  return outcome;
}

std::vector<Step> shortened(std::vector<Step> steps,
                            const std::function<bool(const std::vector<Step>&)>& fails) {
  for (size_t width = std::max<size_t>(steps.size() / 2, 1);;) {
    bool removed = false;
    for (size_t at = 0; at < steps.size();) {
      std::vector<Step> fewer = steps;
      fewer.erase(fewer.begin() + at, fewer.begin() + std::min(at + width, fewer.size()));
      if (fails(fewer)) {
        steps = std::move(fewer);
        removed = true;
      } else {
        at += width;
      }
    }
    if (width == 1 && !removed) return steps;
    width = std::max<size_t>(width / 2, 1);
  }
}

std::string as_code(const std::vector<Step>& steps) {
  std::string code = "  const std::vector<Step> steps = {\n";
  for (const Step& step : steps) {
    const Request& request = step.request;
    switch (step.kind) {
      case Step::Kind::kAllocate:
        code += "      allocate(" + std::to_string(step.object) + ", " + std::to_string(request.size) +
                "u, " + std::to_string(request.alignment) + "u, " + std::to_string(request.site) + "),\n";
        break;
      case Step::Kind::kFree:
        code += "      release(" + std::to_string(step.object) + "),\n";
        break;
      case Step::Kind::kWildFree:
        code += "      wild_free(" + std::to_string(step.offset) + "u),\n";
        break;
      case Step::Kind::kTrim:
        code += "      trim(),\n";
    }
  }
  return code + "  };\n";
}

}  // namespace memoir::contract

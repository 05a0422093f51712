// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/restored_state.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"
#include "memoir/policy/policies.h"
#include "memoir/policy/policy_text.h"

namespace memoir {

namespace {

using DeviceCall = Workload::DeviceCall;

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr Size kUnit = PyTorchRounding::kSmallestBlock;
constexpr Offset kLastAddress = Offset{1} << 63;
constexpr Size kMapUnit = 2 * kMiB;  // bytes: what drivers map at least
/// An area is 9/8 of a device's memory; no device has as much as this.
constexpr Size kLongestArea = Size{1} << 42;

[[noreturn]] void fail(std::uint32_t event, const std::string& what) {
  throw Error("event " + std::to_string(event) + ": " + what);
}

bool is_mapped(EventKind kind) { return kind == EventKind::kSegmentMap || kind == EventKind::kSegmentUnmap; }

/// Memory held at the start, and what is known of it.
struct Stretch {
  Range range;
  std::uint32_t event = 0;
  StreamId stream = 0;
  std::uint32_t pool = 0;
  std::uint32_t gone = kNone;   // the step at which some of it was given back
  std::uint32_t shown = kNone;  // an object that lies in it, best one of the start: shows its kind
  std::vector<size_t> objects;  // live at the start, by address
  std::vector<Offset> next;     // for each, where the history puts the first object behind it while it lives
};

class Builder {
 public:
  Builder(const Workload& workload, const PyTorchOptions& options)
      : workload_(workload),
        rounding_(options),
        most_split_(options.max_split_size),
        large_unit_(options.large_segment_size) {}

  void run(RestoredState& start);

 private:
  void take_segments(bool expandable);
  void take_objects();
  void watch_gaps();
  void join_areas(RestoredState& start);
  void follow_areas(std::vector<RestoredArea>& areas) const;
  void lay_out(const Stretch& stretch, bool cuts_all, std::vector<RestoredObject>& to) const;
  Stretch* find(Offset address);
  std::uint32_t event_of(size_t object) const {
    return workload_.steps()[workload_.objects()[object].begin].event;
  }
  std::string name(size_t object) const;
  bool is_small(size_t object) const {
    return PyTorchRounding::is_small(rounding_.block_size(workload_.objects()[object].size));
  }
  bool is_small(const Stretch& stretch) const {
    if (stretch.shown != kNone) return is_small(stretch.shown);
    return stretch.range.size % large_unit_ != 0;  // nothing was ever in it
  }

  const Workload& workload_;
  const PyTorchRounding rounding_;
  const Size most_split_;
  const Size large_unit_;
  std::vector<Stretch> stretches_;  // by address
};

std::string Builder::name(size_t object) const {
  const Workload::Object& known = workload_.objects()[object];
  return "object " + std::to_string(known.id) + " of " + std::to_string(known.size) + " bytes at " +
         hex(workload_.recorded_address(object));
}

void Builder::take_segments(bool expandable) {
  const Size unit = expandable ? kMapUnit : kUnit;
  Size held = 0;
  for (const DeviceCall& call : workload_.device_calls().first(workload_.start_calls())) {
    const std::string what =
        "the recorded segment of " + std::to_string(call.range.size) + " bytes at " + hex(call.range.begin);
    if (call.range.size == 0 || call.range.begin > kLastAddress - std::min(call.range.size, kLastAddress))
      fail(call.event, what + " is empty, or ends beyond 2^63");
    held += std::min(call.range.size, kLastAddress);
    if (held > PyTorchRounding::kLargestRequest)
      fail(call.event, what + ", with those before it, is more than a device has addresses for, 2^47 bytes");
    if (call.range.size % unit != 0 || call.range.begin % kUnit != 0)
      fail(call.event,
           what + " is not PyTorch's: it is not a multiple of " + std::to_string(unit) + " bytes");
    stretches_.push_back({call.range, call.event, call.stream, call.pool, kNone, kNone, {}, {}});
  }
  std::sort(stretches_.begin(), stretches_.end(),
            [](const Stretch& a, const Stretch& b) { return a.range.begin < b.range.begin; });
  size_t kept = 0;
  for (size_t i = 1; i < stretches_.size(); ++i) {
    Stretch &before = stretches_[kept], &after = stretches_[i];
    if (before.range.overlaps(after.range)) {
      fail(std::max(before.event, after.event),
           "the recorded segment at " + hex(after.range.begin) + " overlaps the one of " +
               std::to_string(before.range.size) + " bytes at " + hex(before.range.begin) + " (event " +
               std::to_string(std::min(before.event, after.event)) +
               "); both were held when the history began");
    }
    if (expandable && before.range.end() == after.range.begin && before.pool == after.pool) {
      before.range.size += after.range.size;  // areas are never full to their ends: both are of one
    } else if (++kept != i) {
      stretches_[kept] = after;
    }
  }
  if (!stretches_.empty()) stretches_.resize(kept + 1);
}

Stretch* Builder::find(Offset address) {
  auto after = std::upper_bound(stretches_.begin(), stretches_.end(), address,
                                [](Offset at, const Stretch& stretch) { return at < stretch.range.begin; });
  if (after == stretches_.begin() || address >= std::prev(after)->range.end()) return nullptr;
  return &*std::prev(after);
}

/// Puts the objects into their segments. Whose a segment is, objects know best: some traces do not say it of
/// segments.
void Builder::take_objects() {
  const std::span<const Workload::Object> objects = workload_.objects();
  for (const DeviceCall& call : workload_.device_calls().subspan(workload_.start_calls())) {
    if (call.gives()) continue;
    auto at = std::partition_point(stretches_.begin(), stretches_.end(), [&](const Stretch& stretch) {
      return stretch.range.end() <= call.range.begin;
    });
    for (; at != stretches_.end() && at->range.begin < call.range.end(); ++at) {
      at->gone = std::min(at->gone, call.step);
    }
  }
  for (size_t i = 0; i < objects.size(); ++i) {
    const Offset address = workload_.recorded_address(i);
    const bool live = objects[i].begin < workload_.start_steps();
    if (address == kNoOffset) {
      if (!live) continue;
      fail(event_of(i), "object " + std::to_string(objects[i].id) +
                            " was live when the history began, but the recording does not say where");
    }
    Stretch* const stretch = find(address);
    if (!live) {
      if (stretch != nullptr && stretch->shown == kNone && objects[i].begin < stretch->gone) {
        stretch->shown = static_cast<std::uint32_t>(i);
        stretch->stream = objects[i].stream;
      }
      continue;
    }
    if (stretch == nullptr || align_up(objects[i].size, kUnit) > stretch->range.end() - address)
      fail(event_of(i),
           name(i) + " was live when the history began, but lies in no segment that was recorded then");
    if (address % kUnit != 0)
      fail(event_of(i), name(i) + " is not where PyTorch puts objects, at multiples of 512 bytes");
    if (objects[i].pool != stretch->pool)
      fail(event_of(i), name(i) + " lies in a segment of another pool, which PyTorch does not do");
    if (stretch->objects.empty()) {
      stretch->shown = static_cast<std::uint32_t>(i);
      stretch->stream = objects[i].stream;
    } else if (objects[i].stream != stretch->stream) {
      fail(event_of(i), name(i) + " shares its segment with " + name(stretch->objects.front()) +
                            " of another stream, which PyTorch does not do");
    }
    stretch->objects.push_back(i);
  }
  for (Stretch& stretch : stretches_) {
    std::sort(stretch.objects.begin(), stretch.objects.end(), [&](size_t a, size_t b) {
      return workload_.recorded_address(a) < workload_.recorded_address(b);
    });
  }
}

/// Objects are put where a free block begins, which is where the block before it ends.
void Builder::watch_gaps() {
  for (Stretch& stretch : stretches_) stretch.next.assign(stretch.objects.size(), kNoOffset);
  const std::span<const Workload::Object> objects = workload_.objects();
  for (size_t i = 0; i < objects.size(); ++i) {
    const Offset address = workload_.recorded_address(i);
    if (address == kNoOffset || objects[i].begin < workload_.start_steps()) continue;
    Stretch* const stretch = find(address);
    if (stretch == nullptr || objects[i].begin >= stretch->gone) continue;
    const auto after =
        std::upper_bound(stretch->objects.begin(), stretch->objects.end(), address,
                         [&](Offset at, size_t object) { return at < workload_.recorded_address(object); });
    if (after == stretch->objects.begin() || objects[*std::prev(after)].end <= objects[i].begin) continue;
    Offset& next = stretch->next[static_cast<size_t>(after - stretch->objects.begin()) - 1];
    if (next == kNoOffset) next = address;
  }
}

/// The blocks of a stretch's objects. `cuts_all`: every rest of a block is cut off.
void Builder::lay_out(const Stretch& stretch, bool cuts_all, std::vector<RestoredObject>& to) const {
  for (size_t i = 0; i < stretch.objects.size(); ++i) {
    const size_t object = stretch.objects[i];
    const Size asked = workload_.objects()[object].size;
    const Offset begin = workload_.recorded_address(object);
    const bool last = i + 1 == stretch.objects.size();
    const Offset end = last ? stretch.range.end() : workload_.recorded_address(stretch.objects[i + 1]);
    const Size room = end - begin;
    if (align_up(asked, kUnit) > room) {
      const size_t other = stretch.objects[i + 1];
      fail(std::max(event_of(object), event_of(other)), name(object) + " overlaps " + name(other));
    }
    Size size = std::min(rounding_.block_size(asked), room);
    const Offset next = stretch.next[i];
    if (!cuts_all && (size >= most_split_ || room - size <= PyTorchRounding::kLargestSmall)) {
      size = room;
    } else if (!cuts_all && next != kNoOffset && next % kUnit == 0 && next - begin > size &&
               next - begin - size <= PyTorchRounding::kLargestSmall) {
      size = next - begin;
    }
    to.push_back({{begin, size}, asked});
  }
}

/// All mapped memory of one pool, stream and kind is one area's: another is opened only when one is full.
void Builder::join_areas(RestoredState& start) {
  std::map<std::tuple<std::uint32_t, StreamId, bool>, size_t> known;
  for (const Stretch& stretch : stretches_) {
    const bool small = is_small(stretch);
    for (const size_t object : stretch.objects) {
      if (is_small(object) != small)
        fail(event_of(object), name(object) + " shares mapped memory with " + name(stretch.shown) +
                                   ", though PyTorch separates those of up to 1 MiB from larger ones");
    }
    const auto [entry, fresh] = known.try_emplace({stretch.pool, stretch.stream, small}, start.areas.size());
    if (fresh) start.areas.push_back({stretch.range.begin, 0, stretch.stream, stretch.pool, small, {}, {}});
    RestoredArea& area = start.areas[entry->second];
    area.span = stretch.range.end() - area.base;
    if (area.span > kLongestArea)
      fail(stretch.event, "the memory mapped at " + hex(stretch.range.begin) +
                              " lies over 2^42 bytes above that at " + hex(area.base) +
                              ", though both are of one pool, stream and kind");
    if ((stretch.range.begin - area.base) % kMapUnit != 0)
      fail(stretch.event, "the memory mapped at " + hex(stretch.range.begin) +
                              " is not a multiple of 2 MiB from that at " + hex(area.base) +
                              ", though both are of one pool, stream and kind");
    area.memory.push_back(stretch.range);
    lay_out(stretch, true, area.objects);
  }
  follow_areas(start.areas);
}

/// Where memory was mapped and unmapped later shows how far an area reaches: below what was mapped at the
/// start, too. An area without memory is given up; what is mapped then is another's.
void Builder::follow_areas(std::vector<RestoredArea>& areas) const {
  std::vector<Size> mapped;  // bytes, by area; 0: given up
  for (const RestoredArea& area : areas) {
    Size sum = 0;
    for (const Range& range : area.memory) sum += range.size;
    mapped.push_back(sum);
  }
  for (const DeviceCall& call : workload_.device_calls().subspan(workload_.start_calls())) {
    if (call.step >= workload_.steps().size() || call.range.size > kLongestArea) continue;
    if (call.gives()) {  // for the allocation that follows
      if (workload_.steps()[call.step].kind != Workload::Kind::kAllocate) continue;
      const size_t object = workload_.steps()[call.step].object;
      const auto is_its = [&](const RestoredArea& area) {
        const Workload::Object& it = workload_.objects()[object];
        return area.stream == it.stream && area.pool == it.pool && area.small == is_small(object);
      };
      for (size_t i = 0; i < areas.size(); ++i) {
        if (mapped[i] == 0 || !is_its(areas[i])) continue;
        const Offset base = std::min(areas[i].base, call.range.begin);
        const Offset end = std::max(areas[i].base + areas[i].span, call.range.end());
        if (end - base > kLongestArea || (areas[i].base - base) % kMapUnit != 0) break;
        areas[i].base = base;
        areas[i].span = end - base;
        mapped[i] += call.range.size;
      }
      continue;
    }
    for (size_t i = 0; i < areas.size(); ++i) {
      if (call.range.begin >= areas[i].base && call.range.begin < areas[i].base + areas[i].span)
        mapped[i] -= std::min(mapped[i], call.range.size);
    }
  }
}

void Builder::run(RestoredState& start) {
  take_segments(start.expandable);
  take_objects();
  watch_gaps();
  for (const Stretch& stretch : stretches_) {
    start.held += stretch.range.size;
    start.objects += stretch.objects.size();
  }
  start.segments = stretches_.size();
  if (start.expandable) {
    join_areas(start);
    return;
  }
  for (const Stretch& stretch : stretches_) {
    const bool small = stretch.range.size == PyTorchRounding::kSmallSegment;
    start.areas.push_back(
        {stretch.range.begin, stretch.range.size, stretch.stream, stretch.pool, small, {stretch.range}, {}});
    lay_out(stretch, small, start.areas.back().objects);
  }
}

}  // namespace

std::string recorded_policy(const Workload& workload) {
  const std::span<const DeviceCall> calls = workload.device_calls();
  if (calls.empty()) {
    throw Error(
        "the trace has no recorded segments to start from: imports of PyTorch's memory snapshots have them, "
        "and text traces whose lines tell of segments");
  }
  const auto other = std::find_if(calls.begin(), calls.end(), [&](const DeviceCall& call) {
    return is_mapped(call.kind) != is_mapped(calls.front().kind);
  });
  if (other != calls.end()) {
    fail(other->event,
         "the recording has segments of both kinds, plain ones and mapped ones (expandable_segments "
         "was changed while the program ran); from such a state nothing can be simulated");
  }
  return is_mapped(calls.front().kind) ? "expandable" : "pytorch";
}

RestoredState restored_state(const Workload& workload, std::string_view policy) {
  PolicyText text = read_policy_text(policy);
  const std::string kind = recorded_policy(workload);
  RestoredState start;
  start.settings = torch_settings(policy);  // refuses what is not a policy
  if (text.name != "pytorch" && text.name != "expandable")
    throw Error("'" + std::string(policy) +
                "' cannot have made the recording: only PyTorch's allocators are known to");
  const PyTorchOptions options = take_pytorch_settings(text);
  start.expandable = kind == "expandable";
  if (options.expandable_segments != start.expandable) {
    throw Error("'" + std::string(policy) + "' cannot have made the recording, whose segments are " +
                (start.expandable ? "mapped (expandable)" : "plain (pytorch)"));
  }
  Builder(workload, options).run(start);
  return start;
}

}  // namespace memoir

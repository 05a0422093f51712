// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/skeleton.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "memoir/base/error.h"
#include "memoir/plan/align.h"

namespace memoir {

namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;  // upper, lower

struct Event {
  Tick tick = 0;
  bool begins = false;  // after those that end
  std::uint32_t buffer = 0;

  auto key() const { return std::tuple{tick, begins, buffer}; }
};

/// What lives now, by memory and offset.
struct Place {
  std::uint16_t memory = 0;
  Offset offset = 0;
  std::uint32_t buffer = 0;

  bool operator<(const Place& other) const {
    return std::tie(memory, offset) < std::tie(other.memory, other.offset);
  }
};

class Sweep {
 public:
  explicit Sweep(std::span<const PlannedAllocation> sequence) : sequence_(sequence) {}

  std::vector<Pair> pairs() {
    std::vector<Event> events;
    for (std::uint32_t i = 0; i < sequence_.size(); ++i) {
      if (!sequence_[i].planned()) continue;
      events.push_back({sequence_[i].lifetime.begin, true, i});
      events.push_back({sequence_[i].lifetime.end, false, i});
    }
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.key() < b.key(); });
    for (size_t from = 0; from < events.size();) {
      size_t to = from;
      for (; to < events.size() && events[to].tick == events[from].tick; ++to) {
        if (events[to].begins) live_.insert(place(events[to].buffer));
        else live_.erase(place(events[to].buffer));
      }
      // Neighbours are those who are it once the whole tick is told.
      for (; from < to; ++from) add_neighbours(place(events[from].buffer));
    }
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
    return std::move(pairs_);
  }

 private:
  Place place(std::uint32_t buffer) const {
    return {sequence_[buffer].memory, sequence_[buffer].offset, buffer};
  }

  /// The pair around that place, or when something lives there the two pairs that it is part of.
  void add_neighbours(const Place& place) {
    const auto at = live_.lower_bound(place);
    if (at == live_.end()) return;
    if (at != live_.begin()) add(*std::prev(at), *at);
    const auto next = std::next(at);
    if (at->memory == place.memory && at->offset == place.offset && next != live_.end()) add(*at, *next);
  }
  void add(const Place& lower, const Place& upper) {
    if (lower.memory == upper.memory) pairs_.emplace_back(upper.buffer, lower.buffer);
  }

  std::span<const PlannedAllocation> sequence_;
  std::set<Place> live_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::vector<std::uint32_t> order_by_offset(std::span<const PlannedAllocation> sequence) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < sequence.size(); ++i) {
    if (sequence[i].planned()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return sequence[a].offset < sequence[b].offset; });
  return order;
}

Skeleton find_skeleton(std::span<const PlannedAllocation> sequence) {
  if (sequence.size() >= size_t{1} << 30) throw Error("a plan of 2^30 allocations or more has no skeleton");
  const std::vector<Pair> pairs = Sweep(sequence).pairs();
  Skeleton skeleton{order_by_offset(sequence), std::vector<std::uint32_t>(sequence.size() + 1), {}};
  skeleton.below.reserve(pairs.size());
  for (const auto& [upper, lower] : pairs) {
    ++skeleton.first[upper + 1];
    skeleton.below.push_back(lower);
  }
  for (size_t i = 0; i < sequence.size(); ++i) skeleton.first[i + 1] += skeleton.first[i];
  return skeleton;
}

std::vector<Offset> place_on(const Skeleton& skeleton, std::span<const Size> sizes,
                             std::span<const Size> alignments) {
  const size_t buffers = skeleton.first.empty() ? 0 : skeleton.first.size() - 1;
  if (sizes.size() != buffers || alignments.size() != buffers) {
    throw Error("a skeleton of " + std::to_string(buffers) + " buffers was given " +
                std::to_string(sizes.size()) + " sizes and " + std::to_string(alignments.size()) +
                " alignments; it takes one of each per buffer");
  }
  std::vector<Offset> offsets(buffers);
  if (const auto bad = place_on(skeleton, sizes, alignments, offsets)) {
    if (alignments[*bad] == 0)
      throw Error("buffer " + std::to_string(*bad) + " has the alignment 0: it must be at least 1");
    throw Error("buffer " + std::to_string(*bad) + " of " + std::to_string(sizes[*bad]) +
                " bytes brings the sum of all sizes to 2^63 bytes or more");
  }
  return offsets;
}

std::optional<std::uint32_t> place_on(const Skeleton& skeleton, std::span<const Size> sizes,
                                      std::span<const Size> alignments, std::span<Offset> offsets) noexcept {
  std::fill(offsets.begin(), offsets.end(), kNoOffset);
  Size total = 0;
  for (const std::uint32_t buffer : skeleton.order) {
    if (alignments[buffer] == 0 || __builtin_add_overflow(total, sizes[buffer], &total) ||
        __builtin_add_overflow(total, alignments[buffer] - 1, &total) || total >> 63 != 0) {
      return buffer;
    }
    Offset offset = 0;
    for (const std::uint32_t lower : skeleton.below_of(buffer))
      offset = std::max(offset, offsets[lower] + sizes[lower]);
    offsets[buffer] = align_to(offset, alignments[buffer]);
  }
  return std::nullopt;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/loop_round.h"

#include <algorithm>

namespace memoir {

namespace {

/// In ticks; 0: it lives still.
std::uint32_t lifetime_of(const LoopDetector::Record& record) {
  return record.end == LoopDetector::kLive ? 0 : record.end - record.begin;
}

}  // namespace

/// Whatever was asked for in the last round but one and lives for less than a round has died by now.
LoopRound::LoopRound(const LoopDetector& detector) : first(detector.next() - 2 * detector.period()) {
  const std::uint32_t period = detector.period(), start = detector.record(first).begin;
  ticks = detector.record(first + period).begin - start;
  objects.reserve(period);
  for (std::uint32_t i = 0; i < period; ++i) {
    const LoopDetector::Record& record = detector.record(first + i);
    const LoopDetector::Record& again = detector.record(first + period + i);
    // On a device some frees come sooner or later than in the round before.
    const std::uint32_t lived =
        lifetime_of(record) == 0 ? 0 : std::max(lifetime_of(record), lifetime_of(again));
    objects.push_back(
        {record.size, record.stream, record.begin - start, lived <= ticks ? lived : 0, again.live});
    if (objects.back().ticks == 0) longer += record.size;
    least_live = std::min(least_live, again.live);
  }
}

std::uint32_t LoopRound::cut() const {
  const auto count = static_cast<std::uint32_t>(objects.size());
  std::vector<Size> change(count + 1, 0);  // of the bytes that pass, from request to request, modulo 2^64
  const auto add = [&](std::uint32_t begin, std::uint32_t end, Size size) {
    change[begin] += size;
    change[end] -= size;
  };
  const auto request_at = [&](std::uint32_t tick) {
    return static_cast<std::uint32_t>(std::partition_point(objects.begin(), objects.end(),
                                                           [&](const Object& o) { return o.begin < tick; }) -
                                      objects.begin());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    const Object& object = objects[i];
    if (object.ticks == 0) continue;
    const std::uint32_t end = object.begin + object.ticks;
    if (end <= ticks) {
      add(i + 1, std::max(request_at(end), i + 1), object.size);
    } else {
      add(i + 1, count, object.size);
      add(0, request_at(end - ticks), object.size);
    }
  }
  std::uint32_t best = 0;
  Size passing = 0, least = ~Size{0};
  for (std::uint32_t i = 0; i < count; ++i) {
    passing += change[i];
    if (passing >= least) continue;
    least = passing;
    best = i;
  }
  return best;
}

}  // namespace memoir

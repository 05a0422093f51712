// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/loop_detector.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr int kPlaceBits = 12;
// Requests in a period, and that agree before it is believed.
constexpr std::uint32_t kShortest = 16;
// Below so many requests it is a layer rather than a step, and has to repeat more often.
constexpr std::uint32_t kShort = 128, kRoundsOfShort = 4;
// Without trouble for so long, the detector sleeps.
constexpr std::uint64_t kQuietRounds = 16, kQuietRequests = 4096;
}  // namespace

bool LoopDetector::start() noexcept {
  // All pages are touched here, rather than by the requests.
  active_ =
      (!records_.empty() || records_.assign(kRecords, {})) && places_.assign(size_t{1} << kPlaceBits, {});
  next_ += kRecords;  // objects from before have numbers that are too old
  if (next_ == 0) next_ = 1;
  first_ = next_;
  period_ = 0;
  matched_ = 0;
  due_ = sleeps_ = false;
  return active_;
}

void LoopDetector::look_up(std::uint32_t number) noexcept {
  Place& place = places_[hash_ << 4 >> (64 - kPlaceBits)];
  const auto check = static_cast<std::uint32_t>(hash_ >> 8);
  const Place seen = place;
  place = {number, check};
  const std::uint32_t distance = number - seen.number;
  if (period_ != 0 || seen.number == 0 || seen.check != check || distance < kShortest || distance > kLongest)
    return;
  const std::uint32_t most = std::min(distance, seen.number - first_ + 1);
  std::uint32_t matched = 0;
  while (matched < most) {
    const Record &now = record(number - matched), &before = record(number - matched - distance);
    if (now.size != before.size || now.stream != before.stream) break;
    ++matched;
  }
  if (matched < kShortest) return;
  period_ = distance;
  matched_ = matched;
  wanted_ = std::uint64_t{distance} * rounds_ * (distance < kShort ? kRoundsOfShort : 1);
  quiet_ = 0;
  enough_ = std::max(kQuietRounds * distance, kQuietRequests);
}

}  // namespace memoir

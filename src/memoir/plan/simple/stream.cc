// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/stream.h"

#include <algorithm>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/index/gap_index.h"

namespace memoir {
namespace {

constexpr std::size_t kLeastWindow = 65'536;
constexpr std::size_t kWindowOfLive = 16;  // a window is so many times what is live
constexpr Size kMostBytes = Size{1} << 62;

}  // namespace

void StreamPlanner::add(const Buffer& buffer) {
  const auto refuse = [&](const std::string& what) {
    throw Error("buffer " + std::to_string(count_) + " " + what);
  };
  if (buffer.lifetime.begin >= buffer.lifetime.end) refuse("does not end after it begins");
  if (buffer.size == 0) refuse("has the size 0");
  if (buffer.alignment == 0) refuse("has the alignment 0: it must be at least 1");
  if (buffer.size >= kMostBytes || buffer.alignment >= kMostBytes)
    refuse("has a size or an alignment that is too large");
  if (buffer.lifetime.begin < last_birth_) {
    refuse("is born before the one that precedes it: a stream must be sorted by birth");
  }
  if (window_.size() >= std::max(kLeastWindow, kWindowOfLive * carried_.size())) plan_window();
  window_.push_back(buffer);
  last_birth_ = buffer.lifetime.begin;
  ++count_;
}

void StreamPlanner::finish() {
  if (!window_.empty()) plan_window();
}

void StreamPlanner::plan_window() {
  // Those still live first, where they are; then the window's own.
  Problem problem;
  problem.reserve(carried_.size() + window_.size());
  for (const Live& live : carried_) problem.push_back(live.buffer);
  problem.insert(problem.end(), window_.begin(), window_.end());
  validate(problem);
  const Sections sections = find_sections(problem);
  std::vector<Offset> offsets(problem.size());
  const Order order = make_order(problem, sections, "TW");
  const auto place = [&](auto&& find, auto&& insert) {
    for (std::size_t k = 0; k < carried_.size(); ++k)
      insert(static_cast<std::uint32_t>(k), carried_[k].offset);
    for (const std::uint32_t i : order) {
      if (i < carried_.size()) continue;
      offsets[i] = find(i);
      insert(i, offsets[i]);
    }
  };
  if (lives_long(sections)) {
    GapIndex index(problem);
    place([&](std::uint32_t i) { return index.find(i, Fit::kBest); },
          [&](std::uint32_t i, Offset offset) { index.place(i, offset); });
  } else {
    FitIndex index(problem, sections);
    place([&](std::uint32_t i) { return index.first_fit(i); },
          [&](std::uint32_t i, Offset offset) { index.insert(i, offset); });
  }
  for (std::size_t k = 0; k < window_.size(); ++k) hand_out(window_[k], offsets[carried_.size() + k]);

  // What is born from now on is born no earlier than the last of this window.
  const Tick now = window_.back().lifetime.begin;
  std::vector<Live> live;
  for (const Live& one : carried_) {
    if (one.buffer.lifetime.end > now) live.push_back(one);
  }
  for (std::size_t k = 0; k < window_.size(); ++k) {
    if (window_[k].lifetime.end > now) live.push_back({window_[k], offsets[carried_.size() + k]});
  }
  for (Live& one : live) one.buffer.lifetime.begin = now;
  carried_ = std::move(live);
  window_.clear();
}

// The sweep: what died leaves; the newcomer must lie between its neighbours in address.
void StreamPlanner::hand_out(const Buffer& buffer, Offset offset) {
  const Tick now = buffer.lifetime.begin;
  while (!deaths_.empty() && deaths_.front().first <= now) {
    std::pop_heap(deaths_.begin(), deaths_.end(), std::greater<>{});
    const auto dead = now_.find(deaths_.back().second);
    live_ -= dead->second - dead->first;
    now_.erase(dead);
    deaths_.pop_back();
  }
  const Offset end = offset + buffer.size;
  const auto above = now_.lower_bound(offset);
  MEMOIR_CHECK(offset % buffer.alignment == 0 && (above == now_.end() || end <= above->first) &&
                   (above == now_.begin() || std::prev(above)->second <= offset),
               "buffers that live together do not overlap");
  now_.emplace_hint(above, offset, end);
  deaths_.emplace_back(buffer.lifetime.end, offset);
  std::push_heap(deaths_.begin(), deaths_.end(), std::greater<>{});
  live_ += buffer.size;
  load_ = std::max(load_, live_);
  most_live_ = std::max(most_live_, now_.size());
  arena_ = std::max(arena_, end);
  decided_(offset);
}

}  // namespace memoir

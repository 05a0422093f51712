// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/greedy.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "memoir/plan/align.h"
#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

using Order = std::vector<std::uint32_t>;

constexpr Size kClassesOfOctave = 8;

Order all_of(const Problem& problem) {
  Order order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

Tick length(const Buffer& buffer) { return buffer.lifetime.end - buffer.lifetime.begin; }

bool larger(const Buffer& a, const Buffer& b) {
  return a.size != b.size ? a.size > b.size : length(a) > length(b);
}

template <class Before>
Plan first_fit(const Problem& problem, Before before) {
  validate(problem);
  Order order = all_of(problem);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return before(problem[a], problem[b]); });
  return place_in_order(problem, order, Fit::kFirst);
}

/// The births in order of time with the live bytes just after each, and for a lifetime the widest of those in
/// it.
class Breadths {
 public:
  explicit Breadths(const Problem& problem) {
    std::vector<std::pair<Tick, Size>> births, deaths;
    for (const Buffer& buffer : problem) {
      births.emplace_back(buffer.lifetime.begin, buffer.size);
      deaths.emplace_back(buffer.lifetime.end, buffer.size);
    }
    std::sort(births.begin(), births.end());
    std::sort(deaths.begin(), deaths.end());
    Size live = 0;
    auto death = deaths.begin();
    for (const auto& [tick, size] : births) {
      while (death != deaths.end() && death->first <= tick) live -= (death++)->second;
      live += size;
      if (ticks_.empty() || ticks_.back() != tick) {
        ticks_.push_back(tick);
        bytes_.push_back(0);
      }
      bytes_.back() = live;
    }
    // widest_[k][i] is the widest of the 2^k births from the i-th on (a sparse table).
    Order self(ticks_.size());
    std::iota(self.begin(), self.end(), 0u);
    widest_.push_back(std::move(self));
    for (size_t half = 1; 2 * half <= ticks_.size(); half *= 2) {
      const Order& below = widest_.back();
      Order level(ticks_.size() - 2 * half + 1);
      for (size_t i = 0; i < level.size(); ++i) level[i] = wider(below[i], below[i + half]);
      widest_.push_back(std::move(level));
    }
  }

  /// Births are numbered in order of time.
  std::uint32_t widest(const Lifetime& lifetime) const {
    const size_t begin = std::lower_bound(ticks_.begin(), ticks_.end(), lifetime.begin) - ticks_.begin();
    const size_t end = std::lower_bound(ticks_.begin(), ticks_.end(), lifetime.end) - ticks_.begin();
    const auto level = static_cast<size_t>(std::bit_width(end - begin) - 1);
    return wider(widest_[level][begin], widest_[level][end - (size_t{1} << level)]);
  }
  Size bytes(std::uint32_t birth) const { return bytes_[birth]; }

 private:
  std::uint32_t wider(std::uint32_t a, std::uint32_t b) const {
    return bytes_[a] > bytes_[b] || (bytes_[a] == bytes_[b] && a < b) ? a : b;
  }

  std::vector<Tick> ticks_;
  std::vector<Size> bytes_;
  std::vector<Order> widest_;
};

}  // namespace

Plan bump(const Problem& problem) {
  validate(problem);
  Plan plan{std::vector<Offset>(problem.size()), 0};
  for (size_t i = 0; i < problem.size(); ++i) {
    plan.offsets[i] = align_to(plan.arena_size, problem[i].alignment);
    plan.arena_size = plan.offsets[i] + problem[i].size;
  }
  return plan;
}

Plan recycle(const Problem& problem) {
  validate(problem);
  Order births = all_of(problem), deaths = births;
  std::sort(births.begin(), births.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem[a].lifetime.begin < problem[b].lifetime.begin;
  });
  stop_point();
  std::sort(deaths.begin(), deaths.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem[a].lifetime.end < problem[b].lifetime.end;
  });
  stop_point();
  const auto room_of = [&](const Buffer& buffer) {
    const Size step = std::bit_floor(buffer.size) / kClassesOfOctave;
    return align_to(align_to(buffer.size, std::max<Size>(step, 1)), buffer.alignment);
  };
  std::map<std::pair<Size, Size>, std::vector<Offset>> free;  // by room and alignment
  Plan plan{std::vector<Offset>(problem.size()), 0};
  Offset top = 0;
  auto death = deaths.begin();
  for (const std::uint32_t i : births) {
    for (; death != deaths.end() && problem[*death].lifetime.end <= problem[i].lifetime.begin; ++death)
      free[{room_of(problem[*death]), problem[*death].alignment}].push_back(plan.offsets[*death]);
    std::vector<Offset>& places = free[{room_of(problem[i]), problem[i].alignment}];
    if (places.empty()) {
      places.push_back(align_to(top, problem[i].alignment));
      top = places.back() + room_of(problem[i]);
    }
    plan.offsets[i] = places.back();
    places.pop_back();
    plan.arena_size = std::max(plan.arena_size, plan.offsets[i] + problem[i].size);
  }
  return plan;
}

Plan greedy_by_size(const Problem& problem) {
  validate(problem);
  Order order = all_of(problem);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return larger(problem[a], problem[b]); });
  return place_in_order(problem, order, Fit::kBest);
}

Plan greedy_by_breadth(const Problem& problem) {
  validate(problem);
  // A buffer is placed at the widest tick of its lifetime: the first one at which it is met.
  const Breadths breadths(problem);
  Order tick(problem.size());
  for (size_t i = 0; i < problem.size(); ++i) tick[i] = breadths.widest(problem[i].lifetime);
  Order order = all_of(problem);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (tick[a] == tick[b]) return larger(problem[a], problem[b]);
    const Size bytes_a = breadths.bytes(tick[a]), bytes_b = breadths.bytes(tick[b]);
    return bytes_a != bytes_b ? bytes_a > bytes_b : tick[a] < tick[b];
  });
  return place_in_order(problem, order, Fit::kBest);
}

Plan first_fit_by_start(const Problem& problem) {
  return first_fit(problem, [&](const Buffer& a, const Buffer& b) {
    return a.lifetime.begin != b.lifetime.begin ? a.lifetime.begin < b.lifetime.begin : a.size > b.size;
  });
}

Plan first_fit_by_length(const Problem& problem) {
  return first_fit(problem, [&](const Buffer& a, const Buffer& b) {
    return length(a) != length(b) ? length(a) > length(b) : a.size > b.size;
  });
}

Plan first_fit_by_area(const Problem& problem) {
  const auto area = [](const Buffer& a) {
    return static_cast<double>(length(a)) * static_cast<double>(a.size);
  };
  return first_fit(problem, [&](const Buffer& a, const Buffer& b) {
    return area(a) != area(b) ? area(a) > area(b) : larger(a, b);
  });
}

Plan greedy_by_conflicts(const Problem& problem) {
  validate(problem);
  std::vector<Tick> births, deaths;
  for (const Buffer& buffer : problem) {
    births.push_back(buffer.lifetime.begin);
    deaths.push_back(buffer.lifetime.end);
  }
  std::sort(births.begin(), births.end());
  std::sort(deaths.begin(), deaths.end());
  std::vector<size_t> conflicts(problem.size());
  for (size_t i = 0; i < problem.size(); ++i) {  // those born before it dies, less those dead when it is born
    const auto& [begin, end] = problem[i].lifetime;
    conflicts[i] = (std::lower_bound(births.begin(), births.end(), end) - births.begin()) -
                   (std::upper_bound(deaths.begin(), deaths.end(), begin) - deaths.begin());
  }
  Order order = all_of(problem);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return conflicts[a] != conflicts[b] ? conflicts[a] > conflicts[b] : larger(problem[a], problem[b]);
  });
  return place_in_order(problem, order, Fit::kFirst);
}

}  // namespace memoir

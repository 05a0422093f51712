// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/boxing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <queue>

#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

constexpr double kEpsilon = 0.25;       // sizes are rounded up to powers of 1 + this
constexpr std::size_t kInnerStrip = 4;  // boxes to a strip: 1 / epsilon
// boxes' worth of the outermost that stay unresolved at a critical time
constexpr std::size_t kOuterStrip = 4;
constexpr double kSmall = 8;    // how often a boxed one fits into its box, at least
constexpr double kStorey = 16;  // by how much boxes grow

using Ids = std::vector<std::uint32_t>;

/// A buffer, or a box of earlier ones.
struct Body {
  Lifetime lifetime;
  double height;
  std::vector<std::pair<std::uint32_t, double>> inside{};  // and where, from the bottom of the box
};

class Boxing {
 public:
  explicit Boxing(const Problem& problem) {
    for (const Buffer& buffer : problem) {
      bodies_.push_back({buffer.lifetime, static_cast<double>(buffer.size)});
    }
  }

  /// Offsets at which buffers may overlap no one, with much air between them.
  std::vector<double> run() {
    Ids open(bodies_.size());
    std::iota(open.begin(), open.end(), 0u);
    const auto lower = [&](std::uint32_t a, std::uint32_t b) {
      return bodies_[a].height < bodies_[b].height;
    };
    const auto [least, most] = std::minmax_element(open.begin(), open.end(), lower);
    const double highest = bodies_[*most].height;
    for (double height = kStorey * bodies_[*least].height; height < highest; height *= kStorey) {
      const auto rest = std::partition(open.begin(), open.end(),
                                       [&](std::uint32_t i) { return bodies_[i].height > height / kSmall; });
      const Ids small(rest, open.end());
      open.erase(rest, open.end());
      box(small, height, open);
    }
    Ids boxes;
    box(open, highest, boxes);
    std::vector<double> offsets(bodies_.size());
    const Ids rows = colour(boxes);
    for (std::size_t k = 0; k < boxes.size(); ++k) offsets[boxes[k]] = rows[k] * highest;
    // A box comes after what it holds, so from the last to the first each knows its own offset.
    for (std::size_t i = bodies_.size(); i-- > 0;) {
      for (const auto& [inner, at] : bodies_[i].inside) offsets[inner] = offsets[i] + at;
    }
    return offsets;
  }

 private:
  // Corollary 15: into boxes of one height, class by class.
  void box(const Ids& ids, double height, Ids& boxes) {
    std::map<int, Ids> classes;
    for (const std::uint32_t i : ids) {
      const double times = height / bodies_[i].height;
      classes[static_cast<int>(std::floor(std::log(times) / std::log1p(kEpsilon)))].push_back(i);
    }
    for (auto& [power, members] : classes) {
      stop_point();
      const double unit = height / std::pow(1 + kEpsilon, power);
      rows_ = std::max<std::size_t>(1, static_cast<std::size_t>(height / unit + 1e-9));
      height_ = height;
      unit_ = height / static_cast<double>(rows_);
      Ids unresolved;
      std::sort(members.begin(), members.end(), [&](auto a, auto b) { return earlier(a, b); });
      box_units(std::move(members), unresolved, boxes);
      std::sort(unresolved.begin(), unresolved.end(), [&](auto a, auto b) { return earlier(a, b); });
      const Ids colours = colour(unresolved);
      std::vector<std::vector<std::pair<std::uint32_t, double>>> storeys;
      for (std::size_t k = 0; k < unresolved.size(); ++k) {
        const std::size_t storey = colours[k] / rows_;
        if (storey >= storeys.size()) storeys.resize(storey + 1);
        storeys[storey].emplace_back(unresolved[k], static_cast<double>(colours[k] % rows_) * unit_);
      }
      for (auto& storey : storeys) close(std::move(storey), boxes);
    }
  }

  // Theorem 2: `ids` of unit height, by birth; boxes that hold rows_ of them at a time.
  void box_units(Ids ids, Ids& unresolved, Ids& boxes) {
    while (!ids.empty()) {
      stop_point();
      const Tick critical = bodies_[ids[ids.size() / 2]].lifetime.begin;
      Ids before, across, after;
      for (const std::uint32_t i : ids) {
        const auto& [begin, end] = bodies_[i].lifetime;
        (end <= critical ? before : begin > critical ? after : across).push_back(i);
      }
      strips(std::move(across), unresolved, boxes);
      box_units(std::move(before), unresolved, boxes);  // at most half of them: born before the middle one
      ids = std::move(after);
    }
  }

  // Lemma 1, for those that all live at one time, by birth.
  void strips(Ids ids, Ids& unresolved, Ids& boxes) {
    if (rows_ == 1) {
      unresolved.insert(unresolved.end(), ids.begin(), ids.end());
      return;
    }
    std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return earlier(a, b); });
    // The earliest births and the latest deaths are left over.
    const std::size_t outer = std::min(ids.size(), kOuterStrip * rows_);
    unresolved.insert(unresolved.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(outer));
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(outer));
    const auto later = [&](std::uint32_t a, std::uint32_t b) {
      return bodies_[a].lifetime.end > bodies_[b].lifetime.end;
    };
    std::stable_sort(ids.begin(), ids.end(), later);
    const std::size_t top = std::min(ids.size(), kOuterStrip * rows_);
    unresolved.insert(unresolved.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(top));
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(top));
    // Strips of the earliest births, cut by death.
    std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return earlier(a, b); });
    for (std::size_t from = 0; from < ids.size(); from += kInnerStrip * rows_) {
      const std::size_t to = std::min(ids.size(), from + kInnerStrip * rows_);
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(from);
      const auto end = ids.begin() + static_cast<std::ptrdiff_t>(to);
      std::stable_sort(begin, end, later);
      for (auto part = begin; part != end;) {
        const auto next =
            end - part > static_cast<std::ptrdiff_t>(rows_) ? part + static_cast<std::ptrdiff_t>(rows_) : end;
        std::vector<std::pair<std::uint32_t, double>> inside;
        for (; part != next; ++part) inside.emplace_back(*part, static_cast<double>(inside.size()) * unit_);
        close(std::move(inside), boxes);
      }
    }
  }

  // One box for each stretch of time without a pause.
  void close(std::vector<std::pair<std::uint32_t, double>> inside, Ids& boxes) {
    std::stable_sort(inside.begin(), inside.end(),
                     [&](const auto& a, const auto& b) { return earlier(a.first, b.first); });
    for (auto begin = inside.begin(); begin != inside.end();) {
      Lifetime hull = bodies_[begin->first].lifetime;
      auto end = begin;
      for (; end != inside.end() && bodies_[end->first].lifetime.begin < hull.end; ++end) {
        hull.end = std::max(hull.end, bodies_[end->first].lifetime.end);
      }
      boxes.push_back(static_cast<std::uint32_t>(bodies_.size()));
      bodies_.push_back({hull, height_, {begin, end}});
      begin = end;
    }
  }

  // The interval graph: rows such that no two of a row live together, as few as there can be.
  Ids colour(const Ids& ids) const {
    Ids order(ids.size()), rows(ids.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return earlier(ids[a], ids[b]); });
    using Busy = std::pair<Tick, std::uint32_t>;  // until when, and which row
    std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
    std::priority_queue<std::uint32_t, Ids, std::greater<>> free;
    std::uint32_t count = 0;
    for (const std::uint32_t k : order) {
      const auto& [begin, end] = bodies_[ids[k]].lifetime;
      for (; !busy.empty() && busy.top().first <= begin; busy.pop()) free.push(busy.top().second);
      if (free.empty()) free.push(count++);
      rows[k] = free.top();
      free.pop();
      busy.emplace(end, rows[k]);
    }
    return rows;
  }

  bool earlier(std::uint32_t a, std::uint32_t b) const {
    return bodies_[a].lifetime.begin < bodies_[b].lifetime.begin;
  }

  std::vector<Body> bodies_;  // the buffers, then the boxes
  std::size_t rows_ = 1;      // of the boxes being filled
  double unit_ = 0, height_ = 0;
};

}  // namespace

Plan boxing(const Problem& problem) {
  validate(problem);
  if (problem.empty()) return {};
  const std::vector<double> loose = Boxing(problem).run();
  Ids order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (loose[a] != loose[b]) return loose[a] < loose[b];
    const Lifetime &la = problem[a].lifetime, &lb = problem[b].lifetime;
    return la.end - la.begin > lb.end - lb.begin;
  });
  return place_in_order(problem, order, Fit::kFirst);
}

}  // namespace memoir

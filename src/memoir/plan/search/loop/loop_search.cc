// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/loop/loop_search.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "memoir/plan/index/first_fit_orders.h"
#include "memoir/plan/index/fit_index.h"

namespace memoir {
namespace {

constexpr double kFullLoop = 0.9;          // of the fullest section: what is below has room anyway
constexpr std::size_t kMostOfRing = 1200;  // buffers
constexpr std::size_t kMostRings = 12;
constexpr std::uint64_t kLooksOfTurn = 300'000;  // of one buffer at another
constexpr std::uint64_t kMovesOfEnds = 15'000;   // of one turn
constexpr unsigned kTurnsOfExact = 3;            // of the ends, until the exact search has one
constexpr std::uint32_t kTurnsOfEnds = 2;        // of a ring: rounds that are not pinned
constexpr std::uint64_t kPatienceOfEnds = 20;    // placements of each buffer at the ends
constexpr std::size_t kMostSearched = 3000;      // the same, by the exact search
constexpr std::size_t kMostOfEnds = 20'000;      // buffers
constexpr Size kMostPadding = 1 << 16;
constexpr std::size_t kFewAround = 5000;  // buffers: they are fitted in several orders

}  // namespace

LoopSearch::LoopSearch(const Problem& problem, const Sections& sections,
                       const std::vector<std::uint32_t>& said, std::uint64_t seed)
    : problem_(problem), sections_(sections), seed_(seed) {
  std::vector<Loop> loops =
      said.empty() ? find_loops(problem, sections) : said_loops(problem, sections, said);
  const double most = static_cast<double>(sections.max_load());
  bool counts = false;
  for (Loop& loop : loops) {
    Plans plans;
    Size alignment = 1;
    for (const LoopBuffer& buffer : loop.body) alignment = std::lcm(alignment, buffer.alignment);
    if (alignment > kMostPadding) continue;
    plans.unit = 0;
    for (LoopBuffer& buffer : loop.body) {
      buffer.size = (buffer.size + alignment - 1) / alignment * alignment;
      plans.unit = std::gcd(plans.unit, buffer.size);
    }
    Size fullest = 0;
    for (std::uint32_t s = loop.first; s < loop.last; ++s) fullest = std::max(fullest, sections.load[s]);
    counts |= static_cast<double>(fullest) >= kFullLoop * most;
    std::vector<bool> inside(problem.size());
    for (const LoopInstance& one : loop.instances) inside[one.buffer] = true;
    for (std::uint32_t i = 0; i < problem.size(); ++i) {
      if (!inside[i] && sections.first[i] <= loop.first && sections.last[i] >= loop.last)
        plans.beside += problem[i].size;
    }
    plans.load = fullest > plans.beside ? fullest - plans.beside : 0;
    plans.loop = std::move(loop);
    loops_.push_back(std::move(plans));
  }
  if (!counts) loops_.clear();
}

// The next larger one. False: there is none.
bool LoopSearch::add_ring(Plans& plans) {
  const Loop& loop = plans.loop;
  while (!plans.all_rings) {
    const std::uint32_t rounds = plans.next_rounds++;
    const std::size_t count = rounds * loop.body.size();
    plans.all_rings = count + loop.body.size() > kMostOfRing || plans.rings.size() + 1 >= kMostRings;
    if (count > kMostOfRing && !plans.rings.empty()) return false;
    if (count > 4 * kMostOfRing) return false;
    bool fits = true;
    const auto meet = loop.meetings(sections_, rounds, fits);
    if (!fits) continue;
    std::vector<Size> sizes;
    std::vector<std::uint32_t> lives;
    for (std::size_t k = 0; k < count; ++k) {
      sizes.push_back(loop.body[k % loop.body.size()].size);
      lives.push_back(loop.body[k % loop.body.size()].length);
    }
    std::vector<std::uint32_t> begins;
    for (std::size_t k = 0; k < count; ++k) {
      begins.push_back(loop.body[k % loop.body.size()].begin +
                       static_cast<std::uint32_t>(k / loop.body.size()) * loop.period);
    }
    plans.rings.push_back(
        std::make_unique<Ring>(std::move(sizes), std::move(lives), meet, plans.unit, seed_ + rounds));
    if (loop.period > 0) plans.rings.back()->cut_open(begins, rounds * loop.period);
    plans.rounds.push_back(rounds);
    return true;
  }
  return false;
}

// Bytes of the ring that are small enough.
Size LoopSearch::goal_of(const Plans& plans, Size target) {
  const Size goal = std::max(plans.load, target > plans.beside ? target - plans.beside : 0);
  return (goal + plans.unit - 1) / plans.unit * plans.unit;
}

// The second best every other turn, the third best every fourth, and so on.
std::size_t LoopSearch::one_of(const Plans& plans, std::uint64_t turn) {
  std::vector<std::size_t> by_height(plans.rings.size());
  std::iota(by_height.begin(), by_height.end(), std::size_t{0});
  std::stable_sort(by_height.begin(), by_height.end(),
                   [&](auto a, auto b) { return plans.rings[a]->height() < plans.rings[b]->height(); });
  return by_height[std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(turn)) + 1,
                                         by_height.size() - 1)];
}

Size LoopSearch::top(const Plans& plans) const {
  return plans.rings.empty() ? ~Size{0} : plans.rings[plans.best]->height() + plans.beside;
}

std::vector<Offset> LoopSearch::step(Size target, const SearchLimits& limits, std::uint64_t& work) {
  ++work;
  bool better = false, any = false;
  // First each loop gets a ring; then the one that needs the most bytes is worked on.
  for (Plans& plans : loops_) {
    if (plans.rings.empty() && !add_ring(plans)) continue;
    any = true;
    if (plans.rings[0]->height() != ~Size{0}) continue;
    plans.rings[0]->improve(goal_of(plans, target), 1, limits, work);
    better = true;
  }
  if (!any) return ended_ = true, std::vector<Offset>{};
  std::erase_if(loops_, [](const Plans& plans) { return plans.rings.empty(); });
  Plans& worst = *std::max_element(loops_.begin(), loops_.end(),
                                   [&](const Plans& a, const Plans& b) { return top(a) < top(b); });
  const Size goal = goal_of(worst, target);
  if (top(worst) > goal + worst.beside) {
    const Size height = worst.rings[worst.best]->height();
    // Every other time the best; else a new one, or of the others the better ones more often.
    const std::uint64_t turn = worst.turn++;
    std::size_t k = worst.best;
    if (turn % 2 == 0 && add_ring(worst)) k = worst.rings.size() - 1;
    else if (turn % 2 == 0) k = one_of(worst, turn / 2 + 1);
    Ring& ring = *worst.rings[k];
    ring.improve(goal, std::max<std::uint64_t>(1, kLooksOfTurn / static_cast<std::uint64_t>(1 + ring.met())),
                 limits, work);
    if (ring.height() < height) worst.best = k, better = true;
  } else if (!ends_ && !better) {
    ended_ = true;
  }
  const Size arena = arena_;
  if (better) {
    unroll();
    work += problem_.size();
  }
  const Size floor = std::max(target, top(worst));
  if (ends_ && arena_ > floor) improve_ends(floor, work + kMovesOfEnds, limits, work);
  else ends_.reset();
  return arena_ < arena ? offsets_ : std::vector<Offset>{};
}

void LoopSearch::unroll() {
  FitIndex index(problem_, sections_);
  std::vector<std::pair<Offset, Offset>> taken;
  // Of two loops the later ones give way.
  for (const Plans& plans : loops_) {
    const Ring& ring = *plans.rings[plans.best];
    const auto rounds = static_cast<std::int64_t>(plans.rounds[plans.best]);
    for (const LoopInstance& one : plans.loop.instances) {
      const std::int64_t round = (one.round % rounds + rounds) % rounds;
      const Offset at = ring.offsets()[static_cast<std::size_t>(round) * plans.loop.body.size() + one.body];
      bool free = true;
      if (&plans != &loops_.front()) {
        index.each_neighbour(one.buffer, [&](std::uint32_t, Offset begin, Offset end) {
          free = free && (end <= at || at + problem_[one.buffer].size <= begin);
        });
      }
      if (free) index.insert(one.buffer, at);
    }
  }
  std::vector<std::uint32_t> around;
  for (std::uint32_t i = 0; i < problem_.size(); ++i) {
    if (!index.contains(i)) around.push_back(i);
  }
  std::vector<Offset> best;
  Size least = ~Size{0};
  for (const std::string_view keys : {"W", "TW", "A", "ZW"}) {
    std::vector<std::uint32_t> place(problem_.size());
    const Order order = make_order(problem_, sections_, keys);
    for (std::uint32_t k = 0; k < order.size(); ++k) place[order[k]] = k;
    std::sort(around.begin(), around.end(), [&](auto a, auto b) { return place[a] < place[b]; });
    for (const std::uint32_t i : around) index.insert(i, index.first_fit(i));
    std::vector<Offset> offsets(problem_.size());
    for (std::uint32_t i = 0; i < problem_.size(); ++i) offsets[i] = index.offset_of(i);
    const Size arena = arena_size(problem_, offsets);
    if (arena < least) least = arena, best = std::move(offsets);
    if (around.empty() || around.size() > kFewAround || problem_.size() > 20 * kFewAround) break;
    for (const std::uint32_t i : around) index.erase(i);
  }
  const bool better = least < arena_;
  if (!better && arena_ != ~Size{0} && around.empty()) return;
  placed_ = std::move(best);
  if (better) arena_ = least, offsets_ = placed_;
  find_ends(around);
}

// All around, but what lives through the loops, and the rounds at their ends.
void LoopSearch::find_ends(const std::vector<std::uint32_t>& around) {
  ends_.reset();
  const Grid grid = find_grid(problem_);
  for (const Buffer& buffer : problem_) {
    if (grid.unit % buffer.alignment != 0) return;
  }
  std::vector<bool> loose(problem_.size());
  for (const std::uint32_t i : around) loose[i] = true;
  for (const Plans& plans : loops_) {
    const std::uint32_t margin = kTurnsOfEnds * plans.rounds[plans.best] * std::max(plans.loop.period, 1u);
    for (const LoopInstance& one : plans.loop.instances) {
      const std::uint32_t first = sections_.first[one.buffer], last = sections_.last[one.buffer];
      loose[one.buffer] = first < plans.loop.first + margin || last + margin > plans.loop.last;
    }
    for (const std::uint32_t i : around) {
      if (sections_.first[i] <= plans.loop.first && sections_.last[i] >= plans.loop.last) loose[i] = false;
    }
  }
  // Those that are near.
  std::vector<std::uint32_t> delta(sections_.count + 1);
  for (std::uint32_t i = 0; i < problem_.size(); ++i) {
    if (loose[i]) ++delta[sections_.first[i]], --delta[sections_.last[i]];
  }
  std::vector<std::uint32_t> crowded(sections_.count + 1);  // sections before, in which one of them lives
  for (std::uint32_t s = 0, live = 0; s < sections_.count; ++s) {
    live += delta[s];
    crowded[s + 1] = crowded[s] + (live > 0);
  }
  std::vector<std::uint32_t> buffers;
  std::vector<Offset> offsets;
  std::vector<bool> pinned;
  Problem some, moving;
  Stretches stretches;
  std::vector<std::uint32_t> movers;
  Size least = 0, fixed = 0;
  for (std::uint32_t i = 0; i < problem_.size(); ++i) {
    if (!loose[i] && crowded[sections_.first[i]] == crowded[sections_.last[i]]) {
      fixed = std::max(fixed, placed_[i] + problem_[i].size);
      continue;
    }
    buffers.push_back(i);
    offsets.push_back(placed_[i]);
    pinned.push_back(!loose[i]);
    some.push_back(problem_[i]);
    least = std::max(least, problem_[i].size);
    if (!loose[i]) fixed = std::max(fixed, placed_[i] + problem_[i].size);
    else movers.push_back(static_cast<std::uint32_t>(some.size() - 1));
  }
  if (some.size() > kMostOfEnds) return;
  const Sections sections = find_sections(some);
  std::unique_ptr<ExactTurns> exact;
  if (!movers.empty() && movers.size() <= kMostSearched) {
    for (const std::uint32_t k : movers) {
      moving.push_back({{sections.first[k], sections.last[k]}, some[k].size, some[k].alignment});
      stretches.add(moving.back(), {moving.back().lifetime});
    }
    for (std::uint32_t k = 0; k < some.size(); ++k) {
      if (pinned[k])
        stretches.add_obstacle({sections.first[k], sections.last[k]}, {offsets[k], some[k].size});
    }
    exact = std::make_unique<ExactTurns>(std::move(moving), std::move(stretches), seed_);
  }
  Squeeze squeeze(some, sections, grid, seed_);
  squeeze.pin(std::move(pinned));
  const Size height = arena_size(problem_, placed_);
  ends_.emplace(
      Ends{std::move(buffers), std::move(offsets), height, std::max(least, fixed),
           Press(std::move(squeeze), grid.unit, std::max(least, fixed), kPatienceOfEnds * movers.size()),
           std::move(movers), 0, std::move(exact)});
}

void LoopSearch::improve_ends(Size target, std::uint64_t last, const SearchLimits& limits,
                              std::uint64_t& work) {
  Ends& ends = *ends_;
  const Size before = ends.height;
  const std::uint64_t begin = work;
  target = std::max(target, ends.pinned);
  ends.press.run(ends.offsets, ends.height, target, last, limits, work, [&](std::vector<Offset>& found) {
    Size height = ends.pinned;
    for (std::size_t k = 0; k < found.size(); ++k)
      height = std::max(height, found[k] + problem_[ends.buffers[k]].size);
    return height;
  });
  // Where that leads nowhere, the exact search has a try now and then.
  const bool searches = ends.exact && ++ends.turns % kTurnsOfExact == 0;
  while (searches && ends.height == before && ends.height > target) {
    const std::vector<Offset> found =
        ends.exact->run(ends.height, target, last + (last - begin) / 2, limits, work);
    if (found.empty()) break;
    ends.height = ends.pinned;
    for (std::size_t k = 0; k < found.size(); ++k) {
      ends.offsets[ends.loose[k]] = found[k];
      ends.height = std::max(ends.height, found[k] + problem_[ends.buffers[ends.loose[k]]].size);
    }
    ends.press.forget();
  }
  if (ends.height >= before || ends.height >= arena_) return;
  offsets_ = placed_;
  for (std::size_t k = 0; k < ends.buffers.size(); ++k) offsets_[ends.buffers[k]] = ends.offsets[k];
  arena_ = ends.height;
}

}  // namespace memoir

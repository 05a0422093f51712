// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/loop/periods.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

constexpr std::size_t kMostLoops = 8, kLeastRounds = 4, kRoundsToSee = 3;
constexpr std::uint32_t kLeastWindow = 12;           // sections
constexpr std::uint64_t kMostMeetings = 20'000'000;  // of instances that meet, where only they say who does
constexpr std::int64_t kRoundsTried = 4;             // of each buffer of the body, for one of the epilogue

using List = std::vector<std::uint32_t>;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

class Finder {
 public:
  Finder(const Problem& problem, const Sections& sections)
      : problem_(problem), sections_(sections), hash_(sections.count), born_begin_(sections.count + 1) {
    for (std::uint32_t i = 0; i < problem.size(); ++i) {
      const std::uint64_t length = sections.last[i] - sections.first[i];
      hash_[sections.first[i]] += mix(mix(mix(length) + problem[i].size) + problem[i].alignment);
      ++born_begin_[sections.first[i] + 1];
    }
    std::partial_sum(born_begin_.begin(), born_begin_.end(), born_begin_.begin());
    born_.resize(problem.size());
    List fill(born_begin_.begin(), born_begin_.end() - 1);
    for (std::uint32_t i = 0; i < problem.size(); ++i) born_[fill[sections.first[i]]++] = i;
  }

  std::vector<Loop> run() {
    const std::uint32_t count = sections_.count;
    for (std::uint32_t length = count; length >= kLeastWindow; length /= 2) {
      const std::uint32_t stride = std::max<std::uint32_t>(1, length / 2);
      for (std::uint32_t at = 0; at + length <= count; at += stride) {
        stop_point();
        look(at, length);
      }
    }
    std::stable_sort(loops_.begin(), loops_.end(),
                     [](const Loop& a, const Loop& b) { return a.last - a.first > b.last - b.first; });
    if (loops_.size() > kMostLoops) loops_.resize(kMostLoops);
    in_loop_.assign(problem_.size(), false);
    for (Loop& loop : loops_) fill(loop);
    for (Loop& loop : loops_) adopt(loop);
    return std::move(loops_);
  }

 private:
  void look(std::uint32_t at, std::uint32_t length) {
    for (const Loop& loop : loops_) {
      if (at < loop.last && loop.first < at + length) return;
    }
    // The longest proper prefix that is a suffix too; what is left of the window is its smallest period.
    border_.assign(length, 0);
    for (std::uint32_t i = 1, k = 0; i < length; ++i) {
      while (k > 0 && hash_[at + i] != hash_[at + k]) k = border_[k - 1];
      if (hash_[at + i] == hash_[at + k]) ++k;
      border_[i] = k;
    }
    const std::uint32_t period = length - border_.back();
    if (period > length / kRoundsToSee) return;
    Loop loop;
    loop.first = at, loop.last = at + length, loop.period = period;
    while (loop.first > 0 && hash_[loop.first - 1] == hash_[loop.first - 1 + period]) --loop.first;
    while (loop.last < sections_.count && hash_[loop.last] == hash_[loop.last - period]) ++loop.last;
    if (loop.last - loop.first < kLeastRounds * period) return;
    loops_.push_back(std::move(loop));
  }

  // What is born in that section, in an order that all rounds have.
  List births(std::uint32_t section) const {
    List born(born_.begin() + born_begin_[section], born_.begin() + born_begin_[section + 1]);
    const auto key = [&](std::uint32_t i) {
      return std::tuple(sections_.last[i], problem_[i].size, problem_[i].alignment, i);
    };
    std::sort(born.begin(), born.end(), [&](auto a, auto b) { return key(a) < key(b); });
    return born;
  }

  void fill(Loop& loop) {
    List body_begin;
    for (std::uint32_t s = loop.first; s < loop.first + loop.period; ++s) {
      body_begin.push_back(static_cast<std::uint32_t>(loop.body.size()));
      for (const std::uint32_t i : births(s)) {
        loop.body.push_back({s - loop.first, sections_.last[i] - sections_.first[i], problem_[i].size,
                             problem_[i].alignment});
      }
    }
    for (std::uint32_t s = loop.first; s < loop.last; ++s) {
      const std::uint32_t phase = (s - loop.first) % loop.period;
      std::uint32_t body = body_begin[phase];
      for (const std::uint32_t i : births(s)) {
        const std::uint32_t b = body++;
        if (in_loop_[i] || b >= loop.body.size()) continue;
        // Hashes are not a proof.
        if (loop.body[b].begin != phase || loop.body[b].length != sections_.last[i] - sections_.first[i] ||
            loop.body[b].size != problem_[i].size || loop.body[b].alignment != problem_[i].alignment)
          continue;
        in_loop_[i] = true;
        loop.instances.push_back({i, b, (s - loop.first) / loop.period});
      }
    }
  }

  // Those around it that live within a buffer of a round that is not there.
  void adopt(Loop& loop) {
    std::map<std::pair<Size, Size>, List> by_size;
    std::uint32_t longest = 0;
    for (std::uint32_t b = 0; b < loop.body.size(); ++b) {
      by_size[{loop.body[b].size, loop.body[b].alignment}].push_back(b);
      longest = std::max(longest, loop.body[b].length);
    }
    std::set<std::pair<std::uint32_t, std::int64_t>> taken;
    const std::int64_t period = loop.period, rounds = (loop.last - loop.first) / loop.period;
    for (const LoopInstance& one : loop.instances) {
      if (one.round >= rounds) taken.emplace(one.body, one.round);
    }
    const std::uint32_t from = loop.first > longest + loop.period ? loop.first - longest - loop.period : 0;
    const std::uint32_t to = std::min(sections_.count, loop.last + longest + loop.period);
    for (std::uint32_t s = from; s < to; ++s) {
      if (s == loop.first) s = loop.last;
      if (s >= to) break;
      for (const std::uint32_t i : births(s)) {
        if (in_loop_[i]) continue;
        const auto same = by_size.find({problem_[i].size, problem_[i].alignment});
        if (same == by_size.end()) continue;
        const std::int64_t begin = std::int64_t{sections_.first[i]} - loop.first;
        const std::int64_t end = std::int64_t{sections_.last[i]} - loop.first;
        for (const std::uint32_t b : same->second) {
          const LoopBuffer& body = loop.body[b];
          const std::int64_t latest = floor_div(begin - body.begin, period);
          const std::int64_t earliest = -floor_div(-(end - body.length - body.begin), period);
          for (std::int64_t r = latest; r >= earliest && r > latest - kRoundsTried && !in_loop_[i]; --r) {
            if ((r >= 0 && r < rounds) || !taken.emplace(b, r).second) continue;
            in_loop_[i] = true;
            loop.instances.push_back({i, b, r});
          }
          if (in_loop_[i]) break;
        }
      }
    }
  }

  const Problem& problem_;
  const Sections& sections_;
  std::vector<std::uint64_t> hash_;
  List born_begin_, born_;  // per section, who is born there
  List border_;
  std::vector<bool> in_loop_;
  std::vector<Loop> loops_;
};

}  // namespace

std::vector<std::pair<std::uint32_t, std::uint32_t>> Loop::meetings(const Sections& sections,
                                                                    std::uint32_t rounds, bool& fits) const {
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  std::vector<Pair> meet;
  const auto count = static_cast<std::uint32_t>(body.size());
  fits = true;
  if (period > 0) {
    const std::uint64_t around = std::uint64_t{rounds} * period;
    for (const LoopBuffer& buffer : body) fits = fits && buffer.length <= around;
    if (!fits) return {};
    for (std::uint32_t a = 0; a < count * rounds; ++a) {
      const std::uint64_t from = body[a % count].begin + std::uint64_t{a / count} * period;
      for (std::uint32_t b = 0; b < a; ++b) {
        const std::uint64_t other = body[b % count].begin + std::uint64_t{b / count} * period;
        const std::uint64_t ahead = (other + around - from) % around, behind = (around - ahead) % around;
        if (ahead < body[a % count].length || behind < body[b % count].length) meet.emplace_back(b, a);
      }
    }
    return meet;
  }
  // Nobody knows when, but who met in the rounds that there are.
  std::vector<LoopInstance> by_birth = instances;
  std::sort(by_birth.begin(), by_birth.end(), [&](const auto& a, const auto& b) {
    return std::pair(sections.first[a.buffer], a.buffer) < std::pair(sections.first[b.buffer], b.buffer);
  });
  const auto slot = [&](const LoopInstance& one) {
    return static_cast<std::uint32_t>(one.round % rounds) * count + one.body;
  };
  std::vector<LoopInstance> live;
  std::uint64_t pairs = 0;
  for (const LoopInstance& one : by_birth) {
    std::erase_if(
        live, [&](const auto& other) { return sections.last[other.buffer] <= sections.first[one.buffer]; });
    pairs += live.size();
    for (const LoopInstance& other : live) {
      const std::uint32_t a = slot(one), b = slot(other);
      fits = fits && a != b;
      meet.emplace_back(std::min(a, b), std::max(a, b));
    }
    live.push_back(one);
    if (!fits || pairs > kMostMeetings) return fits = false, std::vector<Pair>{};
  }
  std::sort(meet.begin(), meet.end());
  meet.erase(std::unique(meet.begin(), meet.end()), meet.end());
  return meet;
}

std::vector<Loop> find_loops(const Problem& problem, const Sections& sections) {
  if (problem.empty()) return {};
  return Finder(problem, sections).run();
}

std::vector<Loop> said_loops(const Problem& problem, const Sections& sections,
                             const std::vector<std::uint32_t>& said) {
  std::vector<std::uint32_t> by_birth;
  for (std::uint32_t i = 0; i < said.size(); ++i) {
    if (said[i] != kNoLoop) by_birth.push_back(i);
  }
  std::stable_sort(by_birth.begin(), by_birth.end(),
                   [&](auto a, auto b) { return sections.first[a] < sections.first[b]; });
  Loop loop;
  loop.first = sections.count;
  std::unordered_map<std::uint32_t, std::uint32_t> body_of;  // what was said
  std::vector<std::int64_t> rounds;
  for (const std::uint32_t i : by_birth) {
    const auto [at, is_new] = body_of.emplace(said[i], static_cast<std::uint32_t>(loop.body.size()));
    if (is_new) loop.body.emplace_back(), rounds.push_back(0);
    LoopBuffer& body = loop.body[at->second];
    body.size = std::max(body.size, problem[i].size);
    body.alignment = std::lcm(body.alignment, problem[i].alignment);
    body.length = std::max(body.length, sections.last[i] - sections.first[i]);
    loop.instances.push_back({i, at->second, rounds[at->second]++});
    loop.first = std::min(loop.first, sections.first[i]);
    loop.last = std::max(loop.last, sections.first[i] + 1);
  }
  if (rounds.empty() || *std::max_element(rounds.begin(), rounds.end()) < std::int64_t{kLeastRounds})
    return {};
  std::vector<Loop> loops;
  loops.push_back(std::move(loop));
  return loops;
}

}  // namespace memoir

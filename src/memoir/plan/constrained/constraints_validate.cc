// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/plan/align.h"
#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/constrained/constraints.h"

namespace memoir {
namespace {

std::string text(std::uint64_t value) { return std::to_string(value); }
std::string text(Lifetime lifetime) {
  return std::string("[") + text(lifetime.begin) + ", " + text(lifetime.end) + ")";
}
std::string text(Range range) { return text(range.begin) + ":" + text(range.end()); }

class Validator {
 public:
  explicit Validator(const ConstrainedProblem& problem)
      : problem_(problem), said_(problem.constraints), buffers_(problem.buffers) {}

  void run() {
    plain();
    if (said_.none()) return;
    lengths();
    arenas();
    sums();
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffer(i);
    aliases();
    rows();
    pairs();
    fixed_together();
  }

 private:
  [[noreturn]] void refuse(std::size_t buffer, const std::string& what) const {
    throw Error(problem_.refusal(buffer, what));
  }

  void plain() const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const auto& [lifetime, _, alignment] = buffers_[i];
      if (lifetime.begin >= lifetime.end)
        refuse(i, "has the lifetime " + text(lifetime) + ": it must end after it begins");
      if (alignment == 0) refuse(i, "has the alignment 0: it must be at least 1");
    }
    validate(buffers_, Empty::kAllowed);  // the sum
  }

  void lengths() const {
    const auto length = [&](const char* what, std::size_t size) {
      if (size == 0 || size == buffers_.size()) return;
      throw Error(std::string(what) + " has " + text(size) + " elements for " + text(buffers_.size()) +
                  " buffers; it must have as many");
    };
    length("gaps", said_.gaps.size());
    length("fixed", said_.fixed.size());
    length("hint", said_.hints.size());
    length("size_low", said_.low_sizes.size());
    length("alias", said_.alias.size());
    length("after", said_.after.size());
    length("arenas", said_.allowed.size());
    length("weight", said_.weights.size());
    length("loop", said_.loops.size());
    length("the plan to be changed", said_.old.size());
    if (buffers_.size() >= kNoBuffer) throw Error("there are 2^32 - 1 buffers or more");
  }

  void arenas() const {
    if (said_.arenas.size() > kMaxArenas) throw Error("there are more than 64 arenas");
    for (std::size_t k = 0; k < said_.arenas.size(); ++k) {
      const ArenaChoice& arena = said_.arenas[k];
      for (std::size_t l = 0; l < k; ++l) {
        if (said_.arenas[l].name == arena.name) throw Error("two arenas are called '" + arena.name + "'");
      }
      for (const Range& range : arena.forbidden) {
        if (range.size == 0) throw Error("the forbidden range " + text(range) + " is empty");
        if (range.begin >= kMaxConstrainedBytes || range.size >= kMaxConstrainedBytes) {
          throw Error("the forbidden range " + text(range) + " ends beyond 2^60 bytes");
        }
      }
    }
    const Banks& banks = said_.banks;
    if (banks.count != 0 && (banks.count == 1 || banks.width == 0 || banks.count > 1u << 16 ||
                             banks.width > kMaxConstrainedBytes >> 16)) {
      throw Error("banks must be 2 to 65,536, of 1 byte to 2^44 bytes each");
    }
    if (!said_.apart.empty() && banks.count == 0) {
      throw Error("some buffers must not share a bank, but no banks are given: say how many, and how wide");
    }
  }

  void buffer(std::size_t i) const {
    const auto& [lifetime, size, alignment] = buffers_[i];
    if (!said_.gaps.empty()) gaps(i);
    if (!said_.low_sizes.empty() && ((said_.low_sizes[i] == 0 && size != 0) || said_.low_sizes[i] > size)) {
      refuse(i, "has a smallest size of " + text(said_.low_sizes[i]) +
                    " bytes, which is not within 1 and its size of " + text(size));
    }
    const std::uint64_t allowed = allowed_of(said_, i);
    if (allowed == 0) refuse(i, "may be in no arena");
    if (!said_.fixed.empty() && said_.fixed[i] != kNoOffset) {
      const Offset fixed = said_.fixed[i];
      if (fixed % alignment != 0) {
        refuse(i, "has the fixed offset " + text(fixed) + ", which is not a multiple of its alignment of " +
                      text(alignment));
      }
      if (fixed >= kMaxConstrainedBytes) refuse(i, "has a fixed offset of 2^60 or more");
      const Range range{fixed, size};
      const std::vector<ArenaChoice> arenas = arenas_of(said_);
      std::uint64_t open = allowed;
      const Range* met = nullptr;
      for (std::size_t k = 0; k < arenas.size(); ++k) {
        for (const Range& forbidden : arenas[k].forbidden) {
          if (!forbidden.overlaps(range)) continue;
          open &= ~(std::uint64_t{1} << k);
          met = &forbidden;
        }
      }
      if (open == 0) {
        refuse(i, "has the fixed bytes " + text(range) + ", which touch the forbidden range " + text(*met));
      }
    }
    if (!said_.old.empty() && said_.old[i].offset != kNoOffset &&
        (said_.old[i].offset >= kMaxConstrainedBytes ||
         said_.old[i].arena >= std::max<std::size_t>(1, said_.arenas.size()))) {
      refuse(i, "has an old place that is in no arena");
    }
  }

  void gaps(std::size_t i) const {
    if (!said_.timed && !said_.gaps[i].empty()) refuse(i, "has gaps, but there are no times");
    Tick end = buffers_[i].lifetime.begin;
    for (const Gap& gap : said_.gaps[i]) {
      const std::string shown = "has the gap " + text(gap.lifetime);
      if (gap.lifetime.begin >= gap.lifetime.end) refuse(i, shown + ", which is empty or inverted");
      if (gap.lifetime.begin < buffers_[i].lifetime.begin || gap.lifetime.end > buffers_[i].lifetime.end) {
        refuse(i, shown + ", which leaves its lifetime " + text(buffers_[i].lifetime));
      }
      if (gap.lifetime.begin < end) refuse(i, shown + ", which overlaps another or is out of order");
      end = gap.lifetime.end;
      if (gap.window && (gap.window->size == 0 || gap.window->begin >= buffers_[i].size ||
                         gap.window->size > buffers_[i].size - gap.window->begin)) {
        refuse(i,
               shown + " with a window that is not within its size of " + text(buffers_[i].size) + " bytes");
      }
    }
  }

  void aliases() const {
    if (said_.alias.empty()) return;
    std::vector<std::uint8_t> state(buffers_.size());  // 1: on the way, 2: done
    for (std::uint32_t i = 0; i < buffers_.size(); ++i) {
      const std::uint32_t other = said_.alias[i];
      if (other == kNoBuffer) continue;
      if (other >= buffers_.size()) refuse(i, "is an alias of a buffer that is not there");
      if (buffers_[i].size != buffers_[other].size) {
        refuse(i, "is an alias of another size: " + text(buffers_[i].size) + " bytes, but " +
                      problem_.name(other) + " has " + text(buffers_[other].size));
      }
      std::uint32_t k = i;
      for (; k != kNoBuffer && state[k] == 0; k = said_.alias[k]) {
        state[k] = 1;
        if (said_.alias[k] != kNoBuffer && said_.alias[k] >= buffers_.size())
          refuse(k, "is an alias of a buffer that is not there");
      }
      if (k != kNoBuffer && state[k] == 1) refuse(i, "is an alias of itself, through other aliases");
      for (k = i; k != kNoBuffer && state[k] == 1; k = said_.alias[k]) state[k] = 2;
    }
  }

  /// Where it follows from one to the next whose bytes a buffer has: the last of its aliases.
  std::uint32_t root(std::uint32_t i) const {
    while (!said_.alias.empty() && said_.alias[i] != kNoBuffer) i = said_.alias[i];
    return i;
  }

  /// Every buffer has one neighbour on each side at most, and rows end.
  void rows() const {
    if (said_.after.empty()) return;
    const auto n = static_cast<std::uint32_t>(buffers_.size());
    std::vector<std::uint32_t> above(n, kNoBuffer), below(n, kNoBuffer);
    std::vector<bool> in_row(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t other = said_.after[i];
      if (other == kNoBuffer) continue;
      if (other >= n) refuse(i, "comes after a buffer that is not there");
      const std::uint32_t mine = root(i), its = root(other);
      if (mine == its) refuse(i, "comes after itself, or after an alias of its own");
      if (above[its] != kNoBuffer && above[its] != mine) {
        refuse(i, "and " + problem_.name(above[its]) + " both come right after " + problem_.name(other));
      }
      if (below[mine] != kNoBuffer && below[mine] != its) {
        refuse(i, "comes right after both " + problem_.name(other) + " and " + problem_.name(below[mine]));
      }
      above[its] = mine;
      below[mine] = its;
      in_row[mine] = in_row[its] = true;
    }
    std::vector<bool> seen(n);
    for (std::uint32_t head = 0; head < n; ++head) {
      if (below[head] != kNoBuffer) continue;
      for (std::uint32_t i = head; i != kNoBuffer; i = above[i]) seen[i] = true;
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!seen[i]) refuse(i, "comes after itself, through others");
      if (in_row[root(i)] && said_.replanned()) {
        refuse(i, "lies in a row (after), which an earlier plan cannot be changed with: plan it again");
      }
    }
    const auto alone = [&](const std::vector<Constraints::Pair>& pairs, const char* what) {
      for (const auto& [i, j] : pairs) {
        for (const std::uint32_t k : {i, j}) {
          if (k < n && in_row[root(k)])
            refuse(k, std::string("lies in a row (after) and is in ") + what +
                          ": it can only be in one of the two");
        }
      }
    };
    alone(said_.in_place, "in_place");
    alone(said_.apart, "apart");
  }

  void prices() const {
    Size sum = 0;
    for (const auto& [i, j, price] : said_.prices) {
      if (i >= buffers_.size() || j >= buffers_.size())
        throw Error("a price names a buffer that is not there");
      if (i == j) refuse(i, "has a price with itself");
      if (price >= kMaxConstrainedBytes || (sum += price) >= kMaxConstrainedBytes)
        refuse(i, "brings the sum of all prices to 2^60 bytes or more");
    }
  }

  void pairs() const {
    const auto each = [&](const std::vector<Constraints::Pair>& pairs, const char* what) {
      for (const auto& [i, j] : pairs) {
        if (i >= buffers_.size() || j >= buffers_.size())
          throw Error(std::string("a pair of ") + what + " names a buffer that is not there");
        if (i == j) refuse(i, std::string("is in ") + what + " with itself");
      }
    };
    each(said_.in_place, "in_place");
    each(said_.apart, "apart");
    each(said_.conflicts, "conflict");
    prices();
    conflicts_in_place();
    const Bodies bodies = make_bodies(problem_);
    Size slack = 0;
    for (std::size_t b = 0; b < bodies.bodies.size(); ++b) {
      const Body& body = bodies.bodies[b];
      const std::uint32_t first = body.members.front();
      if (body.allowed == 0) refuse(first, "shares with aliases that may not lie in any of its arenas");
      for (const std::uint32_t member : body.members) {
        if (!said_.fixed.empty() && said_.fixed[member] != kNoOffset &&
            said_.fixed[member] != body.fixed + bodies.shift[member]) {
          refuse(member, body.row ? "has a fixed offset that does not go together with its row (after)"
                                  : "has another fixed offset than its alias");
        }
      }
      if (body.misplaced != kNoBuffer) {
        refuse(body.misplaced, "has an alignment of " + text(buffers_[body.misplaced].alignment) +
                                   ", which it cannot have right after the others of its row");
      }
      if (body.fixed != kNoOffset && body.fixed % body.alignment != 0)
        refuse(first, body.row ? "lies in a row (after) whose alignments a fixed offset breaks"
                               : "shares with an alias whose alignment its fixed offset breaks");
      Size step = body.alignment;
      if (!body.apart.empty()) {
        const Size period = said_.banks.count * said_.banks.width, part = step / std::gcd(step, period);
        step = part > kMaxConstrainedBytes / period ? kMaxConstrainedBytes : part * period;
      }
      if (step >= kMaxConstrainedBytes || (slack += step) > kMaxConstrainedBytes) {
        refuse(first,
               "has an alignment that goes together with the others' or with the banks only at 2^60 bytes");
      }
    }
    for (const auto& [i, j] : said_.conflicts) {
      if (root(i) == root(j)) refuse(i, "conflicts with " + problem_.name(j) + " and is its alias");
    }
    for (const auto& [i, j] : said_.apart) {
      if (bodies.body_of[i] == bodies.body_of[j])
        refuse(i, "must not share a bank with " + problem_.name(j) + " and is its alias");
      const auto least = [&](std::uint32_t k) {
        return (buffers_[k].size + said_.banks.width - 1) / said_.banks.width;
      };
      const std::uint64_t common = allowed_of(said_, i) & allowed_of(said_, j);
      if (common == allowed_of(said_, i) && std::has_single_bit(common) && allowed_of(said_, j) == common &&
          least(i) + least(j) > said_.banks.count) {
        refuse(i, "must not share a bank with " + problem_.name(j) + ", but they need " +
                      text(least(i) + least(j)) + " of the " + text(said_.banks.count) + " banks");
      }
    }
  }

  void conflicts_in_place() const {
    std::vector<Constraints::Pair> conflicts;
    for (const auto& [i, j] : said_.conflicts) conflicts.emplace_back(std::min(i, j), std::max(i, j));
    std::sort(conflicts.begin(), conflicts.end());
    for (const auto& [output, input] : said_.in_place) {
      const Constraints::Pair pair{std::min(output, input), std::max(output, input)};
      if (std::binary_search(conflicts.begin(), conflicts.end(), pair)) {
        refuse(output,
               "may lie in place of " + problem_.name(input) + " and conflicts with it: say one of the two");
      }
    }
  }

  void sums() const {
    const std::vector<ArenaChoice> arenas = arenas_of(said_);
    Size total = 0;
    std::uint64_t cost = 0, dearest = 0;
    for (const ArenaChoice& arena : arenas) dearest = std::max(dearest, arena.cost);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      total += buffers_[i].size + (buffers_[i].alignment - 1);
      if (total >= kMaxConstrainedBytes) {
        refuse(i, "of " + text(buffers_[i].size) +
                      " bytes brings the sum of all sizes to 2^60 bytes or more, the most with constraints");
      }
      std::uint64_t one = 0;
      if (__builtin_mul_overflow(weight_of(problem_, i), dearest, &one) ||
          __builtin_add_overflow(cost, one, &cost) || cost >> 62 != 0) {
        refuse(i, "brings the sum of weight x cost to 2^62 or more: scale the weights or the costs down");
      }
    }
  }

  void fixed_together() const {
    if (said_.fixed.empty()) return;
    const Bodies bodies = make_bodies(problem_);
    ConstrainedPlan plan;
    plan.offsets.resize(buffers_.size());
    plan.arenas.resize(buffers_.size());
    plan.arena_sizes.assign(bodies.arenas.size(), kNoLimit);
    std::vector<bool> known(buffers_.size());
    for (const Body& body : bodies.bodies) {
      if (body.fixed == kNoOffset || !std::has_single_bit(body.allowed)) continue;
      for (const std::uint32_t member : body.members) {
        plan.offsets[member] = body.fixed + bodies.shift[member];
        plan.arenas[member] = static_cast<std::uint32_t>(std::countr_zero(body.allowed));
        known[member] = true;
      }
    }
    if (const auto violation = check(problem_, plan, &known)) {
      refuse(violation->first, "and " + problem_.name(violation->second) +
                                   " are fixed where they cannot be together: " + violation->what);
    }
  }

  const ConstrainedProblem& problem_;
  const Constraints& said_;
  const Problem& buffers_;
};

}  // namespace

void validate(const ConstrainedProblem& problem) { Validator(problem).run(); }

}  // namespace memoir

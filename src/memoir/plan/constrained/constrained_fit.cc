// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/constrained_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace memoir {
namespace {

class Placer {
 public:
  Placer(const Bodies& bodies, const Sections& sections, const FitOptions& options)
      : bodies_(bodies),
        sections_(sections),
        options_(options),
        fitter_(bodies, sections),
        kept_(bodies.bodies.size()) {
    by_cost_.resize(bodies.arenas.size());
    std::iota(by_cost_.begin(), by_cost_.end(), 0u);
    std::stable_sort(by_cost_.begin(), by_cost_.end(),
                     [&](auto a, auto b) { return bodies.arenas[a].cost < bodies.arenas[b].cost; });
  }

  std::optional<ConstrainedPlan> run() {
    const auto n = static_cast<std::uint32_t>(bodies_.bodies.size());
    order_ = make_order();
    keep_old_places();
    for (const std::uint32_t b : order_) {
      if (!fitter_.placed(b) && !place(b)) return std::nullopt;
    }
    if (bodies_.arenas.size() > 1) {
      for (int round = 0; round < 2 && promote(); ++round) {
      }
    }
    if (bodies_.problem->constraints.replanned() && n > 0) move_more();
    return to_plan(bodies_, fitter_.offsets(), fitter_.arenas());
  }

 private:
  const Body& body(std::uint32_t b) const { return bodies_.bodies[b]; }
  double width(std::uint32_t b) const {
    double ticks = 0;
    for (std::uint32_t p = body(b).first_piece; p < body(b).last_piece; ++p)
      ticks += static_cast<double>(bodies_.pieces[p].lifetime.end - bodies_.pieces[p].lifetime.begin);
    return ticks == 0 ? 1 + static_cast<double>(body(b).edges.size()) : ticks;
  }

  /// What is pinned or hard to place goes first; then by the keys.
  std::vector<std::uint32_t> make_order() const {
    const auto n = static_cast<std::uint32_t>(bodies_.bodies.size());
    std::vector<Size> fullest;
    if (options_.order.find('T') != options_.order.npos) {
      const std::vector<Size> of_piece = fullest_section(bodies_.pieces, sections_);
      fullest.assign(n, 0);
      for (std::uint32_t p = 0; p < of_piece.size(); ++p)
        fullest[bodies_.piece_body[p]] = std::max(fullest[bodies_.piece_body[p]], of_piece[p]);
    }
    Random random(options_.seed);
    std::vector<std::array<double, 4>> keys(n);
    for (std::uint32_t b = 0; b < n; ++b) {
      const double shake = options_.noise == 0 ? 1 : std::exp(options_.noise * random.normal());
      const double size = static_cast<double>(body(b).size), ticks = width(b);
      const bool empty = body(b).first_piece == body(b).last_piece;
      keys[b].fill(0);
      keys[b][0] = body(b).fixed != kNoOffset ? 2e9 : static_cast<double>(body(b).apart.size());
      for (std::size_t k = 0; k < options_.order.size() && k < 3; ++k) {
        double& key = keys[b][k + 1];
        switch (options_.order[k]) {
          case 'A':
            key = size * ticks * shake;
            break;
          case 'W':
            key = ticks * shake;
            break;
          case 'Z':
            key = size * shake;
            break;
          case 'T':
            key = static_cast<double>(fullest[b]);
            break;
          case 'L':
            key =
                empty ? 0 : -static_cast<double>(bodies_.pieces[body(b).first_piece].lifetime.begin) * shake;
            break;
          case 'D':
            key = static_cast<double>(body(b).weight) / (size * ticks) * shake;
            break;
          case 'B':
            key = static_cast<double>(body(b).weight) / size * shake;
            break;
        }
      }
    }
    std::vector<std::uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] > keys[b]; });
    return order;
  }

  /// To the cheapest arena that has room; where none has, to the one that it overflows least.
  bool place(std::uint32_t b) {
    for (const std::uint32_t k : by_cost_) {
      if ((body(b).allowed >> k & 1) == 0) continue;
      const Offset at = fitter_.find(b, k, options_.fit, bodies_.arenas[k].capacity, options_.sharing);
      if (at == kNoOffset) continue;
      fitter_.insert(b, k, at);
      return true;
    }
    Size least = kNoLimit;
    std::uint32_t arena = 0;
    Offset place = kNoOffset;
    for (const std::uint32_t k : by_cost_) {
      if ((body(b).allowed >> k & 1) == 0) continue;
      const Offset at = fitter_.find(b, k, Fit::kFirst, kNoLimit, options_.sharing);
      if (at == kNoOffset ||
          at + body(b).size - std::min(at + body(b).size, bodies_.arenas[k].capacity) >= least)
        continue;
      least = at + body(b).size - std::min(at + body(b).size, bodies_.arenas[k].capacity);
      arena = k;
      place = at;
    }
    if (place == kNoOffset) return false;
    fitter_.insert(b, arena, place);
    return true;
  }

  // --- replanning ---

  OldPlace old_place(std::uint32_t b) const {
    const auto& old = bodies_.problem->constraints.old;
    OldPlace most;
    std::ptrdiff_t votes = 0;
    for (const std::uint32_t i : body(b).members) {
      if (old[i].offset == kNoOffset) continue;
      const auto same = std::count_if(body(b).members.begin(), body(b).members.end(),
                                      [&](auto j) { return old[j] == old[i]; });
      if (same > votes) votes = same, most = old[i];
    }
    return most;
  }

  void keep_old_places() {
    if (!bodies_.problem->constraints.replanned()) return;
    // Those with the fewest collisions among the old places first, so that few have to move.
    const auto n = static_cast<std::uint32_t>(bodies_.bodies.size());
    for (const std::uint32_t b : order_) {
      if (body(b).fixed == kNoOffset) break;
      if (!place(b)) return;
    }
    std::vector<OldPlace> old(n);
    for (std::uint32_t b = 0; b < n; ++b) {
      old[b] = old_place(b);
      if (old[b].offset == kNoOffset) continue;
      const ArenaChoice& arena = bodies_.arenas[old[b].arena];
      const bool possible = (body(b).allowed >> old[b].arena & 1) != 0 &&
                            old[b].offset + body(b).size <= arena.capacity &&
                            next_place(body(b), arena, old[b].offset) == old[b].offset;
      if (!possible || fitter_.placed(b)) old[b].offset = kNoOffset;
    }
    std::vector<std::uint32_t> left;
    for (const std::uint32_t b : order_) {
      if (old[b].offset == kNoOffset) continue;
      if (fitter_.free_at(b, old[b].arena, old[b].offset)) {
        fitter_.insert(b, old[b].arena, old[b].offset);
        kept_[b] = true;
      } else {
        left.push_back(b);
      }
    }
    // One that stands in the way of several gives way to them.
    for (const std::uint32_t b : left) {
      const std::vector<std::uint32_t> blockers = in_the_way(b, old[b]);
      if (blockers.size() != 1) continue;
      const std::uint32_t blocker = blockers[0];
      if (!kept_[blocker]) continue;
      std::vector<std::uint32_t> gained;
      fitter_.erase(blocker);
      for (const std::uint32_t c : left) {
        if (fitter_.placed(c) || !fitter_.free_at(c, old[c].arena, old[c].offset)) continue;
        fitter_.insert(c, old[c].arena, old[c].offset);
        gained.push_back(c);
      }
      if (gained.size() > 1) {
        kept_[blocker] = false;
        for (const std::uint32_t c : gained) kept_[c] = true;
      } else {
        for (const std::uint32_t c : gained) fitter_.erase(c);
        fitter_.insert(blocker, old[blocker].arena, old[blocker].offset);
      }
    }
  }

  /// Placed bodies that keep b from lying there.
  std::vector<std::uint32_t> in_the_way(std::uint32_t b, const OldPlace& place) {
    std::vector<std::uint32_t> others;
    fitter_.each_conflict(b, place.arena, [&](std::uint32_t other) {
      const Range mine{place.offset, body(b).size}, its{fitter_.offset_of(other), body(other).size};
      if (mine.overlaps(its)) others.push_back(other);
    });
    std::sort(others.begin(), others.end());
    others.erase(std::unique(others.begin(), others.end()), others.end());
    return others;
  }

  std::uint64_t moved_members() const {
    const auto& old = bodies_.problem->constraints.old;
    std::uint64_t moves = 0;
    for (std::size_t i = 0; i < old.size(); ++i) {
      const std::uint32_t b = bodies_.body_of[i];
      moves += old[i].offset != kNoOffset &&
               (old[i].offset != fitter_.offset_of(b) || old[i].arena != fitter_.arena_of(b));
    }
    return moves;
  }

  Size excess_of(std::uint32_t b) const {
    const Size end = fitter_.offset_of(b) + body(b).size,
               capacity = bodies_.arenas[fitter_.arena_of(b)].capacity;
    return end > capacity ? end - capacity : 0;
  }

  /// Lets go of kept ones, as long as the limit allows it (or a capacity asks for it), and keeps what helps.
  void move_more() {
    const Constraints& said = bodies_.problem->constraints;
    for (int rounds = 0; rounds < 200; ++rounds) {
      std::uint32_t top = 0;
      Size excess = 0;
      for (std::uint32_t b = 0; b < bodies_.bodies.size(); ++b) {
        excess = std::max(excess, excess_of(b));
        if (fitter_.offset_of(b) + body(b).size > fitter_.offset_of(top) + body(top).size) top = b;
      }
      if (excess == 0 && !said.moves) return;
      const std::uint64_t budget = said.moves ? *said.moves : ~std::uint64_t{0};
      if (moved_members() + 1 > budget) return;
      std::vector<std::uint32_t> candidates;
      if (kept_[top]) candidates.push_back(top);
      fitter_.each_conflict(top, fitter_.arena_of(top), [&](std::uint32_t other) {
        if (kept_[other]) candidates.push_back(other);
      });
      std::sort(candidates.begin(), candidates.end(), [&](auto a, auto b) {
        return body(a).size != body(b).size ? body(a).size > body(b).size : a < b;
      });
      candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
      if (candidates.size() > 12) candidates.resize(12);
      const std::vector<Offset> offsets = fitter_.offsets();
      const std::vector<std::uint32_t> arenas = fitter_.arenas();
      const auto measure = [&] {
        Size total = 0, over = 0;
        for (std::uint32_t b = 0; b < bodies_.bodies.size(); ++b) {
          total = std::max(total, fitter_.offset_of(b) + body(b).size);
          over = std::max(over, excess_of(b));
        }
        return std::pair(over, total);
      };
      auto best = measure();
      std::uint32_t released = kNoBuffer;
      for (const std::uint32_t candidate : candidates) {
        kept_[candidate] = false;
        if (refit() && moved_members() <= budget && measure() < best) {
          best = measure();
          released = candidate;
        }
        kept_[candidate] = true;
        restore(offsets, arenas);
      }
      if (released == kNoBuffer) return;
      kept_[released] = false;
      refit();
    }
  }

  bool refit() {
    for (const std::uint32_t b : order_) {
      if (!kept_[b] && fitter_.placed(b)) fitter_.erase(b);
    }
    for (const std::uint32_t b : order_) {
      if (!fitter_.placed(b) && !place(b)) return false;
    }
    return true;
  }

  void restore(const std::vector<Offset>& offsets, const std::vector<std::uint32_t>& arenas) {
    for (std::uint32_t b = 0; b < offsets.size(); ++b) {
      if (fitter_.placed(b) && (fitter_.offset_of(b) != offsets[b] || fitter_.arena_of(b) != arenas[b]))
        fitter_.erase(b);
    }
    for (std::uint32_t b = 0; b < offsets.size(); ++b) {
      if (!fitter_.placed(b)) fitter_.insert(b, arenas[b], offsets[b]);
    }
  }

  // --- several arenas ---

  /// Packs the cheap arenas again, tighter, and brings over from dearer ones what then finds room.
  bool promote() {
    bool better = false;
    std::vector<std::uint32_t> by_area(order_), by_gain(order_);
    std::stable_sort(by_area.begin(), by_area.end(), [&](auto a, auto b) {
      return static_cast<double>(body(a).size) * width(a) > static_cast<double>(body(b).size) * width(b);
    });
    std::stable_sort(by_gain.begin(), by_gain.end(),
                     [&](auto a, auto b) { return body(a).weight > body(b).weight; });
    for (std::size_t rank = 0; rank + 1 < by_cost_.size(); ++rank) {
      const std::uint32_t k = by_cost_[rank];
      const std::vector<Offset> offsets = fitter_.offsets();
      const std::vector<std::uint32_t> arenas = fitter_.arenas();
      const auto movable = [&](std::uint32_t b) {
        return arenas[b] == k && body(b).fixed == kNoOffset && !kept_[b];
      };
      for (const std::uint32_t b : by_area) {
        if (movable(b)) fitter_.erase(b);
      }
      bool all = true;
      for (const std::uint32_t b : by_area) {
        if (fitter_.placed(b)) continue;
        const Offset at = fitter_.find(b, k, Fit::kFirst, bodies_.arenas[k].capacity, options_.sharing);
        if (at == kNoOffset) {
          all = false;
          break;
        }
        fitter_.insert(b, k, at);
      }
      if (!all) restore(offsets, arenas);
      for (const std::uint32_t b : by_gain) {
        const std::uint32_t from = fitter_.arena_of(b);
        if (bodies_.arenas[from].cost <= bodies_.arenas[k].cost || (body(b).allowed >> k & 1) == 0 ||
            kept_[b])
          continue;
        const Offset before = fitter_.offset_of(b);
        fitter_.erase(b);
        const Offset at = fitter_.find(b, k, Fit::kBest, bodies_.arenas[k].capacity, options_.sharing);
        fitter_.insert(b, at == kNoOffset ? from : k, at == kNoOffset ? before : at);
        better |= at != kNoOffset;
      }
    }
    return better;
  }

  const Bodies& bodies_;
  const Sections& sections_;
  const FitOptions& options_;
  Fitter fitter_;
  std::vector<std::uint32_t> by_cost_;  // arenas
  std::vector<std::uint32_t> order_;
  std::vector<bool> kept_;  // at its old place
};

}  // namespace

std::optional<ConstrainedPlan> fit_bodies(const Bodies& bodies, const Sections& sections,
                                          const FitOptions& options) {
  return Placer(bodies, sections, options).run();
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Where may a body lie next to those that have a place already? For an offset x of the body, every placed
// piece that lives together with one of its own rules out an open interval of x:
//
//   mine [u, v) above the offset, the other one at [begin, end)   ->   x not in (begin - v, end - u)
//
// Windows only shift these intervals; in place, x = the other's offset stays allowed; edges of a conflict
// graph are intervals too; forbidden ranges and fixed offsets are rules for x alone; banks are tried one
// after another. So one sweep over sorted intervals finds the lowest place, whatever the problem says.
#pragma once

#include <memory>
#include <vector>

#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/index/gap_index.h"

namespace memoir {

class Fitter {
 public:
  /// Both must outlive it. `sections` are those of bodies.pieces.
  Fitter(const Bodies& bodies, const Sections& sections);

  void insert(std::uint32_t body, std::uint32_t arena, Offset offset);
  void erase(std::uint32_t body);
  bool placed(std::uint32_t body) const { return offset_[body] != kNoOffset; }
  Offset offset_of(std::uint32_t body) const { return offset_[body]; }
  std::uint32_t arena_of(std::uint32_t body) const { return arena_[body]; }
  const std::vector<Offset>& offsets() const { return offset_; }
  const std::vector<std::uint32_t>& arenas() const { return arena_; }

  /// A place in that arena that ends at or below `limit`: the lowest, or the lowest of the tightest gaps;
  /// with `sharing`, one in place of another where there is one. kNoOffset: there is none.
  Offset find(std::uint32_t body, std::uint32_t arena, Fit fit, Size limit, bool sharing);
  bool free_at(std::uint32_t body, std::uint32_t arena, Offset offset);

  /// Calls visit(offset) for each end of a stretch of allowed offsets below the limit, and for each place
  /// over an input or output: where a body may be moved to without leaving a hole.
  template <class Visit>
  void each_place(std::uint32_t body, std::uint32_t arena, Size limit, Visit&& visit);

  /// Calls visit(from, to, other) for what keeps a body from its offsets: with `other` where it is, none in
  /// the open interval is possible, but for the other's own where the two may share in place. By `from`; one
  /// body may have several intervals.
  template <class Visit>
  void each_obstacle(std::uint32_t body, std::uint32_t arena, Visit&& visit);

  bool banks_taken(std::uint32_t body, std::uint32_t arena, Offset at) const {
    return bank_taken(body, arena, at);
  }

  /// Calls visit(other) for placed bodies of that arena that conflict with this one, some more than once.
  template <class Visit>
  void each_conflict(std::uint32_t body, std::uint32_t arena, Visit&& visit);

 private:
  using Signed = std::int64_t;
  struct Interval {
    Signed from, to;  // open
    std::uint32_t other;
    std::uint32_t partner;  // may be shared with in place, at its own offset; kNoBuffer: not at all
    bool operator<(const Interval& other) const { return from < other.from; }
  };

  void gather(std::uint32_t body, std::uint32_t arena);
  bool blocked(Offset at) const;  // by what was gathered
  bool bank_taken(std::uint32_t body, std::uint32_t arena, Offset at) const;
  FitIndex& index(std::uint32_t arena);

  const Bodies& bodies_;
  const Sections& sections_;
  std::vector<std::unique_ptr<FitIndex>> indices_;  // per arena, made when it is first needed
  std::vector<Offset> offset_;                      // per body; kNoOffset: not placed
  std::vector<std::uint32_t> arena_;
  std::vector<Interval> intervals_;  // scratch
};

template <class Visit>
void Fitter::each_place(std::uint32_t body, std::uint32_t arena, Size limit, Visit&& visit) {
  const Body& mine = bodies_.bodies[body];
  if (mine.size > limit) return;
  gather(body, arena);
  const auto offer = [&](Offset at) {
    if (at != kNoOffset && at <= limit - mine.size && !blocked(at) && !bank_taken(body, arena, at)) visit(at);
  };
  const auto down = [&](Offset at) { return at / mine.alignment * mine.alignment; };
  const ArenaChoice& choice = bodies_.arenas[arena];
  offer(next_place(mine, choice, 0));
  offer(next_place(mine, choice, down(limit - mine.size)));
  for (const Interval& interval : intervals_) {
    if (interval.to > 0) offer(next_place(mine, choice, static_cast<Offset>(interval.to)));
    if (interval.from >= 0) offer(next_place(mine, choice, down(static_cast<Offset>(interval.from))));
    if (interval.partner != kNoBuffer) offer(next_place(mine, choice, offset_[interval.partner]));
  }
}

template <class Visit>
void Fitter::each_obstacle(std::uint32_t body, std::uint32_t arena, Visit&& visit) {
  gather(body, arena);
  for (const Interval& interval : intervals_) visit(interval.from, interval.to, interval.other);
}

template <class Visit>
void Fitter::each_conflict(std::uint32_t body, std::uint32_t arena, Visit&& visit) {
  const Body& mine = bodies_.bodies[body];
  for (std::uint32_t p = mine.first_piece; p < mine.last_piece; ++p) {
    index(arena).each_neighbour(p, [&](std::uint32_t q, Offset, Offset) {
      if (bodies_.piece_body[q] != body) visit(bodies_.piece_body[q]);
    });
  }
  for (const Body::Edge& edge : mine.edges) {
    if (placed(edge.body) && arena_[edge.body] == arena) visit(edge.body);
  }
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// What a problem can say beyond lifetimes, sizes and alignments. A plain Problem stays a vector of buffers;
// whatever else is known stands next to it, in vectors that are empty when nothing is said.
// docs/reference/constraints.md has an example of each; why it is built so stands in
// docs/decisions/constraints-stand-next-to-the-problem.md.
//
//   offset
//     4 |   +-----+         problem    {{0, 4}, 4, 1}  a     alias     {kNoBuffer, kNoBuffer, 0}
//       |   |  b  |                    {{2, 4}, 2, 1}  b     gaps      {{{{2, 4}, Range{0, 2}}}, {}, {}}
//     2 |--------------+               {{4, 6}, 4, 1}  c
//       | a          c |      a needs only its bytes [0, 2) during [2, 4), so b fits above them within a;
//     0 +--------------+      c is another name for the bytes of a, later
//       0   2     4    6 tick
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

inline constexpr std::uint32_t kNoBuffer = ~std::uint32_t{0};
inline constexpr Size kNoLimit = ~Size{0};
inline constexpr std::size_t kMaxArenas = 64;
/// With constraints, sizes with alignments, fixed ends and forbidden ends add up to less than this: sums and
/// differences of offsets then stay far inside 64 signed bits.
inline constexpr Size kMaxConstrainedBytes = Size{1} << 60;

/// A time within a buffer's lifetime in which none of it is needed, or with a window only those of its bytes.
struct Gap {
  Lifetime lifetime;            // within the buffer's own, half-open
  std::optional<Range> window;  // bytes counted from the buffer's offset, within its size

  bool operator==(const Gap&) const = default;
};

/// Interleaved banks: the byte at offset o lies in bank (o / width) % count.
struct Banks {
  Size count = 0;  // 0: none are known
  Size width = 0;  // bytes

  bool operator==(const Banks&) const = default;
};

/// One of several arenas, each with offsets of its own.
struct ArenaChoice {
  std::string name;
  Size capacity = kNoLimit;      // bytes
  std::uint64_t cost = 0;        // of each unit of a buffer's weight that lies here
  std::vector<Range> forbidden;  // bytes that no buffer may touch
};

/// Where a buffer lay in an earlier plan.
struct OldPlace {
  Offset offset = kNoOffset;  // kNoOffset: it is new
  std::uint32_t arena = 0;

  bool operator==(const OldPlace&) const = default;
};

/// Two buffers that may share bytes, at a price: in bytes of arena, which that is held against.
struct PricedPair {
  std::uint32_t first = 0, second = 0;
  Size price = 0;

  bool operator==(const PricedPair&) const = default;
};

struct Constraints {
  using Pair = std::pair<std::uint32_t, std::uint32_t>;  // buffers

  // Per buffer, in the problem's order; each vector is empty when nothing is said.
  std::vector<std::vector<Gap>> gaps;  // by time, not overlapping
  std::vector<Offset> fixed;           // its offset; kNoOffset: free
  std::vector<Offset> hints;           // an offset to prefer among equal plans; kNoOffset: none
  // bytes: the smallest it may turn out to have; the problem has the largest
  std::vector<Size> low_sizes;
  std::vector<std::uint32_t> alias;  // another buffer whose bytes it has; kNoBuffer: none
  std::vector<std::uint32_t> after;  // the buffer that it begins right behind, in one arena; kNoBuffer: none
  std::vector<std::uint64_t> allowed;  // bit k: it may be in arenas[k]
  std::vector<std::uint64_t> weights;  // what an arena's cost is multiplied with; without: the size
  std::vector<OldPlace> old;           // the plan that is to be changed little
  // of a loop's body the buffer that it is one round of, any number; kNoBuffer: of none. Only a hint for the
  // search: rounds are counted by birth
  std::vector<std::uint32_t> loops;

  std::vector<Pair> in_place;   // (output, input): may lie exactly over its input, which dies as it is born
  std::vector<Pair> apart;      // must not share a bank, whenever they live; in one arena
  std::vector<Pair> conflicts;  // must not share a byte, whatever their times
  std::vector<PricedPair> prices;  // paid where the two share a byte; those of one pair add up

  std::vector<ArenaChoice> arenas;   // at most kMaxArenas; empty: one without limit, of no cost
  Banks banks;                       // of every arena
  std::optional<std::size_t> moves;  // how many buffers with an old place may lie elsewhere; without: as few
                                     // as can be, before all else
  bool locality = false;             // among equal plans, prefer bytes that were freed a short time ago
  bool timed = true;                 // false: lifetimes mean nothing, only `conflicts` count

  /// Nothing is said that a plain problem does not say.
  bool none() const;
  bool several_arenas() const { return arenas.size() > 1; }
  bool replanned() const { return !old.empty(); }
};

/// What is said, by the names that columns and options have: "gaps", "fixed", ... Empty when none() is.
std::vector<std::string> said(const Constraints& constraints);

struct ConstrainedProblem {
  Problem buffers;
  Constraints constraints;
  // Where each buffer was read, for errors: "p.csv" and its lines. Without, buffers are named by their index.
  std::string source;
  std::vector<std::uint32_t> lines;

  std::string name(std::size_t buffer) const;
  /// The message of an error about it: "p.csv:5: what" or "buffer 3 what".
  std::string refusal(std::size_t buffer, const std::string& what) const;
};

/// Offsets count from the start of a buffer's own arena.
struct ConstrainedPlan {
  std::vector<Offset> offsets;        // one per buffer
  std::vector<std::uint32_t> arenas;  // one per buffer: an index into Constraints::arenas, or 0
  std::vector<Size> arena_sizes;      // per arena: the largest offset + size in it

  bool operator==(const ConstrainedPlan&) const = default;
};

/// What is made small: each entry before the next. Plans are compared by it.
struct Objective {
  // buffers that lie elsewhere than in the old plan; 0 where their number is limited
  std::uint64_t moves = 0;
  std::uint64_t cost = 0;
  Size total = 0;  // bytes: the sum of the arenas' sizes

  auto operator<=>(const Objective&) const = default;
};

/// Throws Error, naming the row: what validate() of the plain problem refuses, though a size of 0 is
/// allowed; gaps outside the lifetime or overlapping, windows outside the size; a fixed offset that is
/// misaligned or in a forbidden range, two fixed buffers that collide; aliases of different size, or that
/// must conflict; a pair that conflicts and may lie in place; a row of buffers that forks, is a circle, or
/// that alignments or fixed offsets tear apart; a pair that no bank arrangement keeps apart; sums of
/// kMaxConstrainedBytes or more; vectors of another length than the problem.
void validate(const ConstrainedProblem& problem);

/// Slow and obviously right, like check() of plain plans. Capacities and the limit of moves are not looked
/// at: a planner that cannot keep to them still returns a plan; see fits().
/// With `only`, one flag per buffer, the others might as well not be there.
std::optional<Violation> check(const ConstrainedProblem& problem, const ConstrainedPlan& plan,
                               const std::vector<bool>* only = nullptr);

/// Keeps to the capacities, and to the limit of moves.
bool fits(const ConstrainedProblem& problem, const ConstrainedPlan& plan);

std::uint64_t count_moves(const ConstrainedProblem& problem, const ConstrainedPlan& plan);
std::uint64_t cost_of(const ConstrainedProblem& problem, const ConstrainedPlan& plan);
/// Of the hints, how many are followed.
std::uint64_t count_hints(const ConstrainedProblem& problem, const ConstrainedPlan& plan);
Objective objective_of(const ConstrainedProblem& problem, const ConstrainedPlan& plan);

/// The arenas, at least one.
std::vector<ArenaChoice> arenas_of(const Constraints& constraints);
std::uint64_t weight_of(const ConstrainedProblem& problem, std::size_t buffer);
std::uint64_t allowed_of(const Constraints& constraints, std::size_t buffer);

/// A time in which certain bytes of a buffer are needed.
struct Piece {
  Lifetime lifetime;
  Range window;  // counted from the buffer's offset

  bool operator==(const Piece&) const = default;
};
/// Whether the two lie in one arena and have a byte in common, be it at other times.
bool shares(const ConstrainedProblem& problem, const ConstrainedPlan& plan, const PricedPair& pair);
/// The prices of all pairs that share.
Size paid(const ConstrainedProblem& problem, const ConstrainedPlan& plan);

/// The lifetime, less the gaps: by time. Empty when its gaps leave nothing.
std::vector<Piece> pieces_of(const ConstrainedProblem& problem, std::size_t buffer);

/// An output may overwrite its input only when that dies as the output is born: they live together for one
/// tick at most. Without times it is taken on trust.
bool dies_at_birth(const ConstrainedProblem& problem, std::size_t output, std::size_t input);

/// Whether two ranges touch one bank. Without banks, no.
bool share_bank(const Banks& banks, Range a, Range b);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Which arena each body goes to, where arenas cost differently and have capacities: a local search that
// anneals whole plans. One move brings a body into a cheaper arena, to the offset where those in its way lose
// the least; these look for other places, and what frees up is offered to others that live at that time:
//
//   sram  | a |  b  | c |        b goes            | a |   d   |
//         +---+-----+---+        d comes           +---+-------+      c found another place, or left too
//   dram  ... d ...                          dram  ... b, c ...
//
// Worse plans are taken too, the less likely the worse they are and the later it is.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/constrained/arena_program.h"
#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/constrained/fitter.h"
#include "memoir/plan/random.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

/// What it means that bodies fit into an arena.
enum class Room {
  kOffsets,  // each has a place
  kLoads,    // no section has more bytes than the arena: the program of arena_program.h
};

/// Not thread-safe.
class ArenaSearch {
 public:
  static constexpr Offset kNowhere = 2 * kMaxConstrainedBytes;

  /// The program has had its prices. All must outlive it. `share` of each capacity is there for loads.
  ArenaSearch(const Bodies& bodies, const Sections& sections, const ArenaProgram& program, Room room,
              std::uint64_t seed, double share = 1);

  /// From nothing, the best first.
  void start();
  /// From a plan, which need not keep to the capacities: what does not, or is at kNowhere, looks for a place.
  void start(const std::vector<Offset>& offsets, const std::vector<std::uint32_t>& arenas);

  /// One annealing, until the deadline or for limits.nodes moves, which `work` is increased by. `heat` is how
  /// freely it begins: 1 forgets the plan that it starts from. True: it found a plan that keeps to the
  /// capacities.
  bool run(double heat, const SearchLimits& limits, std::uint64_t& work);

  /// Of the last run. Of arenas that are open the offsets mean nothing.
  const std::vector<Offset>& offsets() const { return best_offsets_; }
  const std::vector<std::uint32_t>& arenas() const { return best_arenas_; }
  /// It is so large that whatever may lie in it fits; only who lies there is chosen.
  bool open(std::uint32_t arena) const { return open_[arena]; }

 private:
  struct Step {
    std::uint32_t body, arena;
    Offset offset;
  };
  struct Obstacle {
    std::int64_t from, to;
    std::uint32_t body;
    double loss;
  };

  double cost(std::uint32_t body, std::uint32_t arena) const { return cost_[body * arenas_ + arena]; }
  double loss(std::uint32_t body, std::uint32_t arena) const { return loss_[body * arenas_ + arena]; }
  double worth(std::uint32_t body) const;
  double usual_gain() const;
  void mark(std::uint32_t body);
  void remember(std::uint32_t body);
  void put(std::uint32_t body, std::uint32_t arena, Offset offset);
  void take(std::uint32_t body);
  void place(std::uint32_t body);
  void place(std::vector<std::uint32_t>& bodies);
  double room(std::uint32_t arena) const { return share_ * program_.capacity(arena); }
  bool choose_place(std::uint32_t body, std::uint32_t arena, double most);
  bool move(double allowed);
  bool choose_loads(std::uint32_t body, std::uint32_t arena, double most);
  void relieve(std::uint32_t gone, std::uint32_t first, std::uint32_t last);
  bool has_room(std::uint32_t body, std::uint32_t arena) const;
  Offset find(std::uint32_t body, std::uint32_t arena);
  void load(std::uint32_t body, std::uint32_t arena, double sign);
  void fill(std::uint32_t arena);

  const Bodies& bodies_;
  const ArenaProgram& program_;
  const Room room_;
  const double share_;
  const std::uint32_t arenas_;  // and one more that is nowhere, for bodies that no arena has room for
  Fitter fitter_;
  Random random_;
  std::vector<std::uint32_t> by_cost_;
  std::vector<bool> open_;
  std::vector<double> cost_, loss_;                  // per body and arena
  std::vector<std::vector<double>> loads_;           // of kLoads: per arena and section
  std::vector<double> priced_;                       // per body: its bytes at their prices
  std::vector<std::uint32_t> home_;                  // per body: the cheapest arena that it may be in
  std::vector<std::uint32_t> where_;                 // per body; arenas_: nowhere
  std::vector<std::uint32_t> away_, place_in_away_;  // bodies that are not at home
  double nowhere_ = 1;  // what it costs to be there: more than everything else together
  double total_ = 0, best_ = 0;
  std::vector<Offset> best_offsets_;
  std::vector<std::uint32_t> best_arenas_;

  // Scratch of one move.
  std::vector<Step> steps_;
  std::vector<std::uint32_t> stamp_;
  std::uint32_t round_ = 0;
  std::vector<Obstacle> obstacles_;
  std::vector<double> over_;  // per section of one demand: bytes too many
  std::vector<std::pair<std::int64_t, double>> ends_;
  std::vector<Offset> places_;
  std::vector<std::uint32_t> evicted_, candidates_;
  Offset chosen_ = 0;
};

}  // namespace memoir

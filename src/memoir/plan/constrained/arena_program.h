// SPDX-License-Identifier: Apache-2.0
//
// Which arena each body goes to, as a program over sections without any offsets: of those that go to an
// arena, no section holds more bytes than it has. What no plan can undercut, from prices:
//
//   a byte of arena k in section s costs price[k][s]; each body takes the arena that is cheapest for it with
//   that; the arena pays its capacity at its prices back. Whatever the prices are, no plan costs less.
//
// Prices are raised where more come than have room, and lowered where room is left (Held and Karp,
// Operations Research 18, 1970). Then each section asks each body for a fee of its own, and pays back the
// most that bodies that fit together pay it: whole bodies, and so no less than before.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

/// Not thread-safe.
class ArenaProgram {
 public:
  /// Bytes that a body needs in sections [first, last), at least.
  struct Demand {
    std::uint32_t first, last;
    double bytes;
  };

  /// Both must outlive it.
  ArenaProgram(const Bodies& bodies, const Sections& sections);

  /// Both raise bound() until the deadline, or for limits.nodes steps of some thousand operations, which
  /// `work` is increased by, or until steps gain nothing. `known` is what a plan costs, or a little more.
  void raise_prices(double known, const SearchLimits& limits, std::uint64_t& work);
  void raise_fees(double known, const SearchLimits& limits, std::uint64_t& work);

  /// Proven: no plan that keeps to the capacities costs less.
  double bound() const { return bound_; }
  /// Of a byte, per arena and section; 0 where an arena has no limit.
  const std::vector<std::vector<double>>& prices() const { return prices_; }

  /// Those of one body in a row, [first_demand(body), first_demand(body + 1)).
  const std::vector<Demand>& demands() const { return demands_; }
  std::uint32_t first_demand(std::uint32_t body) const { return begin_[body]; }
  double capacity(std::uint32_t arena) const { return capacity_[arena]; }  // HUGE_VAL: no limit
  bool allowed(std::uint32_t body, std::uint32_t arena) const {
    return bodies_.bodies[body].allowed >> arena & 1 &&
           bodies_.bodies[body].size <= bodies_.arenas[arena].capacity;
  }
  double cost(std::uint32_t body, std::uint32_t arena) const {
    return static_cast<double>(bodies_.bodies[body].weight) * static_cast<double>(bodies_.arenas[arena].cost);
  }

 private:
  struct Item {
    double profit, bytes;
    std::size_t fee;
  };

  bool spent(const SearchLimits& limits, std::uint64_t last, std::uint64_t& work, std::uint64_t operations);
  bool make_fees();
  double most_profit(std::vector<Item>& items, double room);

  const Bodies& bodies_;
  const Sections& sections_;
  std::vector<Demand> demands_;
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> proven_end_;  // per body: those before are needed whatever else there is
  std::vector<double> capacity_;
  std::vector<std::vector<double>> prices_;
  struct Member {
    std::uint32_t body, demand;
  };
  std::vector<std::vector<Member>> members_;  // per section, for fees
  std::vector<std::size_t> fee_begin_;        // per demand and arena: its fee in its first section
  std::vector<double> fees_;
  double bound_ = 0;
  std::uint64_t operations_ = 0;
};

}  // namespace memoir

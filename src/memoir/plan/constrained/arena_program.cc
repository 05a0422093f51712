// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/arena_program.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "memoir/plan/align.h"

namespace memoir {
namespace {

constexpr std::uint64_t kStep = 4096;  // operations of one step of work
constexpr int kPatience = 20;          // steps without a gain, before they get shorter
constexpr double kShorter = 0.7;
constexpr double kShortest = 0.005;           // of the steps: then prices are as good as they get
constexpr std::size_t kMostFees = 4'000'000;  // memory: 32 bytes each
constexpr std::uint64_t kMostNodes = 20'000;  // of one section's choice: then a fraction of a body is allowed

std::uint64_t last_of(const SearchLimits& limits, std::uint64_t work) {
  return limits.nodes > ~std::uint64_t{0} - work ? ~std::uint64_t{0} : work + limits.nodes;
}

}  // namespace

ArenaProgram::ArenaProgram(const Bodies& bodies, const Sections& sections)
    : bodies_(bodies), sections_(sections), prices_(bodies.arenas.size()) {
  Size granule = 0;
  bool whole = true;
  for (const Body& body : bodies.bodies) {
    granule = std::gcd(granule, body.alignment);
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p)
      whole &= bodies.pieces[p].size == body.size;
  }
  for (const ArenaChoice& arena : bodies.arenas) whole &= arena.forbidden.empty();
  if (!whole || granule == 0) granule = 1;
  for (const Body& body : bodies.bodies) {
    begin_.push_back(static_cast<std::uint32_t>(demands_.size()));
    std::uint32_t end = 0;
    for (std::uint32_t p = body.first_piece; p < body.last_piece; ++p) {
      if (sections.first[p] < end) continue;
      end = sections.last[p];
      demands_.push_back(
          {sections.first[p], end, static_cast<double>(align_to(bodies.pieces[p].size, granule))});
    }
  }
  begin_.push_back(static_cast<std::uint32_t>(demands_.size()));
  for (std::uint32_t b = 0; b < bodies.bodies.size(); ++b)  // with a partner it may share its bytes
    proven_end_.push_back(bodies.bodies[b].partners.empty() ? begin_[b + 1] : begin_[b]);
  for (std::uint32_t k = 0; k < bodies.arenas.size(); ++k) {
    const ArenaChoice& arena = bodies.arenas[k];
    double room = HUGE_VAL;
    if (arena.capacity <= kMaxConstrainedBytes) {
      room = static_cast<double>(align_to(arena.capacity, granule));
      for (const Range& range : arena.forbidden) {
        if (range.begin < arena.capacity)
          room -= static_cast<double>(std::min(range.end(), arena.capacity) - range.begin);
      }
    }
    capacity_.push_back(room);
    prices_[k].assign(sections.count, 0);
  }
}

bool ArenaProgram::spent(const SearchLimits& limits, std::uint64_t last, std::uint64_t& work,
                         std::uint64_t operations) {
  operations_ += operations;
  work += operations_ / kStep;
  operations_ %= kStep;
  return work >= last || (limits.stop && *limits.stop) || std::chrono::steady_clock::now() >= limits.deadline;
}

void ArenaProgram::raise_prices(double known, const SearchLimits& limits, std::uint64_t& work) {
  const std::uint64_t last = last_of(limits, work);
  const auto n = static_cast<std::uint32_t>(bodies_.bodies.size());
  const auto arenas = static_cast<std::uint32_t>(bodies_.arenas.size());
  const std::uint32_t sections = sections_.count;
  std::vector<std::vector<double>> price = prices_, sum(arenas), load(arenas);
  double pace = 1.5;
  int waited = 0;
  for (bool first = true; first || (pace > kShortest && bound_ < known); first = false) {
    double total = 0;
    for (std::uint32_t k = 0; k < arenas; ++k) {
      if (capacity_[k] == HUGE_VAL) continue;
      sum[k].assign(sections + 1, 0);
      load[k].assign(sections + 1, 0);
      for (std::uint32_t s = 0; s < sections; ++s) sum[k][s + 1] = sum[k][s] + price[k][s];
      total -= capacity_[k] * sum[k][sections];
    }
    for (std::uint32_t b = 0; b < n; ++b) {
      double least = HUGE_VAL;
      std::uint32_t taken = 0;
      for (std::uint32_t k = 0; k < arenas; ++k) {
        if (!allowed(b, k)) continue;
        double asked = cost(b, k);
        if (capacity_[k] != HUGE_VAL) {
          for (std::uint32_t d = begin_[b]; d < proven_end_[b]; ++d)
            asked += demands_[d].bytes * (sum[k][demands_[d].last] - sum[k][demands_[d].first]);
        }
        if (asked < least) least = asked, taken = k;
      }
      if (least == HUGE_VAL) return;  // no plan
      total += least;
      if (capacity_[taken] == HUGE_VAL) continue;
      for (std::uint32_t d = begin_[b]; d < proven_end_[b]; ++d) {
        load[taken][demands_[d].first] += demands_[d].bytes;
        load[taken][demands_[d].last] -= demands_[d].bytes;
      }
    }
    if (total > bound_ * (1 + 1e-7)) {
      waited = 0;
    } else if (++waited > kPatience) {
      waited = 0;
      pace *= kShorter;
      price = prices_;
    }
    if (first || total > bound_) {
      bound_ = std::max(bound_, total);
      prices_ = price;
    }
    // Along the gradient, as far as would reach the known cost if it went on like that.
    double square = 0;
    for (std::uint32_t k = 0; k < arenas; ++k) {
      if (capacity_[k] == HUGE_VAL) continue;
      double now = 0;
      for (std::uint32_t s = 0; s < sections; ++s) {
        now += load[k][s];
        load[k][s] = now - capacity_[k];
        now = now < 0 ? 0 : now;
        if (load[k][s] < 0 && price[k][s] == 0) load[k][s] = 0;
        square += load[k][s] * load[k][s];
      }
    }
    if (square == 0) return;
    const double step = pace * (known - total) / square;
    for (std::uint32_t k = 0; k < arenas; ++k) {
      if (capacity_[k] == HUGE_VAL) continue;
      for (std::uint32_t s = 0; s < sections; ++s)
        price[k][s] = std::max(0.0, price[k][s] + step * load[k][s]);
    }
    if (spent(limits, last, work, n * arenas + sections * arenas)) return;
  }
}

/// Of whole items that fit in the room; or a little more, where that takes too long. Sets their bytes to 0
/// when they are chosen.
double ArenaProgram::most_profit(std::vector<Item>& items, double room) {
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.profit * b.bytes > b.profit * a.bytes; });
  const std::size_t n = items.size();
  std::vector<std::uint8_t> taken(n), best_taken(n);
  double best = -1, profit = 0, left = room, first_bound = -1;
  std::uint64_t nodes = 0;
  std::size_t at = 0;
  const auto bound_from = [&](std::size_t from) {
    double more = profit, space = left;
    for (std::size_t i = from; i < n; ++i) {
      if (items[i].bytes <= space) {
        space -= items[i].bytes;
        more += items[i].profit;
      } else {
        return more + items[i].profit * space / items[i].bytes;
      }
    }
    return more;
  };
  first_bound = bound_from(0);
  for (;;) {
    for (; at < n; ++at) {
      if (items[at].bytes > left) continue;
      taken[at] = 1;
      left -= items[at].bytes;
      profit += items[at].profit;
    }
    if (profit > best) best = profit, best_taken = taken;
    // The last one that was taken is left out, where that may still lead to more.
    for (;;) {
      while (at > 0 && !taken[at - 1]) --at;
      if (at == 0) break;
      taken[at - 1] = 0;
      left += items[at - 1].bytes;
      profit -= items[at - 1].profit;
      ++nodes;
      if (bound_from(at) > best * (1 + 1e-12)) break;
      --at;
    }
    if (at == 0) break;
    if (nodes > kMostNodes) {
      best = first_bound;
      break;
    }
  }
  operations_ += nodes * 4 + n * 4;
  for (std::size_t i = 0; i < n; ++i) {
    if (best_taken[i]) items[i].bytes = 0;
  }
  return best;
}

/// At the sections' prices; false: they would need too much memory.
bool ArenaProgram::make_fees() {
  const auto n = static_cast<std::uint32_t>(bodies_.bodies.size());
  const auto arenas = static_cast<std::uint32_t>(bodies_.arenas.size());
  std::size_t copies = 0;
  for (const Demand& demand : demands_) copies += arenas * std::size_t{demand.last - demand.first};
  if (copies > kMostFees) return false;
  fees_.reserve(copies);
  fee_begin_.resize(demands_.size() * arenas);
  members_.resize(sections_.count);
  for (std::uint32_t b = 0; b < n; ++b) {
    for (std::uint32_t d = begin_[b]; d < proven_end_[b]; ++d) {
      const auto& [first, last, bytes] = demands_[d];
      for (std::uint32_t k = 0; k < arenas; ++k) {
        fee_begin_[d * arenas + k] = fees_.size();
        for (std::uint32_t s = first; s < last; ++s) fees_.push_back(bytes * prices_[k][s]);
      }
      for (std::uint32_t s = first; s < last; ++s) members_[s].push_back({b, d});
    }
  }
  return true;
}

void ArenaProgram::raise_fees(double known, const SearchLimits& limits, std::uint64_t& work) {
  const std::uint64_t end = last_of(limits, work);
  const auto n = static_cast<std::uint32_t>(bodies_.bodies.size());
  const auto arenas = static_cast<std::uint32_t>(bodies_.arenas.size());
  if (bound_ >= known || (members_.empty() && !make_fees())) return;
  std::vector<double> fee = fees_, direction(fees_.size());
  double pace = 1;
  int waited = 0;
  std::vector<Item> items;
  while (pace > kShortest && bound_ < known) {
    std::fill(direction.begin(), direction.end(), 0.0);
    double total = 0;
    for (std::uint32_t b = 0; b < n; ++b) {
      double least = HUGE_VAL;
      std::uint32_t taken = 0;
      for (std::uint32_t k = 0; k < arenas; ++k) {
        if (!allowed(b, k)) continue;
        double asked = cost(b, k);
        for (std::uint32_t d = begin_[b]; capacity_[k] != HUGE_VAL && d < proven_end_[b]; ++d) {
          const std::size_t from = fee_begin_[d * arenas + k];
          for (std::uint32_t i = 0; i < demands_[d].last - demands_[d].first; ++i) asked += fee[from + i];
        }
        if (asked < least) least = asked, taken = k;
      }
      if (least == HUGE_VAL) return;  // no plan
      total += least;
      if (capacity_[taken] == HUGE_VAL) continue;
      for (std::uint32_t d = begin_[b]; d < proven_end_[b]; ++d) {
        const std::size_t from = fee_begin_[d * arenas + taken];
        for (std::uint32_t i = 0; i < demands_[d].last - demands_[d].first; ++i) direction[from + i] += 1;
      }
    }
    for (std::uint32_t k = 0; k < arenas; ++k) {
      if (capacity_[k] == HUGE_VAL) continue;
      for (std::uint32_t s = 0; s < sections_.count; ++s) {
        if (spent(limits, end, work, 0)) return;
        items.clear();
        double bytes = 0, profit = 0;
        for (const Member& member : members_[s]) {
          const Demand& demand = demands_[member.demand];
          const std::size_t one = fee_begin_[member.demand * arenas + k] + s - demand.first;
          if (fee[one] <= 0 || !allowed(member.body, k)) continue;
          items.push_back({fee[one], demand.bytes, one});
          bytes += demand.bytes;
          profit += fee[one];
        }
        if (items.empty()) continue;
        if (bytes <= capacity_[k]) {
          total -= profit;
          for (const Item& item : items) direction[item.fee] -= 1;
          continue;
        }
        total -= most_profit(items, capacity_[k]);
        for (const Item& item : items) direction[item.fee] -= item.bytes == 0 ? 1 : 0;
      }
    }
    if (total > bound_ * (1 + 1e-6)) {
      waited = 0;
    } else if (++waited > kPatience) {
      waited = 0;
      pace *= kShorter;
      fee = fees_;
    }
    if (total > bound_) {
      bound_ = total;
      fees_ = fee;
    }
    double square = 0;
    for (std::size_t i = 0; i < fee.size(); ++i) {
      if (direction[i] < 0 && fee[i] <= 0) direction[i] = 0;
      square += direction[i] * direction[i];
    }
    if (square == 0) return;
    const double step = pace * (known - total) / square;
    for (std::size_t i = 0; i < fee.size(); ++i) {
      if (direction[i] != 0) fee[i] = std::max(0.0, fee[i] + step * direction[i]);
    }
    if (spent(limits, end, work, 4 * fee.size())) return;
  }
}

}  // namespace memoir

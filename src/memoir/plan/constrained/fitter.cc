// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/fitter.h"

#include <algorithm>
#include <numeric>

namespace memoir {

Fitter::Fitter(const Bodies& bodies, const Sections& sections)
    : bodies_(bodies),
      sections_(sections),
      indices_(bodies.arenas.size()),
      offset_(bodies.bodies.size(), kNoOffset),
      arena_(bodies.bodies.size(), 0) {}

FitIndex& Fitter::index(std::uint32_t arena) {
  if (!indices_[arena]) indices_[arena] = std::make_unique<FitIndex>(bodies_.pieces, sections_);
  return *indices_[arena];
}

void Fitter::insert(std::uint32_t body, std::uint32_t arena, Offset offset) {
  offset_[body] = offset;
  arena_[body] = arena;
  const Body& mine = bodies_.bodies[body];
  for (std::uint32_t p = mine.first_piece; p < mine.last_piece; ++p)
    index(arena).insert(p, offset + bodies_.window_begin[p]);
}

void Fitter::erase(std::uint32_t body) {
  const Body& mine = bodies_.bodies[body];
  for (std::uint32_t p = mine.first_piece; p < mine.last_piece; ++p) index(arena_[body]).erase(p);
  offset_[body] = kNoOffset;
}

void Fitter::gather(std::uint32_t body, std::uint32_t arena) {
  intervals_.clear();
  const Body& mine = bodies_.bodies[body];
  const auto add = [&](Signed from, Signed to, std::uint32_t other, bool may) {
    if (to > 0) intervals_.push_back({from, to, other, may ? other : kNoBuffer});
  };
  const bool shares = !mine.partners.empty();
  for (std::uint32_t p = mine.first_piece; p < mine.last_piece; ++p) {
    const auto begin = static_cast<Signed>(bodies_.window_begin[p]);
    const auto end = begin + static_cast<Signed>(bodies_.pieces[p].size);
    index(arena).each_neighbour(p, [&](std::uint32_t q, Offset low, Offset high) {
      const bool may = shares && bodies_.may_share(bodies_.piece_buffer[p], bodies_.piece_buffer[q]);
      add(static_cast<Signed>(low) - end, static_cast<Signed>(high) - begin, bodies_.piece_body[q], may);
    });
  }
  for (const Body::Edge& edge : mine.edges) {
    if (!placed(edge.body) || arena_[edge.body] != arena) continue;
    const auto [from, to] = bodies_.kept_apart(edge);
    const auto at = static_cast<Signed>(offset_[edge.body]);
    add(at + from, at + to, edge.body, false);
  }
  std::sort(intervals_.begin(), intervals_.end());
}

bool Fitter::blocked(Offset at) const {
  const auto x = static_cast<Signed>(at);
  for (const Interval& interval : intervals_) {
    if (interval.from >= x) return false;
    if (interval.to > x && (interval.partner == kNoBuffer || offset_[interval.partner] != at)) return true;
  }
  return false;
}

bool Fitter::bank_taken(std::uint32_t body, std::uint32_t arena, Offset at) const {
  const Body& mine = bodies_.bodies[body];
  if (mine.apart.empty()) return false;
  const auto& [count, width] = bodies_.problem->constraints.banks;
  // As stretches of a circle of banks: two meet when either begins within the other.
  const Size first = at / width, length = (at + mine.size - 1) / width - first + 1;
  for (const std::uint32_t other : mine.apart) {
    if (!placed(other) || arena_[other] != arena) continue;
    const Offset there = offset_[other];
    const Size begin = there / width, size = (there + bodies_.bodies[other].size - 1) / width - begin + 1;
    const Size ahead = (begin % count + count - first % count) % count;
    if (ahead < length || (count - ahead) % count < size) return true;
  }
  return false;
}

bool Fitter::free_at(std::uint32_t body, std::uint32_t arena, Offset offset) {
  if (next_place(bodies_.bodies[body], bodies_.arenas[arena], offset) != offset) return false;
  gather(body, arena);
  return !blocked(offset) && !bank_taken(body, arena, offset);
}

Offset Fitter::find(std::uint32_t body, std::uint32_t arena, Fit fit, Size limit, bool sharing) {
  const Body& mine = bodies_.bodies[body];
  const ArenaChoice& choice = bodies_.arenas[arena];
  if (mine.size > limit) return kNoOffset;
  const Offset highest = limit - mine.size;
  gather(body, arena);
  Offset over = kNoOffset;  // the lowest place over an input or output
  for (const std::uint32_t partner : mine.partners) {
    if (!placed(partner) || arena_[partner] != arena) continue;
    const Offset at = offset_[partner];
    if (at >= over || at > highest || next_place(mine, choice, at) != at) continue;
    if (!blocked(at) && !bank_taken(body, arena, at)) over = at;
  }
  if (over != kNoOffset && sharing) return over;

  // Every stretch of allowed offsets, from below. Places that a bank rules out are stepped over; after as
  // many steps as banks and alignment take to repeat, there is none.
  const Banks banks = bodies_.problem->constraints.banks;
  const Size patience =
      mine.apart.empty() ? 0 : banks.count * (mine.alignment / std::gcd(mine.alignment, banks.width)) + 1;
  const auto past_banks = [&](Offset at, Offset end) {  // the first allowed in [at, end]
    for (Size steps = 0; at <= end && bank_taken(body, arena, at); ++steps) {
      if (steps >= patience && end == kNoOffset - 1) return kNoOffset;
      at = next_place(mine, choice, (at / banks.width + 1) * banks.width);
    }
    return at <= end ? at : kNoOffset;
  };
  Offset best = kNoOffset;
  Size tightest = kNoLimit;
  Offset at = next_place(mine, choice, 0);
  for (const Interval& interval : intervals_) {
    if (at == kNoOffset || at > highest) break;
    const auto x = static_cast<Signed>(at);
    if (interval.to <= x) continue;
    if (interval.from >= x) {
      const Offset here = past_banks(at, static_cast<Offset>(interval.from));
      const Size room = static_cast<Size>(interval.from - x);
      if (here != kNoOffset && here <= highest && room < tightest) {
        best = here;
        tightest = room;
        if (fit == Fit::kFirst) break;
      }
    }
    at = next_place(mine, choice, static_cast<Offset>(interval.to));
  }
  if (best == kNoOffset && at != kNoOffset) {
    const Offset here = past_banks(at, kNoOffset - 1);
    if (here <= highest) best = here;
  }
  return std::min(best, over);
}

}  // namespace memoir

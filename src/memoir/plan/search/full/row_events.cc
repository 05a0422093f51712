// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/row_events.h"

#include <algorithm>
#include <cstddef>

namespace memoir {
namespace {

using Units = RowEvents::Units;
using List = RowEvents::List;

constexpr std::size_t kMostTogether = 12;  // of the dying, or the newborn: 4,096 sums

struct Room {
  Units size;
  std::uint32_t begin;
};

// The one that ends: as large, or with another one, or part of the least that is larger, or of the largest.
std::size_t ending(const std::vector<Room>& open, Units less) {
  std::size_t larger = open.size(), largest = 0;
  for (std::size_t k = open.size(); k-- > 0;) {
    if (open[k].size == less) return k;
    if (open[k].size > less && (larger == open.size() || open[k].size < open[larger].size)) larger = k;
    if (open[k].size > open[largest].size) largest = k;
  }
  for (std::size_t k = 0; k < open.size(); ++k) {
    for (std::size_t l = k + 1; l < open.size(); ++l) {
      if (open[k].size + open[l].size == less) return k;
    }
  }
  return larger < open.size() ? larger : largest;
}

// The free room of all sections as if it were buffers too: one begins where the load falls, and ends where it
// rises by as much.
void find_room(RowEvents& events, Units height) {
  const std::size_t count = events.born.size() - 1;
  events.room.resize(count + 1);
  std::vector<Room> open;
  Units free = 0, live = 0;
  for (std::uint32_t s = 0; s <= count; ++s) {
    for (const std::uint32_t i : events.dying[s]) live -= events.size[i];
    for (const std::uint32_t i : events.born[s]) live += events.size[i];
    Units less = free;
    free = s < count ? height - live : 0;
    less -= free;
    events.fits = events.fits && free >= 0;
    if (less < 0) open.push_back({-less, s});
    while (less > 0 && !open.empty()) {
      const std::size_t k = ending(open, less);
      const Units taken = std::min(less, open[k].size);
      events.room[open[k].begin].push_back(taken);
      less -= taken;
      open[k].size -= taken;
      if (open[k].size == 0) open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

// Of all subsets but the empty one, ascending.
std::vector<Units> sums_of(const RowEvents& events, const List& list) {
  std::vector<Units> sums{0};
  for (const std::uint32_t i : list) {
    for (std::size_t k = 0, n = sums.size(); k < n; ++k) sums.push_back(sums[k] + events.size[i]);
  }
  sums.erase(sums.begin());
  std::sort(sums.begin(), sums.end());
  return sums;
}

// They are one group where no smaller sets of the dying and the newborn have equal sums.
bool one_group(const RowEvents& events, const List& dying, const List& born) {
  if (dying.size() < 2 || born.empty() || dying.size() > kMostTogether || born.size() > kMostTogether)
    return false;
  const std::vector<Units> left = sums_of(events, dying), right = sums_of(events, born);
  if (left.back() != right.back()) return false;
  for (std::size_t k = 0, l = 0; k + 1 < left.size() && l + 1 < right.size();) {
    if (left[k] == right[l]) return false;
    if (left[k] < right[l]) ++k;
    else ++l;
  }
  return true;
}

}  // namespace

RowEvents row_events(const Problem& problem, const Sections& sections, const Grid& grid, Units height,
                     bool backwards) {
  RowEvents events;
  events.dying.resize(sections.count + 1);
  events.born.resize(sections.count + 1);
  std::vector<std::uint32_t> begin(problem.size());
  for (std::uint32_t i = 0; i < problem.size(); ++i) {
    events.size.push_back(static_cast<Units>(grid.padded(problem[i].size) / grid.unit));
    begin[i] = backwards ? sections.count - sections.last[i] : sections.first[i];
    events.born[begin[i]].push_back(i);
    events.dying[backwards ? sections.count - sections.first[i] : sections.last[i]].push_back(i);
  }
  for (auto* lists : {&events.born, &events.dying}) {
    for (List& list : *lists)
      std::stable_sort(list.begin(), list.end(),
                       [&](auto a, auto b) { return events.size[a] > events.size[b]; });
  }
  find_room(events, height);
  events.together.resize(sections.count + 1);
  for (std::uint32_t s = 1; s < sections.count; ++s) {
    if (!one_group(events, events.dying[s], events.born[s])) continue;
    std::uint32_t last = 0;
    for (const std::uint32_t i : events.dying[s]) last = std::max(last, begin[i]);
    events.together[last].push_back(s);
  }
  return events;
}

}  // namespace memoir

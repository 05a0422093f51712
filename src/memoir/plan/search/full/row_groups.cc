// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/row_groups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

namespace memoir {
namespace {

using Marks = RowTree::Marks;

constexpr std::size_t kMostMarks = 64, kMostDying = 56;
constexpr Marks kCrowded = ~Marks{0};       // instead of a mark: there are no more
constexpr std::size_t kMostTried = 400;     // groups tried in one tree at one time
constexpr std::size_t kBranches = 8;        // of the groups tried for one buffer, how many are followed
constexpr std::size_t kMostFound = 32;      // ways from one tree to the next section
constexpr std::size_t kMostEntered = 1024;  // half-made ways looked at from one tree, dead ends included
constexpr std::size_t kSetsOfTry = 32;      // sets of neighbours take as long to find as one try
constexpr std::uint64_t kMostTriedFromOne = 5000;  // groups tried in one tree, in all
constexpr std::size_t kMostLoose = 3;              // groups with room to spare for one set of neighbours
constexpr double kLoose = 4;  // in nats, as all likelihoods here: what a group that leaves room costs

int bit_of(Marks set) { return std::countr_zero(set); }
Marks first_bits(std::size_t count) { return count >= kMostMarks ? ~Marks{0} : (Marks{1} << count) - 1; }
// Of how many subsets as large as `chosen` the set has.
double log_choices(Marks set, Marks chosen) {
  const auto n = static_cast<std::size_t>(std::popcount(set)),
             k = static_cast<std::size_t>(std::popcount(chosen));
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k);
}

}  // namespace

bool RowWork::stopped() const {
  return done >= limits->nodes || (limits->stop && limits->stop->load(std::memory_order_relaxed)) ||
         (limits->enough && limits->enough->load(std::memory_order_relaxed)) ||
         std::chrono::steady_clock::now() >= limits->deadline;
}

RowGroups::RowGroups(const std::vector<Units>& size, RowWork& work, std::size_t width, std::uint64_t seed,
                     std::uint32_t names)
    : size_(size), work_(work), width_(width), random_(seed), names_(names), mark_(size.size(), 0) {}

void RowGroups::enter(const List& newborn, const std::vector<Units>& rooms) {
  newborn_ = newborn;
  rooms_here_ = &rooms;
  // For want of marks the smallest are left out.
  if (newborn_.size() > kMostMarks) newborn_.resize(kMostMarks);
  sum_up();
}

// Sums of subsets of the newborn; where they are many, of those that take few or leave few.
void RowGroups::sum_up() {
  sums_.clear();
  const std::size_t n = newborn_.size();
  const std::size_t most = n <= 15 ? n : n <= 20 ? 5 : n <= 30 ? 4 : n <= 45 ? 3 : 2;
  const Marks every = first_bits(n);
  Units all = 0;
  for (const std::uint32_t i : newborn_) all += size_[i];
  const auto add = [&](const auto& self, std::size_t from, std::size_t left, Units bytes, Marks set) -> void {
    if (set != 0) sums_.push_back({bytes, set});
    if (most < n) sums_.push_back({all - bytes, every & ~set});
    for (std::size_t k = from; left > 0 && k < n; ++k)
      self(self, k + 1, left - 1, bytes + size_[newborn_[k]], set | Marks{1} << k);
  };
  add(add, 0, most, 0, 0);
  std::sort(sums_.begin(), sums_.end());
}

void RowGroups::expand(const RowState& state, const List& dying, unsigned loose,
                       std::vector<RowState>& next) {
  next_ = &next;
  scratch_.clear();
  marked_.clear();
  opening_.clear();
  traces_.clear();
  for (const std::uint32_t i : dying) {
    mark_[i] = kCrowded;
    if (marked_.size() == kMostDying) continue;
    mark_[i] = Marks{1} << marked_.size();
    marked_.push_back(size_[i]);
  }
  const Marks must = first_bits(marked_.size());
  Id root = scratch_.copy(state.tree, state.root, [&](RowTree::Leaf& leaf) -> Marks {
    if (!leaf.free && mark_[leaf.name] != kCrowded) return mark_[leaf.name];
    if (!leaf.free) {  // one too many: it leaves its room to anybody
      opening_.push_back({{leaf}, {{names_, leaf.size, true}}});
      leaf = opening_.back().after[0];
      ++names_;
    }
    if (marked_.size() == kMostMarks) return 0;
    marked_.push_back(leaf.size);
    return Marks{1} << (marked_.size() - 1);
  });
  for (const std::uint32_t i : dying) mark_[i] = 0;
  while (const Marks joined = scratch_.joined_room(root)) join(root, joined);
  const Marks here = scratch_.marks(root);
  from_ = &state;
  found_ = entered_ = 0;
  work_before_ = work_.done;
  choose(root, state.score, here & must, here & ~must, first_bits(newborn_.size()), loose);
}

void RowGroups::join(Id& root, Marks joined) {
  const RowTree::Leaf room{names_++, bytes_of(joined), true};
  const int bit = bit_of(joined);
  RowTree::Block block;
  root = scratch_.replace(root, joined, scratch_.add(room, Marks{1} << bit), block);
  marked_[static_cast<std::size_t>(bit)] = room.size;
  traces_.push_back({block, {room}});
}

RowTree::Units RowGroups::bytes_of(Marks set) const {
  Units bytes = 0;
  for (; set != 0; set &= set - 1) bytes += marked_[static_cast<std::size_t>(bit_of(set))];
  return bytes;
}

// Goes on from a tree in which `dying` and the `newborn` wait for their groups, and `room` is free.
void RowGroups::choose(Id root, double score, Marks dying, Marks room, Marks newborn, unsigned loose) {
  if (dying == 0 && newborn == 0) {
    ++found_;
    arrive(root, score);
    return;
  }
  if (++entered_ > kMostEntered || work_.done > work_before_ + kMostTriedFromOne || work_.stopped()) return;
  std::vector<Group> groups = groups_of(root, score, dying, room, newborn, loose);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.score > b.score; });
  for (std::size_t k = 0; k < groups.size() && k < kBranches && found_ < kMostFound; ++k) {
    Group& group = groups[k];
    traces_.push_back({group.block, std::move(group.after)});
    choose(group.root, group.score, dying & ~group.neighbours, room & ~group.neighbours,
           newborn & ~group.newborn, loose - (group.loose ? 1 : 0));
    traces_.pop_back();
  }
}

std::vector<RowGroups::Group> RowGroups::groups_of(Id root, double score, Marks dying, Marks room,
                                                   Marks newborn, unsigned loose) {
  std::vector<Group> groups;
  const auto attempt = [&](Marks set, Marks come) {
    if (groups.size() < kMostTried) try_group(root, score, set, come, dying, room, newborn, groups);
  };
  const std::vector<Marks> sets = scratch_.neighbours(root, dying | room);
  work_.done += sets.size() / kSetsOfTry;
  if (dying != 0) {
    // One that few groups can have decides; of those groups it has one.
    std::array<std::uint32_t, kMostMarks> count{};
    for (Marks set : sets) {
      for (set &= dying; set != 0; set &= set - 1) ++count[static_cast<std::size_t>(bit_of(set))];
    }
    int picked = bit_of(dying);
    for (Marks left = dying; left != 0; left &= left - 1) {
      if (count[static_cast<std::size_t>(bit_of(left))] < count[static_cast<std::size_t>(picked)])
        picked = bit_of(left);
    }
    for (const Marks set : sets) {
      if ((set >> picked & 1) == 0) continue;
      groups_for(set, bytes_of(set), newborn, 0, loose, attempt);
      if (loose > 0 && (set & room) == 0) attempt(set, 0);
    }
  } else {
    const Marks largest = newborn & ~(newborn - 1);
    for (const Marks set : sets) groups_for(set, bytes_of(set), newborn, largest, loose, attempt);
  }
  return groups;
}

// Who of the newborn may come in the place of these neighbours, `with` among them.
template <class Attempt>
void RowGroups::groups_for(Marks set, Units bytes, Marks newborn, Marks with, unsigned loose,
                           Attempt&& attempt) {
  const auto possible = [&](Marks come) { return (come & ~newborn) == 0 && (come & with) == with; };
  auto sum = std::upper_bound(sums_.begin(), sums_.end(), Sum{bytes, ~Marks{0}});
  std::size_t others = 0;
  bool all = false;
  for (std::size_t looked = 0; sum != sums_.begin() && looked < kMostTried; ++looked) {
    --sum;
    if (sum->bytes < bytes && (loose == 0 || others == kMostLoose)) break;
    if (!possible(sum->set)) continue;
    all |= sum->set == newborn;
    others += sum->bytes < bytes;
    attempt(set, sum->set);
  }
  if (all || newborn == 0) return;  // there may be too many for their sum to be known
  Units every = 0;
  for (Marks left = newborn; left != 0; left &= left - 1)
    every += size_[newborn_[static_cast<std::size_t>(bit_of(left))]];
  if (every == bytes || (every < bytes && loose > 0)) attempt(set, newborn);
}

void RowGroups::try_group(Id root, double score, Marks set, Marks come, Marks dying, Marks room,
                          Marks newborn, std::vector<Group>& groups) {
  ++work_.done;
  Group group{score, 0, {}, {}, set, come, false};
  Units left = bytes_of(set);
  for (Marks each = come; each != 0; each &= each - 1) {
    const std::uint32_t i = newborn_[static_cast<std::size_t>(bit_of(each))];
    group.after.push_back({i, size_[i], false});
    left -= size_[i];
  }
  group.loose = left > 0;
  // What is free in several places is where several that nobody knows would be.
  const std::vector<Units>& rooms = *rooms_here_;
  if (left > 0 && left == std::accumulate(rooms.begin(), rooms.end(), Units{0})) {
    for (const Units room : rooms) group.after.push_back({names_++, room, true});
  } else if (left > 0) {
    group.after.push_back({names_++, left, true});
  }
  std::vector<Id> children;
  for (const RowTree::Leaf& leaf : group.after) children.push_back(scratch_.add(leaf, 0));
  group.root = scratch_.replace(root, set, scratch_.add_any(children), group.block);
  if (group.root == RowTree::kNone) return;
  group.score -= group.block.lost;
  if (group.loose) {
    group.score -= kLoose;
  } else if (set != (dying | room) || come != newborn) {
    // How unlikely it is that some group of so many adds up by chance.
    group.score += std::log(static_cast<double>(bytes_of(set)) + 1.0) - log_choices(dying | room, set) -
                   log_choices(newborn, come);
  }
  if (noise_ > 0) group.score += noise_ * random_.normal();
  groups.push_back(std::move(group));
}

// A tree at the next section: kept if it may be among the best.
void RowGroups::arrive(Id root, double score) {
  if (!seen_.insert(scratch_.hash(root)).second) return;
  RowState state;
  state.score = score;
  state.last = from_->last;
  state.pending = opening_;
  for (const Trace& trace : traces_) state.pending.push_back(row_step(scratch_, trace.block, trace.after));
  state.root = state.tree.copy(scratch_, root, [](RowTree::Leaf&) { return Marks{0}; });
  next_->push_back(std::move(state));
  if (next_->size() > 4 * width_) {
    std::nth_element(next_->begin(), next_->begin() + static_cast<std::ptrdiff_t>(width_), next_->end(),
                     [](const RowState& a, const RowState& b) { return a.score > b.score; });
    next_->resize(width_);
  }
}

}  // namespace memoir

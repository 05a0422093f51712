// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/row_tree.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

namespace memoir {
namespace {

constexpr std::size_t kMostSets = 8192;  // of neighbours, in one tree
constexpr std::size_t kTable = 512;
constexpr std::size_t kAllSubsets = 10;  // of so many children of a P node; of more only small ones

std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 30, x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27, x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::vector<double> log_factorials() {
  std::vector<double> sums{0};
  for (std::size_t n = 1; n < kTable; ++n) sums.push_back(sums.back() + std::log(static_cast<double>(n)));
  return sums;
}

}  // namespace

double log_factorial(std::size_t n) {
  static const std::vector<double> table = log_factorials();
  if (n < kTable) return table[n];
  const auto x = static_cast<double>(n);  // Stirling
  return x * std::log(x) - x + 0.5 * std::log(2 * std::numbers::pi * x);
}

void RowTree::clear() {
  nodes_.clear();
  children_.clear();
}

RowTree::Id RowTree::add(const Leaf& leaf, Marks mark) {
  Node node;
  node.marks = mark;
  node.leaf = leaf;
  node.hash = mixed(leaf.free ? ~static_cast<std::uint64_t>(leaf.size) : std::uint64_t{leaf.name} + 12345);
  nodes_.push_back(node);
  return static_cast<Id>(nodes_.size() - 1);
}

RowTree::Id RowTree::add_any(std::span<const Id> children) {
  return children.size() == 1 ? children[0] : add_node(Kind::kAny, children);
}

RowTree::Id RowTree::add_ordered(std::span<const Id> children) {
  return children.size() <= 2 ? add_any(children) : add_node(Kind::kOrdered, children);
}

RowTree::Id RowTree::add_node(Kind kind, std::span<const Id> children) {
  Node node;
  node.kind = kind;
  node.first = static_cast<std::uint32_t>(children_.size());
  node.count = static_cast<std::uint32_t>(children.size());
  node.leaves = 0;
  std::uint64_t sum = 0, forward = 5, backward = 5;
  for (std::size_t k = 0; k < children.size(); ++k) {
    const Node& child = nodes_[children[k]];
    node.leaves += child.leaves;
    node.marks |= child.marks;
    sum += mixed(3 * child.hash + 1);
    forward = mixed(31 * forward + child.hash);
    backward = mixed(31 * backward + nodes_[children[children.size() - 1 - k]].hash);
  }
  node.hash = mixed(kind == Kind::kAny ? sum + 77 : forward + backward);
  children_.insert(children_.end(), children.begin(), children.end());
  nodes_.push_back(node);
  return static_cast<Id>(nodes_.size() - 1);
}

RowTree::State RowTree::state(Id node, Marks set) const {
  const Marks common = nodes_[node].marks & set;
  if (common == 0) return State::kEmpty;
  return static_cast<std::uint32_t>(std::popcount(common)) == nodes_[node].leaves ? State::kFull
                                                                                  : State::kPartial;
}

// The children of a partial node in a row with the set's leaves last, as far as the node allows it.
bool RowTree::line_up(Id node, Marks set, std::vector<Id>& out, double& lost) {
  std::vector<Id> row(children(node).begin(), children(node).end());
  if (nodes_[node].kind == Kind::kAny) {
    std::vector<Id> empty, full;
    Id partial = kNone;
    for (const Id child : row) {
      const State is = state(child, set);
      if (is == State::kPartial && partial != kNone) return false;
      if (is == State::kPartial) partial = child;
      else (is == State::kEmpty ? empty : full).push_back(child);
    }
    lost += log_factorial(row.size()) - log_factorial(empty.size()) - log_factorial(full.size());
    if (!empty.empty()) out.push_back(add_any(empty));
    if (partial != kNone && !line_up(partial, set, out, lost)) return false;
    if (!full.empty()) out.push_back(add_any(full));
    return true;
  }
  const State front = state(row.front(), set), back = state(row.back(), set);
  if (front == State::kFull || back == State::kEmpty) std::reverse(row.begin(), row.end());
  lost += log_factorial(2);
  State before = State::kEmpty;
  for (const Id child : row) {
    const State is = state(child, set);
    if (is < before || (is == State::kPartial && before == State::kPartial)) return false;
    before = is;
    if (is != State::kPartial) out.push_back(child);
    else if (!line_up(child, set, out, lost)) return false;
  }
  return true;
}

// A Q node of the row, in which the set's leaves are neighbours and become `with`.
RowTree::Id RowTree::put(std::vector<Id> row, Marks set, Id with, Block& block, double lost) {
  std::size_t from = 0;
  while (state(row[from], set) == State::kEmpty) ++from;
  std::size_t to = from;
  while (to < row.size() && state(row[to], set) == State::kFull) ++to;
  const Id before = add_node(Kind::kOrdered, row);
  block = {before, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), lost};
  if (with != kNone) {
    row[from] = with;
    row.erase(row.begin() + static_cast<std::ptrdiff_t>(from) + 1,
              row.begin() + static_cast<std::ptrdiff_t>(to));
  }
  return add_ordered(row);
}

RowTree::Id RowTree::replace(Id root, Marks set, Id with, Block& block) {
  return replaced(root, set, with, block);
}

RowTree::Id RowTree::gather(Id root, Marks set, double& lost) {
  Block block;
  const Id gathered = replaced(root, set, kNone, block);
  lost += block.lost;
  return gathered;
}

// With kNone they stay.
RowTree::Id RowTree::replaced(Id root, Marks set, Id with, Block& block) {
  if (state(root, set) == State::kFull) {
    block = {root, 0, 0, 0};
    return with == kNone ? root : with;
  }
  std::vector<Id> row(children(root).begin(), children(root).end());
  std::vector<Id> empty, partial, full;
  for (const Id child : row) {
    const State is = state(child, set);
    (is == State::kEmpty ? empty : is == State::kFull ? full : partial).push_back(child);
  }
  const Kind kind = nodes_[root].kind;
  if (partial.size() + full.size() == 1) {  // all of it is below one child
    const Id only = partial.empty() ? full[0] : partial[0];
    const Id other = replaced(only, set, with, block);
    if (other == kNone) return kNone;
    std::replace(row.begin(), row.end(), only, other);
    return kind == Kind::kAny ? add_any(row) : add_ordered(row);
  }
  if (partial.size() > 2) return kNone;
  double lost = 0;
  std::vector<Id> lined, other;
  if (kind == Kind::kAny) {
    lost = log_factorial(row.size()) - log_factorial(empty.size() + 1) - log_factorial(full.size());
    if (partial.empty()) {
      block = {add_any(full), 0, 0, lost};
      empty.push_back(with == kNone ? block.node : with);
      return add_any(empty);
    }
    lost -= log_factorial(2);
    if (!line_up(partial[0], set, lined, lost)) return kNone;
    if (!full.empty()) lined.push_back(add_any(full));
    if (partial.size() == 2 && !line_up(partial[1], set, other, lost)) return kNone;
    lined.insert(lined.end(), other.rbegin(), other.rend());
    empty.push_back(put(std::move(lined), set, with, block, lost));
    return add_any(empty);
  }
  bool inside = false, after = false;
  for (const Id child : row) {
    const State is = state(child, set);
    if (is == State::kEmpty) {
      after |= inside;
      lined.push_back(child);
      continue;
    }
    if (after) return kNone;
    if (is == State::kFull) {
      lined.push_back(child);
    } else {
      other.clear();
      if (!line_up(child, set, other, lost)) return kNone;
      after = inside;
      if (inside) std::reverse(other.begin(), other.end());
      lined.insert(lined.end(), other.begin(), other.end());
    }
    inside = true;
  }
  return put(std::move(lined), set, with, block, lost);
}

RowTree::Marks RowTree::whole(Id node, Marks allowed) const {
  return state(node, allowed) == State::kFull ? nodes_[node].marks & allowed : 0;
}

// `ends`: the sets below the node that reach one end of it in some order. `sets` gets those that are
// neighbours somewhere below it.
void RowTree::collect(Id node, Marks allowed, std::vector<Marks>& ends, std::vector<Marks>& sets) const {
  if ((nodes_[node].marks & allowed) == 0) return;
  if (nodes_[node].kind == Kind::kLeaf) {
    ends.push_back(nodes_[node].marks);
    sets.push_back(nodes_[node].marks);
    return;
  }
  struct Child {
    Marks whole;
    std::vector<Marks> ends{};
  };
  std::vector<Child> below;
  for (const Id id : children(node)) {
    below.push_back({whole(id, allowed)});
    collect(id, allowed, below.back().ends, sets);
    std::erase(below.back().ends, below.back().whole);
  }
  // Those of one node may be many more than are left when what is found twice is taken away.
  const std::size_t most_sets = sets.size() + kMostSets;
  const auto room = [&] { return sets.size() < most_sets && ends.size() < kMostSets; };
  if (nodes_[node].kind == Kind::kAny) {
    std::vector<Marks> full;
    for (const Child& child : below) {
      if (child.whole != 0) full.push_back(child.whole);
    }
    const auto with = [&](Marks set) {  // and the end of a child, or of two
      if (set != 0) ends.push_back(set), sets.push_back(set);
      for (std::size_t a = 0; a < below.size() && room(); ++a) {
        if ((below[a].whole & set) != 0) continue;
        for (const Marks end : below[a].ends) {
          if (!room()) break;
          ends.push_back(set | end);
          if (set != 0) sets.push_back(set | end);
          for (std::size_t b = a + 1; b < below.size() && room(); ++b) {
            if ((below[b].whole & set) != 0) continue;
            for (const Marks other : below[b].ends) sets.push_back(set | end | other);
          }
        }
      }
    };
    const std::size_t n = full.size();
    const std::size_t most = n <= kAllSubsets ? n : n <= 16 ? 4 : n <= 24 ? 3 : 2;
    const auto choose = [&](const auto& self, std::size_t from, std::size_t left, Marks set) -> void {
      with(set);
      for (std::size_t k = from; left > 0 && k < n && room(); ++k) self(self, k + 1, left - 1, set | full[k]);
    };
    choose(choose, 0, most, 0);
    if (most < n) with(std::accumulate(full.begin(), full.end(), Marks{0}, std::bit_or<>()));
  } else {
    for (std::size_t a = 0; a < below.size(); ++a) {
      std::vector<Marks> begun = below[a].ends;
      if (below[a].whole != 0) begun.push_back(below[a].whole);
      for (Marks set : begun) {
        for (std::size_t b = a + 1; b < below.size() && room(); ++b) {
          for (const Marks end : below[b].ends) sets.push_back(set | end);
          if (below[b].whole == 0) break;
          sets.push_back(set |= below[b].whole);
        }
      }
    }
    for (const bool backwards : {false, true}) {
      Marks set = 0;
      for (std::size_t k = 0; k < below.size(); ++k) {
        const Child& child = below[backwards ? below.size() - 1 - k : k];
        for (const Marks end : child.ends) ends.push_back(set | end);
        if (child.whole == 0) break;
        ends.push_back(set |= child.whole);
      }
    }
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  if (ends.size() > kMostSets) ends.resize(kMostSets);
}

std::vector<RowTree::Marks> RowTree::neighbours(Id root, Marks allowed) const {
  std::vector<Marks> ends, sets;
  collect(root, allowed, ends, sets);
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  return sets;
}

RowTree::Marks RowTree::joined_room(Id root) const {
  if (nodes_[root].kind == Kind::kLeaf) return 0;
  const auto is_free = [&](Id node) {
    return nodes_[node].kind == Kind::kLeaf && nodes_[node].leaf.free && nodes_[node].marks != 0;
  };
  const auto row = children(root);
  if (nodes_[root].kind == Kind::kOrdered) {
    for (std::size_t k = 0; k + 1 < row.size(); ++k) {
      if (is_free(row[k]) && is_free(row[k + 1])) return nodes_[row[k]].marks | nodes_[row[k + 1]].marks;
    }
  } else if (std::all_of(row.begin(), row.end(), is_free)) {
    return nodes_[root].marks;
  }
  for (const Id child : row) {
    if (const Marks below = joined_room(child)) return below;
  }
  return 0;
}

void RowTree::leaves(Id node, std::vector<Leaf>& out) const {
  if (nodes_[node].kind == Kind::kLeaf) {
    out.push_back(nodes_[node].leaf);
    return;
  }
  for (const Id child : children(node)) leaves(child, out);
}

void RowTree::leaves(const Block& block, std::vector<Leaf>& out) const {
  if (block.to == 0) return leaves(block.node, out);
  for (std::uint32_t k = block.from; k < block.to; ++k) leaves(children(block.node)[k], out);
}

bool RowTree::beside(const Block& block, std::uint32_t& name, bool& before) const {
  if (block.to == 0) return false;
  const auto row = children(block.node);
  before = block.from > 0;
  if (!before && block.to == row.size()) return false;
  std::vector<Leaf> others;
  leaves(row[before ? block.from - 1 : block.to], others);
  name = others[0].name;
  return true;
}

}  // namespace memoir

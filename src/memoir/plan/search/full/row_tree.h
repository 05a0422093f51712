// SPDX-License-Identifier: Apache-2.0
//
// What is live at one time is a row of pieces from the bottom of the arena to its top. This holds all orders
// that such a row may still have, as a PQ-tree (Booth and Lueker, 1976): the children of a P node come in any
// order, those of a Q node in the one written or its reverse, and each node's leaves are neighbours.
//
//        P              a b|c d e    the orders  a b cde, b a cde, cde a b, cde b a, ... and, with the Q node
//      / | \                         read backwards, a b edc, ... : 3! * 2 = 12
//     a  b  Q(c d e)
//
// Sets of leaves are masks of 64 bits; leaves without a bit are in none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace memoir {

/// The logarithm of n!.
double log_factorial(std::size_t n);

/// Nodes never change. Not thread-safe.
class RowTree {
 public:
  using Id = std::uint32_t;     // of a node
  using Units = std::int64_t;   // of the arena
  using Marks = std::uint64_t;  // a set of leaves
  static constexpr Id kNone = ~Id{0};

  struct Leaf {
    std::uint32_t name = 0;  // the caller's
    Units size = 0;
    bool free = false;  // room that nobody has
  };

  /// Neighbours that were replaced. Where they were part of a Q node, `beside` is a leaf of another child.
  struct Block {
    Id node = kNone;                 // all of it, or:
    std::uint32_t from = 0, to = 0;  // these of its children
    double lost = 0;                 // the logarithm of how many orders fewer there are
  };

  void clear();
  Id add(const Leaf& leaf, Marks mark);
  Id add_any(std::span<const Id> children);      // a P node; of one child, that
  Id add_ordered(std::span<const Id> children);  // a Q node; of two children, a P node

  /// The nodes of `root` in `from`, each leaf with the mark that `mark_of(leaf)` gives, which may change the
  /// leaf. Returns the new root.
  template <class MarkOf>
  Id copy(const RowTree& from, Id root, MarkOf&& mark_of);

  Marks marks(Id node) const { return nodes_[node].marks; }
  /// Equal for trees of equal orders, up to the names of free leaves of one size. Others hardly ever agree.
  std::uint64_t hash(Id node) const { return nodes_[node].hash; }
  std::size_t size() const { return nodes_.size(); }

  /// The tree of those orders of `root` in which the leaves of `set` are neighbours, with them replaced by
  /// `with`. kNone: there are none. `set` has a leaf.
  Id replace(Id root, Marks set, Id with, Block& block);

  /// The tree of those orders of `root` in which the leaves of `set` are neighbours. kNone: there are none.
  /// `lost` is increased as Block::lost is.
  Id gather(Id root, Marks set, double& lost);

  /// The sets of neighbours in some order of `root` that consist of `allowed`; not all where there are very
  /// many.
  std::vector<Marks> neighbours(Id root, Marks allowed) const;

  /// A set of at least two free leaves that are one room, being neighbours in every order; 0: none. Looks at
  /// leaves with marks only.
  Marks joined_room(Id root) const;

  /// In one of the orders, the first to the last.
  void leaves(Id node, std::vector<Leaf>& out) const;
  void leaves(const Block& block, std::vector<Leaf>& out) const;

  /// Of a block within a Q node: a leaf next to it, and whether it comes before the block. False: there is
  /// none.
  bool beside(const Block& block, std::uint32_t& name, bool& before) const;

 private:
  enum class Kind : std::uint8_t { kLeaf, kAny, kOrdered };
  struct Node {
    Kind kind = Kind::kLeaf;
    std::uint32_t first = 0, count = 0;  // children, in children_
    std::uint32_t leaves = 1;
    Marks marks = 0;
    std::uint64_t hash = 0;
    Leaf leaf{};
  };
  enum class State : std::uint8_t { kEmpty, kPartial, kFull };

  std::span<const Id> children(Id node) const {
    return {children_.data() + nodes_[node].first, nodes_[node].count};
  }
  State state(Id node, Marks set) const;
  Id add_node(Kind kind, std::span<const Id> children);
  bool line_up(Id node, Marks set, std::vector<Id>& out, double& lost);
  Id replaced(Id root, Marks set, Id with, Block& block);
  Id put(std::vector<Id> row, Marks set, Id with, Block& block, double lost);
  Marks whole(Id node, Marks allowed) const;
  void collect(Id node, Marks allowed, std::vector<Marks>& ends, std::vector<Marks>& sets) const;

  std::vector<Node> nodes_;
  std::vector<Id> children_;
};

template <class MarkOf>
RowTree::Id RowTree::copy(const RowTree& from, Id root, MarkOf&& mark_of) {
  const Node& node = from.nodes_[root];
  if (node.kind == Kind::kLeaf) {
    Leaf leaf = node.leaf;
    const Marks mark = mark_of(leaf);
    return add(leaf, mark);
  }
  std::vector<Id> copied;
  for (const Id child : from.children(root)) copied.push_back(copy(from, child, mark_of));
  return add_node(node.kind, copied);
}

}  // namespace memoir

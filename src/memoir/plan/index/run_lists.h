// SPDX-License-Identifier: Apache-2.0
//
// Many sorted lists of occupied address runs in one place, as GapIndex needs them: most hold a few runs, some
// hold tens of thousands.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

/// The room of the lists. Not thread-safe.
class RunLists {
 public:
  struct Run {
    Offset begin, end;
  };
  /// A handle; a default one is an empty list. Runs are disjoint and do not even touch.
  struct List {
    std::uint32_t first = 0, count = 0,
                  capacity = 0;  // runs_[first, ...), or large_[first] where it is kLarge
  };

 private:
  static constexpr std::uint32_t kRoom = 64;  // runs of a leaf, and of the largest list without leaves
  static constexpr std::uint32_t kLarge = ~std::uint32_t{0};
  using Leaf = std::array<Run, kRoom>;
  /// A list in leaves of up to kRoom runs, so that an insertion moves no more than those. Its columns are
  /// what a reader needs to skip a leaf.
  struct Large {
    std::vector<Offset> begin, end;     // of the first and the last run
    std::vector<Size> widest;           // gap between two runs of the leaf
    std::vector<std::uint32_t> count;   // runs
    std::vector<std::uint32_t> leaves;  // into leaves_
  };

 public:
  /// Reads a list upwards. Valid until the next insert() into any list.
  class Cursor {
   public:
    bool done() const { return at_ == end_; }
    const Run& operator*() const { return *at_; }
    /// Moves on to the first run that ends after `position`.
    void seek(Offset position);
    /// Moves on past the current run and all that follow in distances of less than `size`; the end of the
    /// last.
    Offset pass(Size size);

   private:
    friend RunLists;
    bool enter(std::uint32_t leaf);
    const Run* at_ = nullptr;
    const Run* end_ = nullptr;  // of the leaf
    const RunLists* lists_ = nullptr;
    const Large* large_ = nullptr;
    std::uint32_t leaf_ = 0;
  };

  void reserve(std::size_t runs) { runs_.reserve(runs); }
  /// Adds a run; those that it overlaps or touches become one with it.
  void insert(List& list, Run run);
  Cursor read(const List& list) const;

 private:
  void grow(List& list);
  void insert_large(Large& list, Run run);
  void add_leaf(Large& list, std::size_t at, const Run* runs, std::uint32_t count);
  void drop_leaves(Large& list, std::size_t begin, std::size_t end);
  void describe(Large& list, std::size_t leaf);

  std::vector<Run> runs_;
  std::vector<std::uint32_t> free_[8];  // rooms given up by lists that grew, by log2 of their capacity
  std::deque<Large> large_;
  std::deque<Leaf> leaves_;
  std::vector<std::uint32_t> free_leaves_;
};

}  // namespace memoir

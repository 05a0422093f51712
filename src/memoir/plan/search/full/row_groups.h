// SPDX-License-Identifier: Apache-2.0
//
// From a row to the next: which of the dying leave together the bytes that which of the newborn take, and in
// which trees that ends. Groups are tried by how unlikely their sums are by chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "memoir/plan/random.h"
#include "memoir/plan/search/exact/exact_search.h"
#include "memoir/plan/search/full/row_steps.h"
#include "memoir/plan/search/full/row_tree.h"

namespace memoir {

/// A tree of rows on its way through time.
struct RowState {
  RowTree tree;
  RowTree::Id root = 0;
  double score = 0;
  std::uint32_t last = kNoStep;
  std::vector<RowStep> pending{};  // since then
};

/// What the trees of one run may do together.
struct RowWork {
  const SearchLimits* limits = nullptr;
  std::uint64_t done = 0;  // groups tried

  bool stopped() const;
};

class RowGroups {
 public:
  using Units = RowTree::Units;
  using Marks = RowTree::Marks;
  using Id = RowTree::Id;
  using List = std::vector<std::uint32_t>;

  /// `size` and `work` must outlive it. `width` trees are kept side by side; names from `names` on are for
  /// free room.
  RowGroups(const std::vector<Units>& size, RowWork& work, std::size_t width, std::uint64_t seed,
            std::uint32_t names);

  std::uint32_t new_name() { return names_++; }
  void set_noise(double noise) { noise_ = noise; }
  double noise() const { return noise_; }

  /// For the next calls of expand(): who is born, the largest first, and the free room there seems to be.
  void enter(const List& newborn, const std::vector<Units>& rooms);
  /// Trees that were found are told from new ones from here on.
  void forget_seen() { seen_.clear(); }
  const List& newborn() const { return newborn_; }
  /// Adds to `next` the trees that come from this one, of which at most `loose` groups leave room; keeps the
  /// best.
  void expand(const RowState& state, const List& dying, unsigned loose, std::vector<RowState>& next);

 private:
  struct Group {
    double score;
    Id root;
    RowTree::Block block;
    std::vector<RowTree::Leaf> after;
    Marks neighbours, newborn;
    bool loose;
  };
  struct Trace {  // of the groups chosen so far, in the scratch tree
    RowTree::Block block;
    std::vector<RowTree::Leaf> after;
  };
  struct Sum {
    Units bytes;
    Marks set;
    bool operator<(const Sum& other) const {
      return bytes != other.bytes ? bytes < other.bytes : set < other.set;
    }
  };

  void sum_up();
  void join(Id& root, Marks joined);
  Units bytes_of(Marks set) const;
  void choose(Id root, double score, Marks dying, Marks room, Marks newborn, unsigned loose);
  std::vector<Group> groups_of(Id root, double score, Marks dying, Marks room, Marks newborn, unsigned loose);
  template <class Attempt>
  void groups_for(Marks set, Units bytes, Marks newborn, Marks with, unsigned loose, Attempt&& attempt);
  void try_group(Id root, double score, Marks set, Marks come, Marks dying, Marks room, Marks newborn,
                 std::vector<Group>& groups);
  void arrive(Id root, double score);

  const std::vector<Units>& size_;  // per buffer
  RowWork& work_;
  const std::size_t width_;
  double noise_ = 0;
  Random random_;
  std::uint32_t names_;  // the next one: of buffers, then of free room
  std::unordered_set<std::uint64_t> seen_;

  const std::vector<Units>* rooms_here_ = nullptr;
  List newborn_;               // by their bits
  std::vector<Sum> sums_;      // of subsets of them
  std::vector<Marks> mark_;    // per buffer that dies
  std::vector<Units> marked_;  // sizes, by bits
  RowTree scratch_;
  const RowState* from_ = nullptr;
  std::vector<RowState>* next_ = nullptr;
  std::vector<RowStep> opening_;  // before the groups are chosen
  std::vector<Trace> traces_;
  std::size_t found_ = 0, entered_ = 0;
  std::uint64_t work_before_ = 0;
};

}  // namespace memoir

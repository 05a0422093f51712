// SPDX-License-Identifier: Apache-2.0
//
// Address-ordered first fit: a treap of records by where their ranges begin, in which each record also keeps
// the largest room below it. The lowest record with enough room is found without passing those that have too
// little.
//
//   Record              struct with `range` and `left`, `right`, `priority` (heap/index/block_row.h), and a
//                       Size `most`; [0] is none, its `most` is 0
//   room_of(record)     bytes that the record itself has room for
//
// Every function takes O(log n), expected. As in treap.h the functions take the records and the root. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir {

template <class Record, auto room_of>
struct FirstFitTree {
  using Index = std::uint32_t;  // of a record; 0 is none

  /// Enters a record that is in no tree.
  static void insert(Record* records, Index& root, Index index) noexcept {
    records[index].left = records[index].right = 0;
    root = inserted(records, root, index);
  }
  /// Takes out a record that is in the tree, at the start that it went in with.
  static void erase(Record* records, Index& root, Index index) noexcept {
    root = erased(records, root, index);
    records[index].left = records[index].right = 0;
  }
  /// The room of a record that is in the tree has changed.
  static void refresh(Record* records, Index root, Index index) noexcept {
    if (root != index) {
      const Record& at = records[root];
      refresh(records, is_before(records[index], at) ? at.left : at.right, index);
    }
    update(records, root);
  }
  /// The lowest record that begins at `from` or later and has room for `size` bytes, or 0.
  static Index find(const Record* records, Index root, Offset from, Size size) noexcept {
    if (root == 0 || records[root].most < size) return 0;
    const Record& at = records[root];
    if (at.range.begin >= from) {
      if (const Index lower = find(records, at.left, from, size); lower != 0) return lower;
      if (room_of(at) >= size) return root;
    }
    return find(records, at.right, from, size);
  }

 private:
  static bool is_before(const Record& a, const Record& b) noexcept { return a.range.begin < b.range.begin; }

  static Index update(Record* records, Index index) noexcept {
    Record& at = records[index];
    at.most = std::max({static_cast<Size>(room_of(at)), records[at.left].most, records[at.right].most});
    return index;
  }
  static Index inserted(Record* records, Index root, Index index) noexcept {
    if (root == 0) return update(records, index);
    if (records[root].priority < records[index].priority) {
      split(records, root, records[index].range.begin, records[index].left, records[index].right);
      return update(records, index);
    }
    Index& below = is_before(records[index], records[root]) ? records[root].left : records[root].right;
    below = inserted(records, below, index);
    return update(records, root);
  }
  static Index erased(Record* records, Index root, Index index) noexcept {
    if (root == index) return joined(records, records[index].left, records[index].right);
    Index& below = is_before(records[index], records[root]) ? records[root].left : records[root].right;
    below = erased(records, below, index);
    return update(records, root);
  }
  /// Parts a tree into the records that begin before `begin`, and the rest.
  static void split(Record* records, Index root, Offset begin, Index& lower, Index& rest) noexcept {
    if (root == 0) {
      lower = rest = 0;
    } else if (records[root].range.begin < begin) {
      lower = root;
      Index above = 0;
      split(records, records[root].right, begin, above, rest);
      records[root].right = above;
      update(records, root);
    } else {
      rest = root;
      Index below = 0;
      split(records, records[root].left, begin, lower, below);
      records[root].left = below;
      update(records, root);
    }
  }
  /// One tree of two, all of whose records in `lower` begin before those in `upper`.
  static Index joined(Record* records, Index lower, Index upper) noexcept {
    if (lower == 0 || upper == 0) return lower + upper;
    if (records[lower].priority >= records[upper].priority) {
      records[lower].right = joined(records, records[lower].right, upper);
      return update(records, lower);
    }
    records[upper].left = joined(records, lower, records[upper].left);
    return update(records, upper);
  }
};

}  // namespace memoir

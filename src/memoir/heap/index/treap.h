// SPDX-License-Identifier: Apache-2.0
//
// A search tree inside the records of a heap (a treap: Seidel and Aragon, Randomized Search Trees, 1996). A
// record names its children by index, so the array that holds the records may move; its priority is a hash of
// its index, so the tree has the same form in every run. Insert, erase and search take O(log n), expected.
//
//   Record                     any struct with `left`, `right`, `priority`, all std::uint32_t; [0] is none
//   key_of(const Record&)      what orders them: no two records of one tree have the same key
//
// The functions take the records and the root as two arguments: a heap has several trees in one array. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <utility>

#include "memoir/base/site.h"

namespace memoir {

/// The priority that the record at `index` keeps for good.
inline std::uint32_t treap_priority(std::uint32_t index) noexcept {
  return static_cast<std::uint32_t>(detail::mix(index));
}

template <class Record, auto key_of>
struct Treap {
  using Index = std::uint32_t;  // of a record; 0 is none
  using Key = decltype(key_of(std::declval<const Record&>()));

  /// Enters a record that is in no tree.
  static void insert(Record* records, Index& root, Index index) noexcept {
    Record& record = records[index];
    const Key key = key_of(record);
    Index* at = &root;
    while (*at != 0 && records[*at].priority >= record.priority) {
      at = key < key_of(records[*at]) ? &records[*at].left : &records[*at].right;
    }
    const Index below = *at;
    *at = index;
    split(records, below, key, record.left, record.right);
  }

  /// Takes out a record that is in the tree, under the key that it went in with.
  static void erase(Record* records, Index& root, Index index) noexcept {
    const Key key = key_of(records[index]);
    Index* at = &root;
    while (*at != index) at = key < key_of(records[*at]) ? &records[*at].left : &records[*at].right;
    *at = join(records, records[index].left, records[index].right);
    records[index].left = records[index].right = 0;
  }

  /// The record of the least key that is not less than `key`, or 0.
  static Index lower_bound(const Record* records, Index root, const Key& key) noexcept {
    Index best = 0;
    while (root != 0) {
      if (key_of(records[root]) < key) {
        root = records[root].right;
      } else {
        best = root;
        root = records[root].left;
      }
    }
    return best;
  }

  /// The record of the least key, or 0.
  static Index first(const Record* records, Index root) noexcept {
    while (root != 0 && records[root].left != 0) root = records[root].left;
    return root;
  }
  /// The record of the greatest key, or 0.
  static Index last(const Record* records, Index root) noexcept {
    while (root != 0 && records[root].right != 0) root = records[root].right;
    return root;
  }

 private:
  /// Parts a tree into the records whose keys are less than `key`, and the rest.
  static void split(Record* records, Index root, const Key& key, Index& less, Index& rest) noexcept {
    Index* to_less = &less;
    Index* to_rest = &rest;
    while (root != 0) {
      if (key_of(records[root]) < key) {
        *to_less = root;
        to_less = &records[root].right;
        root = *to_less;
      } else {
        *to_rest = root;
        to_rest = &records[root].left;
        root = *to_rest;
      }
    }
    *to_less = *to_rest = 0;
  }

  /// One tree of two, all of whose keys in `less` are less than those in `rest`.
  static Index join(Record* records, Index less, Index rest) noexcept {
    Index root = 0;
    Index* at = &root;
    while (less != 0 && rest != 0) {
      if (records[less].priority >= records[rest].priority) {
        *at = less;
        at = &records[less].right;
        less = *at;
      } else {
        *at = rest;
        at = &records[rest].left;
        rest = *at;
      }
    }
    *at = less != 0 ? less : rest;
    return root;
  }
};

}  // namespace memoir

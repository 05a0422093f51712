// SPDX-License-Identifier: Apache-2.0
//
// Object ids -> numbers below 2^32, in few bytes: ids that are handed out in order (every recorder's) take
// four bytes each, any others a hash table of the caller's items, which are asked for their ids. Keyed: a
// stranger's ids do not collide.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/base/keyed_hash.h"
#include "memoir/base/units.h"

namespace memoir {

class ObjectIndex {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// The number of this id, or kNone. `id_of(number)` gives the id of a number that was added.
  template <class IdOf>
  std::uint32_t find(ObjectId id, const IdOf& id_of) const noexcept {
    if (id < dense_.size() && dense_[id] != kNone) return dense_[id];
    if (table_.empty()) return kNone;
    for (std::size_t at = home(id);; at = (at + 1) & (table_.size() - 1)) {
      if (table_[at] == kNone || id_of(table_[at]) == id) return table_[at];
    }
  }

  /// An id that is not there.
  template <class IdOf>
  void add(ObjectId id, std::uint32_t number, const IdOf& id_of) {
    ++count_;
    // As long as one in two places of the dense part is taken, it is the smaller one.
    if (id < 2 * count_ + 64 && id < ~std::uint32_t{0}) {
      if (id >= dense_.size()) dense_.resize(static_cast<std::size_t>(id) + 1, kNone);
      dense_[static_cast<std::size_t>(id)] = number;
      return;
    }
    if (4 * (hashed_ + 1) > 3 * table_.size()) grow(id_of);
    place(id, number);
    ++hashed_;
  }

 private:
  std::size_t home(ObjectId id) const noexcept { return keyed_hash(id, key_) & (table_.size() - 1); }
  void place(ObjectId id, std::uint32_t number) noexcept {
    std::size_t at = home(id);
    while (table_[at] != kNone) at = (at + 1) & (table_.size() - 1);
    table_[at] = number;
  }
  template <class IdOf>
  void grow(const IdOf& id_of) {
    std::vector<std::uint32_t> old(table_.empty() ? 1024 : 2 * table_.size(), kNone);
    old.swap(table_);
    for (const std::uint32_t number : old) {
      if (number != kNone) place(id_of(number), number);
    }
  }

  std::uint64_t key_ = hash_key();
  std::vector<std::uint32_t> dense_;  // by id
  std::vector<std::uint32_t> table_;  // a power of two, at most three quarters taken
  std::size_t count_ = 0;
  std::size_t hashed_ = 0;
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// The objects of a trace, with one number each: a flat hash table, since a check of a million events should
// take some tens of milliseconds. Keyed: nobody can choose objects that collide.
#pragma once

#include <vector>

#include "memoir/base/keyed_hash.h"
#include "memoir/base/units.h"

namespace memoir {

class ObjectTable {
 public:
  enum class State : std::uint32_t { kUnknown, kFreed, kLive };
  struct Entry {
    ObjectId object = 0;
    State state = State::kUnknown;
    std::uint32_t tag = 0;    // the caller's
    std::uint64_t value = 0;  // the caller's
  };

  ObjectTable() : entries_(1024) {}

  /// The entry of this object, kUnknown when it was not seen: fill it in, and call added(). Valid until then.
  Entry& find(ObjectId object) noexcept {
    size_t at = keyed_hash(object, key_) & (entries_.size() - 1);
    while (entries_[at].state != State::kUnknown && entries_[at].object != object)
      at = (at + 1) & (entries_.size() - 1);
    return entries_[at];
  }
  void added() {
    if (++count_ * 2 <= entries_.size()) return;
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.state != State::kUnknown) find(entry.object) = entry;
    }
  }

 private:
  std::uint64_t key_ = hash_key();
  std::vector<Entry> entries_;  // a power of two of them, at most half taken
  size_t count_ = 0;
};

}  // namespace memoir

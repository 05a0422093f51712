// SPDX-License-Identifier: Apache-2.0
//
// The objects of a trace by their ids: not seen yet, live (with the caller's number and marks), or gone. Ids
// that are handed out in order (every recorder's) take four bytes each while any of their group lives, and
// nothing once all of it are gone, so that a long recording costs what lives in it. Any others take a hash
// table of the caller's items, which are asked for their ids. Keyed: a stranger's ids do not collide.
//
//   ids     0 ... 4095   4096 ... 8191   8192 ...
//   words   all gone     live, gone      live, unknown       no memory behind the first group
#pragma once

#include <cstdint>
#include <new>
#include <vector>

#include "memoir/base/keyed_hash.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class ObjectStates {
 public:
  enum class Life : std::uint8_t { kUnknown, kLive, kGone };
  static constexpr std::uint32_t kMostNumbers = (1u << 30) - 1;  // numbers are below
  struct State {
    Life life = Life::kUnknown;
    std::uint32_t number = 0;  // of a live object
    std::uint32_t marks = 0;   // of a live object: two bits, the caller's
  };

  /// `id_of(number)` gives the id of a number that was added, here and below.
  template <class IdOf>
  State find(ObjectId id, const IdOf& id_of) const noexcept {
    if (is_dense(id)) {
      const std::uint32_t word = dense_[static_cast<std::size_t>(id)];
      return word == kGone ? State{Life::kGone} : State{Life::kLive, number_of(word), word & kMarks};
    }
    if (id < dense_.size() && gone_[group_of(id)] == kGroup) return {Life::kGone};
    if (table_.empty()) return {};
    const Slot& slot = table_[slot_of(id, id_of)];
    if (slot.word == 0) return {};
    return slot.is_gone ? State{Life::kGone} : State{Life::kLive, number_of(slot.word), slot.word & kMarks};
  }

  /// Of an object that find() does not know: it lives from now on. Throws std::bad_alloc.
  template <class IdOf>
  void add(ObjectId id, std::uint32_t number, const IdOf& id_of) {
    const std::uint32_t word = (number + 1) << 2;
    ++count_;
    // As long as one in two places of the dense part is taken, it is the smaller one.
    if (id < 2 * count_ + 64) {
      while (dense_.size() <= id) {
        if (!dense_.push_back(0)) throw std::bad_alloc();
      }
      gone_.resize(group_of(dense_.size()) + 1);
      dense_[static_cast<std::size_t>(id)] = word;
      return;
    }
    if (4 * (hashed_ + 1) > 3 * table_.size()) grow(id_of);
    table_[slot_of(id, id_of)] = {word, false};
    ++hashed_;
  }

  /// Of a live object. Marks stay.
  template <class IdOf>
  void mark(ObjectId id, std::uint32_t marks, const IdOf& id_of) noexcept {
    (is_dense(id) ? dense_[static_cast<std::size_t>(id)] : table_[slot_of(id, id_of)].word) |= marks;
  }

  /// Of a live object: it is gone.
  template <class IdOf>
  void end(ObjectId id, const IdOf& id_of) noexcept {
    if (!is_dense(id)) {
      table_[slot_of(id, id_of)].is_gone = true;
      return;
    }
    dense_[static_cast<std::size_t>(id)] = kGone;
    const std::size_t group = group_of(id);
    if (++gone_[group] == kGroup) dense_.forget(group * kGroup, (group + 1) * kGroup);
  }

 private:
  static constexpr std::uint32_t kMarks = 3, kGone = 3;  // as words; no number is 0
  static constexpr std::uint32_t kGroup = 4096;          // ids; their words are whole pages
  struct Slot {
    std::uint32_t word = 0;  // 0: nothing
    bool is_gone = false;
  };

  static std::uint32_t number_of(std::uint32_t word) noexcept { return (word >> 2) - 1; }
  static std::size_t group_of(ObjectId id) noexcept { return static_cast<std::size_t>(id / kGroup); }
  bool is_dense(ObjectId id) const noexcept {
    return id < dense_.size() && dense_[static_cast<std::size_t>(id)] != 0;
  }
  /// Where the id is, or would be.
  template <class IdOf>
  std::size_t slot_of(ObjectId id, const IdOf& id_of) const noexcept {
    std::size_t at = keyed_hash(id, key_) & (table_.size() - 1);
    while (table_[at].word != 0 && id_of(number_of(table_[at].word)) != id)
      at = (at + 1) & (table_.size() - 1);
    return at;
  }
  template <class IdOf>
  void grow(const IdOf& id_of) {
    std::vector<Slot> old(table_.empty() ? 1024 : 2 * table_.size());
    old.swap(table_);
    for (const Slot& slot : old) {
      if (slot.word != 0) table_[slot_of(id_of(number_of(slot.word)), id_of)] = slot;
    }
  }

  std::uint64_t key_ = hash_key();
  MetadataArray<std::uint32_t> dense_;  // words by id; 0: not here
  std::vector<std::uint16_t> gone_;     // of each group of dense_: how many
  std::vector<Slot> table_;             // a power of two of them, at most three quarters taken
  std::size_t count_ = 0;
  std::size_t hashed_ = 0;
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/rmm_arena_heap.h"

#include <algorithm>

namespace memoir {

RmmArenaHeap::RmmArenaHeap(Arena& arena, Size size, StreamOrder* order) noexcept
    : arena_(&arena), order_(order) {
  const Size whole = align_down(size == 0 ? arena.capacity() : size, kAlignment);
  if (whole < kSuperblock || whole > arena.capacity()) return;
  if (!pieces_.start() || !superblocks_.start() || !lists_.push_back({})) return;
  if (size != 0) {
    if (!arena.commit({0, whole})) return;
    high_ = whole;
  }
  const Index superblock = superblocks_.add({0, whole});
  const Index piece = pieces_.add({0, whole});
  pieces_[piece].superblock = superblock;
  Pieces::insert(pieces_.data(), superblocks_[superblock].free, piece);
  give(superblock, kGlobal);
  ready_ = true;
}

Offset RmmArenaHeap::allocate(const Request& request) noexcept {
  if (!ready_ || request.size == 0 || request.size > arena_->capacity() ||
      !is_power_of_two(request.alignment) || request.alignment > kAlignment) {
    return kNoOffset;
  }
  // Room for the superblock that is cut off with its piece, and for the rest of the object's piece: from here
  // on nothing fails half-way.
  if (!pieces_.reserve(2) || !superblocks_.reserve(1) || !table_.reserve_one()) return kNoOffset;
  const Index list = list_of(request.stream);
  if (list == kGlobal) return kNoOffset;
  const Size size = align_up(request.size, kAlignment);
  Index index = find(size, list);
  if (index == 0) {
    return_all();
    index = find(size, list);
    if (index == 0) return kNoOffset;
  }
  Piece& piece = pieces_[index];
  piece.asked = request.size;
  piece.list = list;
  table_.insert(piece.range.begin, index);
  live_ += request.size;
  return piece.range.begin;
}

bool RmmArenaHeap::free(Offset offset) noexcept {
  const Index index = table_.take(offset);
  if (index == 0) return false;
  Piece& piece = pieces_[index];
  live_ -= piece.asked;
  piece.asked = 0;
  if (order_ != nullptr) lists_[piece.list].moment = order_->now();
  const Index at = piece.superblock;
  Superblock& superblock = superblocks_[at];
  superblock.users |= bit_of(piece.list);
  --superblock.live;
  Pieces::insert(pieces_.data(), superblock.free, join_free(index));
  superblock.room = pieces_[superblock.free].most;
  if (superblock.list == kGlobal && superblock.live == 0) {
    take_out(at);
    give_back(at);
  } else {
    Superblocks::refresh(superblocks_.data(), lists_[superblock.list].superblocks, at);
  }
  return true;
}

Size RmmArenaHeap::size_of(Offset offset) const noexcept {
  const Index index = table_.find(offset);
  return index == 0 ? 0 : pieces_[index].range.size;
}

/// The list of a stream, made when it is new; kGlobal when there is no metadata memory.
RmmArenaHeap::Index RmmArenaHeap::list_of(StreamId stream) noexcept {
  for (Index list = 1; list < lists_.size(); ++list) {
    if (lists_[list].stream == stream) return list;
  }
  return lists_.push_back({stream, 0, 0}) ? static_cast<Index>(lists_.size() - 1) : kGlobal;
}

// --- which piece ---

/// A piece of exactly `size` bytes, in no tree, or 0.
RmmArenaHeap::Index RmmArenaHeap::find(Size size, Index list) noexcept {
  if (size <= kSuperblock) {
    if (const Index piece = find_in(list, size, list); piece != 0) return piece;
  }
  return find_in(kGlobal, size, list);
}

/// In the superblocks of the list `from`, for the stream of `list`. One whose users cannot be waited for now
/// is passed over.
RmmArenaHeap::Index RmmArenaHeap::find_in(Index from, Size size, Index list) noexcept {
  for (Offset begin = 0;;) {
    const Index at = Superblocks::find(superblocks_.data(), lists_[from].superblocks, begin, size);
    if (at == 0) return 0;
    begin = superblocks_[at].range.begin + 1;
    const Index piece = Pieces::find(pieces_.data(), superblocks_[at].free, 0, size);
    if (!reaches(piece, size)) return 0;  // nor would a higher one
    const std::uint64_t users = superblocks_[at].users;
    if (!wait_for_users(at, list)) continue;
    take_out(at);
    if (from == kGlobal && superblocks_[at].live == 0) cut_superblock(at, std::max(size, kSuperblock), users);
    occupy(piece, size);
    give(at, size <= kSuperblock ? list : kGlobal);
    return piece;
  }
}

/// Whether there is memory as far as this object would reach.
bool RmmArenaHeap::reaches(Index piece, Size size) noexcept {
  const Offset end = pieces_[piece].range.begin + size;
  if (end > high_ && !arena_->commit({high_, end - high_})) return false;
  high_ = std::max(high_, end);
  return true;
}

/// Orders this list's stream after all that was freed in the superblock. False when that cannot be.
bool RmmArenaHeap::wait_for_users(Index superblock, Index list) noexcept {
  std::uint64_t& users = superblocks_[superblock].users;
  bool has_others = false;
  for (Index other = 1; order_ != nullptr && other < lists_.size(); ++other) {
    if (other == list || (users & bit_of(other)) == 0) continue;
    const List& from = lists_[other];
    const StreamId to = lists_[list].stream;
    if (!order_->is_ordered(from.stream, from.moment, to) && !order_->order(from.stream, from.moment, to))
      return false;
    has_others = true;
  }
  users = bit_of(list);
  // A third stream that takes it from this list has to wait for what this one waited for as well.
  if (has_others) lists_[list].moment = order_->now();
  return true;
}

/// Takes the first `size` bytes of a free piece, in the tree of its superblock, which is in no list.
void RmmArenaHeap::occupy(Index index, Size size) noexcept {
  Superblock& superblock = superblocks_[pieces_[index].superblock];
  Pieces::erase(pieces_.data(), superblock.free, index);
  if (pieces_[index].range.size != size) {
    const Index rest = pieces_.cut(index, size);
    pieces_[rest].superblock = pieces_[index].superblock;
    Pieces::insert(pieces_.data(), superblock.free, rest);
  }
  superblock.room = pieces_[superblock.free].most;
  ++superblock.live;
}

/// Joins a free piece that is in no tree with free neighbours in its superblock.
RmmArenaHeap::Index RmmArenaHeap::join_free(Index index) noexcept {
  Index& root = superblocks_[pieces_[index].superblock].free;
  if (const Index after = pieces_[index].after; after != 0 && pieces_[after].asked == 0) {
    Pieces::erase(pieces_.data(), root, after);
    pieces_.drop(pieces_.join_after(index));
  }
  if (const Index before = pieces_[index].before; before != 0 && pieces_[before].asked == 0) {
    Pieces::erase(pieces_.data(), root, before);
    pieces_.drop(pieces_.join_after(before));
    index = before;
  }
  return index;
}

// --- superblocks ---

/// Cuts an empty superblock that is in no list after `size` bytes, where what is left is a superblock; that
/// one, with the users that the whole had, is the global arena's.
void RmmArenaHeap::cut_superblock(Index index, Size size, std::uint64_t users) noexcept {
  if (superblocks_[index].range.size < size + kSuperblock) return;
  const Index rest = superblocks_.cut(index, size);
  superblocks_[rest].users = users;
  const Index piece = superblocks_[index].free;  // the only one
  pieces_[piece].range.size = pieces_[piece].most = size;
  const Index rest_piece = pieces_.add(superblocks_[rest].range);
  pieces_[rest_piece].superblock = rest;
  Pieces::insert(pieces_.data(), superblocks_[rest].free, rest_piece);
  give(rest, kGlobal);
}

/// Enters a superblock that is in no list.
void RmmArenaHeap::give(Index index, Index list) noexcept {
  Superblock& superblock = superblocks_[index];
  superblock.list = list;
  superblock.room = pieces_[superblock.free].most;
  Superblocks::insert(superblocks_.data(), lists_[list].superblocks, index);
}

void RmmArenaHeap::take_out(Index index) noexcept {
  Superblocks::erase(superblocks_.data(), lists_[superblocks_[index].list].superblocks, index);
}

/// All superblocks of streams become the global arena's.
void RmmArenaHeap::return_all() noexcept {
  for (Index list = 1; list < lists_.size(); ++list) {
    for (Index index; (index = lists_[list].superblocks) != 0;) {
      take_out(index);
      give_back(index);
    }
  }
}

/// Gives the global arena a superblock that is in no list; empty ones join.
void RmmArenaHeap::give_back(Index index) noexcept {
  const auto joins = [this](Index at) {
    return at != 0 && superblocks_[at].list == kGlobal && superblocks_[at].live == 0;
  };
  if (superblocks_[index].live == 0) {
    if (const Index after = superblocks_[index].after; joins(after)) {
      take_out(after);
      absorb_after(index);
    }
    if (const Index before = superblocks_[index].before; joins(before)) {
      take_out(before);
      absorb_after(before);
      index = before;
    }
  }
  give(index, kGlobal);
}

/// Joins an empty superblock with the empty one after it; both are in no list.
void RmmArenaHeap::absorb_after(Index index) noexcept {
  const Index after = superblocks_.join_after(index);
  superblocks_[index].users |= superblocks_[after].users;
  Piece& piece = pieces_[superblocks_[index].free];
  piece.range.size = piece.most = superblocks_[index].range.size;
  pieces_.drop(superblocks_[after].free);
  superblocks_.drop(after);
}

}  // namespace memoir

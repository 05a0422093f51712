// SPDX-License-Identifier: Apache-2.0
//
// RMM's arenas (RAPIDS Memory Manager, arena_memory_resource): address-ordered first fit in superblocks of a
// megabyte or more, which a global arena lends to an arena for every stream.
//
//   memory taken once   | superblock      | superblock | superblock            |
//   whose it is           stream 0's        stream 1's   the global arena's
//   blocks                #..##.#..         ##...        ####.....               # live   . free
//
// Sizes are rounded up to 256 bytes. Up to a megabyte the stream's own superblocks serve, the lowest with a
// large enough block; else the stream gets the lowest of the global arena that has one, cut to a megabyte if
// it is empty. Larger requests are served by the global arena itself, in superblocks that are cut to their
// size if at least a megabyte is left. Free blocks join within a superblock, empty superblocks within the
// global arena. A stream keeps its superblocks, empty ones too, until a request finds nothing: then all of
// them go back to the global arena, and it is tried once more. Memory is never given back to the device;
// trim() does nothing.
//
// The original makes the host wait for a stream at each free above a megabyte, and for the device before all
// superblocks go back. A heap waits for nothing: here the queue of the stream that takes a superblock waits
// for those that freed something in it.
#pragma once

#include <cstdint>
#include <tuple>

#include "memoir/arena/arena.h"
#include "memoir/base/option.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/block_row.h"
#include "memoir/heap/index/first_fit_tree.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

/// Of the policy; a heap is told its size.
struct RmmArenaOptions {
  Size size = 0;
  double part = 0;

  static constexpr auto fields() {
    using Options = RmmArenaOptions;
    return std::tuple{OptionField{"size", &Options::size, Unit::kBytes,
                                  "size of the pool, which never grows; 0: as much as objects need"},
                      OptionField{"part", &Options::part, Unit::kShare,
                                  "without a size: part of the memory that is free at the start (RMM: 0.5); "
                                  "0: as much as objects need"}};
  }
};

class RmmArenaHeap final : public Heap {
 public:
  static constexpr Size kAlignment = 256;    // bytes: of every object; stricter requests are refused
  static constexpr Size kSuperblock = kMiB;  // bytes: the smallest; larger requests are the global arena's

  /// Over the first `size` bytes of `arena`, committed here, at least kSuperblock; 0: over all its addresses,
  /// which have memory as far as objects ever reached. All that is given outlives the heap. Without a
  /// StreamOrder every stream counts as ordered after every other one.
  explicit RmmArenaHeap(Arena& arena, Size size = 0, StreamOrder* order = nullptr) noexcept;

  /// False when the size cannot be, or there was no memory for it or for the bookkeeping; then every request
  /// gets kNoOffset.
  bool ok() const noexcept { return ready_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  Size live() const noexcept override { return live_; }

 private:
  using Index = std::uint32_t;
  static constexpr Index kGlobal = 0;  // lists_[kGlobal] is the global arena, the rest are streams'
  struct Piece : Block {               // of one superblock; live or free
    Size most = 0;
    Size asked = 0;  // 0: free
    Index superblock = 0;
    Index list = 0;  // of a live object: its stream's
  };
  struct Superblock : Block {
    Size most = 0;
    Size room = 0;            // bytes of its largest free piece
    Index free = 0;           // the root of its free pieces
    Index list = kGlobal;     // that has it
    std::uint32_t live = 0;   // objects in it
    std::uint64_t users = 0;  // a bit per list that freed something in it; see bit_of()
  };
  struct List {
    StreamId stream = 0;
    Tick moment = 0;  // of its stream's last free: who comes after it may have all that the stream freed
    Index superblocks = 0;
  };
  static Size size_of_piece(const Piece& piece) noexcept { return piece.range.size; }
  static Size room_in(const Superblock& superblock) noexcept { return superblock.room; }
  using Pieces = FirstFitTree<Piece, &RmmArenaHeap::size_of_piece>;
  using Superblocks = FirstFitTree<Superblock, &RmmArenaHeap::room_in>;

  /// The last bit stands for all lists from there on.
  static std::uint64_t bit_of(Index list) noexcept { return std::uint64_t{1} << (list < 63 ? list : 63); }
  Index list_of(StreamId stream) noexcept;
  Index find(Size size, Index list) noexcept;
  Index find_in(Index from, Size size, Index list) noexcept;
  bool reaches(Index piece, Size size) noexcept;
  bool wait_for_users(Index superblock, Index list) noexcept;
  void cut_superblock(Index superblock, Size size, std::uint64_t users) noexcept;
  void occupy(Index piece, Size size) noexcept;
  void give(Index superblock, Index list) noexcept;
  void take_out(Index superblock) noexcept;
  void return_all() noexcept;
  void give_back(Index superblock) noexcept;
  void absorb_after(Index superblock) noexcept;
  Index join_free(Index piece) noexcept;

  Arena* arena_;
  StreamOrder* order_;
  BlockRow<Piece> pieces_;
  BlockRow<Superblock> superblocks_;
  MetadataArray<List> lists_;
  OffsetTable table_;  // live objects
  Size high_ = 0;      // bytes from the start that are committed
  Size live_ = 0;
  bool ready_ = false;
};

}  // namespace memoir

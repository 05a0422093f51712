// SPDX-License-Identifier: Apache-2.0
//
// What PyTorchHeap and ExpandableHeap share: PyTorch's CUDA caching allocator, but for where new memory comes
// from. Behaviour as of torch 2.11 to 2.13 (c10/cuda/CUDACachingAllocator.cpp), and what is not modelled:
// docs/concepts/device-pools-pytorch.md.
//
//   pool      blocks of up to 1 MiB, or larger ones; the default pool, or a private one (graphs, MemPool)
//   set       the free blocks of one pool and one stream, ordered by size and address: best fit
//   ladder    1 the set         2 callbacks, the set      3 segments grown old      4 new memory
//             5 private pools lent out   6 oversize blocks given back, new memory
//             7 pending frees awaited, all unused segments given back, new memory
//
// A free arrives here when the stream allows: an object that other streams used (record_stream) is freed by
// the driver once their events are done, which it looks at before every allocate(). The collector is both of
// PyTorch's hooks: collect(false) runs the FreeMemory callbacks, collect(true) waits for all pending frees.
#pragma once

#include <span>

#include "memoir/heap/collector.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/peers/pytorch/free_block_set.h"
#include "memoir/heap/peers/pytorch/pytorch_options.h"
#include "memoir/heap/peers/pytorch/pytorch_rounding.h"
#include "memoir/heap/phases.h"

namespace memoir {

// of a private pool, > 0: PyTorch's pair of numbers as one; 0: the default pool
using PoolId = std::uint64_t;

/// Which streams' requests go to a private pool: all of them, or those that `takes` says.
struct PoolFilter {
  bool (*takes)(const void* context, StreamId stream) noexcept = nullptr;
  const void* context = nullptr;
};

/// What PyTorch counts in memory_stats().
struct PyTorchCounts {
  std::uint64_t num_alloc_retries = 0;     // times all cached segments were given back for a request
  std::uint64_t num_ooms = 0;              // requests refused
  std::uint64_t num_sync_all_streams = 0;  // times pending frees were awaited
  std::uint64_t num_device_alloc = 0;      // segments taken, ranges mapped
  std::uint64_t num_device_free = 0;       // segments given back, ranges unmapped
};

/// One block, for snapshots.
struct BlockView {
  Range range;
  Size asked;  // 0 when not live
  StreamId stream;
  PoolId pool;
  bool small;
  bool mapped;
  bool begins_segment;  // or an expandable area
};

/// A live object of memory that another allocator filled. Its block is a multiple of 512 bytes at such an
/// offset, no smaller than what was asked, overlaps no other object's and leaves the memory on neither side.
struct RestoredObject {
  Range block;  // all that is not free again until the object is
  Size asked = 0;
};

class PyTorchPools : public Heap {
 public:
  /// False when there was no metadata memory, or no room for one area; then every request gets kNoOffset.
  bool ok() const noexcept { return ok_; }

  Offset allocate(const Request& request) noexcept final;
  bool free(Offset offset) noexcept final;
  Size size_of(Offset offset) const noexcept final;
  /// torch.cuda.empty_cache() on stream 0.
  void trim() noexcept final { trim_on(0); }
  /// torch.cuda.empty_cache() with that current stream: awaits pending frees and gives back what is unused,
  /// of the default pools and of private ones without a use. Nothing while a graph captures the stream, which
  /// PyTorch answers with an error.
  void trim_on(StreamId stream) noexcept;
  Size live() const noexcept final { return live_; }

  /// Bytes of segments held, or mapped: "reserved by PyTorch".
  Size reserved() const noexcept { return reserved_; }
  /// Of these, bytes of private pools.
  Size private_reserved() const noexcept { return reserved_ - owners_[0].reserved; }
  const PyTorchCounts& counts() const noexcept { return counts_; }

  // Private pools. A pool lives from the first use on; when the last use ended, it is given back block by
  // block as segments fall empty (at trim() and on the last rung). False: there is no such pool (or it has no
  // use left), or it is in the wrong state, or there is no metadata memory; nothing changed.

  /// One use more; makes the pool when there is none of this id.
  bool add_pool_use(PoolId pool) noexcept;
  /// One use less.
  bool release_pool(PoolId pool) noexcept;
  int pool_uses(PoolId pool) const noexcept;  // 0 when there is no such pool
  /// From now on requests that pass the filter go to the pool; the latest such pool counts. Adds a use, which
  /// release_pool() ends, not end_allocate_to_pool(). `capture`: of a graph, not of a MemPool.
  bool begin_allocate_to_pool(PoolId pool, PoolFilter filter = {}, bool capture = true) noexcept;
  bool end_allocate_to_pool(PoolId pool) noexcept;
  /// The pool's free blocks serve default requests that the device refused (MemPool's use_on_oom).
  bool lend_pool(PoolId pool, bool lend) noexcept;
  /// Its segments are never split (MemPool's no_split).
  bool keep_pool_whole(PoolId pool) noexcept;
  /// torch.cuda.empty_cache() of a MemPool: gives back what is unused of a pool whose last use ended.
  void trim_pool(PoolId pool) noexcept;

  /// Calls visit(BlockView) for every block, segment by segment in no order, in address order within.
  template <class Visit>
  void for_each_block(Visit visit) const {
    for (BlockIndex head = 1; head < blocks_.size(); ++head) {
      if (blocks_[head].range.size == 0 || blocks_[head].before != 0) continue;
      for (BlockIndex at = head; at != 0; at = blocks_[at].after) visit(view(at));
    }
  }

 protected:
  enum Phase : size_t { kSearch, kCallbacks, kOld, kDevice, kLent, kOversize, kSync, kRelease };

  struct Want {
    Size size;     // of the block
    Size segment;  // to take for it
    std::uint32_t set;
  };
  struct Set {  // of one pool and one stream
    std::uint32_t pool;
    StreamId stream;
    FreeBlockSet free;
    BlockIndex first_unmapped;  // expandable: in the order of addresses, linked by left and right
  };
  struct Owner {  // [0] is the default one, the others private
    PoolId id;
    std::uint32_t uses;
    Size reserved;  // bytes
    bool exists, lent, whole;
  };

  PyTorchPools(const PyTorchOptions& options, bool expandable, Collector* collector,
               PhaseTable* phases) noexcept;

  /// New memory for the request: a free block of at least the size, in no set; 0 when there is none.
  virtual BlockIndex grow(const Want& want) noexcept = 0;
  /// Gives back what is unused of one set.
  virtual void release_set(std::uint32_t set) noexcept = 0;
  /// Gives back a block that is a whole segment, in its set.
  virtual void release_segment(BlockIndex block) noexcept = 0;

  static std::uint32_t pool_of(std::uint32_t owner, bool small) noexcept {
    return 2 * owner + (small ? 0 : 1);
  }
  bool is_small(const Set& set) const noexcept { return set.pool % 2 == 0; }
  Owner& owner_of(std::uint32_t set) noexcept { return owners_[sets_[set].pool / 2]; }
  std::uint32_t find_owner(PoolId pool) const noexcept;  // 0 when there is no such private pool
  /// The set of a pool and a stream; 0 when there is no metadata memory.
  std::uint32_t set_of(std::uint32_t pool, StreamId stream) noexcept {
    std::uint32_t& hint = hints_[pool % 2];
    const std::uint64_t key = std::uint64_t{pool} << 32 | stream;
    return set_keys_[hint] == key ? hint : find_set(key, hint);
  }
  void insert_free(BlockIndex block) noexcept;
  void erase_free(BlockIndex block) noexcept { sets_[blocks_[block].set].free.erase(blocks_, block); }
  /// Joins a block that is in no set with the free neighbours that are like it, whose sets they leave.
  void merge(BlockIndex block) noexcept;
  /// Whether the objects, in the order of their addresses, are as RestoredObject says.
  static bool can_hold(Range memory, std::span<const RestoredObject> objects) noexcept;
  /// Cuts a block, which is in no set, into these objects (their offsets count from `base`) and the free
  /// blocks between them: at most twice as many blocks as objects, and one. Room for them, and for the live
  /// ones, is reserved.
  void place(BlockIndex block, Offset base, std::span<const RestoredObject> objects) noexcept;
  bool is_within_limit(Size more) const noexcept { return more <= allowed_ && reserved_ <= allowed_ - more; }
  void make_live(BlockIndex block, Size asked) noexcept;  // room for it is reserved
  void hold(std::uint32_t set, Size size) noexcept;       // bytes more, that the set has from the device
  void let_go(std::uint32_t set, Size size) noexcept;
  void refuse_all() noexcept { ok_ = false; }

  const PyTorchOptions options_;
  const PyTorchRounding rounding_;
  const bool expandable_;
  CachedBlocks blocks_;
  MetadataArray<Set> sets_;  // [0] stands for none
  PyTorchCounts counts_;

 private:
  struct Capture {
    std::uint32_t owner;
    PoolFilter filter;
    bool graph;
  };

  std::uint32_t find_set(std::uint64_t key, std::uint32_t& hint) noexcept;
  std::uint32_t owner_for(StreamId stream) const noexcept;
  BlockView view(BlockIndex block) const noexcept;

  BlockIndex search(const Want& want) noexcept;
  BlockIndex prefer_expandable(BlockIndex block) const noexcept;
  bool is_split_worth(const CachedBlock& block, Size size) const noexcept;

  // The ladder, pytorch_ladder.cc.
  BlockIndex climb(const Want& want, StreamId stream) noexcept;
  BlockIndex search_lent_pools(const Want& want, StreamId stream) noexcept;
  bool release_oversize(const Want& want) noexcept;
  void collect_garbage() noexcept;
  void await_pending() noexcept;
  bool may_release(StreamId stream) const noexcept;
  bool is_allocated_to(std::uint32_t owner) const noexcept;
  void release_default_pools() noexcept;
  void release_idle_pools(PoolId only) noexcept;
  void release_pool_sets(std::uint32_t pool) noexcept;
  std::uint32_t next_set(std::uint32_t pool, std::uint32_t set) const noexcept;

  const Size allowed_;  // bytes
  const bool ages_;     // whether blocks' ages are kept
  Collector* const collector_;
  PhaseTable* const phases_;
  MetadataArray<std::uint64_t> set_keys_;  // pool and stream, by set
  MetadataArray<std::uint32_t> searches_;  // by pool
  MetadataArray<Owner> owners_;
  MetadataArray<Capture> captures_;  // the latest last
  std::uint32_t hints_[2] = {};      // the set found last, small and large
  Size live_ = 0;
  Size reserved_ = 0;
  std::uint64_t frees_ = 0;
  bool any_whole_ = false;
  bool ok_ = false;
};

}  // namespace memoir

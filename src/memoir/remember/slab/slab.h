// SPDX-License-Identifier: Apache-2.0
//
// A slab: host memory, and the heap that follows a plan in it. One thread at a time holds it, for one pass
// (the lease), and allocates and frees without a lock; frees by anyone else, at any time, are left in a box
// that the next holder empties. A slab outlives whoever gave it up for as long as an object in it is live,
// but then keeps only the pages that live objects lie on.
//
//            lease()                     release()                 retire()
//   idle  ------------>  held by a pass  ------------>  idle . . .  ------------>  retired: a page goes back
//                              |   ^                                               with its last object, the
//                              v   | empties                                       addresses with the slab's
//                        [ frees from elsewhere ]  <--- any thread
//
// What passes need no more goes back by shrink_begins() and shrink(), which the slab's upkeep calls while
// passes that need less may go on.
//
// In the child of a fork() a slab that another thread held is an orphan: nobody knows how far that thread
// came, so what lies in it stays as it is, for good.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "memoir/arena/host_arena.h"
#include "memoir/base/check.h"
#include "memoir/base/fork_mutex.h"
#include "memoir/heap/planned/planned_heap.h"
#include "memoir/remember/slab/address_space.h"

namespace memoir {

/// What the retired slabs of one owner hold together, for as long as any of them lives.
struct RetiredBytes {
  std::atomic<Size> bytes = 0;
};

class Slab final : public AddressOwner {
 public:
  /// A slab of at least `size` bytes with its pages touched, or nullptr when the machine has no memory to
  /// give. `poison`: an object's bytes become kPoison with its free, so that whoever reads them then shows.
  static Slab* create(Size size, bool poison = false,
                      std::shared_ptr<RetiredBytes> retired = nullptr) noexcept;
  static constexpr int kPoison = 0xcb;

  /// Makes the caller the holder, without a pass: until release() a retired slab is not destroyed.
  void hold() noexcept;
  /// The holder's: at least `size` bytes, in place. False when its address space or the machine's memory does
  /// not suffice; then it is as before.
  bool grow(Size size) noexcept;
  /// Anyone's, and the slab is kept for shrink(): from now on it has no more than `size` bytes. False when
  /// something lives above, or when a pass that goes on may use more; the next ones do only what they must.
  bool shrink_begins(Size size) noexcept;
  /// Gives back the pages that shrink_begins() took from it; may destroy the slab, when it was retired
  /// meanwhile. In pieces, until `stopping`.
  void shrink(const std::atomic<bool>& stopping) noexcept;
  /// The holder's: prepares the heap for one pass over `layout`, which is kept alive until the slab follows
  /// another. False when objects of another layout are still live here, or there is no metadata memory.
  bool lease(std::shared_ptr<const PlannedLayout> layout) noexcept;
  /// The holder's: ends the pass. `kept` receives which entries of the layout are still live, and
  /// PlannedLayout::kNone when guests are; not all of them when there is no memory for the list.
  void release(std::vector<std::uint32_t>* kept = nullptr) noexcept;

  /// The holder's: memory for the request, or nullptr: take it elsewhere.
  void* allocate(const Request& request) noexcept {
    if (boxed_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      empty_box();
    const Offset offset = heap_->allocate(request);
    return offset == kNoOffset ? nullptr : arena_.base() + offset;
  }
  /// The holder's: frees what allocate() returned.
  void free_held(void* pointer) noexcept;
  /// Anyone's: frees what allocate() returned. Locks. May destroy the slab, when it is retired and this was
  /// the last.
  void free_from_elsewhere(void* pointer) noexcept override;

  /// The owner (a SlabSet) gives the slab up; it destroys itself when nobody holds it and nothing in it is
  /// live.
  void retire() noexcept;

  bool contains(const void* pointer) const noexcept { return offset_of(pointer) < arena_.capacity(); }
  const PlannedHeap& heap() const noexcept { return *heap_; }
  const PlannedLayout* layout() const noexcept { return layout_.get(); }
  /// Bytes that it holds; of a retired slab those of the pages that it still has.
  Size size() const noexcept { return size_.load(std::memory_order_relaxed); }
  /// Objects live after a look into the box. Only while nobody holds it, or by the holder.
  size_t live_objects() noexcept;
  /// True in the child of a fork() whose parent had it held by another thread.
  bool is_orphan() const noexcept { return orphan_.load(std::memory_order_relaxed); }

 private:
  Slab(std::byte* base, Size capacity, bool poison, std::shared_ptr<RetiredBytes> retired) noexcept;
  ~Slab();
  void destroy() noexcept;
  Offset offset_of(const void* pointer) const noexcept {
    return static_cast<Offset>(static_cast<const std::byte*>(pointer) - arena_.base());
  }
  void free_at(Offset offset) noexcept;
  void empty_box() noexcept;         // locks
  void empty_box_locked() noexcept;  // the caller has the lock
  void give_back_idle_pages() noexcept;
  void give_back_pages_of(Range object) noexcept;
  void count_retired() noexcept;
  void count_pages() noexcept { size_.store(arena_.committed(), std::memory_order_relaxed); }
  void after_fork() noexcept;
  /// Nobody can reach the slab any more: it is destroyed by who sees this, after unlocking.
  bool is_finished() const noexcept {
    return retired_ && !held_ && !shrinking_ && !is_orphan() && (!heap_ || heap_->live_objects() == 0);
  }

  const bool poison_;
  std::byte* const address_;  // of the reservation that the arena works in
  ForkMutex pages_;           // guards what the arena has; taken after mutex_, or without it
  HostArena arena_;
  std::atomic<Size> room_ = 0;  // what passes may use: all that it has, or while it shrinks less
  std::atomic<Size> size_ = 0;
  std::shared_ptr<RetiredBytes> retired_bytes_;
  std::shared_ptr<const PlannedLayout> layout_;
  std::optional<PlannedHeap> heap_;
  std::atomic<size_t> boxed_ = 0;     // entries of box_; read without the lock: is there anything to do?
  std::atomic<bool> orphan_ = false;  // see is_orphan()
  ForkMutex mutex_;                   // guards all below, and heap_ while nobody holds the slab
  MetadataArray<Offset> box_;         // room for every object that can be live: a push never allocates
  pthread_t holder_ = {};             // while held_
  bool held_ = false;
  bool retired_ = false;
  bool shrinking_ = false;                   // between shrink_begins() and shrink()
  Size pass_room_ = 0;                       // while held: what the pass may use
  Size limit_ = ~Size{0};                    // what passes should not use more than, unless their plans do
  MetadataArray<std::uint32_t> objects_on_;  // once retired, per page: live objects that begin or end there
  Size counted_ = 0;                         // of this slab in retired_bytes_
};

}  // namespace memoir

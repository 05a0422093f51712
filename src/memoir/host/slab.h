// SPDX-License-Identifier: Apache-2.0
//
// A slab: host memory of one fixed size, and the heap that follows a plan in it. One thread at a time holds
// it, for one pass (the lease), and allocates and frees without a lock; frees by anyone else, at any time,
// are left in a box that the next holder empties. A slab outlives whoever gave it up for as long as an object
// in it is live.
//
//            lease()                     release()                 retire()
//   idle  ------------>  held by a pass  ------------>  idle . . .  ------------>  retired: memory goes back
//                              |   ^                                               with the last live object
//                              v   | empties
//                        [ frees from elsewhere ]  <--- any thread
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "memoir/arena/host_arena.h"
#include "memoir/base/check.h"
#include "memoir/heap/planned/planned_heap.h"
#include "memoir/host/address_space.h"

namespace memoir {

class Slab final : public AddressOwner {
 public:
  /// A slab of at least `size` bytes with its pages touched, or nullptr when the machine has no memory to
  /// give. `poison`: an object's bytes become kPoison with its free, so that whoever reads them then shows.
  static Slab* create(Size size, bool poison = false) noexcept;
  static constexpr int kPoison = 0xcb;

  /// The holder's: prepares the heap for one pass over `layout`, which is kept alive until the slab follows
  /// another. False when objects of another layout are still live here, or there is no metadata memory.
  bool lease(std::shared_ptr<const PlannedLayout> layout) noexcept;
  /// The holder's: ends the pass.
  void release() noexcept;

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
  Size size() const noexcept { return arena_.capacity(); }
  /// Objects live after a look into the box. Only while nobody holds it, or by the holder.
  size_t live_objects() noexcept;

 private:
  Slab(std::byte* base, Size size, bool poison) noexcept;
  ~Slab();
  void destroy() noexcept;
  Offset offset_of(const void* pointer) const noexcept {
    return static_cast<Offset>(static_cast<const std::byte*>(pointer) - arena_.base());
  }
  void free_at(Offset offset) noexcept;
  void empty_box() noexcept;         // locks
  void empty_box_locked() noexcept;  // the caller has the lock
  /// Nobody can reach the slab any more: it is destroyed by who sees this, after unlocking.
  bool is_finished() const noexcept { return retired_ && !held_ && (!heap_ || heap_->live_objects() == 0); }

  const bool poison_;
  std::byte* const address_;  // of the reservation that the arena works in
  HostArena arena_;
  std::shared_ptr<const PlannedLayout> layout_;
  std::optional<PlannedHeap> heap_;
  std::atomic<size_t> boxed_ = 0;  // entries of box_; read without the lock: is there anything to do?
  std::mutex mutex_;               // guards all below, and heap_ while nobody holds the slab
  MetadataArray<Offset> box_;      // room for every object that can be live: a push never allocates
  bool held_ = false;
  bool retired_ = false;
};

}  // namespace memoir

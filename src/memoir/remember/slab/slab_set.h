// SPDX-License-Identifier: Apache-2.0
//
// Slabs for the passes of several remembered callables. A slab is only memory: any plan that fits may be
// followed in it, one at a time; so all shapes and callables share them, and memory grows with the concurrent
// passes. What the passes of the last seconds did not use goes back (recent_use.h, slab_upkeep.h): of an idle
// set all. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "memoir/base/fork_mutex.h"
#include "memoir/remember/slab/recent_use.h"
#include "memoir/remember/slab/slab.h"

namespace memoir {

struct SlabSetOptions {
  size_t max_slabs = 8;       // concurrent passes beyond this run without a slab
  Size max_bytes = ~Size{0};  // over all slabs, and what is left of retired ones
  bool poison = false;        // see Slab::create()
  unsigned patience_ms = 0;   // that acquire() waits at most for a pass in progress to end
};

class SlabSet {
 public:
  explicit SlabSet(SlabSetOptions options);
  ~SlabSet();
  /// The one of the process, for whoever wants no limits of their own.
  static const std::shared_ptr<SlabSet>& of_process();
  SlabSet(const SlabSet&) = delete;
  SlabSet& operator=(const SlabSet&) = delete;

  /// A slab leased for one pass over `layout`, or nullptr: run without. Creates or enlarges one when it must,
  /// which takes the time of touching its pages. The caller gives it back.
  Slab* acquire(const std::shared_ptr<const PlannedLayout>& layout) noexcept;
  /// The same, but only what takes no time: nullptr when no slab is there that is large enough.
  Slab* acquire_at_once(const std::shared_ptr<const PlannedLayout>& layout) noexcept;
  /// `kept`: see Slab::release().
  void give_back(Slab* slab, std::vector<std::uint32_t>* kept = nullptr) noexcept;
  /// Gives all memory back: idle slabs at once, others with their pass; the pages that live objects lie on
  /// with these.
  void retire_all() noexcept;
  /// Retires the idle slabs of every set in the process: somebody finds no memory. False when there was none.
  static bool retire_idle_of_all() noexcept;
  /// An idle slab holds `least` bytes or more.
  bool has_idle(Size least) const noexcept;
  /// Gives back the pages of idle slabs that hold `least` bytes and more: a pass is to run that takes its
  /// memory elsewhere, and would peak next to them.
  void empty_idle(Size least) noexcept;
  /// What the upkeep does, in every set of the process; until `stopping`. False when no slab holds anything.
  static bool look_after_all(const std::atomic<bool>& stopping) noexcept;

  /// Bytes of the slabs held now, and of what is left of retired ones.
  Size held_bytes() const noexcept;
  /// Slabs held now.
  size_t size() const noexcept;

 private:
  struct Member {
    Slab* slab = nullptr;  // nullptr while it is being created
    Size size = 0;
    bool leased = false;
    size_t ticket = 0;  // distinguishes members that have no slab yet
    pthread_t holder = {};
    RecentUse use{};
    std::uint64_t last_use = 0;  // counts the set's leases
  };

  Slab* try_to_acquire(const std::shared_ptr<const PlannedLayout>& layout) noexcept;
  Member* best_idle(Size size) noexcept;
  void was_leased(Member& member, Size size) noexcept;
  Member* find(size_t ticket) noexcept;
  void retire_member(Member* member) noexcept;
  bool has_room_for(Size size) const noexcept;
  Slab* lease_larger(std::unique_lock<ForkMutex>& lock, Member* idle,
                     const std::shared_ptr<const PlannedLayout>& layout, Size size) noexcept;
  Slab* create(std::unique_lock<ForkMutex>& lock, const std::shared_ptr<const PlannedLayout>& layout,
               Size size) noexcept;
  Size held_locked() const noexcept;
  void after_fork() noexcept;

  const SlabSetOptions options_;
  const std::shared_ptr<RetiredBytes> retired_;
  mutable ForkMutex mutex_;  // guards all below
  std::vector<Member> members_;
  size_t tickets_ = 0;
  std::uint64_t leases_ = 0;
};

}  // namespace memoir

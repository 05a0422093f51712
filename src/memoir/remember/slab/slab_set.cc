// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/slab/slab_set.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <tuple>

#include "memoir/remember/slab/slab_upkeep.h"

namespace memoir {

namespace {

// What malloc keeps of the recorded pass would lie next to the slab that replaces it: ask for it back first.
// Under another malloc this is glibc's own empty heap, and costs nothing.
void return_unused_malloc_memory() noexcept {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

RecentUse::Time now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return RecentUse::Time{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
}

/// The sets of the process.
struct Sets {
  ForkMutex mutex;
  std::vector<SlabSet*> all;

  static Sets& instance() {
    static Sets* const sets = new Sets;  // outlives every set
    return *sets;
  }
};

}  // namespace

SlabSet::SlabSet(SlabSetOptions options)
    : options_(options),
      retired_(std::make_shared<RetiredBytes>()),
      mutex_([](void* set) noexcept { static_cast<SlabSet*>(set)->after_fork(); }, this) {
  const std::lock_guard lock(Sets::instance().mutex);
  Sets::instance().all.push_back(this);
}

const std::shared_ptr<SlabSet>& SlabSet::of_process() {
  static const auto* const set = new std::shared_ptr<SlabSet>(std::make_shared<SlabSet>(SlabSetOptions{}));
  return *set;  // outlives every callable
}

SlabSet::~SlabSet() {
  {
    const std::lock_guard lock(Sets::instance().mutex);
    std::erase(Sets::instance().all, this);
  }
  retire_all();
}

Slab* SlabSet::acquire_at_once(const std::shared_ptr<const PlannedLayout>& layout) noexcept {
  const std::lock_guard lock(mutex_);
  Member* const idle = best_idle(layout->arena_size());
  if (idle == nullptr || idle->size < layout->arena_size() || !idle->slab->lease(layout)) return nullptr;
  was_leased(*idle, layout->arena_size());
  return idle->slab;
}

void SlabSet::was_leased(Member& member, Size size) noexcept {
  member.leased = true;
  member.holder = ::pthread_self();
  member.last_use = ++leases_;
  member.use.used(size, now());
  if (member.use.has_settled() || !slab_upkeep_runs.load(std::memory_order_relaxed)) [[unlikely]]
    wake_slab_upkeep();
}

Slab* SlabSet::acquire(const std::shared_ptr<const PlannedLayout>& layout) noexcept {
  for (unsigned waited = 0;; ++waited) {
    Slab* const slab = try_to_acquire(layout);
    if (slab != nullptr || waited >= options_.patience_ms || size() == 0) return slab;
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

Slab* SlabSet::try_to_acquire(const std::shared_ptr<const PlannedLayout>& layout) noexcept try {
  const Size size = std::max<Size>(layout->arena_size(), 1);
  std::unique_lock lock(mutex_);
  while (Member* const idle = best_idle(size)) {
    if (idle->size >= size) {
      if (idle->slab->lease(layout)) {
        was_leased(*idle, size);
        return idle->slab;
      }
    } else if (!has_room_for(size)) {
      return nullptr;  // not even without the idle ones, which serve other plans
    } else if (Slab* const larger = lease_larger(lock, idle, layout, size)) {
      return larger;
    }
    // It cannot grow, or objects of an earlier plan live on in it: it goes (the pages of these with them), a
    // fitting one comes.
    retire_member(best_idle(size));
  }
  if (members_.size() >= options_.max_slabs || !has_room_for(size)) return nullptr;
  return create(lock, layout, size);
} catch (...) {  // no memory for the list of members
  return nullptr;
}

/// With the lock held, without it in between: the idle slab enlarged in place, or nullptr.
Slab* SlabSet::lease_larger(std::unique_lock<ForkMutex>& lock, Member* idle,
                            const std::shared_ptr<const PlannedLayout>& layout, Size size) noexcept {
  if (held_locked() - idle->size + size > options_.max_bytes) return nullptr;
  Slab* const slab = idle->slab;
  if (slab->layout() != layout.get() && slab->live_objects() > 0) return nullptr;
  const size_t ticket = idle->ticket;
  const Size idle_size = idle->size;
  was_leased(*idle, size);
  idle->size = size;
  slab->hold();  // whoever retires it now leaves it to us
  lock.unlock();
  // What grew once may grow again: caches do, pass after pass. Not so where there is a bound.
  const Size more = idle_size == 0 || options_.max_bytes != ~Size{0} ? 0 : size / 64;
  const bool ready = (slab->grow(size + more) || slab->grow(size)) && slab->lease(layout);
  lock.lock();
  Member* const member = find(ticket);
  if (member != nullptr) {
    member->size = slab->size();
    member->leased = ready;
  }
  if (ready) return slab;
  slab->release();
  return nullptr;
}

Slab* SlabSet::create(std::unique_lock<ForkMutex>& lock, const std::shared_ptr<const PlannedLayout>& layout,
                      Size size) noexcept {
  const size_t ticket = ++tickets_;
  members_.push_back({.size = size, .ticket = ticket});
  was_leased(members_.back(), size);
  lock.unlock();
  return_unused_malloc_memory();
  Slab* slab = Slab::create(size, options_.poison, retired_);
  if (slab != nullptr && !slab->lease(layout)) {
    slab->retire();
    slab = nullptr;
  }
  lock.lock();
  Member* const member = find(ticket);
  if (slab == nullptr) {
    if (member != nullptr) members_.erase(members_.begin() + (member - members_.data()));
  } else if (member != nullptr) {
    member->slab = slab;
    member->size = slab->size();
  } else {
    slab->retire();  // all was retired meanwhile: this pass may still use it, and its release() ends it
  }
  return slab;
}

void SlabSet::give_back(Slab* slab, std::vector<std::uint32_t>* kept) noexcept {
  // Released under the set's lock: once the slab counts as idle, another thread may lease it.
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (member.slab == slab) member.leased = false;
  }
  slab->release(kept);
}

SlabSet::Member* SlabSet::best_idle(Size size) noexcept {
  // Of those large enough the smallest, but for a factor of two; else the largest of the small. Of several
  // the one that was given back last: its bytes are in the caches.
  const auto rank = [&](const Member& member) {
    const auto log2 = static_cast<int>(std::bit_width(member.size));
    return std::tuple(member.size >= size, member.size >= size ? -log2 : log2, member.last_use);
  };
  Member* best = nullptr;
  for (Member& member : members_) {
    if (!member.leased && (best == nullptr || rank(member) > rank(*best))) best = &member;
  }
  return best;
}

SlabSet::Member* SlabSet::find(size_t ticket) noexcept {
  const auto found =
      std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.ticket == ticket; });
  return found == members_.end() ? nullptr : &*found;
}

void SlabSet::retire_member(Member* member) noexcept {
  if (member == nullptr) return;
  Slab* const slab = member->slab;
  members_.erase(members_.begin() + (member - members_.data()));
  slab->retire();
}

/// Within max_bytes, if all idle slabs went.
bool SlabSet::has_room_for(Size size) const noexcept {
  Size stays = retired_->bytes.load(std::memory_order_relaxed);
  for (const Member& member : members_) stays += member.leased ? member.size : 0;
  return stays <= options_.max_bytes && size <= options_.max_bytes - stays;
}

void SlabSet::retire_all() noexcept {
  std::vector<Member> members;
  {
    const std::lock_guard lock(mutex_);
    members.swap(members_);
  }
  for (const Member& member : members) {
    if (member.slab != nullptr) member.slab->retire();
  }
}

bool SlabSet::retire_idle_of_all() noexcept {
  bool any = false;
  const std::lock_guard sets_lock(Sets::instance().mutex);
  for (SlabSet* const set : Sets::instance().all) {
    const std::lock_guard lock(set->mutex_);
    for (size_t i = set->members_.size(); i-- > 0;) {
      if (set->members_[i].leased) continue;
      set->retire_member(&set->members_[i]);
      any = true;
    }
  }
  return any;
}

bool SlabSet::has_idle(Size least) const noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return !member.leased && member.size >= least; });
}

void SlabSet::empty_idle(Size least) noexcept {
  static constexpr std::atomic<bool> kNever = false;
  std::array<Slab*, 8> emptied;
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    for (Member& member : members_) {
      if (member.leased || member.size < least || count == emptied.size()) continue;
      if (!member.slab->shrink_begins(0)) continue;
      emptied[count++] = member.slab;
      member.size = 0;
    }
  }
  for (size_t i = 0; i < count; ++i) emptied[i]->shrink(kNever);
}

bool SlabSet::look_after_all(const std::atomic<bool>& stopping) noexcept {
  // A slab that shrinks stays, whoever retires it or its set meanwhile.
  std::array<Slab*, 64> shrinking;
  size_t count = 0;
  bool holding = false;
  {
    const std::lock_guard sets_lock(Sets::instance().mutex);
    for (SlabSet* const set : Sets::instance().all) {
      const std::lock_guard lock(set->mutex_);
      for (Member& member : set->members_) {
        if (member.slab == nullptr || member.size == 0) continue;
        holding = true;
        const Size kept = member.use.kept(now());
        // A little more than what is needed is no waste, and spares passes that need more and more.
        if (kept != 0 && kept + kept / 16 + 64 * kKiB >= member.size) continue;
        if (count == shrinking.size() || !member.slab->shrink_begins(kept)) continue;
        shrinking[count++] = member.slab;
        member.size = kept;
      }
    }
  }
  for (size_t i = 0; i < count; ++i) shrinking[i]->shrink(stopping);
  return holding;
}

/// In the child of a fork(): what other threads held is theirs no more, and nobody's.
void SlabSet::after_fork() noexcept {
  std::erase_if(members_, [](const Member& member) {
    return member.leased && !::pthread_equal(member.holder, ::pthread_self());
  });
}

Size SlabSet::held_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return held_locked();
}

Size SlabSet::held_locked() const noexcept {
  Size held = retired_->bytes.load(std::memory_order_relaxed);
  for (const Member& member : members_) held += member.size;
  return held;
}

size_t SlabSet::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return members_.size();
}

}  // namespace memoir

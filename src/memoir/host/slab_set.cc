// SPDX-License-Identifier: Apache-2.0
#include "memoir/host/slab_set.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <tuple>

namespace memoir {

namespace {

// What malloc keeps of the recorded pass would lie beside the slab that replaces it: ask for it back first.
// Under another malloc this is glibc's own empty heap, and costs nothing.
void return_unused_malloc_memory() noexcept {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

}  // namespace

Slab* SlabSet::acquire(const std::shared_ptr<const PlannedLayout>& layout) noexcept {
  const Size size = std::max<Size>(layout->arena_size(), 1);
  std::unique_lock lock(mutex_);
  while (Member* const idle = best_idle(layout.get(), size)) {
    if (idle->size >= size) {
      if (idle->slab->lease(layout)) {
        idle->leased = true;
        return idle->slab;
      }
    }
    // Too small, or objects of an earlier plan live on in it: it goes (with the last of them), a fitting one
    // comes.
    Slab* const slab = idle->slab;
    members_.erase(members_.begin() + (idle - members_.data()));
    slab->retire();
  }
  if (members_.size() >= options_.max_slabs || held_locked() > options_.max_bytes ||
      size > options_.max_bytes - held_locked()) {
    return nullptr;
  }
  const size_t ticket = ++tickets_;
  members_.push_back({nullptr, size, true, ticket});
  lock.unlock();
  return_unused_malloc_memory();
  Slab* slab = Slab::create(size, options_.poison);
  if (slab != nullptr && !slab->lease(layout)) {
    slab->retire();
    slab = nullptr;
  }
  lock.lock();
  const auto member =
      std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.ticket == ticket; });
  if (slab == nullptr) {
    if (member != members_.end()) members_.erase(member);
  } else if (member != members_.end()) {
    member->slab = slab;
    member->size = slab->size();
  } else {
    slab->retire();  // all was retired meanwhile: this pass may still use it, and its release() ends it
  }
  return slab;
}

void SlabSet::give_back(Slab* slab) noexcept {
  // Released under the set's lock: once the slab counts as idle, another thread may lease it.
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (member.slab == slab) member.leased = false;
  }
  slab->release();
}

SlabSet::Member* SlabSet::best_idle(const PlannedLayout* layout, Size size) noexcept {
  // The slab that followed this plan last; else the smallest that is large enough; else the largest of the
  // small.
  const auto rank = [&](const Member& member) {
    return std::tuple(member.slab->layout() == layout, member.size >= size,
                      member.size >= size ? ~member.size : member.size);
  };
  Member* best = nullptr;
  for (Member& member : members_) {
    if (!member.leased && (best == nullptr || rank(member) > rank(*best))) best = &member;
  }
  return best;
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

Size SlabSet::held_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return held_locked();
}

Size SlabSet::held_locked() const noexcept {
  Size held = 0;
  for (const Member& member : members_) held += member.size;
  return held;
}

size_t SlabSet::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return members_.size();
}

}  // namespace memoir

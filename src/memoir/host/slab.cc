// SPDX-License-Identifier: Apache-2.0
#include "memoir/host/slab.h"

#include <cstring>
#include <new>

namespace memoir {

Slab::Slab(std::byte* base, Size size, bool poison) noexcept
    : poison_(poison), address_(base), arena_(base, size, {.huge_pages = true, .prefault = true}) {}

Slab::~Slab() = default;

Slab* Slab::create(Size size, bool poison) noexcept {
  void* const storage = ::operator new(sizeof(Slab), std::nothrow);
  if (storage == nullptr) return nullptr;
  auto& space = AddressSpace::instance();
  std::byte* const base = space.reserve(size, static_cast<Slab*>(storage));
  if (base == nullptr) {
    ::operator delete(storage);
    return nullptr;
  }
  Slab* const slab = new (storage) Slab(base, size, poison);
  if (!slab->arena_.ok() || !slab->arena_.commit({0, slab->arena_.capacity()})) {
    slab->destroy();
    return nullptr;
  }
  return slab;
}

void Slab::destroy() noexcept {
  std::byte* const base = address_;
  delete this;  // decommits
  AddressSpace::instance().release(base);
}

bool Slab::lease(std::shared_ptr<const PlannedLayout> layout) noexcept {
  const std::lock_guard lock(mutex_);
  if (layout != layout_) {
    if (heap_ && heap_->live_objects() > 0) return false;
    if (layout->arena_size() > arena_.capacity()) return false;
    heap_.emplace(*layout);
    layout_ = std::move(layout);
    box_.clear();
    if (!heap_->ok() || !box_.reserve(layout_->starts())) {
      heap_.reset();
      layout_.reset();
      return false;
    }
  }
  heap_->begin_pass();
  held_ = true;
  return true;
}

void Slab::release() noexcept {
  std::unique_lock lock(mutex_);
  empty_box_locked();
  held_ = false;
  const bool finished = is_finished();
  lock.unlock();
  if (finished) destroy();
}

void Slab::free_held(void* pointer) noexcept { free_at(offset_of(pointer)); }

void Slab::free_at(Offset offset) noexcept {
  if (poison_) [[unlikely]] {
    std::memset(arena_.base() + offset, kPoison, heap_->size_of(offset));
  }
  MEMOIR_CHECK(heap_->free(offset), "a pointer into a slab that is not live was freed");
}

void Slab::free_from_elsewhere(void* pointer) noexcept {
  std::unique_lock lock(mutex_);
  if (held_) {
    box_.push_back(offset_of(pointer));  // has room: at most one live object per start
    boxed_.store(box_.size(), std::memory_order_relaxed);
    return;
  }
  free_held(pointer);
  const bool finished = is_finished();
  lock.unlock();
  if (finished) destroy();
}

void Slab::empty_box() noexcept {
  const std::lock_guard lock(mutex_);
  empty_box_locked();
}

void Slab::empty_box_locked() noexcept {
  for (const Offset offset : box_) free_at(offset);
  box_.clear();
  boxed_.store(0, std::memory_order_relaxed);
}

void Slab::retire() noexcept {
  std::unique_lock lock(mutex_);
  retired_ = true;
  const bool finished = is_finished();
  lock.unlock();
  if (finished) destroy();
}

size_t Slab::live_objects() noexcept {
  const std::lock_guard lock(mutex_);
  return heap_ ? heap_->live_objects() - box_.size() : 0;
}

}  // namespace memoir

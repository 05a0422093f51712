// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/slab/slab.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace memoir {

namespace {

/// What to reserve for a slab of that size: the rest of its last window, and room to grow by a half.
Size room_for(Size size) noexcept {
  const Size wanted = size <= (Size{1} << 46) ? size + size / 2 : size;
  return align_up(wanted, AddressSpace::kWindow);
}

}  // namespace

Slab::Slab(std::byte* base, Size capacity, bool poison, std::shared_ptr<RetiredBytes> retired) noexcept
    : poison_(poison),
      address_(base),
      arena_(base, capacity, {.huge_pages = true, .prefault = true}),
      retired_bytes_(std::move(retired)),
      mutex_([](void* slab) noexcept { static_cast<Slab*>(slab)->after_fork(); }, this) {}

Slab::~Slab() = default;

Slab* Slab::create(Size size, bool poison, std::shared_ptr<RetiredBytes> retired) noexcept {
  void* const storage = ::operator new(sizeof(Slab), std::nothrow);
  if (storage == nullptr) return nullptr;
  auto& space = AddressSpace::instance();
  Size capacity = room_for(size);
  std::byte* base = space.reserve(capacity, static_cast<Slab*>(storage));
  if (base == nullptr) base = space.reserve(capacity = size, static_cast<Slab*>(storage));
  if (base == nullptr) {
    ::operator delete(storage);
    return nullptr;
  }
  Slab* const slab = new (storage) Slab(base, capacity, poison, std::move(retired));
  if (!slab->arena_.ok() || !slab->grow(size)) {
    slab->destroy();
    return nullptr;
  }
  return slab;
}

bool Slab::grow(Size size) noexcept {
  const std::lock_guard pages(pages_);
  const Size have = arena_.committed();
  if (size > arena_.capacity()) return false;
  if (size > have) {
    const Range more{have, size - have};  // what it has is one range from its start on until it is retired
    if (!arena_.commit(more)) {
      arena_.decommit({have, arena_.capacity() - have});  // some of the pages may be there
      return false;
    }
  }
  room_.store(arena_.committed(), std::memory_order_relaxed);  // a shrink in progress ends
  count_pages();
  return true;
}

bool Slab::shrink_begins(Size size) noexcept {
  const std::lock_guard lock(mutex_);
  size = align_up(size, arena_.granule());
  if (retired_ || shrinking_ || is_orphan() || size >= room_.load(std::memory_order_relaxed)) return false;
  if (held_ && pass_room_ > size) {
    limit_ = size;
    return false;
  }
  if (!held_) {
    empty_box_locked();
    if (heap_ && heap_->end_of_live() > size) return false;
  }
  const std::lock_guard pages(pages_);
  room_.store(size, std::memory_order_relaxed);
  return shrinking_ = true;
}

void Slab::shrink(const std::atomic<bool>& stopping) noexcept {
  // Only the first part needs the pages to be there no more: others fault meanwhile.
  constexpr Size kPiece = 32 * kMiB;
  for (bool more = true; more;) {
    const std::lock_guard pages(pages_);
    const Size room = room_.load(std::memory_order_relaxed), have = arena_.committed();
    more = have > room + kPiece && !stopping.load(std::memory_order_relaxed);
    if (have > room && more) arena_.discard({have - kPiece, kPiece});
    else if (have > room) arena_.decommit({room, arena_.capacity() - room});
    if (!more && arena_.committed() > room)
      arena_.discard({room, arena_.capacity() - room});  // it was refused
    count_pages();
  }
  std::unique_lock lock(mutex_);
  shrinking_ = false;
  if (retired_) count_retired();
  const bool finished = is_finished();
  lock.unlock();
  if (finished) destroy();
}

void Slab::destroy() noexcept {
  std::byte* const base = address_;
  if (retired_bytes_ != nullptr) retired_bytes_->bytes.fetch_sub(counted_, std::memory_order_relaxed);
  delete this;  // decommits
  AddressSpace::instance().release(base);
}

void Slab::hold() noexcept {
  const std::lock_guard lock(mutex_);
  held_ = true;
  holder_ = ::pthread_self();
  pass_room_ = ~Size{0};
}

bool Slab::lease(std::shared_ptr<const PlannedLayout> layout) noexcept {
  const std::lock_guard lock(mutex_);
  if (layout != layout_) {
    if (heap_ && heap_->live_objects() > 0) return false;
    if (layout->arena_size() > room_.load(std::memory_order_relaxed)) return false;
    const auto before = std::exchange(layout_, std::move(layout));  // the heap's until it follows another
    if (heap_) heap_->follow(*layout_);
    else heap_.emplace(*layout_);
    box_.clear();
    if (!heap_->ok() || !box_.reserve(layout_->starts() + PlannedHeap::kMostGuests)) {
      heap_.reset();
      layout_.reset();
      return false;
    }
  }
  const Size room = room_.load(std::memory_order_relaxed), needs = layout_->arena_size();
  if (needs > room) return false;  // it shrank since it followed this one
  if (needs > limit_) limit_ = ~Size{0};
  pass_room_ = !heap_->guests().empty()  ? room
               : layout_->takes_guests() ? std::min(room, std::max(limit_, needs))
                                         : needs;
  heap_->begin_pass();
  heap_->take_guests(layout_->takes_guests() ? pass_room_ : 0);
  held_ = true;
  holder_ = ::pthread_self();
  return true;
}

void Slab::release(std::vector<std::uint32_t>* kept) noexcept {
  std::unique_lock lock(mutex_);
  empty_box_locked();
  held_ = false;
  if (kept != nullptr && heap_->live_objects() > 0) {
    try {
      const PlannedLayout::Entry* const first = layout_->entries().data();
      heap_->for_each_live([&](const PlannedLayout::Entry& entry) {
        kept->push_back(static_cast<std::uint32_t>(&entry - first));
      });
      if (!heap_->guests().empty()) kept->push_back(PlannedLayout::kNone);
    } catch (...) {  // no memory: they are told another time
    }
  }
  if (retired_) give_back_idle_pages();
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
  if (is_orphan()) return;
  std::unique_lock lock(mutex_);
  const Offset offset = offset_of(pointer);
  if (held_) {
    box_.push_back(offset);  // has room: at most one live object per start, and the guests
    boxed_.store(box_.size(), std::memory_order_relaxed);
    return;
  }
  const Range object{offset, retired_ ? heap_->size_of(offset) : 0};
  free_at(offset);
  if (retired_) give_back_pages_of(object);
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
  if (held_) {
    count_retired();
  } else {
    give_back_idle_pages();
  }
  const bool finished = is_finished();
  lock.unlock();
  if (finished) destroy();
}

/// Of a slab that is retired and not held: all pages under no live object. From then on objects_on_ is kept.
void Slab::give_back_idle_pages() noexcept {
  const Size page = arena_.granule();
  const std::lock_guard pages(pages_);
  if (heap_ && heap_->live_objects() > 0 && objects_on_.assign(arena_.capacity() / page, 0)) {
    Offset from = 0;
    heap_->for_each_live_range([&](const Range& object) {
      arena_.discard({from, object.begin - from});
      from = object.end();
      const Offset first = object.begin / page, last = (from - 1) / page;
      ++objects_on_[first];
      if (last != first) ++objects_on_[last];
    });
    arena_.discard({from, arena_.capacity() - from});
  }
  count_pages();
  count_retired();
}

/// After the free of an object that lay there. Inside of it are pages that were its own; at its ends perhaps
/// not.
void Slab::give_back_pages_of(Range object) noexcept {
  if (objects_on_.empty() || object.size == 0) return;
  const Size page = arena_.granule();
  const Offset first = object.begin / page, last = (object.end() - 1) / page;
  --objects_on_[first];
  if (last != first) --objects_on_[last];
  const Offset begin = objects_on_[first] == 0 ? first : first + 1;
  const Offset end = objects_on_[last] == 0 ? last + 1 : last;
  const std::lock_guard pages(pages_);
  if (begin < end) arena_.discard({begin * page, (end - begin) * page});
  count_pages();
  count_retired();
}

void Slab::count_retired() noexcept {
  if (retired_bytes_ == nullptr) return;
  const Size now = size();
  retired_bytes_->bytes.fetch_add(now - counted_, std::memory_order_relaxed);  // wraps where it is less
  counted_ = now;
}

void Slab::after_fork() noexcept {
  if (held_ && !::pthread_equal(holder_, ::pthread_self())) orphan_.store(true, std::memory_order_relaxed);
}

size_t Slab::live_objects() noexcept {
  const std::lock_guard lock(mutex_);
  return heap_ ? heap_->live_objects() - box_.size() : 0;
}

}  // namespace memoir

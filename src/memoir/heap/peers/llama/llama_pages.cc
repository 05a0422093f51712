// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/llama/llama_pages.h"

#include <algorithm>

namespace memoir {

LlamaPages::LlamaPages(Arena& arena, const LlamaOptions& options) noexcept
    : arena_(&arena),
      classes_(static_cast<Tick>(options.lifetime_unit())),
      deadline_(std::max(options.deadline, 0.0)) {
  open_.fill(kNoPage);
}

Offset LlamaPages::allocate(Size size, Size alignment, size_t lifetime) noexcept {
  if (size > kPage || alignment > kPage) return place_in_pages(size, alignment, lifetime);
  const size_t blocks = size / kBlock, step = std::max<size_t>(alignment / kBlock, 1);
  for (size_t longer = kClasses - 1; longer > lifetime; --longer) {
    const Offset hole = place_in_hole(blocks, step, longer);
    if (hole != kNoOffset) return hole;
  }
  if (const Offset offset = place_in_open(blocks, step, lifetime); offset != kNoOffset) return offset;
  // There is no memory for a page more: better among others than nowhere.
  for (size_t shorter = lifetime + 1; shorter-- > 0;) {
    const Offset hole = place_in_hole(blocks, step, shorter);
    if (hole != kNoOffset) return hole;
  }
  return kNoOffset;
}

/// In an active page of that class.
Offset LlamaPages::place_in_hole(size_t blocks, size_t alignment, size_t lifetime) noexcept {
  for (PageIndex index = active_[lifetime].first; index != kNoPage; index = pages_[index].next) {
    Page& page = pages_[index];
    if (page.longest < blocks) continue;
    const size_t at = first_run(~page.live, blocks, alignment);
    if (at != SlotBits::kNone) {
      figures_.holes += blocks * kBlock;
      return mark(index, at, blocks, false);
    }
    if (alignment == 1) page.longest = static_cast<std::uint16_t>(blocks - 1);
  }
  return kNoOffset;
}

Offset LlamaPages::place_in_open(size_t blocks, size_t alignment, size_t lifetime) noexcept {
  const auto put = [&](PageIndex index) -> Offset {
    Page& page = pages_[index];
    const size_t at = align_up(page.filled, alignment);
    if (at + blocks > kBlocks) return kNoOffset;
    page.filled = static_cast<std::uint16_t>(at + blocks);
    const Offset offset = mark(index, at, blocks, true);
    if (page.filled == kBlocks) activate(index);
    return offset;
  };
  if (open_[lifetime] != kNoPage) {
    if (const Offset offset = put(open_[lifetime]); offset != kNoOffset) return offset;
  }
  const PageIndex fresh = find_free(1, 1);
  if (fresh == kNoPage || !commit(fresh, 1, lifetime)) return kNoOffset;
  // Of the two that are open now, the one with more room stays so.
  const PageIndex before = open_[lifetime];
  const Offset offset = put(fresh);
  if (pages_[fresh].state == State::kActive) return offset;
  if (before == kNoPage) {
    open_[lifetime] = fresh;
  } else if (pages_[fresh].filled <= pages_[before].filled) {
    activate(before);
    open_[lifetime] = fresh;
  } else {
    activate(fresh);
  }
  return offset;
}

/// Whole pages of their own; what the last has left is for shorter classes, as in every active page.
Offset LlamaPages::place_in_pages(Size size, Size alignment, size_t lifetime) noexcept {
  const size_t count = (size + kPage - 1) / kPage;
  const PageIndex first = find_free(count, std::max<size_t>(alignment / kPage, 1));
  if (first == kNoPage || !commit(first, count, lifetime)) return kNoOffset;
  for (size_t i = 0; i < count; ++i) {
    const size_t blocks = std::min<Size>(size - i * kPage, kPage) / kBlock;
    const auto index = static_cast<PageIndex>(first + i);
    mark(index, 0, blocks, true);
    activate(index);
  }
  return first * kPage;
}

Offset LlamaPages::mark(PageIndex index, size_t at, size_t blocks, bool residual) noexcept {
  Page& page = pages_[index];
  const SlotBits run = SlotBits::run(at, blocks);
  page.live = page.live | run;
  if (residual) page.residual = page.residual | run;
  return index * kPage + at * kBlock;
}

void LlamaPages::free(Range blocks) noexcept {
  for (Offset at = blocks.begin; at < blocks.end();) {
    const Offset end = std::min(blocks.end(), align_down(at, kPage) + kPage);
    freed_in(static_cast<PageIndex>(at / kPage), SlotBits::run(at % kPage / kBlock, (end - at) / kBlock));
    at = end;
  }
}

void LlamaPages::freed_in(PageIndex index, const SlotBits& blocks) noexcept {
  Page& page = pages_[index];
  page.live = page.live & ~blocks;
  page.residual = page.residual & ~blocks;
  page.longest = kBlocks;
  if (!page.live.any()) {
    end(index);
  } else if (page.state == State::kActive && !page.residual.any()) {
    // What lives here came in as shorter.
    unlink(index);
    page.residual = page.live;
    ++figures_.dropped;
    link(index, page.lifetime == 0 ? 0 : page.lifetime - 1u);
  }
}

LlamaPages::PageIndex LlamaPages::expire_one() noexcept {
  for (size_t lifetime = 0; lifetime < WallClasses::kNever; ++lifetime) {
    const PageIndex index = active_[lifetime].first;
    if (index == kNoPage || pages_[index].deadline > now_) continue;
    unlink(index);
    ++figures_.risen;
    link(index, lifetime + 1);
    return index;
  }
  return kNoPage;
}

/// The lowest run of so many free pages, counting those beyond the last that was ever used.
LlamaPages::PageIndex LlamaPages::find_free(size_t count, size_t alignment) const noexcept {
  const size_t most = arena_->capacity() / kPage;
  for (size_t first = align_up(lowest_free_, alignment), found = 0; first + count <= most;) {
    if (found == count) return static_cast<PageIndex>(first);
    if (first + found >= pages_.size())
      return first < kNoPage - count ? static_cast<PageIndex>(first) : kNoPage;
    if (pages_[first + found].state == State::kFree) {
      ++found;
    } else {
      first = align_up(first + found + 1, alignment);
      found = 0;
    }
  }
  return kNoPage;
}

/// They are open afterwards.
bool LlamaPages::commit(PageIndex index, size_t count, size_t lifetime) noexcept {
  if (!pages_.reserve(index + count) || !arena_->commit({index * kPage, count * kPage})) return false;
  while (pages_.size() < index + count) pages_.push_back({});
  for (size_t i = index; i < index + count; ++i) {
    pages_[i] = {};
    pages_[i].state = State::kOpen;
    pages_[i].lifetime = static_cast<std::uint8_t>(lifetime);
  }
  if (index <= lowest_free_) {
    lowest_free_ = static_cast<PageIndex>(index + count);
    while (lowest_free_ < pages_.size() && pages_[lowest_free_].state != State::kFree) ++lowest_free_;
  }
  figures_.pages += count;
  return true;
}

void LlamaPages::activate(PageIndex index) noexcept {
  Page& page = pages_[index];
  if (open_[page.lifetime] == index) open_[page.lifetime] = kNoPage;
  page.state = State::kActive;
  page.longest = kBlocks;
  link(index, page.lifetime);
}

void LlamaPages::end(PageIndex index) noexcept {
  Page& page = pages_[index];
  if (page.state == State::kActive) unlink(index);
  else if (open_[page.lifetime] == index) open_[page.lifetime] = kNoPage;
  page = {};
  arena_->decommit({index * kPage, kPage});
  lowest_free_ = std::min(lowest_free_, index);
  --figures_.pages;
}

/// To the end of the class's list: nobody's deadline there is later.
void LlamaPages::link(PageIndex index, size_t lifetime) noexcept {
  Page& page = pages_[index];
  page.lifetime = static_cast<std::uint8_t>(lifetime);
  const Tick bound = classes_.bound(lifetime);
  const double wait = deadline_ * static_cast<double>(bound);
  page.deadline =
      bound == WallClasses::kEndless || wait > 1e18 ? WallClasses::kEndless : now_ + static_cast<Tick>(wait);
  List& list = active_[lifetime];
  page.previous = list.last;
  page.next = kNoPage;
  (list.last != kNoPage ? pages_[list.last].next : list.first) = index;
  list.last = index;
}

void LlamaPages::unlink(PageIndex index) noexcept {
  Page& page = pages_[index];
  List& list = active_[page.lifetime];
  (page.previous != kNoPage ? pages_[page.previous].next : list.first) = page.next;
  (page.next != kNoPage ? pages_[page.next].previous : list.last) = page.previous;
  page.next = page.previous = kNoPage;
}

size_t LlamaPages::first_run(const SlotBits& free, size_t blocks, size_t alignment) noexcept {
  if (alignment == 1) return free.first_run(blocks);
  for (size_t at = 0; at + blocks <= kBlocks; at += alignment) {
    const SlotBits run = SlotBits::run(at, blocks);
    if ((free & run) == run) return at;
  }
  return SlotBits::kNone;
}

LlamaPages::PageView LlamaPages::page(PageIndex index) const noexcept {
  const Page& page = pages_[index];
  return {page.state != State::kFree,
          page.state == State::kOpen,
          page.lifetime,
          page.live,
          page.residual,
          page.deadline};
}

bool LlamaPages::consistent() const noexcept {
  size_t used = 0, active = 0, linked = 0;
  for (size_t i = 0; i < pages_.size(); ++i) {
    const Page& page = pages_[i];
    if (page.state == State::kFree) {
      if (page.live.any() || i < lowest_free_) return false;
      continue;
    }
    ++used;
    active += page.state == State::kActive;
    if (!page.live.any() || !page.residual.any()) return false;
    if ((page.residual & ~page.live).any()) return false;
    if (page.state == State::kOpen && (open_[page.lifetime] != i || page.residual != page.live)) return false;
  }
  for (size_t lifetime = 0; lifetime < kClasses; ++lifetime) {
    Tick before = 0;
    for (PageIndex index = active_[lifetime].first; index != kNoPage; index = pages_[index].next) {
      const Page& page = pages_[index];
      if (page.state != State::kActive || page.lifetime != lifetime || page.deadline < before) return false;
      before = page.deadline;
      if (++linked > active) return false;
    }
  }
  return used == figures_.pages && linked == active;
}

}  // namespace memoir

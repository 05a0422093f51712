// SPDX-License-Identifier: Apache-2.0
#include "memoir/arena/host_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#ifndef MADV_POPULATE_WRITE  // Linux 5.14; older kernels answer EINVAL and the pages are touched by hand
#define MADV_POPULATE_WRITE 23
#endif

namespace memoir {

namespace {

constexpr Size kHugePage = 2 * kMiB;

Size page_size() noexcept {
  static const Size size = static_cast<Size>(::sysconf(_SC_PAGESIZE));
  return size;
}

/// False when there is no memory.
bool prefault(std::byte* begin, Size size) noexcept {
  if (::madvise(begin, size, MADV_POPULATE_WRITE) == 0) return true;
  if (errno == ENOMEM) return false;
  for (Size at = 0; at < size; at += page_size()) {
    auto* const touched = reinterpret_cast<volatile char*>(begin + at);
    *touched = *touched;  // part of the range may hold data already
  }
  return true;
}

}  // namespace

std::byte* reserve_address_space(Size size) noexcept {
  if (size == 0 || size > (Size{1} << 47)) return nullptr;
  const Size wanted = size + kHugePage;
  void* mapped = ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
  const auto aligned = align_up(begin, kHugePage);
  if (aligned > begin) ::munmap(mapped, aligned - begin);
  if (aligned + size < begin + wanted) {
    ::munmap(reinterpret_cast<void*>(aligned + size), begin + wanted - aligned - size);
  }
  return reinterpret_cast<std::byte*>(aligned);
}

void release_address_space(std::byte* base, Size size) noexcept {
  if (base != nullptr) ::munmap(base, size);
}

bool open_pages(std::byte* base, Size size, HostArenaOptions options) noexcept {
  if (::mprotect(base, size, PROT_READ | PROT_WRITE) != 0) return false;
  if (options.huge_pages) {
    // Only whole huge pages are advised: a tail that ends inside one would be backed to its end and held for
    // nothing.
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    const auto first = align_up(begin, kHugePage), last = align_down(begin + size, kHugePage);
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
  return !options.prefault || prefault(base, size);
}

bool close_pages(std::byte* base, Size size) noexcept {
  // A new PROT_NONE mapping over the old one gives the pages and their overcommit charge back in one call.
  return ::mmap(base, align_up(size, page_size()), PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

HostArena::HostArena(Size capacity, HostArenaOptions options) noexcept : options_(options) {
  if (capacity == 0 || capacity > (Size{1} << 47)) return;
  capacity = align_up(capacity, page_size());
  if (!granules_.reset(capacity, page_size())) return;
  base_ = reserve_address_space(capacity);
  owns_reservation_ = true;
}

HostArena::HostArena(std::byte* base, Size capacity, HostArenaOptions options) noexcept : options_(options) {
  capacity = align_up(capacity, page_size());
  if (granules_.reset(capacity, page_size())) base_ = base;
}

HostArena::~HostArena() {
  if (base_ == nullptr) return;
  if (owns_reservation_) {
    release_address_space(base_, capacity());
  } else {
    decommit({0, capacity()});
  }
}

bool HostArena::commit(Range range) noexcept {
  const Range covered = granules_.cover(range);
  if (covered.size == 0) return false;
  if (granules_.contains(covered)) return true;
  if (!open_pages(base_ + covered.begin, covered.size, options_)) return false;
  granules_.insert(covered);
  return true;
}

void HostArena::decommit(Range range) noexcept {
  const Range inside = granules_.inside(range);
  if (inside.size == 0) return;
  if (close_pages(base_ + inside.begin, inside.size)) granules_.erase(inside);
}

void HostArena::discard(Range range) noexcept {
  const Range inside = granules_.inside(range);
  if (inside.size == 0) return;
  if (::madvise(base_ + inside.begin, inside.size, MADV_DONTNEED) == 0) granules_.erase(inside);
}

}  // namespace memoir

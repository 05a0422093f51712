// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/tick_clock.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memoir/base/files.h"

namespace memoir::record {

namespace {
std::uint64_t read_clock(clockid_t clock) noexcept {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}
}  // namespace

void TickClock::start(const char* path) noexcept {
  base_ = read_clock(CLOCK_MONOTONIC_COARSE);
  start_ = read_clock(CLOCK_REALTIME);
  if (path == nullptr) return;
  int file = open_beside(path, O_RDWR);
  const bool writable = file >= 0;
  if (!writable) file = open_beside(path, O_RDONLY);
  if (file < 0) return;
  void* const mapped =
      ::mmap(nullptr, 4096, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
  // A file that is shorter than what is read of it would kill the program.
  const bool whole = ::lseek(file, 0, SEEK_END) >= 4096;
  ::close(file);
  if (mapped == MAP_FAILED) return;
  auto* const shared = static_cast<SharedClock*>(mapped);
  if (!whole || shared->magic != SharedClock::kMagic) {
    ::munmap(mapped, 4096);
    return;
  }
  std::uint64_t none = 0;
  if (writable && shared->start.compare_exchange_strong(none, start_)) {
    none = 0;
    shared->base.compare_exchange_strong(none, read_clock(CLOCK_MONOTONIC));
  }
  if (const std::uint64_t base = shared->base.load()) {
    base_ = base;
    start_ = shared->start.load();
  }
  writable_ = writable ? shared : nullptr;
  shared_.store(shared, std::memory_order_relaxed);
}

bool TickClock::refuse(int why) const noexcept {
  if (writable_ == nullptr) return false;
  writable_->why.store(static_cast<std::uint32_t>(why), std::memory_order_relaxed);
  writable_->refused.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace memoir::record

// SPDX-License-Identifier: Apache-2.0
//
// Counts the ticks that recorded programs read (record/tick_clock.h). `memoir record` calls this from a
// thread of its own, in its own process.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "memoir/base/files.h"
#include "memoir/record/preload/control.h"
#include "memoir/record/tick_clock.h"

using memoir::record::SharedClock;
using memoir::record::TickClock;

namespace {
uint64_t read_clock(clockid_t clock) noexcept {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}
}  // namespace

/// Makes the file at `path` (of 4096 zeros) a clock, and counts until *stop is not 0. 0, or an errno.
MEMOIR_EXPORT int memoir_record_count(const char* path, const volatile int* stop, volatile int* started) {
  const int file = memoir::open_beside(path, O_RDWR);
  if (file < 0) return errno;
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) return errno;
  auto* const clock = static_cast<SharedClock*>(mapped);
  clock->magic = SharedClock::kMagic;
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  *started = 1;
  while (*stop == 0) {
    const timespec wait{0, TickClock::kTick};
    ::nanosleep(&wait, nullptr);
    const uint64_t base = clock->base.load(std::memory_order_relaxed);
    if (base != 0)
      clock->ticks.store((read_clock(CLOCK_MONOTONIC) - base) / TickClock::kTick, std::memory_order_relaxed);
  }
  ::munmap(mapped, 4096);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// The trace file of a recorded process: its header, and room for blocks, each mapped into the process while a
// thread fills it. What is written there is in the file, whatever kills the process.
//
//   0       4096          claimed                allocated
//   | header | block | block | nothing yet         |
//
// Blocks of the file system are really allocated before anything is mapped (a hole in a full file system
// would kill the process with SIGBUS), never beyond the process's limit on file sizes. The descriptor may be
// closed by a program that closes all: it is checked before each use, and the file is then opened again by
// its name.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir::record {

/// As record/trace_file.cc writes it; docs/reference/formats.md is the specification.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endianness;
  std::uint32_t header_size;
  std::uint32_t tick;  // nanoseconds
  std::uint32_t flags;
  std::uint32_t clock;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t dropped;
  std::uint64_t flushed;
};
static_assert(sizeof(FileHeader) == 64);

class TraceFile {
 public:
  static constexpr Size kPage = 4096;

  /// Creates the file, for its user alone; it appears with its header. False, and errno says why, when it
  /// cannot: EEXIST when there is one of that name. `start`: nanoseconds since 1970 at tick 0. `tick`:
  /// nanoseconds. Not thread-safe.
  bool create(const char* path, std::uint64_t start, std::uint32_t tick) noexcept;
  bool is_open() const noexcept { return header_ != nullptr; }
  const char* path() const noexcept { return path_; }

  /// `size` bytes (a multiple of kPage) of the file, mapped and zero; nullptr when there is no room. They are
  /// given back with unmap(), and stay in the file. Thread-safe.
  std::byte* claim(Size size) noexcept;
  /// Maps `size` bytes (a multiple of kPage) at once, for claims of a process that may not call the system.
  /// Not thread-safe.
  void set_aside(Size size) noexcept;
  static void unmap(std::byte* block, Size size) noexcept;

  /// Cuts off what is allocated and not claimed: at an end that may be none.
  void trim() noexcept;
  /// Modulo 2^64: what was counted may be taken back.
  void count_dropped(std::uint64_t count) noexcept {
    if (header_ != nullptr) __atomic_fetch_add(&header_->dropped, count, __ATOMIC_RELAXED);
  }
  void set_flushed(std::uint64_t tick) noexcept {
    if (header_ != nullptr) __atomic_store_n(&header_->flushed, tick, __ATOMIC_RELAXED);
  }
  /// In a child of fork(): forgets the parent's file, which goes on.
  void abandon() noexcept;

 private:
  bool create_as(const char* path, std::uint64_t start, std::uint32_t tick, bool named) noexcept;
  bool lock() noexcept;
  int descriptor() noexcept;
  bool grow(int file, Size least) noexcept;
  static void prepare(int file, Size begin, Size size) noexcept;

  FileHeader* header_ = nullptr;
  int file_ = -1;
  std::uint64_t device_ = 0, inode_ = 0;
  Size claimed_ = 0, allocated_ = 0;
  std::atomic<bool> locked_{false}, is_stuck_{false};
  std::byte* aside_ = nullptr;
  Size aside_size_ = 0;
  std::atomic<Size> aside_used_{0};
  char path_[1024] = {};
};

}  // namespace memoir::record

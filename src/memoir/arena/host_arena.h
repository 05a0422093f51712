// SPDX-License-Identifier: Apache-2.0
//
// Host memory: address space reserved with PROT_NONE, made accessible by commit, given back by decommit.
#pragma once

#include <cstddef>

#include "memoir/arena/arena.h"
#include "memoir/arena/granule_set.h"

namespace memoir {

struct HostArenaOptions {
  bool huge_pages = true;  // advise the 2 MiB-aligned inside of what is committed
  bool prefault = false;   // touch pages at commit, so that the program takes no fault on them later
};

class HostArena final : public Arena {
 public:
  /// Reserves `capacity` bytes (rounded up to pages, aligned to 2 MiB). ok() is false when the system
  /// refuses.
  explicit HostArena(Size capacity, HostArenaOptions options = {}) noexcept;
  /// Works in address space that somebody else has reserved with PROT_NONE and keeps; `base` is aligned to 2
  /// MiB.
  HostArena(std::byte* base, Size capacity, HostArenaOptions options = {}) noexcept;
  ~HostArena() override;  // decommits all; ends the reservation if it made it
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  bool ok() const noexcept { return base_ != nullptr; }
  /// Where offset 0 lies.
  std::byte* base() const noexcept { return base_; }

  Size capacity() const noexcept override { return granules_.capacity(); }
  Size granule() const noexcept override { return granules_.granule(); }
  bool commit(Range range) noexcept override;
  void decommit(Range range) noexcept override;
  Size committed() const noexcept override { return granules_.committed(); }
  /// Gives back the memory of the granules wholly inside the range, which counts as committed no more but
  /// stays accessible: reading or writing it takes new pages. For what holes are made into, since unlike
  /// decommit() it needs no memory of the system's for each hole.
  void discard(Range range) noexcept;

 private:
  std::byte* base_ = nullptr;
  bool owns_reservation_ = false;
  HostArenaOptions options_;
  GranuleSet granules_;
};

/// Reserves `size` bytes of address space without memory, aligned to 2 MiB, or nullptr. Release with the same
/// size.
std::byte* reserve_address_space(Size size) noexcept;
void release_address_space(std::byte* base, Size size) noexcept;

/// Makes reserved pages usable (zeroed where they hold nothing yet); `base` is aligned to pages. False when
/// there is no memory.
bool open_pages(std::byte* base, Size size, HostArenaOptions options) noexcept;
/// Gives the memory of pages back and keeps their addresses reserved. False when the system refuses: they
/// stay open.
bool close_pages(std::byte* base, Size size) noexcept;

}  // namespace memoir

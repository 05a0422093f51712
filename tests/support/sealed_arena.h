// SPDX-License-Identifier: Apache-2.0
//
// Address space that nobody may touch: commit and decommit only count, the pages stay PROT_NONE. A heap that
// works on it has proved that it never dereferences the memory it manages (rule 2 of heap/heap.h).
#pragma once

#include <cstddef>

#include "memoir/arena/arena.h"
#include "memoir/arena/granule_set.h"

namespace memoir {

class SealedArena final : public Arena {
 public:
  /// Reserves `capacity` bytes, rounded up to granules of 4 KiB. ok() is false when the system refuses.
  explicit SealedArena(Size capacity) noexcept;
  ~SealedArena() override;
  SealedArena(const SealedArena&) = delete;
  SealedArena& operator=(const SealedArena&) = delete;

  bool ok() const noexcept { return base_ != nullptr; }
  /// Where offset 0 lies: any access there ends the program.
  std::byte* base() const noexcept { return base_; }

  Size capacity() const noexcept override { return granules_.capacity(); }
  Size granule() const noexcept override { return granules_.granule(); }
  bool commit(Range range) noexcept override;
  void decommit(Range range) noexcept override;
  Size committed() const noexcept override { return granules_.committed(); }

 private:
  std::byte* base_ = nullptr;
  GranuleSet granules_;
};

}  // namespace memoir

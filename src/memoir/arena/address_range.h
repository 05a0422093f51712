// SPDX-License-Identifier: Apache-2.0
//
// An arena of addresses alone, for a heap that only chooses offsets: its owner brings the memory.
#pragma once

#include "memoir/arena/arena.h"

namespace memoir {

class AddressRange final : public Arena {
 public:
  explicit AddressRange(Size capacity) noexcept : capacity_(capacity) {}
  Size capacity() const noexcept override { return capacity_; }
  Size granule() const noexcept override { return 4 * kKiB; }
  bool commit(Range) noexcept override { return true; }
  void decommit(Range) noexcept override {}
  Size committed() const noexcept override { return 0; }

 private:
  Size capacity_;
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// An arena without memory: it counts what would be committed, and can run out as a machine does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "memoir/arena/arena.h"
#include "memoir/arena/granule_set.h"

namespace memoir {

/// Physical memory of a simulated device that is mapped nowhere, as SpareHandles of a real one. Handles of
/// one size are one entry, since a simulation may have billions.
class SimSpares {
 public:
  struct Handles {
    Size size = 0;  // bytes of each; 0: there are none
    Size count = 0;
  };

  Size bytes() const noexcept { return bytes_; }
  bool empty() const noexcept { return counts_.empty(); }
  Size largest() const noexcept { return empty() ? 0 : counts_.rbegin()->first; }
  void put(Handles handles) {
    counts_[handles.size] += handles.count;
    bytes_ += handles.size * handles.count;
  }
  /// At most `count` of the largest that have at most `size` bytes.
  Handles take(Size size, Size count) {
    auto found = counts_.upper_bound(size);
    if (found == counts_.begin()) return {};
    --found;
    const Handles taken{found->first, std::min(found->second, count)};
    if ((found->second -= taken.count) == 0) counts_.erase(found);
    bytes_ -= taken.size * taken.count;
    return taken;
  }

 private:
  std::map<Size, Size> counts_;  // by size
  Size bytes_ = 0;
};

/// Bytes of one simulated machine or device, which several arenas and segments may share.
struct SimMemory {
  Size limit = ~Size{0};
  Size taken = 0;  // spares included
  SimSpares spares{};
  bool in_need = false;  // see CudaDevice::set_in_need
  std::uint64_t releases = 0;

  Size left() const noexcept { return limit - std::min(taken, limit); }
  /// Whether so much can be taken, for which spares go back as far as they are in the way: the largest first.
  bool allows(Size size) {
    while (size > left() && size <= limit && !spares.empty()) {
      const Size largest = spares.largest();
      release(spares.take(largest, (size - left() + largest - 1) / largest));
    }
    return size <= left();
  }
  void release_spares() {
    while (!spares.empty()) release(spares.take(spares.largest(), ~Size{0}));
  }

 private:
  void release(SimSpares::Handles handles) noexcept {
    taken -= handles.size * handles.count;
    releases += handles.count;
  }
};

struct SimArenaOptions {
  Size granule = 4 * kKiB;      // bytes, a power of two: 4 KiB is a host's page, 2 MiB a device's
  Size limit = ~Size{0};        // bytes: a commit that would go beyond fails, as on a full machine
  SimMemory* memory = nullptr;  // instead of that limit: what it shares with others, kept alive by the caller
};

class SimArena final : public Arena {
 public:
  /// Of `capacity` bytes, rounded up to granules. ok() is false when the options cannot be, or when there is
  /// no memory for a bit per granule.
  explicit SimArena(Size capacity, SimArenaOptions options = {}) noexcept;

  bool ok() const noexcept { return capacity() != 0; }
  /// The most bytes that were ever committed.
  Size peak_committed() const noexcept { return peak_committed_; }
  /// Calls that changed something (what a device would have been asked to map and unmap), and commits that
  /// the limit refused.
  std::uint64_t commits() const noexcept { return commits_; }
  std::uint64_t decommits() const noexcept { return decommits_; }
  std::uint64_t refusals() const noexcept { return refusals_; }

  Size capacity() const noexcept override { return granules_.capacity(); }
  Size granule() const noexcept override { return granules_.granule(); }
  bool commit(Range range) noexcept override;
  void decommit(Range range) noexcept override;
  Size committed() const noexcept override { return granules_.committed(); }

 private:
  SimMemory& memory() noexcept { return shared_ != nullptr ? *shared_ : own_; }

  GranuleSet granules_;
  SimMemory own_;
  SimMemory* shared_;
  Size peak_committed_ = 0;
  std::uint64_t commits_ = 0;
  std::uint64_t decommits_ = 0;
  std::uint64_t refusals_ = 0;
};

}  // namespace memoir

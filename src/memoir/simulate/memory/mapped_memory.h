// SPDX-License-Identifier: Apache-2.0
//
// Memory that a simulated device maps into an arena's addresses, in the pieces in which a real one does
// (arena/cuda_arena.h): a piece is what one handle of physical memory covers, and goes back when all of its
// granules were decommitted.
//
//   granules   |  0  |  1  |  2  |  3  |  4  |  5  |     piece = 4 granules
//   commit [0, 6)   |<------ one ------->|<- two  ->|
//   decommit [3, 6)                       two goes back; 3 stays mapped, and is committed again for nothing
//
// What is taken away (Arena::take_away) becomes spares of the device, which the next commits map first.
//
// Pieces that lie in a row and have as many bytes committed are kept as one run, so that a range of any
// length costs what a granule costs.
//
// Uses the heap's memory: for simulations.
#pragma once

#include <map>

#include "memoir/arena/sim_arena.h"
#include "memoir/simulate/memory/held_log.h"
#include "memoir/simulate/memory/range_set.h"
#include "memoir/simulate/memory/stream_clock.h"

namespace memoir {

struct MappedMemoryOptions {
  Size granule = 2 * kMiB;
  Size piece = 0;        // bytes, a power of two; up to a granule: one granule
  bool keeps = false;    // nothing goes back: a graph that uses it may run again at any time
  HeldWatch watch = {};  // told of what is mapped and unmapped
};

/// What it was asked for, and what a driver is called for then.
struct MappedCalls {
  std::uint64_t commits = 0;    // ranges that were mapped
  std::uint64_t decommits = 0;  // and unmapped
  std::uint64_t refusals = 0;   // that the limit refused
  std::uint64_t creates = 0;    // handles made (cuMemCreate)
  std::uint64_t releases = 0;   // and given back (cuMemRelease)
  std::uint64_t maps = 0;       // pieces (cuMemMap)
  std::uint64_t unmaps = 0;     // (cuMemUnmap)
  std::uint64_t accesses = 0;   // runs of pieces made usable (cuMemSetAccess)
};

class MappedMemory final : public Arena {
 public:
  /// `memory` is the device's; `clock` is told when the host waits for the device. Both are kept alive by the
  /// caller.
  MappedMemory(Size capacity, const MappedMemoryOptions& options, SimMemory& memory, StreamClock* clock);

  bool ok() const noexcept { return capacity_ != 0 && is_power_of_two(piece_); }
  const MappedCalls& calls() const noexcept { return calls_; }

  Size capacity() const noexcept override { return capacity_; }
  Size granule() const noexcept override { return granule_; }
  bool commit(Range range) noexcept override;
  void decommit(Range range) noexcept override { decommit(range, false); }
  void take_away(Range range) noexcept override { decommit(range, true); }
  void settle() noexcept override {
    if (!memory_->in_need) memory_->release_spares();
  }
  /// A device without a limit is one of which nobody knows the size.
  Size room() noexcept override {
    return memory_->limit == ~Size{0} ? 0 : memory_->left() + memory_->spares.bytes();
  }
  Size committed() const noexcept override { return mapped_.bytes(); }

 private:
  struct Pieces {
    Size size = 0;  // bytes of each
    Size count = 0;
    Size wanted = 0;  // bytes of each that are committed
  };
  using Runs = std::map<Offset, Pieces>;
  bool has_pieces() const noexcept { return piece_ > granule_; }
  bool map_missing(Range covered, Size missing);
  Pieces map_pieces(Offset at, Size room, bool& made);
  void give_back(Size size, Size count, bool keeps);
  void want(Range covered);
  Runs::iterator run_at(Offset offset);
  Runs::iterator cut_before(Offset offset);
  template <class Body>
  void for_each_run(Range range, Body body);
  void decommit(Range range, bool moves) noexcept;

  SimMemory* memory_;
  Size granule_;
  Size piece_;
  Size capacity_ = 0;
  bool keeps_;
  HeldWatch watch_;
  StreamClock* clock_;
  RangeSet mapped_;
  RangeSet wanted_;  // with pieces longer than a granule
  Runs runs_;        // of those
  MappedCalls calls_;
};

}  // namespace memoir

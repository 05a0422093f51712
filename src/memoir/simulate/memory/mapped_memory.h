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
// Uses the heap's memory: for simulations.
#pragma once

#include <map>

#include "memoir/arena/granule_set.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/simulate/memory/held_log.h"
#include "memoir/simulate/memory/stream_clock.h"

namespace memoir {

struct MappedMemoryOptions {
  Size granule = 2 * kMiB;
  Size piece = 0;        // bytes, a power of two; up to a granule: one granule
  bool keeps = false;    // nothing goes back: a graph that uses it may run again at any time
  HeldWatch watch = {};  // told of what is mapped and unmapped
};

class MappedMemory final : public Arena {
 public:
  /// `memory` is the device's; `clock` is told when the host waits for the device. Both are kept alive by the
  /// caller.
  MappedMemory(Size capacity, const MappedMemoryOptions& options, SimMemory& memory, StreamClock* clock);

  bool ok() const noexcept { return arena_.ok() && is_power_of_two(piece_); }
  /// Its commits, decommits and refusals: calls that changed something.
  const SimArena& arena() const noexcept { return arena_; }
  /// Pieces mapped and unmapped: what a driver is called for.
  std::uint64_t mapped() const noexcept { return mapped_; }
  std::uint64_t unmapped() const noexcept { return unmapped_; }

  Size capacity() const noexcept override { return arena_.capacity(); }
  Size granule() const noexcept override { return arena_.granule(); }
  bool commit(Range range) noexcept override;
  void decommit(Range range) noexcept override;
  Size committed() const noexcept override { return arena_.committed(); }

 private:
  struct Piece {
    Size size;
    Size wanted;  // bytes of it that are committed
  };
  bool commit_pieces(Range covered);
  void decommit_pieces(Range inside);
  Piece* piece_at(Offset offset, Offset& begin) noexcept;

  SimArena arena_;
  Size piece_;
  bool keeps_;
  HeldWatch watch_;
  StreamClock* clock_;
  GranuleSet wanted_;               // with pieces longer than a granule
  std::map<Offset, Piece> pieces_;  // those
  std::uint64_t mapped_ = 0;
  std::uint64_t unmapped_ = 0;
};

}  // namespace memoir

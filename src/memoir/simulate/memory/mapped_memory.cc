// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/memory/mapped_memory.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace memoir {

MappedMemory::MappedMemory(Size capacity, const MappedMemoryOptions& options, SimMemory& memory,
                           StreamClock* clock)
    : memory_(&memory),
      piece_(std::max(options.piece, options.granule)),
      keeps_(options.keeps),
      watch_(options.watch),
      clock_(clock) {
  if (!is_power_of_two(options.granule) || capacity > ~Size{0} - options.granule) return;
  capacity = align_up(capacity, options.granule);
  if (!mapped_.reset(capacity, options.granule) ||
      (has_pieces() && !wanted_.reset(capacity, options.granule)))
    mapped_ = {};
}

bool MappedMemory::commit(Range range) noexcept {
  const Range covered = mapped_.cover(range);
  if (covered.size == 0) return false;
  const Size missing = covered.size - mapped_.committed_in(covered);
  if (missing != 0) {
    if (!map_missing(covered, missing)) {
      ++calls_.refusals;
      return false;
    }
    ++calls_.commits;
    mapped_.insert(covered);
    watch_.hold(covered);
  }
  if (has_pieces()) want(covered);
  return true;
}

bool MappedMemory::map_missing(Range covered, Size missing) {
  if (missing > memory_->left() + memory_->spares.bytes()) return false;
  if (!has_pieces() && memory_->spares.empty()) {  // all at once: a malloc's pages are many
    memory_->taken += missing;
    calls_.creates += missing / granule();
    calls_.maps += missing / granule();
    calls_.accesses += runs_in(covered, missing);
    return true;
  }
  struct Fresh {
    Range piece;
    bool made;
  };
  std::vector<Fresh> fresh;
  for (Offset at = covered.begin; at < covered.end();) {
    Offset stop = at;
    while (stop < covered.end() && !mapped_.contains({stop, granule()})) stop += granule();
    const bool runs = stop != at;
    while (at < stop) {
      bool made = false;
      const Size length = map_piece(at, std::min(piece_ - at % piece_, stop - at), made);
      if (length == 0) {
        for (const Fresh& one : fresh) {
          give_back(one.piece.size, !one.made);
          pieces_.erase(one.piece.begin);
        }
        return false;
      }
      fresh.push_back({{at, length}, made});
      at += length;
    }
    calls_.accesses += runs;
    at = std::max(at, stop + (runs ? 0 : granule()));
  }
  return true;
}

/// Stretches of the range that are not mapped.
std::uint64_t MappedMemory::runs_in(Range covered, Size missing) const noexcept {
  if (missing == covered.size) return 1;
  std::uint64_t runs = 0;
  bool before = true;  // mapped
  for (Offset at = covered.begin; at < covered.end(); at += granule()) {
    const bool mapped = mapped_.contains({at, granule()});
    runs += before && !mapped;
    before = mapped;
  }
  return runs;
}

/// As CudaArena: the largest spare that fits, or new memory; gives back its bytes, 0 when there is none.
Size MappedMemory::map_piece(Offset at, Size most, bool& made) {
  SpareHandles::Spare memory = memory_->spares.take(most);
  made = memory.size == 0;
  if (made) {
    if (!memory_->allows(most)) return 0;
    memory_->taken += most;
    ++calls_.creates;
    memory.size = most;
  }
  ++calls_.maps;
  if (has_pieces()) pieces_[at] = {memory.size, 0};
  return memory.size;
}

/// Unmaps so much; `keeps`: to be mapped elsewhere.
void MappedMemory::give_back(Size size, bool keeps) {
  ++calls_.unmaps;
  if ((keeps || memory_->in_need) && memory_->spares.put({0, size})) return;
  memory_->taken -= size;
  ++memory_->releases;
}

void MappedMemory::want(Range covered) {
  for (Offset at = covered.begin; at < covered.end(); at += granule()) {
    if (!wanted_.contains({at, granule()})) piece_at(at)->second.wanted += granule();
  }
  wanted_.insert(covered);
}

/// The piece that this mapped offset lies in.
std::map<Offset, MappedMemory::Piece>::iterator MappedMemory::piece_at(Offset offset) {
  return std::prev(pieces_.upper_bound(offset));
}

void MappedMemory::decommit(Range range, bool moves) noexcept {
  const Range inside = mapped_.inside(range);
  if (keeps_ || inside.size == 0) return;
  const std::uint64_t unmapped = calls_.unmaps;
  if (has_pieces()) {
    decommit_pieces(inside, moves);
  } else if (const Size bytes = mapped_.committed_in(inside); bytes != 0) {
    for (Size done = 0; done < bytes; done += granule()) give_back(granule(), moves);
    mapped_.erase(inside);
    watch_.release(inside);
  }
  if (calls_.unmaps == unmapped) return;
  ++calls_.decommits;
  if (clock_ != nullptr) clock_->quiet();
}

void MappedMemory::decommit_pieces(Range inside, bool moves) {
  for (Offset at = inside.begin; at < inside.end(); at += granule()) {
    if (!wanted_.contains({at, granule()})) continue;
    wanted_.erase({at, granule()});
    const auto found = piece_at(at);
    if ((found->second.wanted -= granule()) != 0) continue;
    const Range piece{found->first, found->second.size};
    pieces_.erase(found);
    give_back(piece.size, moves);
    mapped_.erase(piece);
    watch_.release(piece);
  }
}

}  // namespace memoir

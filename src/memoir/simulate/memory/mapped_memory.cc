// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/memory/mapped_memory.h"

#include <algorithm>

namespace memoir {

MappedMemory::MappedMemory(Size capacity, const MappedMemoryOptions& options, SimMemory& memory,
                           StreamClock* clock)
    : arena_(capacity, SimArenaOptions{.granule = options.granule, .memory = &memory}),
      piece_(std::max(options.piece, options.granule)),
      keeps_(options.keeps),
      watch_(options.watch),
      clock_(clock) {
  if (piece_ > options.granule && arena_.ok() && !wanted_.reset(arena_.capacity(), options.granule))
    piece_ = 0;
}

bool MappedMemory::commit(Range range) noexcept {
  const Size before = arena_.committed();
  if (piece_ > granule()) return commit_pieces(wanted_.cover(range));
  if (!arena_.commit(range)) return false;
  const Offset begin = align_down(range.begin, granule());
  watch_.hold({begin, align_up(range.end(), granule()) - begin});
  mapped_ += (arena_.committed() - before) / granule();
  return true;
}

void MappedMemory::decommit(Range range) noexcept {
  if (keeps_) return;
  const std::uint64_t unmapped = unmapped_;
  const Size before = arena_.committed();
  if (piece_ > granule()) {
    decommit_pieces(wanted_.inside(range));
  } else {
    arena_.decommit(range);
    const Offset begin = align_up(range.begin, granule());
    const Offset end = align_down(range.end(), granule());
    if (begin < end) watch_.release({begin, end - begin});
    unmapped_ += (before - arena_.committed()) / granule();
  }
  if (unmapped_ != unmapped && clock_ != nullptr) clock_->quiet();
}

/// The piece that the offset lies in, and where it begins; nullptr when nothing is mapped there.
MappedMemory::Piece* MappedMemory::piece_at(Offset offset, Offset& begin) noexcept {
  const auto after = pieces_.upper_bound(offset);
  if (after == pieces_.begin()) return nullptr;
  const auto found = std::prev(after);
  begin = found->first;
  return offset - begin < found->second.size ? &found->second : nullptr;
}

bool MappedMemory::commit_pieces(Range covered) {
  if (covered.size == 0 || !arena_.commit(covered)) return false;
  watch_.hold(covered);
  Offset begin = 0;
  for (Offset at = covered.begin; at < covered.end();) {
    if (const Piece* const piece = piece_at(at, begin)) {
      at = begin + piece->size;
      continue;
    }
    const auto next = pieces_.lower_bound(at);
    Offset end = std::min(covered.end(), align_down(at, piece_) + piece_);
    if (next != pieces_.end()) end = std::min(end, next->first);
    pieces_[at] = {end - at, 0};
    ++mapped_;
    at = end;
  }
  for (Offset at = covered.begin; at < covered.end(); at += granule()) {
    if (wanted_.contains({at, granule()})) continue;
    piece_at(at, begin)->wanted += granule();
  }
  wanted_.insert(covered);
  return true;
}

void MappedMemory::decommit_pieces(Range inside) {
  for (Offset at = inside.begin; at < inside.end(); at += granule()) {
    if (!wanted_.contains({at, granule()})) continue;
    wanted_.erase({at, granule()});
    Offset begin = 0;
    Piece* const piece = piece_at(at, begin);
    if ((piece->wanted -= granule()) != 0) continue;
    arena_.decommit({begin, piece->size});
    watch_.release({begin, piece->size});
    pieces_.erase(begin);
    ++unmapped_;
  }
}

}  // namespace memoir

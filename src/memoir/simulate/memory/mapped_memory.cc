// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/memory/mapped_memory.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace memoir {

MappedMemory::MappedMemory(Size capacity, const MappedMemoryOptions& options, SimMemory& memory,
                           StreamClock* clock)
    : memory_(&memory),
      granule_(options.granule),
      piece_(std::max(options.piece, options.granule)),
      keeps_(options.keeps),
      watch_(options.watch),
      clock_(clock) {
  if (is_power_of_two(granule_) && capacity <= ~Size{0} - granule_) capacity_ = align_up(capacity, granule_);
}

bool MappedMemory::commit(Range range) noexcept {
  const Range covered = granules_around(range, capacity_, granule_);
  if (covered.size == 0) return false;
  const Size missing = covered.size - mapped_.bytes_in(covered);
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
  struct Fresh {
    Offset begin;
    Pieces pieces;
    bool made;
  };
  std::vector<Fresh> fresh;
  const bool all = mapped_.for_each_gap(covered, [&](Range gap) {
    for (Offset at = gap.begin; at < gap.end();) {
      bool made = false;
      const Pieces pieces = map_pieces(at, gap.end() - at, made);
      if (pieces.count == 0) return false;
      fresh.push_back({at, pieces, made});
      at += pieces.size * pieces.count;
    }
    ++calls_.accesses;
    return true;
  });
  for (const Fresh& one : fresh) {
    if (!all) give_back(one.pieces.size, one.pieces.count, !one.made);
    else if (has_pieces()) runs_.emplace(one.begin, one.pieces);
  }
  return all;
}

/// As CudaArena: the largest spare that fits, or new memory, up to the next multiple of a piece; pieces of
/// one size at once. None when there is no memory.
MappedMemory::Pieces MappedMemory::map_pieces(Offset at, Size room, bool& made) {
  const Size most = std::min(piece_ - at % piece_, room);
  const Size count = most == piece_ ? room / piece_ : 1;
  SimSpares::Handles handles = memory_->spares.take(most, count);
  // What is smaller than a piece moves where the next one begins.
  if (handles.count > 1 && handles.size != most) {
    memory_->spares.put({handles.size, handles.count - 1});
    handles.count = 1;
  }
  made = handles.count == 0;
  if (made) {
    if (!memory_->allows(most * count)) return {};
    memory_->taken += most * count;
    calls_.creates += count;
    handles = {most, count};
  }
  calls_.maps += handles.count;
  return {handles.size, handles.count, 0};
}

/// Unmaps so many; `keeps`: to be mapped elsewhere.
void MappedMemory::give_back(Size size, Size count, bool keeps) {
  calls_.unmaps += count;
  if (keeps || memory_->in_need) return memory_->spares.put({size, count});
  memory_->taken -= size * count;
  memory_->releases += count;
}

// --- pieces longer than a granule ---

/// All of it is mapped.
void MappedMemory::want(Range covered) {
  std::vector<Range> fresh;
  wanted_.for_each_gap(covered, [&](Range gap) {
    fresh.push_back(gap);
    return true;
  });
  for (const Range& gap : fresh) {
    for_each_run(gap, [&](Runs::iterator run, Size bytes) {
      run->second.wanted += bytes;
      return std::next(run);
    });
  }
  wanted_.insert(covered);
}

/// The run that this mapped offset lies in.
MappedMemory::Runs::iterator MappedMemory::run_at(Offset offset) {
  return std::prev(runs_.upper_bound(offset));
}

/// Makes the piece that this mapped offset lies in the first of its run; gives that back.
MappedMemory::Runs::iterator MappedMemory::cut_before(Offset offset) {
  const auto run = run_at(offset);
  Pieces& pieces = run->second;
  const Size before = (offset - run->first) / pieces.size;
  if (before == 0) return run;
  Pieces rest = pieces;
  pieces.count = before, rest.count -= before;
  return runs_.emplace_hint(std::next(run), run->first + before * pieces.size, rest);
}

/// Calls `body(run, bytes)` for the runs of a mapped range, cut so that it covers so many bytes of each piece
/// of a run. It gives back the run behind.
template <class Body>
void MappedMemory::for_each_run(Range range, Body body) {
  for (auto run = cut_before(range.begin); run != runs_.end() && run->first < range.end();) {
    const Size size = run->second.size;
    const Offset begin = std::max(range.begin, run->first);
    const Size inside = range.end() - begin;
    if (begin != run->first || inside < size) {  // one piece, in part
      if (run->second.count > 1) cut_before(run->first + size);
      run = body(run, std::min(run->first + size, range.end()) - begin);
    } else {
      if (inside / size < run->second.count) cut_before(run->first + inside / size * size);
      run = body(run, size);
    }
  }
}

void MappedMemory::decommit(Range range, bool moves) noexcept {
  const Range inside = granules_inside(range, capacity_, granule_);
  if (keeps_ || inside.size == 0) return;
  const std::uint64_t unmapped = calls_.unmaps;
  const auto end = [&](Range pieces, Size size) {
    give_back(size, pieces.size / size, moves);
    watch_.release(pieces);
  };
  if (!has_pieces()) {
    mapped_.erase(inside, [&](Range part) { end(part, granule_); });
  } else {
    wanted_.erase(inside, [&](Range part) {
      for_each_run(part, [&](Runs::iterator run, Size bytes) {
        const Range pieces{run->first, run->second.size * run->second.count};
        if ((run->second.wanted -= bytes) != 0) return std::next(run);
        end(pieces, run->second.size);
        mapped_.erase(pieces);
        return runs_.erase(run);
      });
    });
  }
  if (calls_.unmaps == unmapped) return;
  ++calls_.decommits;
  if (clock_ != nullptr) clock_->quiet();
}

}  // namespace memoir

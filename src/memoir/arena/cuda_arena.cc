// SPDX-License-Identifier: Apache-2.0
#include "memoir/arena/cuda_arena.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr Size kWorthAsking = 256 * kMiB;
}  // namespace

CudaArena::CudaArena(CudaDevice& device, Size capacity, CudaArenaOptions options) noexcept
    : device_(&device) {
  if (!device.ok() || device.granularity() == 0 || capacity == 0 || capacity > (Size{1} << 48)) return;
  granule_ = options.granule == 0 ? device.granularity() : options.granule;
  if (granule_ % device.granularity() != 0 || !is_power_of_two(granule_)) return;
  if (options.piece != 0 && !is_power_of_two(options.piece)) return;
  piece_ = std::max<Size>(options.piece / granule_, 1);
  capacity = align_up(capacity, granule_);
  if (!granules_.assign(capacity / granule_, {})) return;
  const CudaDevice::Scope scope(device);
  const cuda::Result result = device.driver().address_reserve(&base_, capacity, 0, 0, 0);
  if (result == cuda::kSuccess) return;
  base_ = 0;
  device.note_refusal("cuMemAddressReserve", result);
}

CudaArena::~CudaArena() {
  if (!ok()) return;
  device_->wait_until_quiet();  // who destroys an arena during a capture of its memory has already lost
  const CudaDevice::Scope scope(*device_);
  for_each_piece([this](Range piece) { unmap_piece(piece.begin / granule_, false); });
  device_->driver().address_free(base_, capacity());
}

void CudaArena::keep(bool keep) noexcept {
  keep_ = keep;
  if (!keep) reclaim();
}

Range CudaArena::cover(Range range) const noexcept {
  if (!ok() || range.size == 0 || range.begin > capacity() || range.size > capacity() - range.begin)
    return {};
  const Size first = range.begin / granule_;
  return {first, (range.end() + granule_ - 1) / granule_ - first};
}

bool CudaArena::commit(Range range) noexcept {
  const Range covered = cover(range);
  if (covered.size == 0) return false;
  if (!map_missing(covered.begin, covered.end())) {
    if (unwanted_ == 0) return false;
    for (Granule& granule : granules_) granule.moves |= granule.length != 0 && granule.wanted == 0;
    reclaim();  // mapped elsewhere and wanted by nobody: its memory may do here
    if (!map_missing(covered.begin, covered.end())) return false;
  }
  for (size_t i = covered.begin; i < covered.end(); ++i) {
    if (granules_[i].committed) continue;
    granules_[i].committed = true;
    Granule& piece = granules_[i - granules_[i].back];
    piece.fresh = piece.moves = false;
    if (piece.wanted++ == 0) --unwanted_;
  }
  return true;
}

/// Whether the cap and the device have so much, spares included. The device is asked only where it costs
/// little compared with the mapping.
bool CudaArena::is_there(Size size) noexcept {
  const Size used = device_->held() - device_->spare();
  if (used > device_->cap() || size > device_->cap() - used) {
    device_->note_refusal("cap", cuda::kOutOfMemory);
    return false;
  }
  size -= std::min(size, device_->spare());
  if (size < kWorthAsking) return true;
  const Size free = device_->free_now();
  if (free == 0 || size <= free) return true;
  device_->note_refusal("cuMemGetInfo", cuda::kOutOfMemory);
  return false;
}

bool CudaArena::map_missing(size_t first, size_t end) noexcept {
  const auto missing = static_cast<Size>(std::count_if(granules_.begin() + first, granules_.begin() + end,
                                                       [](const Granule& it) { return !it.mapped; }));
  // Mapping all that there is, to give it back, would take seconds, and the neighbours' memory.
  if (missing != 0 && !is_there(missing * granule_)) return false;
  for (size_t i = first; i < end;) {
    size_t stop = i;
    while (stop < end && !granules_[stop].mapped) ++stop;
    if (stop != i && !map_run(i, stop)) {
      const CudaDevice::Scope scope(*device_);
      for (size_t at = first; at < stop; ++at) {
        // Never used: nothing to wait for. What was a spare is one again.
        if (granules_[at].fresh) unmap_piece(at, !granules_[at].made);
      }
      return false;
    }
    i = std::max(stop, i + 1);
  }
  return true;
}

bool CudaArena::map_run(size_t first, size_t end) noexcept {
  const CudaDevice::Scope scope(*device_);
  for (size_t at = first; at < end;) {
    const size_t length = map_piece(at, std::min(piece_ - at % piece_, end - at));
    if (length == 0) return false;
    at += length;
  }
  return set_access(first, end);  // once for all of them: it is the slowest of the calls
}

bool CudaArena::set_access(size_t first, size_t end) noexcept {
  const auto accessors = device_->accessors();
  const cuda::Result result = device_->driver().set_access(address(first), (end - first) * granule_,
                                                           accessors.data(), accessors.size());
  if (result != cuda::kSuccess) device_->note_refusal("cuMemSetAccess", result);
  else device_->note_access();
  return result == cuda::kSuccess;
}

void CudaArena::share_mapped() noexcept {
  const CudaDevice::Scope scope(*device_);
  for (size_t i = 0; i < granules_.size(); ++i) {
    size_t end = i;
    while (end < granules_.size() && granules_[end].mapped) ++end;
    if (end != i) set_access(i, end);
    i = end;
  }
}

/// Maps one piece of at most so many granules; gives back how many, 0 when there is no memory.
size_t CudaArena::map_piece(size_t first, size_t most) noexcept {
  const cuda::Driver& driver = device_->driver();
  bool made = false;
  SpareHandles::Spare memory;
  for (;;) {
    memory = device_->take_spare(most * granule_);
    made = memory.size == 0;
    if (made) memory = device_->create(most * granule_);
    if (memory.size == 0) return 0;
    if (memory.size % granule_ != 0) {  // of an arena with smaller granules
      device_->release(memory);
      continue;
    }
    const cuda::Result result = driver.map(address(first), memory.size, 0, memory.handle, 0);
    if (result == cuda::kSuccess) break;
    device_->note_refusal("cuMemMap", result);
    device_->release(memory);
    if (made) return 0;  // else: of a spare the device knows nothing any more, say after a reset
  }
  const size_t length = memory.size / granule_;
  for (size_t i = 0; i < length; ++i) {
    granules_[first + i] = {.back = static_cast<std::uint32_t>(i), .mapped = true};
  }
  granules_[first].handle = memory.handle;
  granules_[first].length = static_cast<std::uint32_t>(length);
  granules_[first].fresh = true;
  granules_[first].made = made;
  ++unwanted_;
  committed_ += memory.size;
  device_->note_placed({address(first), memory.size}, true);
  return length;
}

/// `keeps`: its memory is to be mapped elsewhere.
void CudaArena::unmap_piece(size_t first, bool keeps) noexcept {
  const Granule piece = granules_[first];
  const SpareHandles::Spare memory{piece.handle, piece.length * granule_};
  const cuda::Result result = device_->driver().unmap(address(first), memory.size);
  for (size_t i = first; i < first + piece.length; ++i) granules_[i] = {};
  if (piece.wanted == 0) --unwanted_;
  committed_ -= memory.size;
  device_->note_removed({address(first), memory.size}, true);
  if (result == cuda::kSuccess && (keeps || device_->in_need())) return device_->keep_spare(memory);
  device_->release(memory);
  // After a reset of the device nothing is mapped any more: the driver says so, and that is all.
  if (result != cuda::kSuccess) device_->note_refusal("cuMemUnmap", result);
}

void CudaArena::decommit(Range range, bool moves) noexcept {
  if (!ok() || range.begin > capacity() || range.size > capacity() - range.begin) return;
  const size_t first = (range.begin + granule_ - 1) / granule_, end = range.end() / granule_;
  for (size_t i = first; i < end; ++i) {
    if (!granules_[i].committed) continue;
    granules_[i].committed = false;
    Granule& piece = granules_[i - granules_[i].back];
    if (--piece.wanted == 0) {
      ++unwanted_;
      piece.moves = moves;
    }
  }
  if (first < end) reclaim(first - granules_[first].back, end);
}

/// The device is asked only while the cap leaves room: a cap is the usual limit of a pool that has to be
/// tight.
Size CudaArena::room() noexcept {
  const Size spare = device_->spare();
  const Size held = device_->held() - std::min(device_->held(), spare);
  const Size left = device_->cap() - std::min(device_->cap(), held);
  return left == 0 ? 0 : std::min(left, device_->free_now() + spare);
}

void CudaArena::settle() noexcept {
  if (device_->in_need()) return;
  const CudaDevice::Scope scope(*device_);
  device_->release_spares();
}

void CudaArena::reclaim(size_t first, size_t end) noexcept {
  if (unwanted_ == 0 || keep_) return;
  const auto is_unwanted = [this](size_t i) { return granules_[i].length != 0 && granules_[i].wanted == 0; };
  while (first < end && !is_unwanted(first)) ++first;
  if (first == end || !device_->wait_until_quiet()) return;
  const CudaDevice::Scope scope(*device_);
  for (size_t i = first; i < end; ++i) {
    if (is_unwanted(i)) unmap_piece(i, granules_[i].moves);
  }
}

}  // namespace memoir

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
  for_each_piece([this](Range piece) { unmap_piece(piece.begin / granule_); });
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
    reclaim();  // mapped elsewhere and wanted by nobody: its memory may do here
    if (!map_missing(covered.begin, covered.end())) return false;
  }
  for (size_t i = covered.begin; i < covered.end(); ++i) {
    if (granules_[i].committed) continue;
    granules_[i].committed = true;
    Granule& piece = granules_[i - granules_[i].back];
    piece.fresh = false;
    if (piece.wanted++ == 0) --unwanted_;
  }
  return true;
}

/// Whether the cap and the device have so much. The device is asked only where it costs little compared with
/// the mapping.
bool CudaArena::is_there(Size size) noexcept {
  if (!device_->allows(size)) return false;
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
        if (granules_[at].fresh) unmap_piece(at);  // never used: nothing to wait for
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
    const size_t length = std::min(piece_ - at % piece_, end - at);
    if (!map_piece(at, length)) return false;
    at += length;
  }
  return set_access(first, end);  // once for all of them: it is the slowest of the calls
}

bool CudaArena::set_access(size_t first, size_t end) noexcept {
  const auto accessors = device_->accessors();
  const cuda::Result result = device_->driver().set_access(address(first), (end - first) * granule_,
                                                           accessors.data(), accessors.size());
  if (result != cuda::kSuccess) device_->note_refusal("cuMemSetAccess", result);
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

bool CudaArena::map_piece(size_t first, size_t length) noexcept {
  const Size size = length * granule_;
  const cuda::Driver& driver = device_->driver();
  cuda::Handle handle = 0;
  if (const cuda::Result result = driver.create(&handle, size, &device_->properties(), 0);
      result != cuda::kSuccess) {
    device_->note_refusal("cuMemCreate", result);
    return false;
  }
  if (const cuda::Result result = driver.map(address(first), size, 0, handle, 0); result != cuda::kSuccess) {
    device_->note_refusal("cuMemMap", result);
    driver.release(handle);
    return false;
  }
  for (size_t i = 0; i < length; ++i) {
    granules_[first + i] = {.back = static_cast<std::uint32_t>(i), .mapped = true};
  }
  granules_[first].handle = handle;
  granules_[first].length = static_cast<std::uint32_t>(length);
  granules_[first].fresh = true;
  ++unwanted_;
  committed_ += size;
  device_->note_taken(address(first), size, true);
  return true;
}

void CudaArena::unmap_piece(size_t first) noexcept {
  const Granule piece = granules_[first];
  const Size size = piece.length * granule_;
  const cuda::Driver& driver = device_->driver();
  // After a reset of the device nothing is mapped any more: the driver says so, and that is all.
  if (const cuda::Result result = driver.unmap(address(first), size); result != cuda::kSuccess)
    device_->note_refusal("cuMemUnmap", result);
  driver.release(piece.handle);
  for (size_t i = first; i < first + piece.length; ++i) granules_[i] = {};
  if (piece.wanted == 0) --unwanted_;
  committed_ -= size;
  device_->note_given_back(address(first), size, true);
}

void CudaArena::decommit(Range range) noexcept {
  if (!ok() || range.begin > capacity() || range.size > capacity() - range.begin) return;
  const size_t first = (range.begin + granule_ - 1) / granule_, end = range.end() / granule_;
  for (size_t i = first; i < end; ++i) {
    if (!granules_[i].committed) continue;
    granules_[i].committed = false;
    Granule& piece = granules_[i - granules_[i].back];
    if (--piece.wanted == 0) ++unwanted_;
  }
  if (first < end) reclaim(first - granules_[first].back, end);
}

void CudaArena::reclaim(size_t first, size_t end) noexcept {
  if (unwanted_ == 0 || keep_) return;
  const auto is_unwanted = [this](size_t i) { return granules_[i].length != 0 && granules_[i].wanted == 0; };
  while (first < end && !is_unwanted(first)) ++first;
  if (first == end || !device_->wait_until_quiet()) return;
  const CudaDevice::Scope scope(*device_);
  for (size_t i = first; i < end; ++i) {
    if (is_unwanted(i)) unmap_piece(i);
  }
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/cuda_segments.h"

#include <algorithm>

#include "memoir/base/check.h"

namespace memoir {

CudaSegments::~CudaSegments() {
  if (segments_.empty()) return;
  device_->wait_until_quiet();
  while (!segments_.empty()) free_at(segments_.size() - 1);
}

size_t CudaSegments::position(Offset offset) const noexcept {
  const Held* const found =
      std::lower_bound(segments_.begin(), segments_.end(), offset,
                       [](const Held& held, Offset at) { return held.range.begin < at; });
  return static_cast<size_t>(found - segments_.begin());
}

Offset CudaSegments::take(Size size) noexcept {
  if (size == 0 || size > (Size{1} << 48)) return kNoOffset;
  if (stored_ != 0) {
    for (Held& held : segments_) {
      if (!held.stored || held.range.size != size) continue;
      held.stored = false;
      --stored_;
      return held.range.begin;
    }
  }
  if (!device_->allows(cost(size))) {
    if (stored_ == 0) return kNoOffset;
    reclaim();
    if (!device_->allows(cost(size))) return kNoOffset;
  }
  if (!segments_.reserve(segments_.size() + 1)) return kNoOffset;
  cuda::Address address = 0;
  {
    const CudaDevice::Scope scope(*device_);
    cuda::Result result = device_->driver().memory_allocate(&address, size);
    if (result == cuda::kOutOfMemory && device_->release_spares())
      result = device_->driver().memory_allocate(&address, size);
    if (result != cuda::kSuccess) {
      device_->note_refusal("cuMemAlloc", result);
      return kNoOffset;
    }
  }
  const Offset offset = shift_ + address;
  const size_t at = position(offset);
  segments_.push_back({});
  std::move_backward(segments_.begin() + at, segments_.end() - 1, segments_.end());
  segments_[at] = {.range = {offset, size}};
  held_ += cost(size);
  device_->note_taken(cost(size));
  device_->note_placed({address, cost(size)}, false);
  return offset;
}

void CudaSegments::give_back(Range segment) noexcept {
  const size_t at = position(segment.begin);
  MEMOIR_CHECK(at < segments_.size() && segments_[at].range == segment && !segments_[at].stored,
               "a segment is given back once, and whole");
  if (!keep_ && device_->wait_until_quiet()) {
    free_at(at);
  } else {
    segments_[at].stored = true;
    ++stored_;
  }
}

void CudaSegments::keep(bool keep) noexcept {
  keep_ = keep;
  if (!keep) reclaim();
}

void CudaSegments::reclaim() noexcept {
  if (stored_ == 0 || keep_ || !device_->wait_until_quiet()) return;
  for (size_t at = segments_.size(); at-- > 0;) {
    if (segments_[at].stored) free_at(at);
  }
}

Range CudaSegments::segment_of(Offset offset) const noexcept {
  const size_t after = position(offset + 1);
  if (after == 0) return {};
  const Range range = segments_[after - 1].range;
  return offset < range.end() ? range : Range{};
}

void CudaSegments::free_at(size_t position) noexcept {
  const Held gone = segments_[position];
  {
    const CudaDevice::Scope scope(*device_);
    const cuda::Result result = device_->driver().memory_free(gone.range.begin - shift_);
    if (result != cuda::kSuccess) device_->note_refusal("cuMemFree", result);
  }
  std::move(segments_.begin() + position + 1, segments_.end(), segments_.begin() + position);
  segments_.pop_back();
  stored_ -= gone.stored;
  held_ -= cost(gone.range.size);
  device_->note_removed({gone.range.begin - shift_, cost(gone.range.size)}, false);
  device_->note_given_back(cost(gone.range.size));
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Segments as the device hands them out (cuMemAlloc): plain memory, which other processes can be given a
// handle of and NICs can register, unlike memory that is mapped into reserved addresses. An offset is the
// device's own address, shifted where a heap has an arena as well.
//
// Before a segment goes back the device is waited for; where that cannot be, and while the segments are kept,
// it stays in a store, from where a later request of the same size gets it.
#pragma once

#include "memoir/arena/cuda_device.h"
#include "memoir/base/metadata.h"
#include "memoir/heap/segments.h"

namespace memoir {

class CudaSegments final : public Segments {
 public:
  /// `shift`: bytes between a segment's address and its offset.
  explicit CudaSegments(CudaDevice& device, Offset shift = 0) noexcept : device_(&device), shift_(shift) {}
  ~CudaSegments() override;  // gives everything back
  CudaSegments(const CudaSegments&) = delete;
  CudaSegments& operator=(const CudaSegments&) = delete;

  Offset take(Size size) noexcept override;
  void give_back(Range segment) noexcept override;
  Size held() const noexcept override { return held_; }

  /// While kept, nothing goes back: see CudaArena::keep.
  void keep(bool keep) noexcept;
  /// Gives back what is in the store, if that may be now.
  void reclaim() noexcept;
  /// The segment that this offset lies in; empty when there is none.
  Range segment_of(Offset offset) const noexcept;

  /// Calls `visit(Range)` for every segment that is held, those in the store too.
  template <class Visit>
  void for_each_segment(Visit visit) const {
    for (const Held& held : segments_) visit(held.range);
  }

 private:
  struct Held {
    Range range;
    bool stored = false;
  };
  /// The position of the first segment that begins at or after the offset.
  size_t position(Offset offset) const noexcept;
  void free_at(size_t position) noexcept;

  CudaDevice* device_;
  Offset shift_;
  MetadataArray<Held> segments_;  // by address; pools hold hundreds
  size_t stored_ = 0;
  Size held_ = 0;
  bool keep_ = false;
};

}  // namespace memoir

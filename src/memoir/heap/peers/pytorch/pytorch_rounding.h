// SPDX-License-Identifier: Apache-2.0
//
// Which sizes PyTorch's caching allocator uses: of a block for a request, and of a segment for a block.
//
//   asked          block                                  pool    segment
//   1 .. 1 MiB     a multiple of 512 bytes                small   2 MiB
//   .. 10 MiB      (or the next of n steps between        large   large_segment_size
//   from 10 MiB    two powers of two)                     large   a multiple of 2 MiB
#pragma once

#include <bit>

#include "memoir/heap/peers/pytorch/pytorch_options.h"

namespace memoir {

class PyTorchRounding {
 public:
  static constexpr Size kSmallestBlock = 512;
  static constexpr Size kLargestSmall = kMiB;
  static constexpr Size kSmallSegment = 2 * kMiB;
  static constexpr Size kOwnSegment = 10 * kMiB;  // requests from here on get segments of their own size
  static constexpr Size kSegmentRounding = 2 * kMiB;
  static constexpr Size kLargestRequest = Size{1} << 47;  // addresses of a process end there

  explicit PyTorchRounding(const PyTorchOptions& options) noexcept
      : large_segment_size_(options.large_segment_size) {
    for (size_t i = 0; i < PyTorchOptions::kSizeRanges; ++i) {
      divisions_[i] = options.divisions_for(Size{1} << (20 + i));
      any_divisions_ |= divisions_[i] > 1;
    }
  }

  /// Bytes of the block for a request of 1 to kLargestRequest bytes.
  Size block_size(Size asked) const noexcept {
    if (any_divisions_ && asked >= kSmallestBlock) [[unlikely]] {
      if (const Size size = step_up(asked); size != 0) return size;
    }
    return align_up(asked, kSmallestBlock);
  }
  /// Bytes of the segment to take for such a block.
  Size segment_size(Size block) const noexcept {
    if (is_small(block)) return kSmallSegment;
    const Size rounded = align_up(block, kSegmentRounding);
    return block < kOwnSegment && rounded < large_segment_size_ ? large_segment_size_ : rounded;
  }
  static bool is_small(Size block) noexcept { return block <= kLargestSmall; }

 private:
  /// The next of the steps between powers of two, 0 when there are none for this size.
  Size step_up(Size asked) const noexcept {
    const int log = static_cast<int>(std::bit_width(asked)) - 1;
    const int range = log < 20 ? 0 : log - 20;
    const Size divisions = divisions_[range < 16 ? range : 15];
    if (divisions <= 1 || asked <= kSmallestBlock * divisions) return 0;
    const Size step = (Size{1} << log) >> (std::bit_width(divisions) - 1);
    return align_up(asked, step);
  }

  std::array<Size, PyTorchOptions::kSizeRanges> divisions_{};
  Size large_segment_size_;
  bool any_divisions_ = false;
};

}  // namespace memoir

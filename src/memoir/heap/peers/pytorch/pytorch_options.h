// SPDX-License-Identifier: Apache-2.0
//
// The settings of PyTorch's CUDA caching allocator (torch 2.11 to 2.13), as options of memoir's PyTorchHeap
// and ExpandableHeap, and the text form in which people set them:
//
//   PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]
#pragma once

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>

#include "memoir/base/option.h"
#include "memoir/base/units.h"

namespace memoir {

struct PyTorchOptions {
  static constexpr Size kNoLimit = std::numeric_limits<Size>::max();
  static constexpr size_t kSizeRanges = 16;  // up to 2 MiB, 4 MiB, ... 32 GiB, and above
  static constexpr Size kAsForAll = std::numeric_limits<Size>::max();

  Size max_split_size = kNoLimit;
  Size max_non_split_rounding = 20 * kMiB;
  Size large_segment_size = 20 * kMiB;
  Size roundup_power2_divisions = 0;
  double garbage_collection_threshold = 0;
  double per_process_memory_fraction = 1;
  Size device_memory = 0;
  bool search_after_sync = false;
  bool ties_by_record = false;
  bool keep_under_mempool = false;

  /// Divisions of a range of sizes, where they differ from roundup_power2_divisions: range i holds the sizes
  /// of [2^(20+i), 2^(21+i)) bytes, the first also all below, the last also all above.
  std::array<Size, kSizeRanges> roundup_of_range = all_alike();
  /// What the text said of it: which of the two heaps to make.
  bool expandable_segments = false;

  static constexpr auto fields() {
    return std::tuple{
        OptionField{"max_split_size", &PyTorchOptions::max_split_size, Unit::kBytes,
                    "free blocks of this size or more are kept whole, for requests as large"},
        OptionField{"max_non_split_rounding", &PyTorchOptions::max_non_split_rounding, Unit::kBytes,
                    "a block kept whole serves requests that leave less than this of it unused"},
        OptionField{"large_segment_size", &PyTorchOptions::large_segment_size, Unit::kBytes,
                    "the segment taken for requests of 1 to 10 MiB; expandable: the unit of mapping"},
        OptionField{"roundup_power2_divisions", &PyTorchOptions::roundup_power2_divisions, Unit::kCount,
                    "sizes are rounded up to so many steps between powers of two; 0 or 1: to 512 bytes"},
        OptionField{"garbage_collection_threshold", &PyTorchOptions::garbage_collection_threshold,
                    Unit::kShare,
                    "share of the allowed memory above which old segments are given back; 0: never"},
        OptionField{"per_process_memory_fraction", &PyTorchOptions::per_process_memory_fraction, Unit::kShare,
                    "share of device_memory that may be taken; 1: all that the device gives"},
        OptionField{
            "device_memory", &PyTorchOptions::device_memory, Unit::kBytes,
            "bytes of the device: what the fraction is of, and an expandable area's addresses; 0: unknown"},
        OptionField{
            "search_after_sync", &PyTorchOptions::search_after_sync, Unit::kFlag,
            "searches again once pending frees have arrived, which PyTorch does not (its issue 189504)"},
        OptionField{
            "ties_by_record", &PyTorchOptions::ties_by_record, Unit::kFlag,
            "among blocks of one size takes that whose record is the oldest, as torch 2.12; else the lowest"},
        OptionField{"keep_under_mempool", &PyTorchOptions::keep_under_mempool, Unit::kFlag,
                    "gives nothing back while any private pool is allocated to, as up to torch 2.12"},
    };
  }

  /// Reads the text of PYTORCH_CUDA_ALLOC_CONF over the defaults, as torch does: the last of several settings
  /// of one key counts, numbers may have something behind them ("128MB"), keys of pinned host memory change
  /// nothing here. Throws memoir::Error for what torch refuses, and for separators it would silently take for
  /// others. Called when a heap is set up, never inside malloc: the one thing of this folder that throws.
  static PyTorchOptions parse(std::string_view text);
  /// The text that gives torch these options ("" for the defaults); what torch has no setting for is left
  /// out.
  std::string text() const;

  /// Divisions for a request of this size (> 0).
  Size divisions_for(Size size) const noexcept;
  /// Bytes that may be taken, kNoLimit when there is no limit.
  Size allowed_memory() const noexcept {
    return per_process_memory_fraction < 1 && device_memory != 0
               ? static_cast<Size>(per_process_memory_fraction * static_cast<double>(device_memory))
               : kNoLimit;
  }
  bool collects_garbage() const noexcept {
    return garbage_collection_threshold > 0 && allowed_memory() != kNoLimit;
  }

 private:
  static constexpr std::array<Size, kSizeRanges> all_alike() {
    std::array<Size, kSizeRanges> ranges{};
    ranges.fill(kAsForAll);
    return ranges;
  }
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// A device that counts: segments at ever new addresses, a cap, and how often it was called.
#pragma once

#include <algorithm>
#include <map>

#include "memoir/heap/segments.h"

namespace memoir {

class CountingDevice final : public Segments {
 public:
  /// What it hands out is rounded up to `unit` bytes, and at most `cap` bytes are held.
  explicit CountingDevice(Size cap = ~Size{0}, Size unit = 512) : cap_(cap), unit_(unit) {}

  Offset take(Size size) noexcept override {
    ++takes;
    if (size == 0 || size > cap_) return kNoOffset;
    const Size cost = align_up(size, unit_);
    if (cost > cap_ - held_) return kNoOffset;
    const Offset offset = next_;
    next_ += cost + unit_;  // never adjacent
    held_ += cost;
    most_held = std::max(most_held, held_);
    sizes_[offset] = size;
    return offset;
  }
  void give_back(Range segment) noexcept override {
    ++give_backs;
    const auto found = sizes_.find(segment.begin);
    if (found == sizes_.end() || found->second != segment.size) {
      wrong = true;  // not a whole segment
      return;
    }
    held_ -= align_up(segment.size, unit_);
    sizes_.erase(found);
  }
  Size held() const noexcept override { return held_; }

  void set_cap(Size cap) { cap_ = cap; }
  size_t segments() const { return sizes_.size(); }

  size_t takes = 0;
  size_t give_backs = 0;
  Size most_held = 0;
  bool wrong = false;

 private:
  Size cap_, unit_;
  Size held_ = 0;
  Offset next_ = 1 << 20;
  std::map<Offset, Size> sizes_;
};

}  // namespace memoir

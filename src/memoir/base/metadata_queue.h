// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/base/metadata.h"

namespace memoir {

/// First in, first out, in metadata memory: for queues on paths that must not call malloc. Not thread-safe.
template <class T>
class MetadataQueue {
 public:
  bool empty() const noexcept { return first_ == items_.size(); }
  size_t size() const noexcept { return items_.size() - first_; }
  T& front() noexcept { return items_[first_]; }
  T& back() noexcept { return items_.back(); }
  /// False when there is no metadata memory: nothing changed.
  bool push_back(const T& value) noexcept {
    if (items_.size() == items_.capacity() && first_ >= size()) {  // as many are gone as stay: they move up
      for (size_t i = first_; i < items_.size(); ++i) items_[i - first_] = items_[i];
      items_.resize_down(size());
      first_ = 0;
    }
    return items_.push_back(value);
  }
  void pop_front() noexcept {
    ++first_;
    if (!empty()) return;
    items_.clear();
    first_ = 0;
  }

 private:
  MetadataArray<T> items_;
  size_t first_ = 0;  // those before it are gone
};

}  // namespace memoir

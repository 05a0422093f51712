// SPDX-License-Identifier: Apache-2.0
//
// Memory for an allocator's own bookkeeping. It comes from mmap, never from malloc (which may be us), and is
// separate from the bytes that are handed out, so a heap works the same on host memory, on a device and on
// no memory at all.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "memoir/base/units.h"

namespace memoir {

/// Zeroed pages of at least `size` bytes, or nullptr. Thread-safe. Give them back with the same size.
void* map_metadata(Size size) noexcept;
void unmap_metadata(void* address, Size size) noexcept;
/// Grows (or moves) a mapping; the new part is zero. nullptr when the system has no memory: the old mapping
/// stands.
void* remap_metadata(void* address, Size old_size, Size new_size) noexcept;
/// Gives the memory of the whole pages in it back to the system; they are zero from now on. What the system
/// does not take (locked memory, a filter of system calls) is filled with zeros.
void forget_metadata(void* address, Size size) noexcept;

/// Whether pages that went back read as zeros. Emulators and sandboxes take madvise() for the hint that POSIX
/// says it is. Tried on pages of our own, until the system has taken some. Any thread.
bool gives_zero_pages() noexcept;
/// Gives whole pages of anonymous memory back. True: they went, and read as zeros. False: they hold what they
/// held, or zeros in a part. Any thread.
bool give_pages_back(void* begin, Size size) noexcept;

/// A growable array of trivially copyable T in metadata memory. Not thread-safe. A push that finds no memory
/// returns false and changes nothing.
template <class T>
class MetadataArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  MetadataArray() = default;
  ~MetadataArray() { unmap_metadata(data_, capacity_ * sizeof(T)); }
  MetadataArray(MetadataArray&& other) noexcept { swap(other); }
  MetadataArray& operator=(MetadataArray&& other) noexcept {
    swap(other);
    return *this;
  }
  MetadataArray(const MetadataArray&) = delete;
  MetadataArray& operator=(const MetadataArray&) = delete;

  size_t size() const noexcept { return size_; }
  size_t capacity() const noexcept { return capacity_; }
  bool empty() const noexcept { return size_ == 0; }
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  T& operator[](size_t index) noexcept { return data_[index]; }
  const T& operator[](size_t index) const noexcept { return data_[index]; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  T& back() noexcept { return data_[size_ - 1]; }

  bool reserve(size_t count) noexcept {
    if (count <= capacity_) return true;
    if (count > (~size_t{0} >> 1) / sizeof(T)) return false;
    const Size bytes = align_up(count * sizeof(T), 4 * kKiB);
    void* grown =
        data_ == nullptr ? map_metadata(bytes) : remap_metadata(data_, capacity_ * sizeof(T), bytes);
    if (grown == nullptr) return false;
    data_ = static_cast<T*>(grown);
    capacity_ = bytes / sizeof(T);
    return true;
  }
  bool push_back(const T& value) noexcept {
    if (size_ == capacity_) {
      const T copy = value;  // `value` may be one of ours
      if (!reserve(capacity_ == 0 ? 4 * kKiB / sizeof(T) + 1 : capacity_ * 2)) return false;
      data_[size_++] = copy;
      return true;
    }
    data_[size_++] = value;
    return true;
  }
  void pop_back() noexcept { --size_; }
  void clear() noexcept { size_ = 0; }
  /// Gives back the memory of elements that nobody looks at any more; its pages are zero from now on.
  void forget(size_t first, size_t end) noexcept {
    forget_metadata(data_ + first, (end - first) * sizeof(T));
  }
  void resize_down(size_t count) noexcept { size_ = count < size_ ? count : size_; }
  /// Sets the size to `count`, every element to `value`.
  bool assign(size_t count, const T& value) noexcept {
    if (!reserve(count)) return false;
    for (size_t i = 0; i < count; ++i) data_[i] = value;
    size_ = count;
    return true;
  }

 private:
  void swap(MetadataArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace memoir

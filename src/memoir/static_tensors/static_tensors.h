// SPDX-License-Identifier: Apache-2.0
//
// Tensors over host memory without malloc, for a tensor library to adopt: a fixed array of descriptors, a
// fixed array of reference-counted data buffers, and one pool (heap/plain/static_tensors_heap.h).
// Everything is secured when it is made, down to the pages; afterwards a new tensor costs tens of nanoseconds
// and the system is not asked.
//
//   tensors   | a: 1 | b: 2 | view of a: 1 | ...      references to a descriptor
//                 \      \     /
//   buffers     | 2 | ... 1                           references of descriptors to a buffer
//   pool      |  bytes of a  | bytes of b |  free |   given back when the last of them goes
//
// Not thread-safe: one per thread, or under the library's own lock. C++ here; in C, see
// static_tensors/c/memoir_static_tensors.h.
#pragma once

#include <cstddef>

#include "memoir/arena/host_arena.h"
#include "memoir/base/metadata.h"
#include "memoir/heap/plain/static_tensors_heap.h"

namespace memoir {

struct StaticTensorsSizes {
  Size pool = 64 * kMiB;  // bytes for the data of all tensors
  Size tensors = 1000;    // descriptors: most tensors at once, views included
  Size buffers = 1000;    // most data buffers at once
  Size alignment = 64;    // bytes: of every tensor's data, a power of two up to 4096
};

class StaticTensors {
 public:
  /// A descriptor. The library reads it, and changes nothing in it.
  struct Tensor {
    std::byte* data = nullptr;
    Size size = 0;                 // bytes as asked
    std::uint32_t buffer = 0;      // whose bytes they are
    std::uint32_t references = 0;  // 0: not in use; `buffer` is then the next one not in use
  };

  explicit StaticTensors(const StaticTensorsSizes& sizes = {}) noexcept;

  /// False when something could not be secured; why() says what. Then every tensor is refused.
  bool ok() const noexcept { return ready_; }

  /// A tensor of so many bytes (> 0), of undefined contents, with one reference; nullptr when it is refused.
  Tensor* create(Size size) noexcept;
  /// A tensor whose data are bytes [offset, offset + size) of those of `of`, which it keeps alive; nullptr
  /// when they are not, or there is no descriptor left.
  Tensor* view(const Tensor* of, Size offset, Size size) noexcept;
  /// One reference more; false for what is not a live tensor.
  bool retain(Tensor* tensor) noexcept;
  /// One reference less; the tensor ends with its last, and its bytes with the last tensor that has them.
  /// False for what is not a live tensor: nothing changed.
  bool release(Tensor* tensor) noexcept;

  /// Why the last tensor was refused, or why nothing could be secured: one line. Never nullptr.
  const char* why() const noexcept { return why_; }

  Size used() const noexcept { return heap_.used(); }                  // bytes of the pool, rounded up
  Size largest_free() const noexcept { return heap_.largest_free(); }  // bytes
  Size tensors() const noexcept { return live_tensors_; }              // live, views included

 private:
  struct Buffer {
    Offset offset = 0;
    std::uint32_t references = 0;  // of tensors; 0: not in use
    std::uint32_t next = 0;        // of those not in use
  };

  Tensor* refuse(const char* why) noexcept {
    why_ = why;
    return nullptr;
  }
  bool is_live(const Tensor* tensor) const noexcept;
  Tensor* take(std::uint32_t buffer, std::byte* data, Size size) noexcept;

  HostArena arena_;
  StaticTensorsHeap heap_;
  MetadataArray<Tensor> tensors_;  // [0] stands for none
  MetadataArray<Buffer> buffers_;  // [0] stands for none
  std::uint32_t free_tensor_ = 0;
  std::uint32_t free_buffer_ = 0;
  Size live_tensors_ = 0;
  const char* why_ = "nothing was refused";
  bool ready_ = false;
};

}  // namespace memoir

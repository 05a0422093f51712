// SPDX-License-Identifier: Apache-2.0
#include "memoir/static_tensors/static_tensors.h"

namespace memoir {

namespace {

constexpr const char* kNoDescriptor = "every tensor descriptor is in use: release some, or make more of them";
constexpr const char* kNoView = "a view lies within the bytes of a live tensor, and has at least one";
constexpr Size kMost = Size{1} << 30;  // descriptors and buffers: they have 32-bit names
constexpr Size kPage = 4 * kKiB;       // bytes: what the pool itself is aligned to

/// The sizes as an arena can have them; 0 bytes when they cannot be at all.
Size capacity_of(const StaticTensorsSizes& sizes) noexcept {
  return sizes.pool <= ~Size{0} / 2 ? align_up(sizes.pool, kPage) : 0;
}

}  // namespace

StaticTensors::StaticTensors(const StaticTensorsSizes& sizes) noexcept
    : arena_(capacity_of(sizes), {.prefault = true}),
      heap_(arena_, {.pool = sizes.pool, .buffers = sizes.buffers, .alignment = sizes.alignment}) {
  if (!arena_.ok()) {
    why_ = "the system has no room for a pool of this size: ask for a smaller one";
    return;
  }
  if (!heap_.ok()) {
    why_ = StaticTensorsHeap::describe(heap_.refusal());
    return;
  }
  if (sizes.tensors == 0 || sizes.tensors > kMost || sizes.alignment > kPage) {
    why_ = "the tensors are at least one and at most 2^30, the alignment is at most 4096";
    return;
  }
  if (!tensors_.assign(sizes.tensors + 1, {}) || !buffers_.assign(sizes.buffers + 1, {})) {
    why_ = "no memory for the descriptors: ask for fewer";
    return;
  }
  for (auto i = static_cast<std::uint32_t>(sizes.tensors); i > 0; --i) {
    tensors_[i].buffer = free_tensor_;
    free_tensor_ = i;
  }
  for (auto i = static_cast<std::uint32_t>(sizes.buffers); i > 0; --i) {
    buffers_[i].next = free_buffer_;
    free_buffer_ = i;
  }
  ready_ = true;
}

StaticTensors::Tensor* StaticTensors::create(Size size) noexcept {
  if (!ready_) return nullptr;  // why() keeps saying what was not there
  if (free_tensor_ == 0) return refuse(kNoDescriptor);
  const Offset offset = heap_.allocate({size});
  if (offset == kNoOffset) return refuse(StaticTensorsHeap::describe(heap_.refusal()));
  const std::uint32_t index = free_buffer_;  // the heap has as many, so there is one
  Buffer& buffer = buffers_[index];
  free_buffer_ = buffer.next;
  buffer.offset = offset;
  return take(index, arena_.base() + offset, size);
}

StaticTensors::Tensor* StaticTensors::view(const Tensor* of, Size offset, Size size) noexcept {
  if (!ready_) return nullptr;
  if (!is_live(of) || size == 0 || offset > of->size || size > of->size - offset) return refuse(kNoView);
  if (free_tensor_ == 0) return refuse(kNoDescriptor);
  return take(of->buffer, of->data + offset, size);
}

bool StaticTensors::retain(Tensor* tensor) noexcept {
  if (!is_live(tensor)) return false;
  ++tensor->references;
  return true;
}

bool StaticTensors::release(Tensor* tensor) noexcept {
  if (!is_live(tensor)) return false;
  if (--tensor->references != 0) return true;
  const std::uint32_t index = tensor->buffer;
  tensor->buffer = free_tensor_;
  free_tensor_ = static_cast<std::uint32_t>(tensor - tensors_.data());
  --live_tensors_;
  Buffer& buffer = buffers_[index];
  if (--buffer.references != 0) return true;
  heap_.free(buffer.offset);
  buffer.next = free_buffer_;
  free_buffer_ = index;
  return true;
}

/// True for one of ours that is in use: a stray pointer is seen, as long as it is read within the program.
bool StaticTensors::is_live(const Tensor* tensor) const noexcept {
  if (tensor <= tensors_.data() || tensor >= tensors_.end()) return false;
  const auto distance =
      reinterpret_cast<const std::byte*>(tensor) - reinterpret_cast<const std::byte*>(tensors_.data());
  return distance % sizeof(Tensor) == 0 && tensor->references != 0;
}

StaticTensors::Tensor* StaticTensors::take(std::uint32_t buffer, std::byte* data, Size size) noexcept {
  Tensor& tensor = tensors_[free_tensor_];
  free_tensor_ = tensor.buffer;
  tensor = {.data = data, .size = size, .buffer = buffer, .references = 1};
  ++buffers_[buffer].references;
  ++live_tensors_;
  return &tensor;
}

}  // namespace memoir

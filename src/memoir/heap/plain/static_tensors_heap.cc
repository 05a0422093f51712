// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/plain/static_tensors_heap.h"

namespace memoir {

StaticTensorsHeap::StaticTensorsHeap(Arena& arena, const StaticTensorsOptions& options) noexcept
    : alignment_(options.alignment), most_(options.buffers) {
  refusal_ = Refusal::kOptions;
  const Size asked = options.pool == 0 ? arena.capacity() : options.pool;
  if (!is_power_of_two(alignment_) || asked > arena.capacity() || most_ == 0 || most_ > kMostBuffers) return;
  const Size pool = align_down(asked, alignment_);
  if (pool == 0) return;
  refusal_ = Refusal::kNotSecured;
  // At most one free block more than there are live ones: no two free blocks touch.
  if (!buffers_.start(2 * most_ + 1) || !table_.reserve(most_) || !arena.commit({0, pool})) return;
  pool_ = pool;
  free_.insert(buffers_.data(), buffers_.add({0, pool}));
  refusal_ = Refusal::kNone;
  ready_ = true;
}

Offset StaticTensorsHeap::allocate(const Request& request) noexcept {
  if (!ready_) return kNoOffset;  // refusal() keeps saying why
  if (request.size == 0 || !is_power_of_two(request.alignment) || request.alignment > alignment_) {
    return refuse(Refusal::kRequest);
  }
  if (request.size > pool_ - used_) return refuse(Refusal::kFull);
  if (table_.size() == most_) return refuse(Refusal::kBuffers);
  const Size size = align_up(request.size, alignment_);
  const Index index = free_.lower_bound(buffers_.data(), {size, 0});
  if (index == 0) return refuse(Refusal::kFragmented);
  free_.erase(buffers_.data(), index);
  if (buffers_[index].range.size - size >= alignment_) {
    free_.insert(buffers_.data(), buffers_.cut(index, size));
  }
  Buffer& buffer = buffers_[index];
  buffer.asked = request.size;
  table_.insert(buffer.range.begin, index);
  live_ += request.size;
  used_ += buffer.range.size;
  return buffer.range.begin;
}

bool StaticTensorsHeap::free(Offset offset) noexcept {
  Index index = table_.take(offset);
  if (index == 0) return false;
  live_ -= buffers_[index].asked;
  used_ -= buffers_[index].range.size;
  buffers_[index].asked = 0;
  if (const Index after = buffers_[index].after; after != 0 && buffers_[after].asked == 0) {
    free_.erase(buffers_.data(), after);
    buffers_.drop(buffers_.join_after(index));
  }
  if (const Index before = buffers_[index].before; before != 0 && buffers_[before].asked == 0) {
    free_.erase(buffers_.data(), before);
    buffers_.drop(buffers_.join_after(before));
    index = before;
  }
  free_.insert(buffers_.data(), index);
  return true;
}

Size StaticTensorsHeap::size_of(Offset offset) const noexcept {
  const Index index = table_.find(offset);
  return index == 0 ? 0 : buffers_[index].range.size;
}

Size StaticTensorsHeap::largest_free() const noexcept {
  const Index index = ready_ ? free_.last(buffers_.data()) : 0;
  return index == 0 ? 0 : buffers_[index].range.size;
}

const char* StaticTensorsHeap::describe(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kNone:
      return "nothing was refused";
    case Refusal::kNotSecured:
      return "the pool's memory could not be allocated at the start: ask for a smaller pool";
    case Refusal::kOptions:
      return "the pool cannot be made so: the alignment is a power of two, the pool at least that and not "
             "larger "
             "than the arena, the buffers at least one and at most 2^30";
    case Refusal::kRequest:
      return "a request is of at least one byte, and no more strictly aligned than the pool";
    case Refusal::kBuffers:
      return "every buffer is in use: free some, or make the pool with more buffers";
    case Refusal::kFull:
      return "fewer bytes are free than were asked for: free some, or make a larger pool";
    case Refusal::kFragmented:
      return "enough bytes are free, but not in one block: make a larger pool";
  }
  return "";
}

}  // namespace memoir

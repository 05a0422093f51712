// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/llama/llama_heap.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr Size kMost = Size{1} << 60;

bool is_small(Size size, Size alignment) noexcept {
  return size <= LineSpans::kLargest && alignment <= LineSpans::kStrictest;
}
}  // namespace

Offset LlamaHeap::allocate(const Request& request) noexcept {
  if (request.size == 0 || request.size > kMost) return kNoOffset;
  if (!is_power_of_two(request.alignment) || request.alignment > kMost || !objects_.reserve_one())
    return kNoOffset;
  const size_t lifetime = std::min<size_t>(request.lifetime, WallClasses::kNever);
  const bool small = is_small(request.size, request.alignment);
  const Offset offset = small ? spans_.allocate(request.size, request.alignment, lifetime, request.thread)
                              : pages_.allocate(align_up(request.size, LlamaPages::kBlock),
                                                std::max(request.alignment, LlamaPages::kBlock), lifetime);
  if (offset != kNoOffset) objects_.insert(offset, {request.size});
  return offset;
}

bool LlamaHeap::free(Offset offset) noexcept {
  const Size size = objects_.take(offset).size;
  if (size == 0) return false;
  if (!spans_.free({offset, size})) pages_.free({offset, align_up(size, LlamaPages::kBlock)});
  return true;
}

Tick LlamaHeap::tick(Tick now) noexcept {
  pages_.set_time(now);
  for (LlamaPages::PageIndex page; (page = pages_.expire_one()) != LlamaPages::kNoPage;)
    spans_.list_spans(page);
  return now + 1;
}

}  // namespace memoir

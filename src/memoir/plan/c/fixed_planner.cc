// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/c/fixed_planner.h"

#include <algorithm>

#include "memoir/plan/align.h"

namespace memoir {
namespace {

std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~std::uint64_t{0} : product;
}

}  // namespace

FixedPlanner::FixedPlanner(std::size_t most)
    : most_(most),
      order_(std::make_unique<std::uint32_t[]>(most)),
      placed_(std::make_unique<std::uint32_t[]>(most)),
      tried_(std::make_unique<Offset[]>(most)),
      keys_(std::make_unique<std::uint64_t[]>(most)) {}

Size FixedPlanner::plan(const BufferArrays& buffers, Offset* offsets) noexcept {
  std::size_t sized = 0;
  for (std::size_t i = 0; i < buffers.count; ++i) {
    offsets[i] = 0;
    if (buffers.size[i] != 0) order_[sized++] = static_cast<std::uint32_t>(i);
  }
  if (sized == 0) return 0;
  Size best = ~Size{0};
  for (int key = 0; key < 3; ++key) {
    for (std::size_t k = 0; k < sized; ++k) {
      const std::uint32_t i = order_[k];
      const std::uint64_t ticks = buffers.upper[i] - buffers.lower[i];
      keys_[i] = key == 0 ? buffers.size[i] : key == 1 ? saturated_product(buffers.size[i], ticks) : ticks;
    }
    std::sort(order_.get(), order_.get() + sized, [&](std::uint32_t a, std::uint32_t b) {
      if (keys_[a] != keys_[b]) return keys_[a] > keys_[b];
      return buffers.size[a] != buffers.size[b] ? buffers.size[a] > buffers.size[b] : a < b;
    });
    const Size arena = fit(buffers, sized);
    if (arena >= best) continue;
    best = arena;
    for (std::size_t k = 0; k < sized; ++k) offsets[order_[k]] = tried_[order_[k]];
  }
  return best;
}

/// Each into the lowest gap among those placed that live with it.
Size FixedPlanner::fit(const BufferArrays& buffers, std::size_t sized) noexcept {
  Size arena = 0;
  for (std::size_t k = 0; k < sized; ++k) {
    const std::uint32_t i = order_[k];
    const Size size = buffers.size[i], alignment = buffers.alignment_of(i);
    Offset at = 0;
    for (std::size_t p = 0; p < k; ++p) {
      const std::uint32_t other = placed_[p];
      if (buffers.lower[other] >= buffers.upper[i] || buffers.lower[i] >= buffers.upper[other]) continue;
      if (tried_[other] >= at + size) break;  // those that follow begin no lower
      at = std::max(at, align_to(tried_[other] + buffers.size[other], alignment));
    }
    tried_[i] = at;
    arena = std::max(arena, at + size);
    std::size_t place = k;
    for (; place > 0 && tried_[placed_[place - 1]] > at; --place) placed_[place] = placed_[place - 1];
    placed_[place] = i;
  }
  return arena;
}

}  // namespace memoir

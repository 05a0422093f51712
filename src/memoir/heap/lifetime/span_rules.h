// SPDX-License-Identifier: Apache-2.0
//
// What memoir's malloc and its simulation decide alike about spans: when one is offered again, which empty
// ones a thread keeps, what of them leaves page by page. The malloc has its lists inside the blocks and the
// simulation apart, so each walks its own; what they decide by is written here, once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir::span_rules {

inline constexpr Size kPage = 4 * kKiB;
inline constexpr Size kLargestSpan = 512 * kKiB;  // above, a block is a mapping of its own
inline constexpr Size kGrowth = 32 * kMiB;        // the arena grows by so much, where it can
inline constexpr unsigned kSparedOf = 32;         // of regions that could be huge, one keeps small pages

// --- blocks of a span ---

/// A full span is offered again when so many of its blocks are free. With fewer, each allocation would go to
/// another span.
constexpr int blocks_to_offer(int blocks) noexcept { return std::max(blocks < 8 ? 1 : 2, blocks / 8); }

/// So many of the `left` blocks that were never handed out are listed at a time: a page of them.
constexpr size_t blocks_to_list(Size size, size_t left) noexcept {
  return std::min<size_t>(std::max<Size>(kPage / size, 1), left);
}

// --- what a thread keeps ---

inline constexpr size_t kMostKeptSlots = 8;     // of an empty span of blocks
inline constexpr size_t kMostSingleSlots = 64;  // of a span that was one block
inline constexpr int kLooks = 4;                // at kept spans, for one that was cut for the class

/// Bytes of empty spans for each thread. All together: half of what is held, or a few MiB, which a small heap
/// does not give back anyway.
constexpr Size most_kept(Size held, Size threads) noexcept {
  constexpr Size kLeast = 64 * kKiB, kMost = 4 * kMiB, kFew = 8 * kMiB;
  return std::clamp(std::max(held / 2, kFew) / std::max<Size>(threads, 1), kLeast, kMost);
}

/// Of freed spans of one block (bit i of `lengths`: one of i + 1 slots), the length that serves so many
/// slots: up to a quarter more. 0: none does.
constexpr size_t single_to_take(std::uint64_t lengths, size_t slots) noexcept {
  if (slots > kMostSingleSlots) return 0;
  const std::uint64_t longer = lengths >> (slots - 1);
  const auto more = static_cast<size_t>(std::countr_zero(longer));
  return longer == 0 || more > slots / 4 ? 0 : slots + more;
}

/// A thread that took its slow path in none of so many rounds keeps no spans; where there are very many
/// threads, sooner. Before, in any round in which it rested, it gives up those that it keeps.
constexpr std::uint32_t long_rest(bool crowded) noexcept { return crowded ? 2 : 10; }

// --- frees of other threads ---

/// A thread holds blocks of others' spans back, to hand over several at once: in a table by the span's first
/// slot, so many of a span at most. Blocks of kHeldBytes are handed over one by one.
inline constexpr size_t kHeldSpans = 64, kFewHeldSpans = 8;  // few: where there are very many threads
inline constexpr std::uint32_t kHeldBlocks = 32;
inline constexpr Size kHeldBytes = 8 * kKiB;
constexpr size_t held_place(size_t slot, bool crowded) noexcept {
  return slot * 0x9e3779b1u >> 16 & ((crowded ? kFewHeldSpans : kHeldSpans) - 1);
}
constexpr bool holds_enough(std::uint64_t blocks, Size size) noexcept {
  return blocks >= kHeldBlocks || blocks * size >= kHeldBytes;
}
/// Its owner hears of a span when so many of its blocks were handed over.
constexpr std::uint32_t blocks_to_tell(int blocks) noexcept {
  return static_cast<std::uint32_t>(std::max(1, blocks / 8));
}

// --- what a thread has allocated ---

inline constexpr Size kCounted = 16;  // bytes: sizes are counted in multiples of it
/// Bytes that the others do not know of yet: a line that all threads write to is slow.
inline constexpr Size kCountedTogether = 256 * kKiB, kMostUncounted = kMiB;
/// Of a span of one block no more than this counts towards the next sample: else nearly each would be one,
/// and a sample costs more than the block.
inline constexpr Size kMostCounted = 16 * kKiB;

inline constexpr size_t kBatch = 64;  // spans of one thread that are stripped while it is kept out

// --- pages inside a span: bit i of a mask is page i ---

/// The pages that bytes [begin, begin + size) of a span touch.
constexpr std::uint64_t pages_of(Size begin, Size size) noexcept {
  const Size low = begin / kPage, high = (begin + size - 1) / kPage;
  return (~std::uint64_t{0} >> (63 - (high - low))) << low;
}

/// A span of `bytes` with blocks of `size`, of which the first `linked` were handed out or listed once.
struct Shape {
  Size bytes = 0, size = 0;
  size_t linked = 0;
};

/// The pages without used blocks. `gone`: those that no listed block touches; is_free(i): block i is listed.
template <class IsFree>
std::uint64_t unused_pages(const Shape& span, std::uint64_t gone, IsFree is_free) noexcept {
  std::uint64_t touched = 0;
  for (size_t i = 0; i < span.linked; ++i) {
    const std::uint64_t pages = pages_of(i * span.size, span.size);
    if (!is_free(i) && (pages & gone) == 0) touched |= pages;
  }
  return pages_of(0, span.bytes) & ~touched;
}

/// Calls list(i) for each listed block that touches none of the pages `gone`, the last one first.
template <class IsFree, class List>
void list_the_rest(const Shape& span, std::uint64_t gone, IsFree is_free, List list) noexcept {
  for (size_t i = span.linked; i-- > 0;) {
    if (is_free(i) && (pages_of(i * span.size, span.size) & gone) == 0) list(i);
  }
}

/// Calls list(i) for each block that can be listed again since `page` is back, and that touches none of the
/// pages still `gone`, the last one first.
template <class List>
void list_those_on(const Shape& span, Size page, std::uint64_t gone, List list) noexcept {
  if (span.linked == 0) return;
  const Size last = std::min<Size>((page * kPage + kPage - 1) / span.size, span.linked - Size{1});
  for (Size i = last + 1; i-- > page * kPage / span.size;) {
    if ((pages_of(i * span.size, span.size) & gone) == 0) list(i);
  }
}

}  // namespace memoir::span_rules

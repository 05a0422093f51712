// SPDX-License-Identifier: Apache-2.0
//
// The lists of free blocks. A block's first word leads to the next one. In the checked build
// (libmemoir_malloc_secure.so, MEMOIR_MALLOC_SECURE) the words of a free block are
//
//   first    bytes of (next ^ block ^ key), the highest first: what runs into them changes the high ones
//   second   block ^ another key: the mark, which only a free block has
//
// and both are zero in a block that is handed out. Whoever follows a link looks at the mark and at whether
// the next block lies within a span's length; whether it is the start of a free block its own mark says,
// before it is handed out.
#pragma once

#include <array>
#include <cstdint>

#include "memoir/malloc/blocks/address_map.h"
#include "memoir/malloc/blocks/checked.h"
#include "memoir/malloc/blocks/misuse.h"
#include "memoir/malloc/blocks/span.h"

namespace memoir::malloc_::free_list {

/// On a page of their own, which is read-only once they are chosen.
struct alignas(4096) Keys {
  std::uintptr_t link = 0, mark = 0;
  std::uintptr_t shift = 0;  // of the arena
};
inline constinit Keys keys;

/// Of the checked build: fills `keys` from the system's random bytes, once, before the first block.
void choose_keys() noexcept;
/// Of the checked build: links `count` <= 256 blocks of `size` bytes that lie next to each other, in a random
/// order; the first of the list.
void* link_shuffled(char* begin, Size size, size_t count) noexcept;

[[gnu::always_inline]] inline bool is_marked(const void* block) noexcept {
  return static_cast<const std::uintptr_t*>(block)[1] ==
         (reinterpret_cast<std::uintptr_t>(block) ^ keys.mark);
}

/// Puts the block before `next`, which may be null.
[[gnu::always_inline]] inline void link(void* block, void* next) noexcept {
  if constexpr (kChecked) {
    const auto at = reinterpret_cast<std::uintptr_t>(block);
    auto* const words = static_cast<std::uintptr_t*>(block);
    words[0] = __builtin_bswap64(reinterpret_cast<std::uintptr_t>(next) ^ at ^ keys.link);
    words[1] = at ^ keys.mark;
  } else {
    link_of(block) = next;
  }
}

/// The block after this one in a list; null at its end.
[[gnu::always_inline]] inline void* next_of(void* block) noexcept {
  if constexpr (kChecked) {
    constexpr Size kLongest = size_classes::kSlot * 64;  // of a span
    const auto at = reinterpret_cast<std::uintptr_t>(block);
    const std::uintptr_t next = __builtin_bswap64(*static_cast<std::uintptr_t*>(block)) ^ at ^ keys.link;
    if (!is_marked(block)) [[unlikely]]
      damaged(block);
    if (next - at + kLongest >= 2 * kLongest) [[unlikely]] {
      if (next != 0) damaged(block);
    }
    return reinterpret_cast<void*>(next);
  } else {
    return link_of(block);
  }
}

/// The same of a block that leaves its list, to be handed out.
[[gnu::always_inline]] inline void* take(void* block) noexcept {
  void* const next = next_of(block);
  if constexpr (kChecked) {
    auto* const words = static_cast<std::uintptr_t*>(block);
    words[0] = words[1] = 0;
  }
  return next;
}

inline void* last_of(const Span* span, void* first) noexcept {
  void* last = first;
  size_t steps = 0;
  while (void* const next = next_of(last)) {
    last = next;
    if (kChecked && ++steps > span->blocks) damaged(last);  // a ring
  }
  return last;
}

// For an offset below 2^20, offset * kReciprocals[class] is (offset / size) * 2^64 plus what is below
// kReciprocals[class] where `size` divides the offset, and nowhere else.
inline constexpr auto kReciprocals = [] {
  std::array<std::uint64_t, size_classes::kCount> table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = ~std::uint64_t{0} / size_classes::kTables.size[i] + 1;
  return table;
}();

/// Whether pages were given back that the block touches: then it is free, and without a mark.
[[gnu::noinline]] inline bool is_gone(const Span* span, Size into) noexcept {
  const Size last = into + size_classes::kTables.size[span->size_class] - 1;
  const Size low = into / (4 * kKiB), high = last / (4 * kKiB);
  return (span->gone & (~std::uint64_t{0} >> (63 - (high - low))) << low) != 0;
}

/// Ends the program unless `block`, `into` bytes after the start of its span, which is divided into blocks,
/// is one that was handed out, of at least `asked` bytes.
[[gnu::always_inline]] inline void check_used(const char* call, const Span* span, const void* block,
                                              Size into, Size asked = 0) noexcept {
  const std::uint64_t reciprocal = kReciprocals[span->size_class];
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(into) * reciprocal;
  if (static_cast<std::uint64_t>(product) >= reciprocal || (product >> 64) >= span->linked) [[unlikely]]
    misused(call, block, "not the start of a block that was handed out");
  if (is_marked(block)) [[unlikely]]
    misused(call, block, "freed already");
  if (span->gone != 0) [[unlikely]] {
    if (is_gone(span, into)) misused(call, block, "freed already");
  }
  if (asked > size_classes::kTables.size[span->size_class]) [[unlikely]]
    misused(call, block, "smaller than the size that its free names");
}

}  // namespace memoir::malloc_::free_list

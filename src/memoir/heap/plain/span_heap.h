// SPDX-License-Identifier: Apache-2.0
//
// The plain heap, the baseline of every table: address-ordered best fit with immediate coalescing (Knuth, The
// Art of Computer Programming 1, 2.5; "best fit, address order" in Wilson et al., Dynamic Storage Allocation,
// 1995). It remembers nothing.
//
//   | live | free    | live | free            |     spans cover the arena, in the order of their addresses;
//      ^      no two free spans touch                 each knows both its neighbours
//
// A request takes the lowest addresses of the smallest free span that holds it, and the lowest such span when
// sizes are equal. Sizes are rounded up to their alignment, to 64 bytes at most. Allocation and free take
// O(log n) of n spans: a span is in one of two trees, the free ones by size and offset, the live ones by
// offset. (A request aligned more strictly than the free spans are may look at several of them.) Memory is
// committed as objects need it, and given back by trim().
#pragma once

#include "memoir/arena/arena.h"
#include "memoir/base/metadata.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/treap.h"

namespace memoir {

class SpanHeap final : public Heap {
 public:
  /// Works in the whole of `arena`, which the caller keeps alive and leaves to this heap.
  explicit SpanHeap(Arena& arena) noexcept;

  /// False when there was no metadata memory; then every request gets kNoOffset.
  bool ok() const noexcept { return !spans_.empty(); }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  void trim() noexcept override;
  Size live() const noexcept override { return live_; }

  /// Bytes of the largest free span: the largest request of alignment 1 that can be placed.
  Size largest_free() const noexcept;

 private:
  using Index = std::uint32_t;  // of a span; 0 is none
  struct Span {
    Range range;
    Size asked = 0;      // bytes that the live object asked for; 0 when free
    Size committed = 0;  // bytes from the span's begin that are known to be committed
    Index before = 0;    // neighbours by address
    Index after = 0;
    Index left = 0;  // children in the tree that the span is in
    Index right = 0;
    std::uint32_t priority = 0;

    bool is_live() const noexcept { return asked != 0; }
  };
  struct Key {  // of a tree; both trees have the same form
    Size size;  // 0 in the tree of live spans
    Offset begin;
    auto operator<=>(const Key&) const = default;
  };

  static Key key_of(const Span& span) noexcept {
    return {span.is_live() ? 0 : span.range.size, span.range.begin};
  }
  using Tree = Treap<Span, &SpanHeap::key_of>;

  void insert(Index& root, Index index) noexcept { Tree::insert(spans_.data(), root, index); }
  void erase(Index& root, Index index) noexcept { Tree::erase(spans_.data(), root, index); }
  Index lower_bound(Index root, const Key& key) const noexcept {
    return Tree::lower_bound(spans_.data(), root, key);
  }

  Index find_free(Size size, Size alignment) const noexcept;
  Index find_live(Offset offset) const noexcept;
  Index split_span(Index index, Size size) noexcept;
  Index absorb_after(Index index) noexcept;
  bool commit(Index index, Size skipped, Size size) noexcept;
  bool reserve_records() noexcept;
  Index take_record() noexcept;

  Arena* arena_;
  MetadataArray<Span> spans_;  // [0] stands for none
  Index unused_ = 0;           // records of spans that were absorbed, linked by `after`
  Index free_root_ = 0;
  Index live_root_ = 0;
  Size live_ = 0;
};

}  // namespace memoir

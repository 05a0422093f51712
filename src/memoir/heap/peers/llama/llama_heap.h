// SPDX-License-Identifier: Apache-2.0
//
// The heap of the LLAMA paper: objects lie with others that are expected to live about as long, so that pages
// of 2 MiB become empty as a whole. Both of its levels are here: line_spans.h for objects below 8 KiB with an
// allocator for each thread number and class, and llama_pages.h for blocks and what is larger.
//
// A request carries its class (predict/wall_classes.h); one that carries none is taken to be never freed,
// since predicting too long is easier to bear than too short. Time comes by tick().
#pragma once

#include "memoir/heap/heap.h"
#include "memoir/heap/index/live_objects.h"
#include "memoir/heap/peers/llama/line_spans.h"
#include "memoir/heap/peers/llama/llama_pages.h"

namespace memoir {

class LlamaHeap final : public Heap {
 public:
  /// The arena is kept alive by the caller, and nobody else uses it.
  explicit LlamaHeap(Arena& arena, const LlamaOptions& options = {}) noexcept
      : pages_(arena, options), spans_(pages_) {}

  bool ok() const noexcept { return true; }
  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override { return objects_.size_of(offset); }
  void trim() noexcept override { spans_.trim(); }
  /// It asks for every step of the clock: frees have times, too.
  Tick tick(Tick now) noexcept override;
  Size live() const noexcept override { return objects_.live(); }

  const LlamaPages& pages() const noexcept { return pages_; }
  const LineSpans& spans() const noexcept { return spans_; }

 private:
  LlamaPages pages_;
  LineSpans spans_;
  LiveObjects<> objects_;
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// The observer of Mode::kEverything. An observer has these functions; the hooks (malloc_hooks.cc) call them
// around the real ones, each with the place that the program called from.
#pragma once

#include "memoir/record/preload/control.h"
#include "memoir/record/preload/real.h"

namespace memoir::record {

struct Everything {
  using Entry = stacks::StackWalker::Entry;

  /// After the real call, which did give memory.
  static void allocated(void* block, std::size_t size, unsigned alignment_log2, Family family,
                        const Entry& entry) noexcept {
    if (ThreadRecord* const thread = own_record()) [[likely]] {
      recorder.allocated(*thread, block, size, alignment_log2, family, entry);
      if (thread_state.ended) [[unlikely]]
        release_late();
    }
  }
  static void not_allocated(std::size_t) noexcept {}
  static void modules_changed() noexcept { recorder.modules_changed(thread_state.record); }
  /// Before the real call. `block` is not null.
  static void freed(void* block) noexcept {
    if (ThreadRecord* const thread = own_record()) [[likely]] {
      recorder.freed(*thread, block);
      if (thread_state.ended) [[unlikely]]
        release_late();
    }
  }
  /// Around a realloc of a block, to a size that is not 0.
  static void* reallocated(void* block, std::size_t size, const Entry& entry) noexcept {
    ThreadRecord* const thread = own_record();
    if (thread == nullptr) return real.realloc(block, size);
    BlockEncoder::Freed freed;
    const bool written = recorder.freed(*thread, block, true, &freed);
    void* const moved = real.realloc(block, size);
    if (moved != nullptr) recorder.allocated(*thread, moved, size, 4, Family::kMalloc, entry, true);
    else if (written) recorder.undo(*thread, freed, block, real.malloc_usable_size(block), entry);
    if (thread_state.ended) [[unlikely]]
      release_late();
    return moved;
  }
};

}  // namespace memoir::record

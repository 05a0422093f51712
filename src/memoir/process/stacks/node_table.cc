// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/node_table.h"

#include <sys/mman.h>

#include "memoir/base/metadata.h"
#include "memoir/base/pause.h"

namespace memoir::stacks {

bool NodeTable::start(unsigned slots_log2) noexcept {
  if (slots_ != nullptr) return true;
  slots_ = static_cast<Slot*>(map_metadata((std::size_t{1} << slots_log2) * sizeof(Slot)));
  if (slots_ == nullptr) return false;
  shift_ = 32 - slots_log2;
  mask_ = (std::size_t{1} << slots_log2) - 1;
  return true;
}

void NodeTable::forget() noexcept {
  used_.store(0, std::memory_order_relaxed);
  // Whoever finds a slot whose first word is gone finds nothing: it is emptied before the second.
  for (std::size_t i = 0; i <= mask_; ++i) {
    slots_[i].first.store(0, std::memory_order_release);
    slots_[i].second.store(0, std::memory_order_release);
  }
}

void NodeTable::clear() noexcept {
  if (slots_ == nullptr) return;
  forget_metadata(slots_, (mask_ + 1) * sizeof(Slot));
  used_.store(0, std::memory_order_relaxed);
  next_.store(1, std::memory_order_relaxed);
}

NodeTable::Found NodeTable::intern_slowly(NodeId caller, std::uint32_t path, Frame frame) noexcept {
  constexpr unsigned kMostSteps = 64;
  const std::uint64_t first = frame << 16 | (caller & 0xffff);
  const std::uint64_t upper = static_cast<std::uint64_t>(caller >> 16) << 32;
  if (used_.load(std::memory_order_relaxed) > mask_ / 4 * 3) forget();
  std::size_t index = path >> shift_;
  for (unsigned step = 0; step < kMostSteps; ++step, index = (index + 1) & mask_) {
    Slot& slot = slots_[index];
    std::uint64_t seen = slot.first.load(std::memory_order_acquire);
    if (seen == 0) {
      if (slot.first.compare_exchange_strong(seen, first, std::memory_order_acq_rel)) {
        const NodeId node = next_.fetch_add(1, std::memory_order_relaxed);
        used_.fetch_add(1, std::memory_order_relaxed);
        slot.second.store(upper | node, std::memory_order_release);
        return {node, true};
      }
    }
    if (seen != first) continue;
    // Its owner fills it within a few instructions. Where it was stopped between the two, we take another
    // slot.
    for (unsigned spin = 0; spin < 100; ++spin) {
      const std::uint64_t second = slot.second.load(std::memory_order_acquire);
      if (second == 0) {
        pause_processor();
        continue;
      }
      if ((second & ~std::uint64_t{0xffffffff}) == upper &&
          slot.first.load(std::memory_order_relaxed) == first)
        return {static_cast<NodeId>(second), false};
      break;
    }
  }
  // No room nearby: a number that is not remembered.
  return {next_.fetch_add(1, std::memory_order_relaxed), true};
}

}  // namespace memoir::stacks

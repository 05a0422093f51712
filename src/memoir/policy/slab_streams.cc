// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/slab_streams.h"

#include <algorithm>

namespace memoir {

SlabStreams::SlabStreams(const PlannedLayout& layout, StreamOrder* order, StreamId owner)
    : layout_(layout), order_(order), owner_(owner) {
  constexpr SiteId kSeveral = ~SiteId{0};
  std::vector<SiteId> users(layout.cells(), kNoSite);
  for (const PlannedLayout::Entry& entry : layout.entries()) {
    if (entry.offset == kNoOffset) continue;
    const StreamId stream = stream_of(entry);
    if (stream != owner_ && std::find(others_.begin(), others_.end(), stream) == others_.end()) {
      others_.push_back(stream);
    }
    for (std::uint32_t cell = entry.first_cell; cell < entry.end_cell; ++cell) {
      SiteId& user = users[cell];
      user = user == kNoSite || user == entry.site ? entry.site : kSeveral;
    }
  }
  if (std::find(users.begin(), users.end(), kSeveral) == users.end()) return;
  uses_.resize(layout.cells());
  for (const PlannedLayout::Entry& entry : layout.entries()) {
    shared_.push_back(entry.offset != kNoOffset &&
                      std::find(users.begin() + entry.first_cell, users.begin() + entry.end_cell, kSeveral) !=
                          users.begin() + entry.end_cell);
  }
}

bool SlabStreams::open() noexcept {
  for (const StreamId stream : others_) {
    if (order_ == nullptr || !order_->order(owner_, order_->now(), stream)) return false;
  }
  return true;
}

bool SlabStreams::close() noexcept {
  for (const StreamId stream : others_) {
    if (!order_->order(stream, order_->now(), owner_)) return false;
  }
  return true;
}

bool SlabStreams::begin(std::uint32_t index) noexcept {
  if (!shared_[index]) return true;
  const PlannedLayout::Entry& entry = layout_.entries()[index];
  const StreamId stream = stream_of(entry);
  for (std::uint32_t cell = entry.first_cell; cell < entry.end_cell; ++cell) {
    const Use use = uses_[cell];
    if (use.moment == 0 || use.stream == stream || order_->is_ordered(use.stream, use.moment, stream))
      continue;
    if (!order_->order(use.stream, use.moment, stream)) return false;
  }
  return true;
}

void SlabStreams::end(std::uint32_t index) noexcept {
  if (!shared_[index]) return;
  const PlannedLayout::Entry& entry = layout_.entries()[index];
  std::fill(uses_.begin() + entry.first_cell, uses_.begin() + entry.end_cell,
            Use{stream_of(entry), order_->now()});
}

}  // namespace memoir

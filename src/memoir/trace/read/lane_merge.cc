// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/lane_merge.h"

#include <algorithm>

#include "memoir/base/error.h"
#include "memoir/trace/format.h"

namespace memoir {

using namespace trace_format;

namespace {

/// What decoders may take at once: enough for some thousand threads, and in proportion to a larger file.
constexpr Size kOpenBytes = 64 * kMiB;
constexpr Size kOpenBytesPerByte = 32;

/// What a lane waits for: to do this at that address, which is below 2^63.
std::uint64_t key(std::uint64_t address, Operation operation) {
  return address << 1 | (operation == Operation::kFree ? 1 : 0);
}

}  // namespace

struct LaneMerge::Lane {
  /// What an open block needs.
  struct Open {
    std::vector<std::byte> payload;
    BlockDecoder decoder;
    bool is_final = false;  // the payload is that of a sealed block
    Size bytes() const noexcept { return sizeof(Open) + payload.capacity(); }
  };

  std::deque<std::uint32_t> blocks;  // to be read, by their sequence
  std::unique_ptr<Open> open;        // of blocks.front()
  Size open_bytes = 0;
  BlockDecoder::Item item;  // the next operation
  bool has_item = false;
  bool is_sorted = true;  // blocks
  bool is_queued = false;
  bool is_parked = false;
  bool is_forced = false;
  std::uint64_t tick = 0;  // of the last operation that was read
  std::uint32_t thread = 0;
  std::uint32_t sequence = 0;  // of the next block
  EventBuilder::LaneState state;
};

LaneMerge::LaneMerge(BlockIndex& index, TraceData& data, Only only)
    : index_(index), data_(data), builder_(data, only) {}
LaneMerge::~LaneMerge() = default;

void LaneMerge::add_blocks() {
  std::vector<BlockIndex::Block>& blocks = index_.blocks();
  for (; added_ < blocks.size(); ++added_) {
    const BlockHeader& header = blocks[added_].header;
    const auto [known, fresh] = numbers_.emplace(header.lane, static_cast<std::uint32_t>(lanes_.size()));
    if (fresh) lanes_.push_back(std::make_unique<Lane>());
    Lane& lane = *lanes_[known->second];
    lane.is_sorted = lane.is_sorted &&
                     (lane.blocks.empty() || blocks[lane.blocks.back()].header.sequence <= header.sequence);
    lane.blocks.push_back(static_cast<std::uint32_t>(added_));
  }
  for (const auto& lane : lanes_) {
    if (lane->is_sorted) continue;
    std::stable_sort(lane->blocks.begin() + (lane->open != nullptr ? 1 : 0), lane->blocks.end(),
                     [&](std::uint32_t one, std::uint32_t other) {
                       return blocks[one].header.sequence < blocks[other].header.sequence;
                     });
    lane->is_sorted = true;
  }
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) queue(lane);
}

/// Gives a lane its turn, when there may be something to read in it.
void LaneMerge::queue(std::uint32_t number) {
  Lane& lane = *lanes_[number];
  if (lane.is_queued || lane.is_parked || (!lane.has_item && lane.blocks.empty())) return;
  std::uint64_t tick = lane.tick;
  if (lane.has_item) {
    tick = lane.item.tick;
  } else if (lane.open == nullptr) {
    tick = std::max(tick, index_.blocks()[lane.blocks.front()].header.tick);
  }
  lane.is_queued = true;
  turns_.push({tick, number});
}

/// Opens the lane's next block. False when there is none.
bool LaneMerge::open_block(Lane& lane) {
  while (!lane.blocks.empty()) {
    BlockIndex::Block& block = index_.blocks()[lane.blocks.front()];
    auto open = std::make_unique<Lane::Open>();
    const bool is_double = block.header.sequence < lane.sequence;
    const bool is_there = !is_double && index_.load(block, open->payload);
    if (follow_ && !is_double && block.is_cut) return false;  // the rest may come
    if (!is_double) data_.losses.blocks += block.header.sequence - lane.sequence;
    if (!is_there) {
      ++data_.losses.blocks;                                    // torn, or there twice,
      if (!is_double) data_.losses.bytes += block.header.used;  // of which nothing is lost
      lane.sequence = std::max(lane.sequence, block.header.sequence + 1);
      lane.blocks.pop_front();
      continue;
    }
    open->decoder = BlockDecoder(block.header);
    open->is_final = block.is_sealed();
    lane.sequence = block.header.sequence + 1;
    lane.thread = block.header.thread;
    lane.open_bytes = open->bytes();
    open_bytes_ += lane.open_bytes;
    if (open_bytes_ > kOpenBytes + kOpenBytesPerByte * index_.raw_bytes()) {
      data_.fail("more threads at one moment than a file of its size can have; it is damaged");
    }
    lane.open = std::move(open);
    return true;
  }
  return false;
}

void LaneMerge::close_block(Lane& lane) {
  open_bytes_ -= lane.open_bytes;
  lane.open.reset();
  lane.blocks.pop_front();
}

/// Makes the lane's next operation its item. False when there is none (yet).
bool LaneMerge::fetch(Lane& lane) {
  while (!lane.has_item) {
    if (lane.open == nullptr && !open_block(lane)) return false;
    Lane::Open& open = *lane.open;
    BlockIndex::Block& block = index_.blocks()[lane.blocks.front()];
    try {
      lane.has_item = open.decoder.next(open.payload, lane.item);
    } catch (const Error& error) {
      if (open.is_final) data_.fail(index_.name(block) + ": " + error.what());
      data_.losses.bytes += open.payload.size() - open.decoder.position();  // torn, or cut
      close_block(lane);
      continue;
    }
    if (lane.has_item) break;
    if (open.is_final) {
      close_block(lane);
      continue;
    }
    const Size before = open.payload.size();  // more may have been written meanwhile
    if (!index_.load(block, open.payload)) {
      ++data_.losses.blocks;
      close_block(lane);
      continue;
    }
    open.is_final = block.is_sealed();
    if (open.is_final || open.payload.size() > before) continue;
    if (lane.blocks.size() == 1) return false;  // it may go on later
    close_block(lane);
  }
  lane.tick = std::max(lane.tick, lane.item.tick);
  lane.item.tick = lane.tick;
  return true;
}

Tick LaneMerge::time_of(std::uint64_t tick) const {
  const std::uint64_t unit = index_.header().tick;
  return tick > kMaxTime / unit ? kMaxTime : tick * unit;
}

void LaneMerge::take(Lane& lane) {
  if (lane.item.operation == Operation::kThread)  // one that ended left its block to it
    lane.thread = static_cast<std::uint32_t>(lane.item.numbers[0]);
  try {
    builder_.take(lane.item, lane.thread, time_of(lane.item.tick), lane.state, lane.is_forced);
  } catch (const Error& error) {
    const BlockIndex::Block& block = index_.blocks()[lane.blocks.front()];
    data_.fail(index_.name(block) + ", at byte " + std::to_string(lane.open->decoder.position()) +
               " of its operations: " + error.what());
  }
  lane.has_item = false;
}

void LaneMerge::park(std::uint32_t number) {
  Lane& lane = *lanes_[number];
  lane.is_parked = true;
  parked_tick_ = lane.item.tick;
  parked_.push_back(number);
  waiting_.emplace(key(lane.item.address, lane.item.operation), number);
}

/// An allocation lets one lane go on that waits to free that address, and the other way round.
void LaneMerge::wake(const BlockDecoder::Item& taken) {
  const bool allocates = taken.operation == Operation::kAllocate;
  if (!allocates && taken.operation != Operation::kFree) return;
  const auto found = waiting_.find(key(taken.address, allocates ? Operation::kFree : Operation::kAllocate));
  if (found == waiting_.end()) return;
  const std::uint32_t number = found->second;
  waiting_.erase(found);
  lanes_[number]->is_parked = false;
  queue(number);
}

/// Nobody else can go on at this tick: the first that waits does, and the contradiction is counted.
void LaneMerge::force_one() {
  const std::uint32_t number = parked_.front();
  parked_.pop_front();
  Lane& lane = *lanes_[number];
  if (!lane.is_parked) return;  // was woken
  lane.is_parked = false;
  lane.is_forced = true;
  const auto [begin, end] = waiting_.equal_range(key(lane.item.address, lane.item.operation));
  waiting_.erase(std::find_if(begin, end, [&](const auto& each) { return each.second == number; }));
  queue(number);
}

void LaneMerge::run(std::uint64_t until, bool follow) {
  follow_ = follow;
  for (;;) {
    if (!parked_.empty() && (turns_.empty() || turns_.top().tick > parked_tick_)) {
      force_one();
      continue;
    }
    if (turns_.empty()) break;
    const Turn turn = turns_.top();
    turns_.pop();
    Lane& lane = *lanes_[turn.lane];
    lane.is_queued = false;
    while (fetch(lane)) {
      if (lane.item.tick >= until || (!turns_.empty() && turns_.top().tick < lane.item.tick) ||
          (!parked_.empty() && lane.item.tick > parked_tick_)) {
        break;
      }
      if (!lane.is_forced && lanes_.size() > 1) {
        if (builder_.waits_for(lane.item)) {
          park(turn.lane);
          break;
        }
      }
      take(lane);
      lane.is_forced = false;
      if (!waiting_.empty()) wake(lane.item);
    }
    if (lane.has_item && lane.item.tick >= until && !lane.is_parked) {
      if (turns_.empty() || turns_.top().tick >= until) {
        if (parked_.empty()) {
          queue(turn.lane);
          return;  // the tick may go on
        }
      }
    }
    if (lane.has_item) queue(turn.lane);
  }
  if (until == kEverything) builder_.end_tick();
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/read_blocks.h"

#include <algorithm>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/trace/format.h"

namespace memoir {

using namespace trace_format;

namespace {

/// Blocks that are written at the same time, of a file that is followed: a lane has one.
constexpr std::size_t kMostOpen = 4096;

}  // namespace

BlockReader::BlockReader(ByteSource& source, TraceData& data, Only only)
    : source_(source), data_(data), index_(source), merge_(index_, data, only) {}

Tick BlockReader::time_of(std::uint64_t tick) const {
  const std::uint64_t unit = index_.header().tick;
  return tick > kMaxTime / unit ? kMaxTime : tick * unit;
}

void BlockReader::read(bool follow) {
  source_.look_again();
  index_.look();
  const Header& header = index_.header();
  data_.version = kVersion;
  data_.start = header.start;
  data_.complete = index_.is_complete();
  read_definitions(follow);
  data_.stacks.resolve(data_.sites);
  merge_.add_blocks();
  const bool all = !follow || data_.complete || header.flushed == 0;
  merge_.run(all ? LaneMerge::kEverything : header.flushed, follow);
  data_.check_sites();
  data_.dropped = header.dropped + data_.losses.events();
  data_.losses.cut_bytes = index_.lost_bytes();
  name_all();
}

void BlockReader::read_definitions(bool follow) {
  std::vector<std::size_t> again;
  for (const auto& [number, decoder] : open_) again.push_back(number);
  for (const std::size_t number : again) read_definitions_of(number, follow);
  for (; defined_ < index_.blocks().size(); ++defined_) {
    const BlockIndex::Block& block = index_.blocks()[defined_];
    if ((block.header.flags & kDefines) != 0 || !block.is_sealed()) read_definitions_of(defined_, follow);
  }
}

void BlockReader::read_definitions_of(std::size_t number, bool follow) {
  BlockIndex::Block& block = index_.blocks()[number];
  std::unique_ptr<BlockDecoder> decoder;
  if (const auto known = open_.find(number); known != open_.end()) {
    decoder = std::move(known->second);
    open_.erase(known);
  }
  const bool is_there = index_.load(block, payload_);
  if (follow && block.is_cut && open_.size() < kMostOpen) {
    open_.emplace(number, std::move(decoder));  // the rest may come
    return;
  }
  if (!is_there) return;  // counted when its events are read
  if ((block.header.flags & kDefines) != 0) {
    if (decoder == nullptr) decoder = std::make_unique<BlockDecoder>(block.header);
    BlockDecoder::Item item;
    try {
      while (decoder->next(payload_, item)) define(item);
    } catch (const Error& error) {
      if (block.is_sealed()) data_.fail(index_.name(block) + ": " + error.what());
      return;
    }
  }
  if (follow && !block.is_sealed() && open_.size() < kMostOpen) open_.emplace(number, std::move(decoder));
}

void BlockReader::define(const BlockDecoder::Item& item) {
  const auto& fields = item.numbers;
  const Tick time = time_of(item.tick);
  ProcessRecord& process = data_.process;
  const auto small = [](std::uint64_t value) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, ~std::uint32_t{0}));
  };
  switch (item.operation) {
    case Operation::kThread:
      // One that is there already, by the kernel's number too, got a name.
      if (const auto known = threads_.find(fields[0]);
          known != threads_.end() && process.threads[known->second].system_id == fields[1]) {
        process.threads[known->second].name_id = small(fields[2]);
        break;
      }
      threads_[fields[0]] = process.threads.size();
      process.threads.push_back({small(fields[0]), fields[1], {}, small(fields[2]), time, std::nullopt});
      break;
    case Operation::kThreadEnd:
      if (const auto known = threads_.find(fields[0]); known != threads_.end()) {
        process.threads[known->second].end = time;
      }
      break;
    case Operation::kLost: {
      Losses& losses = data_.losses;
      std::uint64_t* const counts[] = {&losses.other,       &losses.no_room,       &losses.interrupted,
                                       &losses.deep_frames, &losses.unread_frames, &losses.other};
      std::uint64_t& count = *counts[fields[0] < std::size(counts) ? fields[0] : 0];
      count = fields[1] > ~std::uint64_t{0} - count ? ~std::uint64_t{0} : count + fields[1];
      break;
    }
    case Operation::kCounter:
      process.counters.push_back({time, {}, small(fields[0]), fields[1]});
      break;
    case Operation::kMappings: {
      ProcessRecord::Mappings mappings;
      mappings.time = time;
      mappings.moment = static_cast<ProcessRecord::Moment>(std::min<std::uint64_t>(fields[0], 4));
      mappings.resident = fields[1];
      NumberReader numbers(item.list);
      for (std::uint64_t i = 0; i < fields[2]; ++i) {
        ProcessRecord::Mappings::Group group;
        const std::uint64_t region = numbers.next();
        const auto other = static_cast<std::uint64_t>(ProcessRecord::Region::kOther);
        group.region = static_cast<ProcessRecord::Region>(region == 0 || region > other ? other : region);
        group.name_id = small(numbers.next());
        group.count = numbers.next();
        group.mapped = numbers.next();
        group.resident = numbers.next();
        group.dirty = numbers.next();
        group.swapped = numbers.next();
        mappings.groups.push_back(group);
      }
      process.mappings.push_back(std::move(mappings));
      break;
    }
    case Operation::kProgramEnd:
      process.end = ProcessRecord::End{time, fields[0] != 0, small(fields[1])};
      break;
    default:
      data_.stacks.define(item, time, index_.raw_bytes());
  }
}

/// Names may be defined behind what they name.
void BlockReader::name_all() {
  ProcessRecord& process = data_.process;
  for (auto& thread : process.threads) thread.name = data_.stacks.string(thread.name_id);
  for (auto& counter : process.counters) counter.name = data_.stacks.string(counter.name_id);
  for (auto& mappings : process.mappings) {
    for (auto& group : mappings.groups) group.name = data_.stacks.string(group.name_id);
  }
  process.modules = data_.stacks.modules();
}

}  // namespace memoir

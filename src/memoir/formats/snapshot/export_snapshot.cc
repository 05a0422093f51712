// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/snapshot/export_snapshot.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "memoir/base/utf8.h"
#include "memoir/formats/pickle/pickle_writer.h"
#include "memoir/formats/pickle/settings_json.h"
#include "memoir/formats/snapshot/frame_sites.h"
#include "memoir/formats/snapshot/mapped_ranges.h"
#include "memoir/formats/snapshot/trace_layout.h"
#include "memoir/trace/read/stack_cut.h"

namespace memoir {

namespace {

// As PyTorch has them (c10/cuda/CUDACachingAllocator.cpp, should_split): blocks are multiples of 512 bytes,
// and what is left of one in a large segment that does not grow is cut off only if it is more than 1 MiB.
constexpr Size kSmallSegment = 2 * kMiB;
constexpr Size kBlockGranule = 512;
constexpr Size kKeptRemainder = 1 * kMiB;

struct Segment {
  std::uint64_t address = 0;
  Size size = 0;
  StreamId stream = 0;
  SiteId site = kNoSite;
  std::uint32_t pool = 0;
  bool expandable = false;
  bool recorded = true;
};

struct Block {
  std::uint64_t address = 0;
  Size size = 0;
  SiteId site = kNoSite;
  bool pending = false;
};

const char* action_of(EventKind kind) {
  switch (kind) {
    case EventKind::kAllocate:
      return "alloc";
    case EventKind::kFreeRequested:
      return "free_requested";
    case EventKind::kFree:
      return "free_completed";
    case EventKind::kSegmentAllocate:
      return "segment_alloc";
    case EventKind::kSegmentFree:
      return "segment_free";
    case EventKind::kSegmentMap:
      return "segment_map";
    case EventKind::kSegmentUnmap:
      return "segment_unmap";
    default:
      return "oom";
  }
}

class SnapshotExporter {
 public:
  SnapshotExporter(const Trace& trace, Output& output) : trace_(trace), layout_(trace), writer_(output) {
    std::string handles(trace.meta("streams"));
    for (const char* at = handles.c_str(); *at != '\0';) {
      char* end = nullptr;
      handles_.push_back(std::strtoull(at, &end, 10));
      if (end == at || (*end != ',' && *end != '\0')) {
        handles_.clear();
        break;
      }
      at = *end == ',' ? end + 1 : end;
    }
    for (const Event& event : trace.events()) {
      if (event.kind == EventKind::kPool) pools_.emplace_back(event.object, event.size);
    }
  }

  ExportReport run();

 private:
  void write_segments(std::uint16_t device);
  void write_segment(const Segment& segment, std::uint16_t device, std::vector<Block>::const_iterator& block,
                     std::vector<Block>::const_iterator end);
  void write_entries(std::uint16_t device);
  void write_entry(const char* action, const Event& event, std::uint64_t address, Size size,
                   std::uint32_t pool);
  void write_annotations();
  void write_frames(SiteId site);
  void write_frame(const std::string& text);

  void key(std::string_view name) { writer_.string(name); }
  void field(std::string_view name, std::uint64_t value) {
    key(name);
    writer_.natural(value);
  }
  void field(std::string_view name, std::string_view value) {
    key(name);
    writer_.string(value);
  }
  std::uint64_t time_us(const Event& event) const { return (trace_.start() + event.time) / 1'000; }
  void stream(StreamId number) {
    key("stream");
    writer_.integer(static_cast<std::int64_t>(number < handles_.size() ? handles_[number] : number));
  }

  void pool(std::string_view name, std::uint32_t number) {
    key(name);
    writer_.natural(pools_[number].first);
    writer_.natural(pools_[number].second);
    writer_.make_pair();
  }

  const Trace& trace_;
  TraceLayout layout_;
  PickleWriter writer_;
  ExportReport report_;
  std::vector<std::uint64_t> handles_;                                  // of streams
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pools_{{0, 0}};  // their ids
  std::unordered_map<SiteId, std::uint32_t> stacks_;                    // memo of its list of frames
  std::unordered_map<std::string, std::uint32_t> frames_;               // text -> memo of its dict
};

ExportReport SnapshotExporter::run() {
  writer_.begin_dict();
  key("segments");
  writer_.begin_list();
  for (size_t d = 0; d < layout_.devices().size(); ++d) write_segments(static_cast<std::uint16_t>(d));
  writer_.end_list();

  key("device_traces");
  writer_.begin_list();
  for (size_t d = 0; d < layout_.devices().size(); ++d) {
    writer_.item();
    writer_.begin_list();
    write_entries(static_cast<std::uint16_t>(d));
    writer_.end_list();
  }
  writer_.end_list();

  if (const std::string_view settings = trace_.meta("torch_settings"); !settings.empty()) {
    key("allocator_settings");
    if (!write_json(settings, writer_)) {
      writer_.begin_dict();
      writer_.end_dict();
    }
  }
  key("external_annotations");
  writer_.begin_list();
  write_annotations();
  writer_.end_list();
  writer_.end_dict();
  writer_.stop();
  for (const TraceLayout::Device& device : layout_.devices()) {
    for (const std::uint32_t index : device.events) {
      const Event& event = trace_.events()[index];
      if (event.kind != EventKind::kAllocate || device.recorded) continue;
      if (event.size == 0) ++report_.left_out;
      else ++report_.placed;
    }
  }
  return report_;
}

/// What is there at the end, each segment tiled by its blocks.
void SnapshotExporter::write_segments(std::uint16_t number) {
  const TraceLayout::Device& device = layout_.devices()[number];
  std::map<std::uint64_t, Segment> held;
  MappedRanges mapped;
  std::vector<Block> blocks;
  for (const Range& range : device.segments)
    held[range.begin] = {range.begin, range.size, 0, kNoSite, 0, false, false};
  for (const std::uint32_t index : device.events) {
    const Event& event = trace_.events()[index];
    if (event.kind == EventKind::kAllocate) {
      const TraceLayout::Object& object = layout_.object(index);
      if (object.freed == TraceLayout::kNever && (object.address != 0 || object.size != 0))
        blocks.push_back({object.address, object.size, event.site, object.requested});
    }
    if (!is_segment(event.kind) || !device.recorded) continue;
    const std::uint64_t end = event.object + event.size;
    switch (event.kind) {
      case EventKind::kSegmentAllocate:
        held[event.object] = {event.object, event.size, event.stream, event.site, pool_of(event), false};
        break;
      case EventKind::kSegmentFree:
        held.erase(event.object);
        break;
      case EventKind::kSegmentMap:
        mapped.add(event.object, {end, event.stream, pool_of(event), event.site});
        break;
      default:
        mapped.remove(event.object, end);
    }
  }
  // A recording that has one byte twice: no snapshot can.
  for (auto at = held.begin(); at != held.end();) {
    const std::uint64_t end = at->first + at->second.size;
    for (++at; at != held.end() && at->first < end;) at = held.erase(at);
  }
  for (const auto& [begin, segment] : held) mapped.remove(begin, begin + segment.size);
  for (const auto& [begin, piece] : mapped.pieces())
    held.emplace(begin, Segment{begin, piece.end - begin, piece.stream, piece.origin, piece.pool, true});
  std::sort(blocks.begin(), blocks.end(),
            [](const Block& a, const Block& b) { return a.address < b.address; });
  auto block = blocks.cbegin();
  for (const auto& [address, segment] : held) write_segment(segment, number, block, blocks.cend());
}

void SnapshotExporter::write_segment(const Segment& segment, std::uint16_t device,
                                     std::vector<Block>::const_iterator& block,
                                     std::vector<Block>::const_iterator end) {
  const std::uint64_t segment_end = segment.address + segment.size;
  while (block != end && block->address < segment.address) ++block;  // in no segment: as if not there
  auto last = block;
  Size allocated = 0, active = 0, requested = 0;
  struct Tile {
    std::uint64_t address;
    Size size;
    const Block* live;
  };
  std::vector<Tile> tiles;
  std::uint64_t at = segment.address;
  const bool keeps_remainders = segment.recorded && !segment.expandable && segment.size > kSmallSegment;
  for (; last != end && last->address < segment_end; ++last) {
    if (last->address < at || last->size > segment_end - last->address)
      continue;  // over another, or over the end
    if (last->address > at) tiles.push_back({at, last->address - at, nullptr});
    const auto next = std::next(last);
    const std::uint64_t limit = next != end && next->address < segment_end ? next->address : segment_end;
    const Size room = limit - last->address;
    Size size = std::max(last->size, std::min(align_up(last->size, kBlockGranule), room));
    if (keeps_remainders && room > size && room - size <= kKeptRemainder) size = room;
    tiles.push_back({last->address, size, &*last});
    at = last->address + size;
    active += size;
    allocated += last->pending ? 0 : size;
    requested += last->size;
  }
  if (at < segment_end) tiles.push_back({at, segment_end - at, nullptr});
  block = last;

  writer_.item();
  writer_.begin_dict();
  field("device", device);
  field("address", segment.address);
  field("total_size", segment.size);
  field("allocated_size", allocated);
  field("active_size", active);
  field("requested_size", requested);
  stream(segment.stream);
  field("segment_type", segment.size <= kSmallSegment ? "small" : "large");
  pool("segment_pool_id", segment.pool);
  key("is_expandable");
  writer_.boolean(segment.expandable);
  key("frames");
  write_frames(segment.site);
  key("blocks");
  writer_.begin_list();
  for (const Tile& tile : tiles) {
    writer_.item();
    writer_.begin_dict();
    field("address", tile.address);
    field("size", tile.size);
    field("requested_size", tile.live != nullptr ? tile.live->size : 0);
    field("state", tile.live == nullptr ? "inactive"
                   : tile.live->pending ? "active_pending_free"
                                        : "active_allocated");
    key("frames");
    write_frames(tile.live != nullptr ? tile.live->site : kNoSite);
    writer_.end_dict();
  }
  writer_.end_list();
  writer_.end_dict();
}

void SnapshotExporter::write_entries(std::uint16_t number) {
  const TraceLayout::Device& device = layout_.devices()[number];
  for (size_t i = device.history; i < device.events.size(); ++i) {
    const Event& event = trace_.events()[device.events[i]];
    if (is_segment(event.kind)) {
      if (device.recorded)
        write_entry(action_of(event.kind), event, event.object, event.size, pool_of(event));
    } else if (event.kind == EventKind::kOutOfMemory) {
      write_entry("oom", event, event.object, event.size, pool_of(event));
    } else {
      const TraceLayout::Object& object = layout_.object(device.events[i]);
      if (object.address == 0 && object.size == 0) continue;
      if (event.kind == EventKind::kFree && !object.requested)
        write_entry("free_requested", event, object.address, object.size, object.pool);
      write_entry(action_of(event.kind), event, object.address, object.size, object.pool);
    }
  }
}

void SnapshotExporter::write_entry(const char* action, const Event& event, std::uint64_t address, Size size,
                                   std::uint32_t pool_number) {
  ++report_.events;
  writer_.item();
  writer_.begin_dict();
  field("action", action);
  field(event.kind == EventKind::kOutOfMemory ? "device_free" : "addr", address);
  field("size", size);
  stream(event.stream);
  field("time_us", time_us(event));
  if (pools_.size() > 1) pool("pool_id", pool_number);
  key("frames");
  write_frames(event.site);
  writer_.end_dict();
}

void SnapshotExporter::write_annotations() {
  for (const Event& event : trace_.events()) {
    if (event.kind != EventKind::kPassBegin && event.kind != EventKind::kPassEnd) continue;
    writer_.item();
    writer_.begin_dict();
    field("stage", event.kind == EventKind::kPassBegin ? "START" : "END");
    field("name", "ProfilerStep#" + std::to_string(event.object));
    field("device", 0);
    field("time_us", time_us(event));
    writer_.end_dict();
  }
}

/// Innermost first; each stack once. Of thousands of frames those between are left out.
void SnapshotExporter::write_frames(SiteId site) {
  if (site == kNoSite) {
    writer_.begin_list();
    writer_.end_list();
    return;
  }
  if (const auto known = stacks_.find(site); known != stacks_.end()) {
    writer_.get(known->second);
    return;
  }
  stacks_[site] = writer_.begin_kept_list();
  std::vector<SiteId> sites;
  for (SiteId at = site; at != kNoSite; at = trace_.site_parent(at).value_or(kNoSite)) sites.push_back(at);
  const StackCut cut(sites.size(), [](std::size_t) { return Size{0}; });
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (cut.left_out != 0 && i == sites.size() - cut.outer - cut.left_out) {
      write_frame(cut.text());
      i += cut.left_out;
      if (i == sites.size()) break;
    }
    if (trace_.site_parent(sites[i])) {
      write_frame(valid_utf8(trace_.site_name(sites[i])));
    } else {
      char name[32];
      std::snprintf(name, sizeof name, "site %016llx", static_cast<unsigned long long>(sites[i]));
      write_frame(name);
    }
  }
  writer_.end_list();
}

void SnapshotExporter::write_frame(const std::string& text) {
  writer_.item();
  if (const auto known = frames_.find(text); known != frames_.end()) {
    writer_.get(known->second);
    return;
  }
  const FrameText frame = split_frame(text);
  frames_[text] = writer_.begin_kept_dict();
  field("name", frame.name);
  field("filename", frame.filename);
  field("line", frame.line);
  writer_.end_dict();
}

}  // namespace

ExportReport export_snapshot(const Trace& trace, Output& output) {
  const ExportReport report = SnapshotExporter(trace, output).run();
  output.flush();
  return report;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/snapshot/import_snapshot.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"
#include "memoir/formats/snapshot/before_history.h"
#include "memoir/formats/snapshot/frame_sites.h"
#include "memoir/formats/snapshot/live_ranges.h"
#include "memoir/formats/snapshot/mapped_ranges.h"
#include "memoir/formats/stream_list.h"
#include "memoir/trace/objects/object_table.h"

namespace memoir {

namespace {

using State = ObjectTable::State;

/// What PyTorch's allocator promises is more (512), but it is cudaMalloc's promise that programs rely on.
constexpr Size kAlignment = 256;
constexpr std::uint32_t kUnnumbered = ~std::uint32_t{0};

class Importer {
 public:
  Importer(const Snapshot& snapshot, TraceWriter& writer, const ImportOptions& options)
      : snapshot_(snapshot),
        writer_(writer),
        options_(options),
        sites_(snapshot.values(), writer),
        devices_(snapshot.devices()),
        streams_(snapshot.values().streams().size(), kUnnumbered),
        pools_(snapshot.values().pools().size(), kUnnumbered) {
    streams_[0] = 0;
    pools_[0] = 0;
    handles_.push_back(0);
  }

  ImportReport run();

 private:
  struct Device {
    size_t next = 0;            // entry
    std::uint64_t time_us = 0;  // of the entry `next`
    ObjectTable live;           // by address; value: the object
    LiveRanges ranges;          // of the live ones
    struct Segment {
      Size size;
      std::uint32_t pool;
    };
    std::map<std::uint64_t, Segment> segments;
    bool holds_some(std::uint64_t begin, Size size) const {
      const auto after = segments.lower_bound(begin);
      if (after != segments.end() && after->first - begin < size) return true;
      return after != segments.begin() && begin - std::prev(after)->first < std::prev(after)->second.size;
    }
    Size mapped = 0;
    MappedRanges areas;                        // what is mapped, where there are private pools
    std::vector<std::uint32_t> segment_pools;  // BeforeHistory's
    size_t segment_entries = 0;                // of these, how many came by
  };

  void select_passes();
  void write_before(std::uint16_t device);
  void write_history();
  void write_entry(std::uint16_t device, size_t index);
  void write_segment(std::uint16_t device, const TraceEntry& entry);
  ObjectTable::Entry& live_object(std::uint16_t device, size_t index);
  void write_annotation(const SnapshotAnnotation& annotation);
  void write_allocation(std::uint16_t device, std::uint64_t address, Size size, std::uint32_t stream,
                        std::uint32_t stack, std::uint32_t pool);
  void define_pool(std::uint32_t number);
  std::uint32_t pool_at(std::uint16_t device, std::uint64_t address) const;
  void find_time(std::uint16_t device);
  bool tells(std::uint16_t device, size_t index) const;
  std::uint64_t first_told(std::uint16_t device) const;
  bool completes(std::uint16_t device, size_t index, std::uint64_t address) const;
  std::uint32_t stream(std::uint32_t number);
  std::uint32_t pool(std::uint32_t number) {
    if (pools_[number] == kUnnumbered) define_pool(number);
    return pools_[number];
  }
  void set_time(std::uint64_t time_us) { writer_.set_time((time_us - origin_us_) * 1'000); }
  std::uint64_t pass_number(std::string_view name);

  const Snapshot& snapshot_;
  TraceWriter& writer_;
  const ImportOptions& options_;
  ImportReport report_;
  FrameSites sites_;
  std::vector<Device> devices_;
  std::vector<std::uint32_t> streams_;  // number in the snapshot -> in the trace, in order of first sight
  std::vector<std::uint64_t> handles_;  // of the trace's numbers
  std::vector<std::uint32_t> pools_;    // as streams_
  std::vector<SnapshotAnnotation> passes_;
  std::unordered_map<std::string_view, std::vector<std::uint64_t>> running_;
  std::unordered_set<std::uint64_t> taken_;  // numbers of passes
  std::uint64_t next_pass_ = 0;
  std::uint64_t origin_us_ = 0;  // the trace's time 0
  std::uint64_t last_us_ = 0;
  bool has_times_ = false;
  ObjectId objects_ = 0;
};

ImportReport Importer::run() {
  select_passes();
  for (size_t d = 0; d < devices_.size() && !has_times_; ++d) {
    for (size_t i = 0; i < snapshot_.entries(d) && !has_times_; ++i)
      has_times_ = snapshot_.entry(d, i).time_us != TraceEntry::kNoTime;
  }
  std::uint64_t first_us = TraceEntry::kNoTime;
  for (size_t d = 0; d < devices_.size(); ++d) {
    find_time(static_cast<std::uint16_t>(d));
    if (snapshot_.entries(d) != 0) first_us = std::min(first_us, first_told(static_cast<std::uint16_t>(d)));
  }
  if (!passes_.empty()) first_us = std::min(first_us, passes_[0].time_us);
  if (first_us == TraceEntry::kNoTime) first_us = 1;
  // What was there before stands at time 0, what happened begins a microsecond later.
  origin_us_ = first_us - 1;  // wraps for 0, and set_time() back
  last_us_ = first_us;
  writer_.set_start(first_us == 0 ? 0 : origin_us_ * 1'000);
  writer_.set_time(0);
  writer_.meta("source", "torch snapshot");
  if (!snapshot_.settings().empty()) writer_.meta("torch_settings", snapshot_.settings());
  for (size_t d = 0; d < devices_.size(); ++d) write_before(static_cast<std::uint16_t>(d));
  write_history();

  write_stream_list(writer_, handles_);
  const PickleValues& values = snapshot_.values();
  report_.user_metadata = values.user_metadata_entries;
  report_.compile_contexts = values.compile_context_entries;
  report_.unreadable = snapshot_.unreadable();
  if (!writer_.ok())
    throw Error(snapshot_.name() + ": cannot write its trace: " + std::strerror(writer_.error()));
  if (writer_.dropped() != 0)
    throw Error(snapshot_.name() + ": holds more than a trace can: a list of streams over 1 MiB");
  return report_;
}

void Importer::select_passes() {
  for (const SnapshotAnnotation& annotation : snapshot_.annotations()) {
    if (annotation.name.starts_with(options_.passes)) passes_.push_back(annotation);
    else if (annotation.begins)
      ++report_.other_annotations[std::string(annotation.name.substr(0, annotation.name.find('#')))];
  }
}

/// Whether an event is made of it.
bool Importer::tells(std::uint16_t device, size_t index) const {
  const TraceEntry& entry = snapshot_.entry(device, index);
  switch (entry.origin.kind()) {
    case Word::kAlloc:
    case Word::kFreeCompleted:
    case Word::kSegmentAlloc:
    case Word::kSegmentFree:
    case Word::kSegmentMap:
    case Word::kSegmentUnmap:
    case Word::kOom:
      return true;
    case Word::kFreeRequested:
      return !completes(device, index + 1, entry.address);
    default:
      return false;
  }
}

/// The time of the device's first entry that tells something, or of its first.
std::uint64_t Importer::first_told(std::uint16_t device) const {
  std::uint64_t time = devices_[device].time_us;
  for (size_t i = 0; i < snapshot_.entries(device); ++i) {
    const std::uint64_t own = has_times_ ? snapshot_.entry(device, i).time_us : i + 1;
    if (own != TraceEntry::kNoTime) time = std::max(time, own);
    if (tells(device, i)) return time;
  }
  return devices_[device].time_us;
}

/// Of the device's next entry: its own, but never before that of the entry before it.
void Importer::find_time(std::uint16_t number) {
  Device& device = devices_[number];
  if (device.next >= snapshot_.entries(number)) return;
  const std::uint64_t time = snapshot_.entry(number, device.next).time_us;
  if (!has_times_) {
    device.time_us = device.next + 1;
    ++report_.without_time;
  } else if (time == TraceEntry::kNoTime) {
    ++report_.without_time;
  } else if (time < device.time_us) {
    ++report_.times_back;
  } else {
    device.time_us = time;
  }
}

std::uint32_t Importer::stream(std::uint32_t number) {
  std::uint32_t& known = streams_[number];
  if (known == kUnnumbered) {
    known = static_cast<std::uint32_t>(handles_.size());
    handles_.push_back(snapshot_.values().streams()[number]);
  }
  return known;
}

/// The pools of a trace are those that something in it is of.
void Importer::define_pool(std::uint32_t number) {
  pools_[number] = static_cast<std::uint32_t>(++report_.private_pools);
  const auto [first, second] = snapshot_.values().pools()[number];
  writer_.define_pool(pools_[number], first, second);
}

/// Whose the memory at the address is now.
std::uint32_t Importer::pool_at(std::uint16_t number, std::uint64_t address) const {
  if (pools_.size() == 1) return 0;
  const Device& device = devices_[number];
  const auto after = device.segments.upper_bound(address);
  if (after != device.segments.begin()) {
    const auto& [begin, segment] = *std::prev(after);
    if (address - begin < segment.size) return segment.pool;
  }
  const MappedRanges::Piece* const piece = device.areas.find(address);
  return piece == nullptr ? 0 : piece->pool;
}

void Importer::write_allocation(std::uint16_t number, std::uint64_t address, Size size,
                                std::uint32_t stream_number, std::uint32_t stack, std::uint32_t pool_number) {
  const SiteId site = sites_.site_of(stack);
  const StreamId on = stream(stream_number);
  const std::uint32_t of = pool(pool_number);
  Device& device = devices_[number];
  device.ranges.add(address, size, [&](std::uint64_t other) {
    ObjectTable::Entry& gone = device.live.find(other);
    writer_.free(gone.value, 0, number, on);
    gone.state = State::kFreed;
    ++report_.lost_frees;
  });
  ObjectTable::Entry& known = device.live.find(address);
  const bool fresh = known.state == State::kUnknown;
  known = {address, State::kLive, 0, ++objects_};
  if (fresh) device.live.added();
  writer_.allocate(objects_, site, size, kAlignment, 0, number, on);
  writer_.address(objects_, address, number, on, of);
}

void Importer::write_before(std::uint16_t number) {
  BeforeHistory before = before_history(snapshot_, number);
  report_.known_by_free += before.known_by_free;
  report_.after_history += before.after_history;
  report_.odd_segments += before.odd_segments;
  report_.live_before += before.objects.size();
  report_.devices += !before.segments.empty() || !before.objects.empty() || snapshot_.entries(number) != 0;
  Device& device = devices_[number];
  for (const BeforeHistory::Segment& segment : before.segments) {
    const SiteId site = sites_.site_of(segment.stack);
    if (segment.expandable) {
      device.mapped += segment.size;
      if (pools_.size() > 1)
        device.areas.add(segment.address, {segment.address + segment.size, segment.stream, segment.pool, 0});
    } else {
      device.segments[segment.address] = {segment.size, segment.pool};
    }
    const StreamId on = stream(segment.stream);
    writer_.segment(segment.expandable ? EventKind::kSegmentMap : EventKind::kSegmentAllocate,
                    segment.address, segment.size, number, on, site, pool(segment.pool));
  }
  for (const BeforeHistory::Object& object : before.objects) {
    write_allocation(number, object.address, object.size, object.stream, object.stack, object.pool);
    if (object.pending) {
      devices_[number].live.find(object.address).tag = 1;
      writer_.free_requested(objects_, 0, number, stream(object.stream));
    }
  }
  device.segment_pools = std::move(before.segment_pools);
}

/// All devices' entries and the passes, in order of time; at one time passes first, then by device.
void Importer::write_history() {
  using Turn = std::pair<std::uint64_t, std::uint32_t>;  // time, device
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (snapshot_.entries(d) != 0) turns.emplace(devices_[d].time_us, static_cast<std::uint32_t>(d));
  }
  size_t pass = 0;
  while (!turns.empty() || pass < passes_.size()) {
    if (pass < passes_.size() && (turns.empty() || passes_[pass].time_us <= turns.top().first)) {
      last_us_ = std::max(last_us_, passes_[pass].time_us);
      set_time(last_us_);
      write_annotation(passes_[pass++]);
      continue;
    }
    const auto [time, number] = turns.top();
    turns.pop();
    Device& device = devices_[number];
    last_us_ = std::max(last_us_, time);
    set_time(last_us_);
    write_entry(static_cast<std::uint16_t>(number), device.next);
    ++device.next;
    find_time(static_cast<std::uint16_t>(number));
    if (device.next < snapshot_.entries(number)) turns.emplace(device.time_us, number);
  }
}

/// The entry completes the free of this address.
bool Importer::completes(std::uint16_t device, size_t index, std::uint64_t address) const {
  if (index >= snapshot_.entries(device)) return false;
  const TraceEntry& entry = snapshot_.entry(device, index);
  return entry.origin.kind() == Word::kFreeCompleted && entry.address == address;
}

/// What the entry frees. before_history() knows that it was live, unless something was put where it lay.
ObjectTable::Entry& Importer::live_object(std::uint16_t number, size_t index) {
  const std::uint64_t address = snapshot_.entry(number, index).address;
  ObjectTable::Entry& known = devices_[number].live.find(address);
  if (known.state != State::kLive) {
    snapshot_.fail_entry(number, index, Word::kAddr,
                         "frees " + hex(address) + ", where something else was allocated before");
  }
  return known;
}

void Importer::write_entry(std::uint16_t number, size_t index) {
  const TraceEntry& entry = snapshot_.entry(number, index);
  ++report_.entries;
  switch (entry.origin.kind()) {
    case Word::kAlloc:
      ++report_.allocations;
      write_allocation(number, entry.address, entry.size, entry.stream, entry.stack,
                       entry.pool != TraceEntry::kNoPool ? entry.pool : pool_at(number, entry.address));
      break;
    case Word::kFreeRequested: {
      if (completes(number, index + 1, entry.address)) break;  // written there, as one free
      ++report_.pending;
      ObjectTable::Entry& known = live_object(number, index);
      known.tag = 1;
      const SiteId site = sites_.site_of(entry.stack);
      writer_.free_requested(known.value, 0, number, stream(entry.stream), site);
      break;
    }
    case Word::kFreeCompleted: {
      std::uint32_t stack = entry.stack, from = entry.stream;
      ObjectTable::Entry& known = live_object(number, index);
      // The stack and the stream that matter are those that let go of it: from these alone an object is
      // known that was allocated before the history.
      if (known.tag == 0 && index > 0) {
        const TraceEntry& requested = snapshot_.entry(number, index - 1);
        if (requested.origin.kind() == Word::kFreeRequested && requested.address == entry.address) {
          stack = requested.stack;
          from = requested.stream;
        }
      }
      ++report_.frees;
      known.state = State::kFreed;
      devices_[number].ranges.remove(entry.address);
      const SiteId site = sites_.site_of(stack);
      writer_.free(known.value, 0, number, stream(from), site);
      break;
    }
    case Word::kSegmentAlloc:
    case Word::kSegmentFree:
    case Word::kSegmentMap:
    case Word::kSegmentUnmap:
      write_segment(number, entry);
      break;
    case Word::kOom: {
      ++report_.out_of_memory;
      const SiteId site = sites_.site_of(entry.stack);
      const StreamId on = stream(entry.stream);
      writer_.out_of_memory(entry.size, entry.address, number, on, site,
                            pool(entry.pool != TraceEntry::kNoPool ? entry.pool : 0));
      break;
    }
    case Word::kSnapshot:
      break;
    default:
      ++report_.other_actions[std::string(snapshot_.values().text(entry.address))];
  }
}

/// What fits no segment that is there (as the history has it) is left out; before_history() has counted it.
void Importer::write_segment(std::uint16_t number, const TraceEntry& entry) {
  if (entry.size == 0) return;
  Device& device = devices_[number];
  const std::uint32_t of = device.segment_pools[device.segment_entries++];
  EventKind kind;
  switch (entry.origin.kind()) {
    case Word::kSegmentAlloc:
      kind = EventKind::kSegmentAllocate;
      if (device.holds_some(entry.address, entry.size)) return;
      device.segments[entry.address] = {entry.size, of};
      break;
    case Word::kSegmentFree: {
      kind = EventKind::kSegmentFree;
      const auto found = device.segments.find(entry.address);
      if (found == device.segments.end() || found->second.size != entry.size) return;
      device.segments.erase(found);
      break;
    }
    case Word::kSegmentMap:
      kind = EventKind::kSegmentMap;
      device.mapped += entry.size;
      if (pools_.size() > 1)
        device.areas.add(entry.address, {entry.address + entry.size, entry.stream, of, 0});
      break;
    default:
      kind = EventKind::kSegmentUnmap;
      if (device.mapped < entry.size) return;
      device.mapped -= entry.size;
      if (pools_.size() > 1) device.areas.remove(entry.address, entry.address + entry.size);
  }
  ++report_.segments;
  const SiteId site = sites_.site_of(entry.stack);
  const StreamId on = stream(entry.stream);
  writer_.segment(kind, entry.address, entry.size, number, on, site, pool(of));
}

/// The number that the name ends with, if no other pass has it.
std::uint64_t Importer::pass_number(std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  if (digits < name.size() && name.size() - digits <= 18) {
    const std::uint64_t number = std::stoull(std::string(name.substr(digits)));
    if (taken_.insert(number).second) return number;
  }
  while (!taken_.insert(next_pass_).second) ++next_pass_;
  return next_pass_;
}

void Importer::write_annotation(const SnapshotAnnotation& annotation) {
  std::vector<std::uint64_t>& running = running_[annotation.name];
  if (annotation.begins) {
    ++report_.passes;
    running.push_back(pass_number(annotation.name));
    writer_.pass_begin(running.back(), 0);
  } else if (!running.empty()) {  // else it began before the annotations that were kept
    writer_.pass_end(running.back(), 0);
    running.pop_back();
  }
}

}  // namespace

ImportReport import_snapshot(const Snapshot& snapshot, TraceWriter& writer, const ImportOptions& options) {
  return Importer(snapshot, writer, options).run();
}

}  // namespace memoir

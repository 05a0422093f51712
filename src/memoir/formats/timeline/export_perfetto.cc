// SPDX-License-Identifier: Apache-2.0
//
// The messages are those of protos/perfetto/trace/ in Perfetto's sources; the numbers below are their fields.
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "memoir/base/utf8.h"
#include "memoir/formats/proto_writer.h"
#include "memoir/formats/timeline/export_timeline.h"
#include "memoir/formats/timeline/timeline.h"

namespace memoir {

namespace {

namespace trace_fields {
constexpr std::uint32_t kPacket = 1;
}
namespace packet {
constexpr std::uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInternedData = 12,
                        kSequenceFlags = 13, kTrackDescriptor = 60;
constexpr std::uint64_t kCleared = 1, kNeeds = 2;  // of the state of the sequence: what was interned
}  // namespace packet
namespace descriptor {
constexpr std::uint32_t kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8;
constexpr std::uint32_t kProcessId = 1, kProcessName = 6;
constexpr std::uint32_t kCounterUnit = 3;
constexpr std::uint64_t kUnitBytes = 3;
}  // namespace descriptor
namespace track_event {
constexpr std::uint32_t kAnnotation = 4, kType = 9, kNameId = 10, kTrack = 11, kName = 23, kCounterValue = 30;
constexpr std::uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;
}  // namespace track_event
namespace annotation {
constexpr std::uint32_t kUnsigned = 3, kString = 6, kPointer = 7, kName = 10, kStringId = 17;
}
namespace interned {
constexpr std::uint32_t kEventName = 2, kAnnotationString = 29;
constexpr std::uint32_t kId = 1, kText = 2;
}  // namespace interned

// A track is known by its uuid: what it shows in the top bits, the device, then the lane or stream.
enum class TrackKind : std::uint64_t {
  kDevice = 1,
  kLive,
  kLiveOfStream,
  kReserved,
  kLane,
  kLaneBefore,
  kFailures,
  kPasses,
  kPass
};
std::uint64_t uuid(TrackKind kind, std::uint16_t device = 0, std::uint32_t part = 0) {
  return static_cast<std::uint64_t>(kind) << 56 | std::uint64_t{device} << 32 | part;
}

class PerfettoSink final : public TimelineSink {
 public:
  PerfettoSink(const Trace& trace, Output& output) : trace_(trace), output_(output) {
    ProtoWriter first;
    first.varint(packet::kSequence, kSequence);
    first.varint(packet::kSequenceFlags, packet::kCleared);
    put(first);
  }

  void device(std::uint16_t number, bool) override {
    ProtoWriter process;
    process.varint(descriptor::kProcessId, number + 1u);  // 0 is the idle task
    process.bytes(descriptor::kProcessName, "device " + std::to_string(number));
    ProtoWriter track;
    track.varint(descriptor::kUuid, uuid(TrackKind::kDevice, number));
    track.message(descriptor::kProcess, process);
    describe(track);
  }
  void live(std::uint16_t device, std::optional<StreamId> stream, Tick time, Size bytes) override {
    if (stream) {
      counter(uuid(TrackKind::kLiveOfStream, device, *stream), device,
              "bytes live, stream " + std::to_string(*stream), time, bytes);
    } else {
      counter(uuid(TrackKind::kLive, device), device, "bytes live", time, bytes);
    }
  }
  void reserved(std::uint16_t device, Tick time, Size bytes) override {
    counter(uuid(TrackKind::kReserved, device), device, "bytes reserved", time, bytes);
  }
  void begins(const Event& allocation, std::uint32_t lane, const Event* address) override {
    ProtoWriter names;
    ProtoWriter event;
    event.varint(track_event::kType, track_event::kSliceBegin);
    event.varint(track_event::kTrack, lane_track(allocation, lane));
    event.varint(track_event::kNameId, name_of(allocation.site, names));
    annotate(event, "bytes", annotation::kUnsigned, allocation.size);
    annotate(event, "object", annotation::kUnsigned, allocation.object);
    annotate(event, "stream", annotation::kUnsigned, allocation.stream);
    if (address != nullptr) annotate(event, "address", annotation::kPointer, address->size);
    if (address != nullptr && pool_of(*address) != 0)
      annotate(event, "pool", annotation::kUnsigned, pool_of(*address));
    if (trace_.site_parent(allocation.site))
      annotate(event, "site", annotation::kStringId, chain_of(allocation.site, names));
    put_event(event, allocation.time, &names);
  }
  void ends(const Event& allocation, std::uint32_t lane, Tick time, bool freed) override {
    ProtoWriter event;
    event.varint(track_event::kType, track_event::kSliceEnd);
    event.varint(track_event::kTrack, lane_track(allocation, lane));
    if (!freed) annotate(event, "freed", "never");
    put_event(event, time);
  }
  void free_requested(const Event& allocation, std::uint32_t lane, Tick time) override {
    instant(lane_track(allocation, lane), "free requested", time);
  }
  void out_of_memory(const Event& failure) override {
    const std::uint64_t track = uuid(TrackKind::kFailures, failure.device);
    child(track, failure.device, "failed requests");
    ProtoWriter names;
    ProtoWriter event;
    event.varint(track_event::kType, track_event::kInstant);
    event.varint(track_event::kTrack, track);
    event.bytes(track_event::kName, "out of memory");
    annotate(event, "asked", annotation::kUnsigned, failure.size);
    annotate(event, "free", annotation::kUnsigned, failure.object);
    if (trace_.site_parent(failure.site))
      annotate(event, "site", annotation::kStringId, chain_of(failure.site, names));
    put_event(event, failure.time, &names);
  }
  /// Each on a track of its own, since they may overlap; the viewer draws tracks of one name as one.
  void pass(const Event& pass) override {
    const auto [known, fresh] = passes_.emplace(pass.object, static_cast<std::uint32_t>(passes_.size()));
    const std::uint64_t track = uuid(TrackKind::kPass, 0, known->second);
    if (fresh) {
      ProtoWriter description;
      description.varint(descriptor::kUuid, track);
      description.bytes(descriptor::kName, "passes");
      describe(description);
    }
    ProtoWriter event;
    const bool begins = pass.kind == EventKind::kPassBegin;
    event.varint(track_event::kType, begins ? track_event::kSliceBegin : track_event::kSliceEnd);
    event.varint(track_event::kTrack, track);
    if (begins) event.bytes(track_event::kName, "pass " + std::to_string(pass.object));
    put_event(event, pass.time);
  }

 private:
  static constexpr std::uint64_t kSequence = 1;

  void put(const ProtoWriter& packet) {
    ProtoWriter whole;
    whole.message(trace_fields::kPacket, packet);
    output_.put(whole.text());
  }
  void put_event(const ProtoWriter& event, Tick time, const ProtoWriter* names = nullptr) {
    ProtoWriter whole;
    whole.varint(packet::kTimestamp, time);
    whole.varint(packet::kSequence, kSequence);
    whole.varint(packet::kSequenceFlags, packet::kNeeds);
    if (names != nullptr && !names->text().empty()) whole.message(packet::kInternedData, *names);
    whole.message(packet::kTrackEvent, event);
    put(whole);
  }
  void describe(const ProtoWriter& track) {
    ProtoWriter whole;
    whole.varint(packet::kSequence, kSequence);
    whole.message(packet::kTrackDescriptor, track);
    put(whole);
  }
  /// Describes a track of a device, once. The viewer sorts them by name, and the objects fill many screens:
  /// the other names come before theirs.
  bool child(std::uint64_t track, std::uint16_t device, std::string_view name, bool counts = false) {
    if (!described_.insert(track).second) return false;
    ProtoWriter description;
    description.varint(descriptor::kUuid, track);
    description.bytes(descriptor::kName, name);
    description.varint(descriptor::kParent, uuid(TrackKind::kDevice, device));
    if (counts) {
      ProtoWriter unit;
      unit.varint(descriptor::kCounterUnit, descriptor::kUnitBytes);
      description.message(descriptor::kCounter, unit);
    }
    describe(description);
    return true;
  }
  /// What was there before the recording is hundreds of rows that say little: below the others.
  std::uint64_t lane_track(const Event& allocation, std::uint32_t lane) {
    const bool before = allocation.time == 0;
    const std::uint64_t track =
        uuid(before ? TrackKind::kLaneBefore : TrackKind::kLane, allocation.device, lane);
    child(track, allocation.device, before ? "objects from before" : "objects");
    return track;
  }
  void counter(std::uint64_t track, std::uint16_t device, std::string_view name, Tick time, Size bytes) {
    child(track, device, name, true);
    ProtoWriter event;
    event.varint(track_event::kType, track_event::kCounter);
    event.varint(track_event::kTrack, track);
    event.varint(track_event::kCounterValue, bytes);
    put_event(event, time);
  }
  void instant(std::uint64_t track, std::string_view name, Tick time) {
    ProtoWriter event;
    event.varint(track_event::kType, track_event::kInstant);
    event.varint(track_event::kTrack, track);
    event.bytes(track_event::kName, name);
    put_event(event, time);
  }
  static void annotate(ProtoWriter& event, std::string_view name, std::uint32_t type, std::uint64_t value) {
    ProtoWriter one;
    one.varint(type, value);
    one.bytes(annotation::kName, name);
    event.message(track_event::kAnnotation, one);
  }
  static void annotate(ProtoWriter& event, std::string_view name, std::string_view text) {
    ProtoWriter one;
    one.bytes(annotation::kString, text);
    one.bytes(annotation::kName, name);
    event.message(track_event::kAnnotation, one);
  }
  /// The number of a text, which is told with the packet that names it first.
  template <class Known, class Key>
  static std::uint64_t intern(Known& known, const Key& key, std::uint32_t field, ProtoWriter& names,
                              const std::string& text) {
    const std::uint64_t number = known.size() + 1;
    known.emplace(key, number);
    ProtoWriter entry;
    entry.varint(interned::kId, number);
    entry.bytes(interned::kText, text);
    names.message(field, entry);
    return number;
  }
  std::uint64_t name_of(SiteId site, ProtoWriter& names) {
    const std::string_view name = trace_.site_name(site);
    if (const auto known = names_.find(name); known != names_.end()) return known->second;
    return intern(names_, name, interned::kEventName, names, name.empty() ? "allocation" : valid_utf8(name));
  }
  std::uint64_t chain_of(SiteId site, ProtoWriter& names) {
    if (const auto known = chains_.find(site); known != chains_.end()) return known->second;
    return intern(chains_, site, interned::kAnnotationString, names, valid_utf8(trace_.site_chain(site)));
  }

  const Trace& trace_;
  Output& output_;
  std::unordered_set<std::uint64_t> described_;
  std::unordered_map<std::uint64_t, std::uint32_t> passes_;
  std::map<std::string_view, std::uint64_t> names_;  // that a stranger chose
  std::unordered_map<SiteId, std::uint64_t> chains_;
};

}  // namespace

std::uint64_t export_perfetto(const Trace& trace, Output& output) {
  PerfettoSink sink(trace, output);
  const std::uint64_t objects = walk_timeline(trace, sink);
  output.flush();
  return objects;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Simulations that start from the state which a recording has at its start: of histories recorded on GPUs
// (tests/data/gpu), from their begin and from where they are cut, and of recordings that cannot be.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/simulate/simulation.h"
#include "support/gpu_trace.h"

namespace memoir {

namespace {

using gpu_trace::GpuTrace;
using GpuKind = gpu_trace::Event::Kind;

constexpr Offset kRecordedBase = Offset{0x7f} << 40;  // a recorded address

/// A recording as an importer would write it.
class Recording {
 public:
  Recording& segment(EventKind kind, Range range, StreamId stream = 0) {
    Event event;
    event.object = range.begin;
    event.size = range.size;
    event.stream = stream;
    return add(kind, event);
  }
  Recording& allocate(ObjectId object, Size size, Offset address, StreamId stream = 0) {
    Event event;
    event.object = object;
    event.size = size;
    event.stream = stream;
    add(EventKind::kAllocate, event);
    event.size = address;
    return address == kNoOffset ? *this : add(EventKind::kAddress, event);
  }
  Recording& free(ObjectId object) {
    Event event;
    event.object = object;
    return add(EventKind::kFree, event);
  }
  Recording& begin() {
    time_ = 1000;
    return *this;
  }
  Workload workload() const { return Workload(events_); }

 private:
  Recording& add(EventKind kind, Event event) {
    event.kind = kind;
    event.time = time_;
    if (time_ != 0) time_ += 1000;
    events_.push_back(event);
    return *this;
  }
  std::vector<Event> events_;
  Tick time_ = 0;
};

/// The recorded device and program, event by event.
struct State {
  struct Piece {
    Size size = 0;
    StreamId stream = 0;
  };
  std::map<Offset, Piece> segments;  // or mapped ranges, in the pieces in which they came
  std::map<Offset, gpu_trace::Object> live;
  std::map<ObjectId, Offset> addresses;

  void allocate(const gpu_trace::Object& object) {
    live[object.address] = object;
    addresses[object.id] = object.address;
  }
  void unmap(Range range) {
    for (auto at = segments.begin(); at != segments.end();) {
      const Range piece{at->first, at->second.size};
      const StreamId stream = at->second.stream;
      if (!piece.overlaps(range)) {
        ++at;
        continue;
      }
      at = segments.erase(at);
      if (piece.begin < range.begin) segments[piece.begin] = {range.begin - piece.begin, stream};
      if (piece.end() > range.end()) segments[range.end()] = {piece.end() - range.end(), stream};
    }
  }
};

/// A recorded history without its first `cut` events: what they left is what was there before.
Recording recorded(const GpuTrace& trace, size_t cut = 0) {
  const bool mapped = std::any_of(trace.events.begin(), trace.events.end(),
                                  [](const gpu_trace::Event& event) { return event.kind == GpuKind::kMap; });
  State state;
  for (const Range& segment : trace.segments) state.segments[segment.begin].size = segment.size;
  for (const gpu_trace::Object& object : trace.live) state.allocate(object);
  for (size_t i = 0; i < cut; ++i) {
    const gpu_trace::Event& event = trace.events[i];
    if (event.is_allocate()) state.allocate({event.object, event.size, event.stream, event.address});
    if (event.is_free()) state.live.erase(state.addresses.at(event.object));
    if (event.kind == GpuKind::kSegmentAllocate || event.kind == GpuKind::kMap)
      state.segments[event.address] = {event.size, event.stream};
    if (event.kind == GpuKind::kSegmentFree) state.segments.erase(event.address);
    if (event.kind == GpuKind::kUnmap) state.unmap({event.address, event.size});
  }
  Recording recording;
  const EventKind held = mapped ? EventKind::kSegmentMap : EventKind::kSegmentAllocate;
  for (const auto& [address, piece] : state.segments)
    recording.segment(held, {address, piece.size}, piece.stream);
  for (const auto& [address, object] : state.live)
    recording.allocate(object.id, object.size, address, object.stream);
  recording.begin();
  for (size_t i = cut; i < trace.events.size(); ++i) {
    const gpu_trace::Event& event = trace.events[i];
    const Range range{event.address, event.size};
    switch (event.kind) {
      case GpuKind::kAllocate:
        recording.allocate(event.object, event.size, event.address, event.stream);
        break;
      case GpuKind::kFree:
        recording.free(event.object);
        break;
      case GpuKind::kSegmentAllocate:
        recording.segment(EventKind::kSegmentAllocate, range, event.stream);
        break;
      case GpuKind::kSegmentFree:
        recording.segment(EventKind::kSegmentFree, range, event.stream);
        break;
      case GpuKind::kMap:
        recording.segment(EventKind::kSegmentMap, range, event.stream);
        break;
      case GpuKind::kUnmap:
        recording.segment(EventKind::kSegmentUnmap, range, event.stream);
        break;
      case GpuKind::kOutOfMemory:
        break;
    }
  }
  return recording;
}

GpuTrace read_recorded(const std::string& name) {
  return gpu_trace::read(MEMOIR_TEST_DATA "/gpu/" + name + ".trace");
}

Simulation simulate_from(const Workload& workload, const std::string& recorded, const std::string& policy) {
  return simulate(workload, policy, {.timed = false, .recorded = recorded});
}

std::string message_of(const Recording& recording, const std::string& policy = "pytorch") {
  try {
    restored_state(recording.workload(), policy);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool is_of_device(const gpu_trace::Event& event) { return !event.is_allocate() && !event.is_free(); }

/// Notes in a history what a heap asks of its device, at addresses as a device would give.
class NotedSegments final : public Segments {
 public:
  NotedSegments(GpuTrace& trace, const StreamId& stream) : trace_(trace), stream_(stream) {}
  Offset take(Size size) noexcept override {
    const Offset begin = kRecordedBase + segments_.take(size);
    note(GpuKind::kSegmentAllocate, {begin, size});
    return begin;
  }
  void give_back(Range segment) noexcept override {
    segments_.give_back({segment.begin - kRecordedBase, segment.size});
    note(GpuKind::kSegmentFree, segment);
  }
  Size held() const noexcept override { return segments_.held(); }

 private:
  void note(GpuKind kind, Range range) {
    trace_.events.push_back({.kind = kind, .size = range.size, .stream = stream_, .address = range.begin});
  }
  GpuTrace& trace_;
  const StreamId& stream_;
  SimSegments segments_{kNoCap};
};

class NotedArena final : public Arena {
 public:
  NotedArena(GpuTrace& trace, const StreamId& stream) : trace_(trace), stream_(stream) {}
  Size capacity() const noexcept override { return arena_.capacity(); }
  Size granule() const noexcept override { return arena_.granule(); }
  bool commit(Range range) noexcept override {
    note(GpuKind::kMap, range);
    return arena_.commit(range);
  }
  void decommit(Range range) noexcept override {
    note(GpuKind::kUnmap, range);
    arena_.decommit(range);
  }
  Size committed() const noexcept override { return arena_.committed(); }

 private:
  void note(GpuKind kind, Range range) {
    trace_.events.push_back(
        {.kind = kind, .size = range.size, .stream = stream_, .address = kRecordedBase + range.begin});
  }
  GpuTrace& trace_;
  const StreamId& stream_;
  SimArena arena_{8 * 10 * kGiB, {.granule = 2 * kMiB}};
};

/// A program on two streams that empties the cache now and then, on `heap`; offset + base is the recorded
/// address. What its objects and calls do is written to `trace`.
void run_program(Heap& heap, GpuTrace& trace, StreamId& stream, Offset base, unsigned seed) {
  std::mt19937_64 random(seed);
  struct Live {
    ObjectId id;
    Offset offset;
  };
  std::vector<Live> live;
  for (int i = 0; i < 3000; ++i) {
    const bool full = live.size() > 60 || (i / 250 % 3 == 2 && live.size() > 5);
    if (random() % 100 < 2) {
      stream = 0;
      heap.trim();
    } else if (live.empty() || random() % 100 < (full ? 20 : 60)) {
      const Size size = random() % 3 == 0 ? 1 + random() % (30 * kMiB) : 1 + random() % (kMiB / 2);
      stream = static_cast<StreamId>(random() % 2);
      const Offset offset = heap.allocate({size, 1, kNoSite, stream});
      REQUIRE(offset != kNoOffset);
      live.push_back({trace.objects, offset});
      trace.events.push_back(
          {.object = trace.objects++, .size = size, .stream = stream, .address = base + offset});
    } else {
      std::swap(live[random() % live.size()], live.back());
      heap.free(live.back().offset);
      trace.events.push_back({.kind = GpuKind::kFree, .object = live.back().id});
      live.pop_back();
    }
  }
}

const std::string kDefault[] = {"bcrafton_cs336.d0", "magma27_cs336.d0", "silmont_fwd_fp32_128.d0",
                                "shreyansh_profile_grad.d0", "silmont_mem.d0"};
const std::string kExpandable[] = {"constructorsun_codeloc.d0", "constructorsun_codeloc.d2"};

}  // namespace

TEST_CASE("from the recorded state, every object of recorded histories gets its recorded address") {
  struct Case {
    std::string name, policy;
    std::uint64_t objects, start_objects, start_segments, calls;
  };
  const Case cases[] = {{"bcrafton_cs336.d0", "pytorch", 2162, 447, 96, 0},
                        {"magma27_cs336.d0", "pytorch", 1721, 229, 216, 0},
                        {"silmont_fwd_fp32_128.d0", "pytorch", 681, 137, 29, 0},
                        {"shreyansh_profile_grad.d0", "pytorch", 12, 0, 0, 7},
                        {"silmont_mem.d0", "pytorch", 36, 0, 0, 9},
                        {"constructorsun_codeloc.d0", "expandable", 2434, 0, 0, 175},
                        {"constructorsun_codeloc.d2", "expandable", 392, 0, 0, 78}};
  for (const Case& known : cases) {
    CAPTURE(known.name);
    const Workload workload = recorded(read_recorded(known.name)).workload();
    REQUIRE(recorded_policy(workload) == known.policy);
    const Simulation result = simulate_from(workload, known.policy, known.policy);
    REQUIRE(result.fidelity);
    CHECK(result.completed);
    CHECK(result.fidelity->same_settings);
    CHECK(result.fidelity->start_objects == known.start_objects);
    CHECK(result.fidelity->start_segments == known.start_segments);
    CHECK(result.fidelity->objects == known.objects);
    CHECK(result.fidelity->agreed == known.objects);
    CHECK(!result.fidelity->first_difference);
    CHECK(result.fidelity->recorded_calls == known.calls);
    CHECK(result.calls.all() == known.calls);
    CHECK(result.peak_reserved == result.fidelity->recorded_peak);
    CHECK(result.operations == workload.steps().size() - workload.start_steps());
    CHECK(result.peak_live == workload.peak_live());
  }
}

TEST_CASE("histories cut anywhere go on as recorded from the state at the cut") {
  const auto check = [](const std::string& name, const std::string& policy) {
    const GpuTrace trace = read_recorded(name);
    std::uint64_t compared = 0;
    for (size_t part = 1; part < 8; ++part) {
      const size_t cut = trace.events.size() * part / 8;
      CAPTURE(name);
      CAPTURE(cut);
      const Workload workload = recorded(trace, cut).workload();
      if (workload.device_calls().empty()) continue;
      const Simulation result = simulate_from(workload, policy, policy);
      REQUIRE(result.fidelity);
      CHECK(result.fidelity->agreed == result.fidelity->objects);
      CHECK(result.calls.all() == result.fidelity->recorded_calls);
      CHECK(result.peak_reserved == result.fidelity->recorded_peak);
      compared += result.fidelity->objects;
    }
    CHECK(compared > 2 * trace.events.size() / 8);
  };
  for (const std::string& name : kDefault) check(name, "pytorch");
  for (const std::string& name : kExpandable) check(name, "expandable");
}

TEST_CASE("with settings, two streams and emptied caches, too, programs go on as recorded") {
  const char* const confs[] = {"", "max_split_size_mb:24", "roundup_power2_divisions:4",
                               "large_segment_size_mb:32"};
  unsigned seed = 0;
  std::uint64_t compared = 0, calls = 0, differing = 0;
  for (const char* const conf : confs) {
    for (const std::string kind : {"pytorch", "expandable"}) {
      const std::string policy = *conf == 0 ? kind : kind + ":" + conf;
      CAPTURE(policy);
      PyTorchOptions options = PyTorchOptions::parse(conf);
      GpuTrace trace;
      StreamId stream = 0;
      if (kind == "pytorch") {
        NotedSegments segments(trace, stream);
        PyTorchHeap heap(segments, options);
        run_program(heap, trace, stream, 0, ++seed);
      } else {
        options.device_memory = 8 * kGiB;
        NotedArena arena(trace, stream);
        ExpandableHeap heap(arena, options);
        run_program(heap, trace, stream, kRecordedBase, ++seed);
      }
      for (size_t part = 0; part < 20; ++part) {
        size_t cut = trace.events.size() * part / 20;
        while (cut > 0 && is_of_device(trace.events[cut - 1])) --cut;  // not in the middle of a request
        CAPTURE(cut);
        const Workload workload = recorded(trace, cut).workload();
        const Simulation result = simulate_from(workload, policy, policy);
        REQUIRE(result.fidelity);
        CHECK(result.fidelity->same_settings);
        CHECK(result.fidelity->agreed == result.fidelity->objects);
        CHECK(result.calls.all() == result.fidelity->recorded_calls);
        compared += result.fidelity->objects;
        calls += result.fidelity->recorded_calls;
        // Other settings start there as well, and go other ways.
        const Simulation other = simulate_from(workload, policy, kind + ":roundup_power2_divisions:2");
        REQUIRE(other.fidelity);
        CHECK(!other.fidelity->same_settings);
        CHECK(other.fidelity->start_reserved == result.fidelity->start_reserved);
        differing += other.fidelity->agreed != other.fidelity->objects;
      }
    }
  }
  CHECK(compared > 100'000);
  CHECK(calls > 10'000);
  CHECK(differing > 100);
}

TEST_CASE("policies that cannot start from recorded segments start afresh, and only those") {
  const Workload plain = recorded(read_recorded("silmont_fwd_fp32_128.d0")).workload();
  for (const PolicyInfo& info : policies(Substrate::kSimulation)) {
    CAPTURE(info.name);
    const Simulation result = simulate_from(plain, "pytorch", info.name);
    CHECK(result.completed);
    CHECK(result.fidelity.has_value() == (info.name == "pytorch"));
    if (info.name != "pytorch") CHECK(result.operations == plain.steps().size());
  }
  const Workload mapped = recorded(read_recorded("constructorsun_codeloc.d2"), 200).workload();
  CHECK(simulate_from(mapped, "expandable", "pytorch:expandable_segments:True").fidelity);
  CHECK(!simulate_from(mapped, "expandable", "pytorch").fidelity);
  CHECK_THROWS_WITH_AS(simulate_from(mapped, "pytorch", "pytorch"), doctest::Contains("segments are mapped"),
                       Error);
  CHECK_THROWS_WITH_AS(simulate_from(mapped, "split", "split"), doctest::Contains("only PyTorch's"), Error);
}

TEST_CASE("a cap is not below what the recording starts with, and the search for one knows") {
  const Workload workload = recorded(read_recorded("silmont_fwd_fp32_128.d0")).workload();
  const Simulation free = simulate_from(workload, "pytorch", "pytorch");
  const Size held = free.fidelity->start_reserved;
  REQUIRE(held > workload.peak_live());
  CHECK_THROWS_WITH_AS(
      simulate(workload, "pytorch", {.cap = held - 1, .timed = false, .recorded = "pytorch"}),
      doctest::Contains(("under the " + std::to_string(held) + " bytes of segments").c_str()), Error);
  CHECK(simulate(workload, "pytorch", {.cap = held, .timed = false, .recorded = "pytorch"}).completed);
  CHECK(find_cap(workload, "pytorch", 0, "pytorch").cap == held);
  CHECK(find_cap(workload, "span", 0, "pytorch").cap < held);  // starts afresh
  const Simulation timed = simulate(workload, "pytorch", {.recorded = "pytorch"});
  CHECK(timed.times.mean > 0);
  CHECK(timed.timeline.front().reserved == held);
}

TEST_CASE("recordings that cannot have been get an error that names the event") {
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
  };
  constexpr EventKind kSegment = EventKind::kSegmentAllocate, kMap = EventKind::kSegmentMap;
  const Range large{kRecordedBase, 20 * kMiB};
  CHECK(message_of(Recording().segment(kSegment, large).allocate(1, 3 * kMiB, kRecordedBase).begin()) == "");
  CHECK(has(message_of(Recording().begin().allocate(1, 100, kRecordedBase)), "no recorded segments"));
  CHECK(has(
      message_of(Recording().segment(kSegment, large).segment(kSegment, {kRecordedBase + kMiB, 2 * kMiB})),
      "event 1: the recorded segment at 0x7f0000100000 overlaps the one of 20971520 bytes at "
      "0x7f0000000000 (event 0)"));
  CHECK(has(
      message_of(Recording().segment(kSegment, large).allocate(7, 100, kRecordedBase + 20 * kMiB)),
      "event 1: object 7 of 100 bytes at 0x7f0001400000 was live when the history began, but lies in no"));
  CHECK(has(message_of(Recording().segment(kSegment, large).allocate(7, 21 * kMiB, kRecordedBase)),
            "lies in no segment"));
  CHECK(has(message_of(Recording().segment(kSegment, large).allocate(7, 100, kNoOffset)),
            "does not say where"));
  CHECK(has(message_of(Recording().segment(kSegment, large).allocate(7, 100, kRecordedBase + 256)),
            "multiples of 512"));
  CHECK(has(message_of(Recording()
                           .segment(kSegment, large)
                           .allocate(7, 3 * kMiB, kRecordedBase)
                           .allocate(8, 3 * kMiB, kRecordedBase + 2 * kMiB)),
            "event 3: object 7 of 3145728 bytes at 0x7f0000000000 overlaps object 8"));
  CHECK(has(message_of(Recording()
                           .segment(kSegment, large)
                           .allocate(7, 3 * kMiB, kRecordedBase)
                           .allocate(8, 3 * kMiB, kRecordedBase, 1)),
            "of another stream"));
  CHECK(
      has(message_of(Recording().segment(kSegment, {0, Size{1} << 62})), "more than a device has addresses"));
  CHECK(has(message_of(Recording().segment(kSegment, {~Offset{0} - 511, kMiB})), "ends beyond 2^63"));
  CHECK(has(message_of(Recording().segment(kSegment, {kRecordedBase, 1000})), "not a multiple of 512"));
  CHECK(has(message_of(Recording().segment(kSegment, large).segment(kMap, {2 * kRecordedBase, 2 * kMiB})),
            "event 1: the recording has segments of both kinds"));
  CHECK(has(message_of(Recording().segment(kMap, {kRecordedBase, kMiB}), "expandable"),
            "not a multiple of 2097152"));
  CHECK(has(message_of(Recording()
                           .segment(kMap, {kRecordedBase, 20 * kMiB})
                           .allocate(7, 3 * kMiB, kRecordedBase)
                           .allocate(8, 1000, kRecordedBase + 4 * kMiB),
                       "expandable"),
            "separates those of up to 1 MiB"));
  CHECK(has(message_of(Recording().segment(kMap, {kMiB, 20 * kMiB}).segment(kMap, {kRecordedBase, 20 * kMiB}),
                       "expandable"),
            "over 2^42 bytes above"));
  CHECK(has(message_of(Recording()
                           .segment(kMap, {kRecordedBase, 20 * kMiB})
                           .segment(kMap, {kRecordedBase + 21 * kMiB, 20 * kMiB}),
                       "expandable"),
            "not a multiple of 2 MiB from"));
}

TEST_CASE("a device that put segments where the simulation still has some is not followed") {
  // The recorded allocator gave a segment back that ours keeps (an object of another size is in it), and got
  // it again.
  const Range first{kRecordedBase, 20 * kMiB};
  const Workload workload = Recording()
                                .segment(EventKind::kSegmentAllocate, first)
                                .allocate(1, 2 * kMiB, kRecordedBase)
                                .begin()
                                .segment(EventKind::kSegmentFree, first)
                                .segment(EventKind::kSegmentAllocate, {kRecordedBase + 2 * kMiB, 20 * kMiB})
                                .allocate(2, 19 * kMiB, kRecordedBase + 2 * kMiB)
                                .free(1)
                                .free(2)
                                .workload();
  const Simulation result = simulate_from(workload, "pytorch", "pytorch");
  CHECK(result.completed);
  CHECK(result.fidelity->objects == 1);
  CHECK(result.fidelity->agreed == 0);
  CHECK(result.fidelity->first_difference == 5);
  CHECK(result.peak_reserved == 40 * kMiB);
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Version 3: what encoders write by address comes back as the events that happened.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/base/site.h"
#include "memoir/trace/read/trace.h"
#include "memoir/trace/write/trace_writer.h"
#include "support/native_trace.h"
#include "trace/native_program.h"

namespace memoir {

TEST_CASE("threads that take over each other's addresses come out in order") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    Program program;
    program.run(seed, 6000, 1);
    for (const Bytes& bytes : {program.trace.bytes(), program.trace.closed()}) {
      const Trace trace = Trace::from_bytes(bytes);
      CHECK(trace.version() == 1);
      CHECK(trace.events().size() == program.allocations + program.frees);
      CHECK(trace.losses().missed_frees == 0);
      CHECK(trace.losses().unknown_frees == 0);
      CHECK(trace.lost_bytes() == 0);
      CHECK(fates_of(trace) == program.fates);
    }
    CHECK(Trace::from_bytes(program.trace.bytes()).complete());
  }
}

TEST_CASE(
    "within one tick only the addresses tell the order: nothing is lost, and each object is born as it was") {
  const auto births = [](Fates fates) {
    std::multiset<std::tuple<std::uint64_t, Size, std::uint32_t, std::uint64_t>> births;
    for (const auto& [address, all] : fates) {
      for (const Fate& fate : all) births.insert({address, fate.size, fate.thread, fate.born});
    }
    return births;
  };
  const auto ends = [](Fates fates) {
    std::multiset<std::pair<std::uint64_t, std::uint64_t>> ends;
    for (const auto& [address, all] : fates) {
      for (const Fate& fate : all) ends.insert({address, fate.died});
    }
    return ends;
  };
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    Program program;
    program.run(seed, 6000, seed % 2 == 0 ? 1000 : 20);
    const Trace trace = Trace::from_bytes(program.trace.closed());
    CHECK(trace.events().size() == program.allocations + program.frees);
    CHECK(trace.losses().missed_frees == 0);
    CHECK(trace.losses().unknown_frees == 0);
    CHECK(births(fates_of(trace)) == births(program.fates));
    CHECK(ends(fates_of(trace)) == ends(program.fates));
  }
}

TEST_CASE("an event takes few bytes") {
  NativeTrace trace(64 * kKiB);
  std::mt19937_64 random(1);
  constexpr int kPairs = 50'000;
  std::vector<std::uint64_t> live;
  for (int i = 0; i < kPairs; ++i) {  // 200 blocks that come and go, of 40 sizes and 300 stacks
    const std::uint64_t address = 0x55555575a2a0 + random() % 4000 * 32;
    trace.allocate(1, static_cast<std::uint64_t>(i) / 1000, address, 16 + random() % 40 * 8,
                   1 + random() % 300);
    trace.free(1, static_cast<std::uint64_t>(i) / 1000, address);
  }
  CHECK(trace.closed().size() < 4.5 * 2 * kPairs);
}

TEST_CASE("a record by its object comes back with all its fields") {
  std::mt19937_64 random(7);
  const auto draw = [&](std::uint64_t most) { return random() % 4 == 0 ? 0 : random() % (most + 1); };
  TraceWriter writer;
  std::vector<Event> expected;
  std::vector<ObjectId> live;
  std::map<ObjectId, std::uint16_t> devices;
  Tick time = 0;
  writer.set_time(0);
  std::uint64_t pass = 0;
  ObjectId next = 1;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 3 != 0) writer.set_time(time += draw(5'000'000'000));
    Event event{.time = time};
    const auto device = static_cast<std::uint16_t>(draw(3));
    const auto stream = static_cast<StreamId>(draw(~StreamId{0}));
    const auto thread = static_cast<std::uint32_t>(draw(~std::uint32_t{0}));
    const SiteId site = random() % 3 == 0 ? random() : random() % 20 + 1;
    switch (random() % 6) {
      case 0: {
        const ObjectId object = random() % 2 == 0 ? next++ : (next = random());
        if (devices.contains(object)) continue;
        event = {.kind = EventKind::kAllocate,
                 .alignment_log2 = static_cast<std::uint8_t>(draw(20)),
                 .device = device,
                 .thread = thread,
                 .object = object,
                 .site = site,
                 .size = draw(Size{1} << 40),
                 .time = time,
                 .stream = stream};
        REQUIRE(writer.allocate(object, site, event.size, Size{1} << event.alignment_log2, thread, device,
                                stream));
        live.push_back(object);
        devices[object] = device;
        break;
      }
      case 1: {
        if (live.empty()) continue;
        std::swap(live[random() % live.size()], live.back());
        event = {.kind = EventKind::kFree,
                 .device = devices[live.back()],
                 .thread = thread,
                 .object = live.back(),
                 .site = site,
                 .time = time,
                 .stream = stream};
        REQUIRE(writer.free(live.back(), thread, event.device, stream, site));
        live.pop_back();
        break;
      }
      case 2:
        event = {.kind = EventKind::kSegmentMap,
                 .device = device,
                 .object = draw(Size{1} << 50),
                 .site = site,
                 .size = 1 + draw(Size{1} << 40),
                 .time = time,
                 .stream = stream};
        REQUIRE(writer.segment(event.kind, event.object, event.size, device, stream, site));
        break;
      case 3:
        event = {.kind = EventKind::kOutOfMemory,
                 .device = device,
                 .object = draw(kMaxSize),
                 .site = site,
                 .size = draw(kMaxAddress),
                 .time = time,
                 .stream = stream};
        REQUIRE(writer.out_of_memory(event.size, event.object, device, stream, site));
        break;
      case 4:
        event = {.kind = EventKind::kPassBegin, .thread = thread, .object = pass++, .time = time};
        REQUIRE(writer.pass_begin(event.object, thread));
        break;
      default: {
        const std::string name(random() % 300, 'n');
        const SiteId defined = random() | 1;
        event = {.kind = EventKind::kSite,
                 .object = name.size(),
                 .site = defined,
                 .size = site,
                 .time = time,
                 .frame = static_cast<FrameKind>(1 + random() % 6)};
        if (site == defined) continue;
        REQUIRE(writer.define_site(defined, site, name, event.frame));
      }
    }
    expected.push_back(event);
  }
  const Bytes open(writer.bytes().begin(), writer.bytes().end());
  writer.close();
  for (const Trace& trace : {Trace::from_bytes(open), Trace::from_bytes(writer.bytes())}) {
    REQUIRE(trace.events().size() == expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), trace.events().begin()));
  }
}

TEST_CASE("stacks: native, Python and operator frames, symbols, inlined functions") {
  const auto write = [](NativeTrace& trace, bool use_first) {
    const std::byte build[] = {std::byte{0xab}, std::byte{0x01}};
    const auto define = [&](const auto& operation) { trace.write(9, 0, operation); };
    if (use_first) trace.allocate(1, 3, 0x1000, 64, 5);
    define([](BlockEncoder& to) { return to.define_stack(1, 0, std::vector<std::uint32_t>{1, 2, 3, 4}); });
    define([](BlockEncoder& to) { return to.define_stack(5, 4, std::vector<std::uint32_t>{5}); });
    define([](BlockEncoder& to) { return to.define_native_frame(1, 1, 0x1234); });
    define([](BlockEncoder& to) { return to.define_python_frame(2, 2, 3, 17); });
    define([](BlockEncoder& to) { return to.define_named_frame(3, FrameKind::kModulePath, 4); });
    define([](BlockEncoder& to) { return to.define_named_frame(4, FrameKind::kOperator, 5); });
    define([](BlockEncoder& to) { return to.define_native_frame(5, 2, 0x99); });
    define([&](BlockEncoder& to) {
      const BlockEncoder::MappedRange range{0x400000, 4096, 0, 5};
      return to.define_module(0, 1, 1, build, 0x400000, std::span(&range, 1));
    });
    define([&](BlockEncoder& to) { return to.define_module(0, 2, 8, {}, 0x7f0000000000, {}); });
    const char* const texts[] = {"/usr/bin/prog", "forward", "/src/model.py",  "layers.3", "aten::linear",
                                 "outer()",       "inner()", "/lib/libx.so.1", "a.cc"};
    for (std::uint32_t i = 0; i < std::size(texts); ++i) {
      define([&](BlockEncoder& to) { return to.define_string(i + 1, texts[i]); });
    }
    define([](BlockEncoder& to) {
      const BlockEncoder::Line lines[] = {{7, 9, 30}, {6, 9, 12}};
      return to.define_symbol(1, 0x1234, lines);
    });
    if (!use_first) trace.allocate(1, 3, 0x1000, 64, 5);
  };
  NativeTrace first, second;
  write(first, true);
  write(second, false);
  const Trace trace = Trace::from_bytes(first.closed());
  const SiteId site = trace.events()[0].site;
  CHECK(trace.site_chain(site) ==
        "inner() > forward (model.py:17) > layers.3 > aten::linear > libx.so.1+0x99");
  CHECK(trace.site_kind(site) == FrameKind::kNative);
  CHECK(site == Trace::from_bytes(second.closed()).events()[0].site);
  const std::vector<StackFrame> frames = trace.site_frames(site);
  REQUIRE(frames.size() == 6);
  CHECK((frames[0].function == "outer()" && frames[0].line == 12 && !frames[0].is_inlined));
  CHECK((frames[1].function == "inner()" && frames[1].line == 30 && frames[1].is_inlined));
  CHECK((frames[1].module == "/usr/bin/prog" && frames[1].offset == 0x1234));
  CHECK((frames[2].kind == FrameKind::kPython && frames[2].file == "/src/model.py" && frames[2].line == 17));
  CHECK((frames[5].module == "/lib/libx.so.1" && frames[5].function.empty()));
  REQUIRE(trace.process().modules.size() == 2);
  CHECK(
      (trace.process().modules[0].path == "/usr/bin/prog" && trace.process().modules[0].build_id == "ab01"));
  CHECK(trace.process().modules[0].ranges[0].protection == 5);
}

TEST_CASE("a stack that nobody defined is not a site; ids that cannot be are refused") {
  NativeTrace trace;
  trace.allocate(1, 0, 0x1000, 64, 7);
  CHECK(Trace::from_bytes(trace.bytes()).events()[0].site == kNoSite);
  const auto why = [](const auto& operation) {
    NativeTrace bad;
    bad.write(1, 0, operation);
    return refusal(bad.closed());
  };
  CHECK(contains(why([](BlockEncoder& to) { return to.define_native_frame(900'000'000, 1, 0); }),
                 "frame 900000000 cannot be"));
  CHECK(contains(why([](BlockEncoder& to) { return to.define_stack(3, 3, std::vector<std::uint32_t>{1}); }),
                 "stack 3 stands below its parent"));
  CHECK(contains(why([](BlockEncoder& to) { return to.define_string(0, "x"); }), "string 0 cannot be"));
  std::vector<std::uint32_t> deep(512, 1);
  NativeTrace chain;
  chain.write(1, 0, [](BlockEncoder& to) { return to.define_native_frame(1, 0, 0); });
  for (std::uint32_t i = 0; i < 9; ++i) {
    chain.write(1, 0, [&](BlockEncoder& to) { return to.define_stack(1 + i * 512, i * 512, deep); });
  }
  CHECK(contains(refusal(chain.closed()), "more than 4,096 frames"));
}

TEST_CASE("a tensor absorbs the malloc that served it") {
  NativeTrace trace;
  trace.write(9, 0, [](BlockEncoder& to) { return to.define_string(1, "aten::empty"); });
  trace.write(9, 0, [](BlockEncoder& to) { return to.define_named_frame(1, FrameKind::kOperator, 1); });
  trace.write(9, 0, [](BlockEncoder& to) { return to.define_stack(1, 0, std::vector<std::uint32_t>{1}); });
  trace.allocate(1, 1, 0x1000, 100);  // plain
  trace.allocate(1, 1, 0x2000, 576, 1);
  trace.allocate(1, 1, 0x2000, 512, 0, Family::kTensor);
  trace.allocate(1, 1, 0x3000, 640);
  trace.allocate(1, 1, 0x3000, 600, 1, Family::kTensor);
  trace.write(2, 2, [](BlockEncoder& to) { return to.free(2, 0x2000, 0, false, true); });
  trace.free(2, 2, 0x2000);
  trace.allocate(2, 3, 0x2000, 50);
  trace.free(1, 4, 0x1000);
  const Bytes bytes = trace.closed();
  const SiteId site = child_site(kNoSite, "aten::empty");
  const auto sizes = [](const Trace& of) {
    std::vector<Size> sizes;
    for (const Event& event : of.events())
      sizes.push_back(event.kind == EventKind::kAllocate ? event.size : event.object * 1'000'000);
    return sizes;
  };
  const Trace both = Trace::from_bytes(bytes);
  CHECK(sizes(both) == std::vector<Size>{100, 512, 600, 2'000'000, 50, 1'000'000});
  CHECK((both.events()[1].family == Family::kTensor && both.events()[1].site == site));
  CHECK((both.events()[2].family == Family::kTensor && both.events()[2].site == site));
  CHECK(both.events()[4].family == Family::kMalloc);
  const Trace tensors = Trace::from_bytes(bytes, "x", Only::kTensors);
  CHECK(sizes(tensors) == std::vector<Size>{512, 600, 1'000'000});
  CHECK(tensors.events()[0].site == site);
  const Trace mallocs = Trace::from_bytes(bytes, "x", Only::kMallocs);
  CHECK(sizes(mallocs) == std::vector<Size>{100, 576, 640, 2'000'000, 50, 1'000'000});
  for (const Trace* each : {&both, &tensors, &mallocs}) {
    CHECK((each->losses().unknown_frees == 0 && each->losses().missed_frees == 0));
  }
}

TEST_CASE("what is missing is counted, and nothing else is lost with it") {
  SUBCASE("frees of what was there before, and frees that were lost") {
    NativeTrace trace;
    trace.free(1, 1, 0x9000);
    trace.allocate(1, 2, 0x1000, 10);
    trace.allocate(2, 3, 0x1000, 20);
    trace.free(1, 4, 0x1000);
    const Trace read = Trace::from_bytes(trace.closed());
    CHECK((read.losses().unknown_frees == 1 && read.losses().missed_frees == 1));
    CHECK(read.events().size() == 4);
  }
  SUBCASE("a block in the middle") {
    Program program;
    program.run(3, 20'000, 20);
    program.trace.seal_all();
    const std::size_t all = Trace::from_bytes(program.trace.bytes()).events().size();
    REQUIRE(program.trace.sealed().size() > 6);
    program.trace.sealed().erase(program.trace.sealed().begin() + 1);
    const Trace read = Trace::from_bytes(program.trace.bytes());
    CHECK(read.losses().blocks == 1);
    CHECK(read.events().size() > all / 2);
    program.trace.sealed()[1][100] ^= std::byte{1};  // one that is torn
    CHECK(Trace::from_bytes(program.trace.bytes()).losses().blocks == 2);
    CHECK(contains(refusal(program.trace.closed()), "the checksum does not match"));
  }
  SUBCASE("a block that is there twice") {
    Program program;
    program.run(3, 20'000, 20);
    program.trace.seal_all();
    const std::size_t all = Trace::from_bytes(program.trace.bytes()).events().size();
    const Bytes again = program.trace.sealed()[1];
    program.trace.sealed().push_back(again);
    const Trace read = Trace::from_bytes(program.trace.closed());
    CHECK((read.complete() && read.lost_bytes() == 0));
    CHECK(read.losses().blocks == 1);
    CHECK(read.events().size() == all);
  }
  SUBCASE("what the recorder says") {
    NativeTrace trace;
    trace.header().dropped = 5;
    trace.write(1, 0, [](BlockEncoder& to) { return to.lost(0, Loss::kNoRoom, 7); });
    trace.write(1, 0, [](BlockEncoder& to) { return to.lost(0, Loss::kTooDeep, 9); });
    const Trace read = Trace::from_bytes(trace.closed());
    CHECK((read.dropped() == 12 && read.losses().deep_frames == 9));
  }
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Version 3: what encoders write by address comes back as the events that happened.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/base/site.h"
#include "memoir/trace/finish_trace.h"
#include "memoir/trace/trace.h"
#include "memoir/trace/trace_writer.h"
#include "support/native_trace.h"
#include "trace/temporary.h"

namespace memoir {

using namespace trace_format;
using Bytes = std::vector<std::byte>;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::string refusal(const Bytes& bytes) {
  try {
    Trace::from_bytes(bytes, "x.trace");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// What became of one object.
struct Fate {
  Size size = 0;
  std::uint32_t thread = 0;
  std::uint64_t born = 0;  // tick
  std::uint32_t free_thread = ~0u;
  std::uint64_t died = ~std::uint64_t{0};
  bool operator==(const Fate&) const = default;
};
using Fates = std::map<std::uint64_t, std::vector<Fate>>;  // by address, in the order in which they had it

/// A program of some threads on one heap of few addresses, so that they take over each other's at once.
struct Program {
  NativeTrace trace{BlockEncoder::kLeastBlock};
  Fates fates;
  std::uint64_t frees = 0, allocations = 0;

  void run(std::uint64_t seed, int steps, int ticks_per_step) {
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> unused, live;
    for (std::uint64_t i = 0; i < 400; ++i) unused.push_back(0x7f0000000000 + i * 48 + i % 3);
    std::uint64_t tick = 5;
    const auto take = [&](std::vector<std::uint64_t>& from) {
      std::swap(from[random() % from.size()], from.back());
      const std::uint64_t address = from.back();
      from.pop_back();
      return address;
    };
    for (int step = 0; step < steps; ++step) {
      if (random() % static_cast<unsigned>(ticks_per_step) == 0) tick += 1 + random() % 3;
      const auto thread = static_cast<std::uint32_t>(random() % 5);
      const auto end = [&](std::uint64_t address) {
        fates[address].back().free_thread = thread;
        fates[address].back().died = tick;
        unused.push_back(address);
        ++frees;
      };
      const auto begin = [&](std::uint64_t address, bool moved) {
        const Size size = random() % 7 == 0 ? random() % kGiB : 8 * (random() % 30);
        trace.write(thread, tick, [&](BlockEncoder& to) {
          return to.allocate(tick, address, size, 4, Family::kMalloc, 0, moved);
        });
        fates[address].push_back({size, thread, tick});
        live.push_back(address);
        ++allocations;
      };
      switch (live.empty() ? 0 : unused.empty() ? 1 : random() % 5) {
        case 0:
        case 2:
          begin(take(unused), false);
          break;
        case 1:
        case 3: {
          const std::uint64_t address = take(live);
          trace.free(thread, tick, address);
          end(address);
          break;
        }
        default: {  // a realloc, which may fail
          const std::uint64_t address = take(live);
          BlockEncoder::Freed freed;
          trace.write(thread, tick,
                      [&](BlockEncoder& to) { return to.free(tick, address, 0, true, false, &freed); });
          if (random() % 3 == 0) {
            REQUIRE(trace.encoder(thread).undo(freed));
            live.push_back(address);
          } else {
            end(address);
            begin(random() % 2 == 0 ? (unused.pop_back(), address) : take(unused), true);
          }
        }
      }
    }
  }
};

Fates fates_of(const Trace& trace) {
  Fates fates;
  std::map<ObjectId, std::pair<std::uint64_t, std::size_t>> objects;
  Tick last = 0;
  for (const Event& event : trace.events()) {
    CHECK(event.time >= last);
    last = event.time;
    if (event.kind == EventKind::kAllocate) {
      auto& had = fates[event.address];
      objects[event.object] = {event.address, had.size()};
      had.push_back({event.size, event.thread, event.time / kMillisecondTick});
    } else if (event.kind == EventKind::kFree) {
      const auto [address, number] = objects.at(event.object);
      fates[address][number].free_thread = event.thread;
      fates[address][number].died = event.time / kMillisecondTick;
    }
  }
  return fates;
}

}  // namespace

TEST_CASE("threads that take over each other's addresses come out in order") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    Program program;
    program.run(seed, 6000, 1);
    for (const Bytes& bytes : {program.trace.bytes(), program.trace.closed()}) {
      const Trace trace = Trace::from_bytes(bytes);
      CHECK(trace.version() == 3);
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

TEST_CASE("a stack that nobody defined is no site; ids that cannot be are refused") {
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
  SUBCASE("what the recorder says") {
    NativeTrace trace;
    trace.header().dropped = 5;
    trace.write(1, 0, [](BlockEncoder& to) { return to.lost(0, Loss::kNoRoom, 7); });
    trace.write(1, 0, [](BlockEncoder& to) { return to.lost(0, Loss::kTooDeep, 9); });
    const Trace read = Trace::from_bytes(trace.closed());
    CHECK((read.dropped() == 12 && read.losses().deep_frames == 9));
  }
}

TEST_CASE(
    "a killed process's file is read up to what it counted; a claimed block that was never begun is passed") {
  NativeTrace trace;
  for (std::uint64_t i = 1; i <= 100; ++i) trace.allocate(1, i, i * 4096, i);
  for (std::uint64_t i = 1; i <= 100; ++i) trace.allocate(2, i, i * 4096 + 2048, i);
  Bytes bytes = trace.bytes();
  // Blocks at multiples of 4,096, with room between them that was claimed and never begun.
  Bytes file(4096);
  std::copy_n(bytes.begin(), sizeof(Header), file.begin());
  file.insert(file.end(), bytes.begin() + 64, bytes.begin() + 64 + 16384);
  file.resize(file.size() + 5 * 65536);
  file.insert(file.end(), bytes.begin() + 64 + 16384, bytes.end());
  file.resize(file.size() + 8 * kMiB);
  const Trace whole = Trace::from_bytes(file);
  CHECK(whole.events().size() == 200);
  CHECK((!whole.complete() && whole.lost_bytes() == 0));
  BlockHeader header;
  std::memcpy(&header, &file[4096], sizeof header);
  header.used += 3;  // counted, but not there: the machine stopped
  std::memcpy(&file[4096], &header, sizeof header);
  const Trace torn = Trace::from_bytes(file);
  CHECK(torn.events().size() == 200);
  CHECK(torn.lost_bytes() == 3);
}

TEST_CASE("a file cut anywhere is read up to its last complete event, or says why not") {
  Program program;
  program.run(5, 1500, 50);
  const Bytes whole = program.trace.closed();
  std::size_t last = 0;
  for (std::size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 37) {
    CAPTURE(size);
    const Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    if (size < 64) {
      CHECK(contains(refusal(bytes), "x.trace: "));
      continue;
    }
    const Trace trace = Trace::from_bytes(bytes);
    CHECK_FALSE(trace.complete());
    CHECK(trace.lost_bytes() > 0);
    last = trace.events().size();
  }
  CHECK(last > 500);
}

TEST_CASE("no flipped bit goes unseen in a closed file") {
  NativeTrace trace;
  trace.write(9, 0, [](BlockEncoder& to) { return to.define_string(1, "/usr/bin/prog"); });
  trace.write(9, 0, [](BlockEncoder& to) { return to.define_native_frame(1, 0, 77); });
  trace.write(9, 0, [](BlockEncoder& to) { return to.define_stack(1, 0, std::vector<std::uint32_t>{1}); });
  for (std::uint64_t i = 1; i < 20; ++i) trace.allocate(1, i, i * 4096, i, 1);
  const Bytes whole = trace.closed();
  const Trace original = Trace::from_bytes(whole);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    if ((bit >= 32 * 8 && bit < 40 * 8) || (bit >= 56 * 8 && bit < 64 * 8))
      continue;  // the time of day; followers'
    CAPTURE(bit);
    Bytes bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const std::string why = refusal(bytes);
    if (!why.empty()) {
      CHECK(contains(why, "x.trace: "));
      continue;
    }
    const Trace read = Trace::from_bytes(bytes);  // behind a block's operations, or it is said in another way
    CHECK((!read.complete() || read.dropped() != 0 ||
           std::equal(read.events().begin(), read.events().end(), original.events().begin())));
  }
}

TEST_CASE("a stranger's file") {
  SUBCASE("compresses too well") {
    NativeTrace trace;
    trace.seal_all();
    BlockHeader header{.magic = kBlockMagic,
                       .encoding = kDeflate,
                       .flags = kSealed,
                       .reserved = 0,
                       .room = 64,
                       .used = 64,
                       .raw = kMostRoom,
                       .events = 0,
                       .lane = 1,
                       .sequence = 0,
                       .tick = 0,
                       .thread = 0,
                       .check = 0};
    Bytes block(sizeof header + 64);
    header.check = block_checksum(header, block.data() + sizeof header);
    std::memcpy(block.data(), &header, sizeof header);
    trace.sealed().push_back(block);
    CHECK(contains(refusal(trace.closed()), "cannot be read; the file is damaged"));
  }
  SUBCASE("names a lane for each block, all at one moment") {
    NativeTrace trace;
    for (std::uint32_t lane = 1; lane < 40'000; ++lane) {
      BlockHeader header{};
      header.magic = kBlockMagic;
      header.lane = lane;
      header.tick = 1;
      header.used = header.room = 8;
      header.flags = kSealed;
      Bytes block(sizeof header + 8, std::byte{0x40});
      block_checksum(header, block.data() + sizeof header);
      header.check = block_checksum(header, block.data() + sizeof header);
      std::memcpy(block.data(), &header, sizeof header);
      trace.sealed().push_back(block);
    }
    const std::string why = refusal(trace.closed());
    CHECK((why.empty() || contains(why, "more threads at one moment")));
  }
  SUBCASE("says both, ids and addresses") {
    NativeTrace trace;
    trace.allocate(1, 1, 0x1000, 8);
    trace.write(1, 1,
                [](BlockEncoder& to) { return to.record({.kind = EventKind::kAllocate, .object = 3}); });
    CHECK(contains(refusal(trace.closed()), "by their ids and by their addresses"));
  }
}

TEST_CASE("the process: threads, mappings, counters, its end") {
  NativeTrace trace;
  trace.write(1, 5, [](BlockEncoder& to) { return to.thread_begins(5, 1, 4711, 1); });
  trace.write(1, 5, [](BlockEncoder& to) { return to.define_string(1, "worker"); });
  trace.write(1, 6, [](BlockEncoder& to) {
    const BlockEncoder::Mappings groups[] = {{BlockEncoder::Region::kHeap, 0, 1, 4096, 2048, 1024, 0},
                                             {BlockEncoder::Region::kFile, 1, 3, 8192, 4096, 0, 512}};
    return to.mappings(6, BlockEncoder::Moment::kPeak, 10'000, groups);
  });
  trace.write(1, 7, [](BlockEncoder& to) { return to.counter(7, 1, 99); });
  trace.write(1, 8, [](BlockEncoder& to) { return to.thread_ends(8, 1); });
  trace.write(1, 9, [](BlockEncoder& to) { return to.program_ends(9, false, 3); });
  const Trace read = Trace::from_bytes(trace.closed());
  const ProcessRecord& process = read.process();
  REQUIRE(process.threads.size() == 1);
  CHECK((process.threads[0].system_id == 4711 && process.threads[0].name == "worker"));
  CHECK((process.threads[0].begin == 5'000'000 && process.threads[0].end == Tick{8'000'000}));
  REQUIRE(process.mappings.size() == 1);
  CHECK(
      (process.mappings[0].moment == ProcessRecord::Moment::kPeak && process.mappings[0].resident == 10'000));
  CHECK((process.mappings[0].groups[1].name == "worker" && process.mappings[0].groups[1].swapped == 512));
  CHECK((process.counters.size() == 1 && process.counters[0].value == 99));
  REQUIRE(process.end);
  CHECK((process.end->status == 3 && process.end->time == 9'000'000));
}

TEST_CASE("a file that grows is followed") {
  TemporaryFolder folder;
  const std::string path = folder / "x.trace";
  std::size_t seen = 0;
  SUBCASE("of one lane: every event at once") {
    TraceWriter writer(path.c_str());
    writer.set_time(0);
    Trace trace = Trace::follow(path);
    for (ObjectId object = 1; object < 60'000; ++object) {
      writer.allocate(object, object % 7, object, 8, 0);
      if (object % 3 == 0) writer.free(object - 1, 0);
      if (object % 9'000 == 0) {
        seen += trace.poll();
        CHECK(trace.events().size() == writer.records());
        CHECK(seen == writer.records());
        CHECK_FALSE(trace.complete());
      }
    }
    writer.close();
    trace.poll();
    CHECK(trace.complete());
    const Trace whole = Trace::open(path);
    CHECK(std::equal(trace.events().begin(), trace.events().end(), whole.events().begin(),
                     whole.events().end()));
  }
  SUBCASE("of several: up to what was flushed") {
    Program program;
    write_file(path, program.trace.bytes());
    Trace trace = Trace::follow(path);
    CHECK(trace.events().empty());
    program.run(1, 3000, 1);
    const Trace whole = Trace::from_bytes(program.trace.bytes());
    const std::uint64_t middle = whole.events()[1500].time / kMillisecondTick;
    program.trace.header().flushed = middle;
    write_file(path, program.trace.bytes());
    trace.poll();
    CHECK(trace.events().size() > 1400);
    CHECK(trace.events().back().time / kMillisecondTick < middle);
    program.trace.header().flushed = 1'000'000;
    write_file(path, program.trace.bytes());
    trace.poll();
    CHECK(fates_of(trace) == program.fates);
  }
}

TEST_CASE("a recording is finished: sealed, compressed, complete") {
  TemporaryFolder folder;
  const std::string path = folder / "x.trace";
  Program program;
  program.run(2, 20'000, 1);
  write_file(path, program.trace.bytes());
  Trace follower = Trace::follow(path);
  SUBCASE("after its own end") {
    const FinishedTrace done = finish_trace(path, {.status = 0});
    CHECK(done.after < done.before * 2 / 3);
    const Trace trace = Trace::open(path);
    CHECK(trace.complete());
    CHECK((trace.process().end && trace.process().end->status == 0));
    CHECK(fates_of(trace) == program.fates);
    follower.poll();
    CHECK(follower.complete());
    CHECK(finish_trace(path).after <= done.after + 64);
    CHECK(Trace::open(path).complete());
  }
  SUBCASE("after a kill") {
    finish_trace(path);
    const Trace trace = Trace::open(path);
    CHECK_FALSE(trace.complete());
    CHECK((trace.lost_bytes() == 0 && trace.losses().blocks == 0));
    CHECK(fates_of(trace) == program.fates);
  }
  SUBCASE("raw") {
    finish_trace(path, {.status = 1, .compress = false});
    CHECK(fates_of(Trace::open(path)) == program.fates);
  }
  CHECK_THROWS_WITH_AS(finish_trace(folder / "none"), doctest::Contains("cannot open"), Error);
}

}  // namespace memoir

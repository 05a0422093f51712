// SPDX-License-Identifier: Apache-2.0
//
// Reading traces that are cut, damaged, or not traces at all.
#include "memoir/trace/read/trace.h"

#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/base/site.h"
#include "memoir/trace/file/old_format.h"
#include "memoir/trace/format.h"
#include "memoir/trace/write/trace_writer.h"
#include "trace/old_trace.h"
#include "trace/temporary.h"

namespace memoir {

using namespace trace_format;
using Bytes = std::vector<std::byte>;

namespace {

// Records 0-1 a meta, 2-3 a site, 4 to 8 events.
Bytes small_trace() {
  OldTrace trace;
  trace.meta("model", "tiny");
  trace.define_site(11, kNoSite, "aten::conv2d");
  trace.pass_begin(0);
  trace.allocate(1, 11, 4096, 64);
  trace.allocate(2, 11, 512, 64);
  trace.free(1);
  trace.pass_end(0);
  trace.close();
  return trace.bytes();
}

/// Why these bytes are refused; empty when they are not.
std::string refusal(const Bytes& bytes) {
  try {
    Trace::from_bytes(bytes, "x.trace");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The small trace with one record changed, its checksum made right again.
Bytes forged(size_t record, const std::function<void(OldRecord&)>& change) {
  Bytes bytes = small_trace();
  std::byte* const at = bytes.data() + sizeof(Header) + record * kRecordSize;
  OldRecord event;
  std::memcpy(&event, at, sizeof event);
  change(event);
  const std::uint64_t texts = old_text_records(event, 2);
  const bool fits = texts <= (bytes.size() - sizeof(Header)) / kRecordSize - record - 1;
  if (fits) event.check = checksum(event, at + kRecordSize, texts);
  std::memcpy(at, &event, sizeof event);
  return bytes;
}

Bytes with_header(const std::function<void(OldHeader&)>& change) {
  Bytes bytes = small_trace();
  OldHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("a trace cut anywhere is read up to its last complete record, or says why not") {
  const Bytes whole = small_trace();
  REQUIRE(whole.size() == 64 + 9 * 48);
  const size_t begins[] = {0, 2, 4, 5, 6, 7, 8, 9};  // the records that events begin at, and the end
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const Bytes bytes(whole.begin(), whole.begin() + size);
    if (size < 64) {
      CHECK(contains(refusal(bytes), "x.trace: "));
      continue;
    }
    const Trace trace = Trace::from_bytes(bytes);
    size_t events = 0;
    while (64 + begins[events + 1] * 48 <= size) ++events;
    CHECK(trace.events().size() == events);
    CHECK_FALSE(trace.complete());
    CHECK(trace.lost_bytes() == whole.size() - 64 - begins[events] * 48);
  }
}

TEST_CASE("no flipped bit goes unseen in a closed trace") {
  const Bytes whole = small_trace();
  const Trace original = Trace::from_bytes(whole);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    CAPTURE(bit);
    if (bit >= 32 * 8 && bit < 40 * 8) continue;  // the time of day: any value can be
    Bytes bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const std::string why = refusal(bytes);
    if (why.empty()) {  // then it is said in another way
      const Trace trace = Trace::from_bytes(bytes);
      CHECK((!trace.complete() || trace.dropped() != 0));
    } else if (bit >= 64 * 8) {
      const size_t record = (bit / 8 - 64) / 48;
      const size_t named = record == 1   ? 0
                           : record == 3 ? 2
                                         : record;  // text belongs to the record before it
      const bool has_text = named + 1 < 4;          // its kind and its length move what follows
      const size_t byte = bit / 8 % 48 ^ 16;        // in the record: the header is a record and 16 bytes
      if (!has_text || record != named || (byte != 0 && (byte < 8 || byte >= 16))) {
        CHECK(contains(why, "x.trace: record " + std::to_string(named) + " (byte " +
                                std::to_string(64 + named * 48) + ")"));
      }
    }
  }
}

TEST_CASE("a record that was torn by a crash ends the trace; one in the middle is damage") {
  Bytes bytes = with_header([](OldHeader& header) { header.flags = 0, header.records = 0; });
  bytes.resize(bytes.size() + 4096);  // the room of a recording that runs
  CHECK_FALSE(Trace::from_bytes(bytes).complete());
  CHECK(Trace::from_bytes(bytes).lost_bytes() == 0);
  Bytes torn = bytes;
  std::memset(torn.data() + 64 + 8 * 48 + 8, 0, 40);
  CHECK(Trace::from_bytes(torn).events().size() == 6);
  CHECK(Trace::from_bytes(torn).lost_bytes() == 48);
  Bytes unfinished = bytes;  // all but the first word, which is written last
  std::memset(unfinished.data() + 64 + 8 * 48, 0, 8);
  CHECK(Trace::from_bytes(unfinished).events().size() == 6);
  CHECK(Trace::from_bytes(unfinished).lost_bytes() == 48);
  Bytes damaged = bytes;
  damaged[64 + 5 * 48 + 8] ^= std::byte{1};
  CHECK(contains(refusal(damaged), "x.trace: record 5 (byte 304): the checksum does not match"));
}

TEST_CASE("headers of others") {
  CHECK(contains(refusal({}), "the file is empty"));
  CHECK(contains(refusal(Bytes(200, std::byte{'a'})), "not a memoir trace: it is a text file"));
  CHECK(
      contains(refusal(Bytes(3, std::byte{0x7f})), "not a memoir trace: it begins with the bytes 7f 7f 7f"));
  CHECK(contains(refusal(with_header([](OldHeader& header) { header.version = 4; })),
                 "trace format version 4, but this memoir reads versions 1 to 3"));
  CHECK(contains(refusal(with_header([](OldHeader& header) { header.endianness = 0x04030201; })),
                 "big-endian"));
  CHECK(contains(refusal(with_header([](OldHeader& header) { header.record_size = 64; })),
                 "the header is damaged"));
  CHECK(contains(refusal(with_header([](OldHeader& header) { header.records = ~std::uint64_t{0}; })),
                 "damaged"));
  CHECK(contains(refusal(with_header([](OldHeader& header) { header.records = 8; })),
                 "record 8 (byte 448): the file goes on"));
}

TEST_CASE("records that cannot be, though their checksums are right") {
  const auto allocate = [](OldRecord& event) {
    event = {.kind = EventKind::kAllocate, .object = 9, .time = event.time};
  };
  CHECK(refusal(forged(5, [](OldRecord&) {})).empty());
  const auto why = [&](size_t record, const std::function<void(OldRecord&)>& change) {
    const std::string text = refusal(forged(record, change));
    CHECK(contains(text, "x.trace: record " + std::to_string(record) + " (byte "));
    return text;
  };
  CHECK(contains(why(5, [](OldRecord& e) { e.size = ~Size{0}; }),
                 "object 1 has 18446744073709551615 bytes, over 2^56"));
  CHECK(contains(why(5, [](OldRecord& e) { e.size = kMaxSize + 1; }), "over 2^56"));
  CHECK(contains(why(6, [](OldRecord& e) { e.size = kMaxSize; }), "live objects add up to more than 2^56"));
  CHECK(contains(why(5, [](OldRecord& e) { e.alignment_log2 = 64; }), "aligned to 2^64"));
  CHECK(contains(why(6, [](OldRecord& e) { e.object = 1; }), "object 1 is allocated a second time"));
  CHECK(contains(why(7, [](OldRecord& e) { e.object = 7; }), "object 7 is freed but was never allocated"));
  CHECK(contains(why(8, [](OldRecord& e) { e.kind = EventKind::kFree, e.object = 1; }),
                 "object 1 is freed a second time"));
  CHECK(contains(why(8, [](OldRecord& e) { e.object = 3; }), "pass 3 ends but is not running"));
  CHECK(contains(why(7, [](OldRecord& e) { e.kind = EventKind::kPassBegin, e.object = 0; }),
                 "pass 0 begins a second"));
  CHECK(contains(why(5, [](OldRecord& e) { e.kind = static_cast<EventKind>(15); }), "unknown kind 15"));
  CHECK(contains(why(8, [](OldRecord& e) { e.time = 0; }), "its time, 0 ns"));
  CHECK(contains(why(8, [](OldRecord& e) { e.time = ~Tick{0}; }), "its time"));
  CHECK(contains(why(2, [](OldRecord& e) { e.site = kNoSite; }), "site 0"));
  CHECK(contains(why(2, [](OldRecord& e) { e.object = 49 * 48; }), "goes past the end"));
  CHECK(contains(why(2, [](OldRecord& e) { e.object = ~Size{0}; }), "goes past the end"));
  CHECK(contains(why(0, [](OldRecord& e) { e.object = 3; }), "not key=value"));  // "mod"
  CHECK(contains(why(2, [](OldRecord& e) { e.kind = EventKind::kNone; }), "the record is empty"));
  CHECK(refusal(forged(4, allocate)).empty() == false);  // the pass that ends never began
}

TEST_CASE("sites: a circle, two meanings, a chain without end") {
  const auto why = [](const std::function<void(TraceWriter&)>& write) {
    TraceWriter writer;
    write(writer);
    return refusal({writer.bytes().begin(), writer.bytes().end()});
  };
  CHECK(contains(why([](TraceWriter& writer) {
                   writer.define_site(1, 2, "a");
                   writer.define_site(2, 1, "b");
                 }),
                 "runs in a circle"));
  CHECK(contains(why([](TraceWriter& writer) {
                   writer.define_site(1, 2, "a");
                   writer.define_site(1, 2, "a");
                   writer.define_site(1, 2, "b");
                 }),
                 "site 0000000000000001 is defined twice, as \"a\" and as \"b\""));
  const auto chain = [&](SiteId frames) {
    return why([&](TraceWriter& writer) {
      for (SiteId site = 1; site <= frames; ++site) writer.define_site(site, site - 1, "f");
    });
  };
  CHECK(chain(4096).empty());
  CHECK(contains(chain(4097), "more than 4,096 frames"));
}

TEST_CASE("a file of format version 1, recorded long ago, is still read") {
  const Trace trace = Trace::open(MEMOIR_TEST_DATA "/small.v1.trace");
  CHECK(trace.complete());
  CHECK(trace.events().size() == 27);
  CHECK(trace.meta("model") == "two layers");
  CHECK(trace.meta_keys().size() == 4);
  const SiteId linear = child_site(kNoSite, "aten::linear");
  CHECK(trace.site_chain(child_site(linear, "aten::empty")) == "aten::linear > aten::empty");
}

TEST_CASE("a file of format version 2, recorded long ago, is still read") {
  const Trace trace = Trace::open(MEMOIR_TEST_DATA "/small.v2.trace");
  CHECK(trace.complete());
  CHECK(trace.version() == 2);
  CHECK(trace.events().size() == 40);
  CHECK(trace.meta("model") == "two layers");

  const Trace pools = Trace::open(MEMOIR_TEST_DATA "/pools.v2.trace");
  CHECK(pools.complete());
  std::vector<std::uint32_t> defined, of_objects;
  for (const Event& event : pools.events()) {
    if (event.kind == EventKind::kPool) defined.push_back(pool_of(event));
    if (event.kind == EventKind::kAddress) of_objects.push_back(pool_of(event));
  }
  CHECK(defined == std::vector<std::uint32_t>{1, 2});
  CHECK(of_objects == std::vector<std::uint32_t>{0, 1, 1, 0, 2, 0, 1, 2});
}

TEST_CASE("a version 1 that does not keep to its own rules") {
  const Bytes golden = read_file(MEMOIR_TEST_DATA "/small.v1.trace");
  const auto why = [&](size_t record, const std::function<void(OldRecord&)>& change) {
    Bytes bytes = golden;
    std::byte* const at = bytes.data() + sizeof(Header) + record * kRecordSize;
    OldRecord event;
    std::memcpy(&event, at, sizeof event);
    change(event);
    const bool fits = event.device <= (golden.size() - sizeof(Header)) / kRecordSize - record - 1;
    if (fits) event.check = checksum(event, at + kRecordSize, event.device);
    std::memcpy(at, &event, sizeof event);
    return refusal(bytes);
  };
  const auto in_version_1 = [](const OldRecord& event) { return event.device; };  // records of text
  size_t text = 0, allocation = 0;
  for (size_t at = 0; at < (golden.size() - sizeof(Header)) / kRecordSize;) {
    OldRecord event;
    std::memcpy(&event, golden.data() + sizeof(Header) + at * kRecordSize, sizeof event);
    if (event.kind == EventKind::kMeta) text = at;
    if (event.kind == EventKind::kAllocate) allocation = at;
    at += 1 + in_version_1(event);
  }
  CHECK(why(text, [](OldRecord&) {}).empty());
  CHECK(contains(why(text, [](OldRecord& e) { e.stream = 50; }), "50 bytes of text in 1 records"));
  CHECK(contains(why(allocation, [](OldRecord& e) { e.stream = 1; }), "1 bytes of text in 0 records"));
  CHECK(contains(why(text, [](OldRecord& e) { e.device = 900; }), "goes past the end"));
  CHECK(contains(why(allocation, [](OldRecord& e) { e.kind = EventKind::kSegmentMap; }),
                 "version 1 knows 1 to 6"));
}

TEST_CASE("what is said of devices is checked") {
  const auto why = [](const std::function<void(TraceWriter&)>& write) {
    TraceWriter writer;
    writer.allocate(1, 0, 512, 1, 0, 2, 9);
    write(writer);
    writer.close();
    return refusal({writer.bytes().begin(), writer.bytes().end()});
  };
  using W = TraceWriter;
  CHECK(why([](W& w) { w.address(1, 4096, 2), w.free_requested(1, 0, 2), w.free(1, 0, 2); }).empty());
  CHECK(contains(why([](W& w) { w.free(1, 0); }), "object 1 is freed on device 0 but lives on device 2"));
  CHECK(contains(why([](W& w) { w.address(2, 4096, 2); }), "object 2 gets an address but was never"));
  CHECK(
      contains(why([](W& w) { w.address(1, 4096, 2), w.address(1, 4096, 2); }), "an address a second time"));
  CHECK(contains(why([](W& w) { w.free(1, 0, 2), w.address(1, 4096, 2); }), "an address after its free"));
  CHECK(contains(why([](W& w) { w.address(1, kMaxAddress - 511, 2); }), "ends beyond 2^63"));
  CHECK(
      contains(why([](W& w) { w.free_requested(1, 0, 2), w.free_requested(1, 0, 2); }), "released a second"));
  CHECK(contains(why([](W& w) { w.free(1, 0, 2), w.free_requested(1, 0, 2); }), "freed a second time"));

  constexpr auto kTake = EventKind::kSegmentAllocate, kGive = EventKind::kSegmentFree;
  constexpr auto kMap = EventKind::kSegmentMap, kUnmap = EventKind::kSegmentUnmap;
  CHECK(why([](W& w) { w.segment(kTake, 64, 8), w.segment(kGive, 64, 8), w.segment(kTake, 64, 9); }).empty());
  CHECK(contains(why([](W& w) { w.segment(kTake, 64, 8), w.segment(kTake, 64, 9); }),
                 "the segment of 9 bytes at 64 on device 0 is allocated where a live one begins"));
  CHECK(contains(why([](W& w) { w.segment(kTake, 64, 8), w.segment(kGive, 64, 9); }), "is not live"));
  CHECK(contains(why([](W& w) { w.segment(kTake, 64, 8, 1), w.segment(kGive, 64, 8, 2); }), "is not live"));
  CHECK(
      why([](W& w) { w.segment(kMap, 64, 8), w.segment(kUnmap, 68, 2), w.segment(kUnmap, 64, 4); }).empty());
  CHECK(contains(why([](W& w) { w.segment(kMap, 64, 8), w.segment(kUnmap, 64, 9); }),
                 "only 8 bytes are mapped"));
  CHECK(
      contains(why([](W& w) { w.segment(kMap, 64, kMaxSize), w.segment(kTake, 64, 1); }), "more than 2^56"));
  CHECK(why([](W& w) { w.out_of_memory(kMaxAddress, kMaxSize, 1, 2, 3); }).empty());
}

TEST_CASE("private pools are defined before something is of them, in order, each once") {
  const auto why = [](const std::function<void(TraceWriter&)>& write) {
    TraceWriter writer;
    writer.allocate(1, 0, 512, 1, 0, 2, 9);
    write(writer);
    writer.close();
    return refusal({writer.bytes().begin(), writer.bytes().end()});
  };
  using W = TraceWriter;
  constexpr auto kMap = EventKind::kSegmentMap;
  CHECK(why([](W& w) {
          w.define_pool(1, 0, 7), w.segment(kMap, 64, 8, 0, 0, 0, 1), w.define_pool(2, 7, 0);
          w.address(1, 4096, 2, 0, 2), w.out_of_memory(1, 1, 0, 0, 0, 1), w.segment(kMap, 64, 8);
        }).empty());
  CHECK(contains(why([](W& w) { w.address(1, 4096, 2, 0, 1); }),
                 "it is of pool 1, which no record before it defines"));
  CHECK(contains(why([](W& w) { w.define_pool(1, 0, 7), w.segment(kMap, 64, 8, 0, 0, 0, 2); }),
                 "it is of pool 2, which"));
  CHECK(contains(why([](W& w) { w.out_of_memory(1, 1, 0, 0, 0, ~0u), w.define_pool(1, 0, 7); }),
                 "it is of pool 4294967295"));
  CHECK(contains(why([](W& w) { w.define_pool(2, 0, 7); }), "it defines pool 2, though the next is pool 1"));
  CHECK(contains(why([](W& w) { w.define_pool(1, 0, 7), w.define_pool(1, 0, 8); }), "the next is pool 2"));
  CHECK(contains(why([](W& w) { w.define_pool(1, 0, 7), w.define_pool(2, 0, 7); }),
                 "pool 2 is (0, 7), as another one is"));
  CHECK(contains(
      refusal(forged(4, [](OldRecord& e) { e = {.kind = EventKind::kPool, .thread = 1, .time = e.time}; })),
      "pool 1 is (0, 0), as another one is"));
  CHECK(contains(
      refusal(forged(4,
                     [](OldRecord& e) {
                       e = {.kind = EventKind::kPool, .device = 3, .thread = 1, .object = 1, .time = e.time};
                     })),
      "it names device 3 and stream 0"));
}

TEST_CASE("records of devices that cannot be, though their checksums are right") {
  const auto why = [](size_t record, const std::function<void(OldRecord&)>& change) {
    return refusal(forged(record, change));
  };
  const auto segment = [](Offset address, Size size) {
    return [=](OldRecord& event) {
      event = {.kind = EventKind::kSegmentMap, .object = address, .size = size, .time = event.time};
    };
  };
  CHECK(contains(why(4, [](OldRecord& e) { e.device = 1; }), "it names device 1 and stream 0"));
  CHECK(contains(why(8, [](OldRecord& e) { e.stream = 7; }), "it names device 0 and stream 7"));
  CHECK(contains(why(4, segment(4096, 0)), "the segment of 0 bytes at 4096 on device 0 is empty"));
  CHECK(contains(why(4, segment(4096, kMaxSize + 1)), "over 2^56"));
  CHECK(contains(why(4, segment(~Offset{0}, 2)), "ends beyond 2^63"));
  CHECK(contains(
      why(4, [](OldRecord& e) { e = {.kind = EventKind::kOutOfMemory, .size = ~Size{0}, .time = e.time}; }),
      "asks for 18446744073709551615 bytes"));
  CHECK(contains(
      why(4, [](OldRecord& e) { e = {.kind = EventKind::kOutOfMemory, .object = ~Size{0}, .time = e.time}; }),
      "bytes are free on device 0, over 2^56"));
}

TEST_CASE("things that are not files of ours") {
  TemporaryFolder folder;
  const auto why = [](const std::string& path) {
    try {
      Trace::open(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(why(folder / "missing") == folder / "missing: cannot open: No such file or directory");
  CHECK(contains(why(folder / ""), "a folder"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(contains(why(folder / "pipe"), "not a regular file"));
  write_file(folder / "empty", {});
  CHECK(contains(why(folder / "empty"), "the file is empty"));
}

}  // namespace memoir

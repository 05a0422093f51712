// SPDX-License-Identifier: Apache-2.0
//
// Reading traces of others: headers, sites and devices that cannot be, files that are no traces.
#include "memoir/trace/read/trace.h"

#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/base/site.h"
#include "memoir/trace/format.h"
#include "memoir/trace/write/trace_writer.h"
#include "trace/temporary.h"

namespace memoir {

using namespace trace_format;
using Bytes = std::vector<std::byte>;

namespace {

Bytes small_trace() {
  TraceWriter writer;
  writer.meta("model", "tiny");
  writer.define_site(11, kNoSite, "aten::conv2d");
  writer.pass_begin(0, 0);
  writer.allocate(1, 11, 4096, 64, 0);
  writer.allocate(2, 11, 512, 64, 0);
  writer.free(1, 0);
  writer.pass_end(0, 0);
  writer.close();
  return {writer.bytes().begin(), writer.bytes().end()};
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

Bytes with_header(const std::function<void(Header&)>& change) {
  Bytes bytes = small_trace();
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("headers of others") {
  CHECK(contains(refusal({}), "the file is empty"));
  CHECK(contains(refusal(Bytes(200, std::byte{'a'})), "not a memoir trace: it is a text file"));
  for (const auto& [letter, kind] : {std::pair{'P', "it is a plan"},
                                     {'L', "it is a lifetime profile"},
                                     {'M', "it is a model of lifetimes"},
                                     {'?', "of another kind"}}) {
    Bytes other(200, std::byte{0});
    std::memcpy(other.data(), "\x89memoir", 7);
    other[7] = static_cast<std::byte>(letter);
    CHECK(contains(refusal(other), kind));
  }
  CHECK(
      contains(refusal(Bytes(3, std::byte{0x7f})), "not a memoir trace: it begins with the bytes 7f 7f 7f"));
  CHECK(contains(refusal(with_header([](Header& header) { header.version = 2; })),
                 "trace format version 2, but this memoir reads version 1"));
  CHECK(contains(refusal(with_header([](Header& header) { header.endianness = 0x04030201; })), "big-endian"));
  CHECK(contains(refusal(with_header([](Header& header) { header.tick = 64; })), "the header is damaged"));
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

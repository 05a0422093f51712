// SPDX-License-Identifier: Apache-2.0
//
// Version 3: files that are cut, damaged or hostile, that still grow, and that are finished.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/trace/read/trace.h"
#include "memoir/trace/write/finish_trace.h"
#include "memoir/trace/write/trace_appender.h"
#include "memoir/trace/write/trace_writer.h"
#include "support/native_trace.h"
#include "trace/native_program.h"
#include "trace/temporary.h"

namespace memoir {

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
  SUBCASE("ended in the middle of it") {
    const std::vector<std::byte> before = read_file(path);
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit limit{4096, 4096};  // which ends the process where its file grows over it
      ::setrlimit(RLIMIT_FSIZE, &limit);
      finish_trace(path, {.status = 0});
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ));
    CHECK(read_file(path) == before);
    CHECK(std::distance(std::filesystem::directory_iterator(folder / ""), {}) == 1);
  }
  CHECK_THROWS_WITH_AS(finish_trace(folder / "none"), doctest::Contains("cannot open"), Error);
}

TEST_CASE("what is added goes into the file that was looked through, or nowhere") {
  TemporaryFolder folder;
  const std::string path = folder / "x.trace";
  Program program;
  program.run(1, 100, 1);
  write_file(path, program.trace.bytes());
  finish_trace(path, {.status = 0});
  TraceAppender appender(path);
  appender.string("name");
  const std::vector<std::byte> other(1000, std::byte{7});
  write_file(folder / "other", other);
  std::filesystem::rename(folder / "other", path);
  CHECK_THROWS_WITH_AS(appender.write(), doctest::Contains("another file has its name now"), Error);
  CHECK(read_file(path) == other);
}

}  // namespace memoir

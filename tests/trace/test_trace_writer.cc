// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/write/trace_writer.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <string>

#include "doctest/doctest.h"
#include "malloc/surroundings.h"
#include "memoir/trace/read/trace.h"
#include "trace/temporary.h"

namespace memoir {

namespace {

// One small recording, whichever the writer.
void record_a_pass(TraceWriter& writer) {
  CHECK(writer.meta("model", "tiny"));
  CHECK(writer.define_site(11, kNoSite, "aten::conv2d"));
  CHECK(writer.pass_begin(0, 0));
  CHECK(writer.allocate(1, 12, 4096, 64, 0));
  CHECK(writer.define_site(12, 11, "aten::empty"));  // after its first use
  CHECK(writer.allocate(2, 11, 0, 1, 3));
  CHECK(writer.free(1, 3));
  CHECK(writer.pass_end(0, 0));
}

void check_a_pass(const Trace& trace) {
  REQUIRE(trace.events().size() == 8);
  const Event& event = trace.events()[3];
  CHECK(event.kind == EventKind::kAllocate);
  CHECK(event.object == 1);
  CHECK(event.site == 12);
  CHECK(event.size == 4096);
  CHECK(event.alignment_log2 == 6);
  CHECK(trace.events()[6].kind == EventKind::kFree);
  CHECK(trace.events()[6].thread == 3);
  CHECK(trace.site_chain(12) == "aten::conv2d > aten::empty");
  CHECK(trace.site_name(12) == "aten::empty");
  CHECK(trace.site_parent(12) == SiteId{11});
  CHECK(trace.site_parent(11) == kNoSite);
  CHECK_FALSE(trace.site_parent(13).has_value());
  CHECK(trace.site_chain(13).empty());
  CHECK(trace.meta("model") == "tiny");
  CHECK(trace.meta("nothing").empty());
  for (size_t i = 1; i < trace.events().size(); ++i)
    CHECK(trace.events()[i - 1].time <= trace.events()[i].time);
}

/// Runs `body` in a child of this process and gives back how it ended, as waitpid() does.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a file has its name only once it can be read") {
  TemporaryFolder folder;
  const std::string path = folder / "a.trace";
  // A reader in a loop sees no file, or one that is a trace, from the first moment on.
  for (int turn = 0; turn < 50; ++turn) {
    const pid_t child = ::fork();
    if (child == 0) {
      TraceWriter writer(path.c_str());
      ::_exit(writer.allocate(1, kNoSite, 64, 64, 0) ? 0 : 1);
    }
    int status = 0;
    pid_t ended = 0;
    while (::access(path.c_str(), F_OK) != 0 && ended == 0) ended = ::waitpid(child, &status, WNOHANG);
    REQUIRE(::access(path.c_str(), F_OK) == 0);
    CHECK(Trace::open(path).events().size() <= 1);
    if (ended == 0) ::waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK(Trace::open(path).events().size() == 1);
    ::unlink(path.c_str());
  }
}

TEST_CASE("what a writer writes is read back, from a file and from memory") {
  TemporaryFolder folder;
  TraceWriter file((folder / "a.trace").c_str());
  TraceWriter memory;
  REQUIRE(file.ok());
  REQUIRE(memory.ok());
  for (TraceWriter* writer : {&file, &memory}) {
    record_a_pass(*writer);
    CHECK(writer->records() == 8);
    CHECK_FALSE(Trace::from_bytes(writer->bytes()).complete());
    check_a_pass(Trace::from_bytes(writer->bytes()));
    writer->close();
    writer->close();
    CHECK_FALSE(writer->ok());
    CHECK(writer->error() == 0);
    CHECK_FALSE(writer->free(2, 0));
    CHECK(writer->dropped() == 1);
  }
  const Trace from_file = Trace::open(folder / "a.trace");
  check_a_pass(from_file);
  CHECK(from_file.complete());
  CHECK(from_file.lost_bytes() == 0);
  CHECK(read_file(folder / "a.trace").size() < 64 + 48 + 200);
  CHECK(Trace::from_bytes(memory.bytes()).complete());
  CHECK(file.bytes().empty());
}

TEST_CASE("a writer grows through many steps, in a file and in memory") {
  TemporaryFolder folder;
  TraceWriter file((folder / "a.trace").c_str());
  TraceWriter memory;
  for (TraceWriter* writer : {&file, &memory}) {
    for (ObjectId object = 0; object < 100'000; ++object) {
      REQUIRE(writer->allocate(object, 1, object, 64, 0));
      if (object % 2 == 0) REQUIRE(writer->free(object, 1));
    }
    writer->close();
  }
  for (const Trace& trace : {Trace::open(folder / "a.trace"), Trace::from_bytes(memory.bytes())}) {
    CHECK(trace.complete());
    REQUIRE(trace.events().size() == 150'000);
    CHECK(trace.events()[149'999].size == 99'999);
  }
}

TEST_CASE("long texts are cut, and impossible records dropped") {
  TraceWriter writer;
  // its last character lies across the limit
  const std::string long_name = std::string(4095, 'x') + "\u00e9";
  CHECK(writer.define_site(1, kNoSite, long_name));
  CHECK(writer.define_site(2, 1, ""));
  CHECK_FALSE(writer.define_site(kNoSite, 1, "no"));
  CHECK_FALSE(writer.define_site(3, 3, "its own parent"));
  CHECK(writer.meta("long", std::string(1'000'000, 'v')));
  CHECK_FALSE(writer.meta("long", std::string(kMiB, 'v')));
  CHECK_FALSE(writer.meta("", "v"));
  CHECK_FALSE(writer.meta("a=b", "v"));
  CHECK_FALSE(writer.allocate(1, 1, ~Size{0}, 64, 0));
  CHECK_FALSE(writer.allocate(1, 1, 64, 48, 0));
  CHECK_FALSE(writer.allocate(1, 1, 64, 0, 0));
  CHECK(writer.ok());
  writer.close();
  const Trace trace = Trace::from_bytes(writer.bytes());
  CHECK(trace.site_name(1) == std::string(4095, 'x'));
  CHECK(trace.meta("long").size() == 1'000'000);
  CHECK(trace.dropped() == 8);
  CHECK(trace.events().size() == 3);
}

TEST_CASE("devices, streams, segments, and times of somebody else") {
  TraceWriter writer;
  writer.set_start(1'000);
  CHECK(writer.set_time(50));
  CHECK(writer.segment(EventKind::kSegmentAllocate, 0x7000, 4096, 3, 8, 12));
  CHECK(writer.allocate(1, 12, 100, 1, 0, 3, 8));
  CHECK(writer.address(1, 0x7000, 3, 8));
  CHECK(writer.set_time(60));
  CHECK_FALSE(writer.set_time(59));
  CHECK_FALSE(writer.set_time(~Tick{0}));
  CHECK(writer.free_requested(1, 2, 3, 8, 13));
  CHECK(writer.free(1, 2, 3, 8, 13));
  CHECK(writer.out_of_memory(Size{1} << 60, 5, 3, 9, 12));
  CHECK_FALSE(writer.segment(EventKind::kAllocate, 1, 1));
  CHECK_FALSE(writer.segment(EventKind::kSegmentMap, 1, 0));
  CHECK_FALSE(writer.segment(EventKind::kSegmentMap, ~Offset{0}, 1));
  CHECK_FALSE(writer.address(1, ~Offset{0}));
  CHECK_FALSE(writer.out_of_memory(~Size{0}, 0));
  CHECK_FALSE(writer.define_pool(0, 1, 2));
  CHECK_FALSE(writer.define_pool(1, 0, 0));
  CHECK(writer.define_pool(1, 0, ~std::uint64_t{0}));
  CHECK(writer.segment(EventKind::kSegmentMap, 0x9000, 1, 3, 8, 12, 1));
  writer.close();
  const Trace trace = Trace::from_bytes(writer.bytes());
  CHECK(trace.version() == 1);
  CHECK(trace.start() == 1'000);
  CHECK(trace.dropped() == 7);
  const Event expected[] = {
      {.kind = EventKind::kSegmentAllocate,
       .device = 3,
       .object = 0x7000,
       .site = 12,
       .size = 4096,
       .time = 50,
       .stream = 8},
      {.kind = EventKind::kAllocate,
       .device = 3,
       .object = 1,
       .site = 12,
       .size = 100,
       .time = 50,
       .stream = 8},
      {.kind = EventKind::kAddress, .device = 3, .object = 1, .size = 0x7000, .time = 50, .stream = 8},
      {.kind = EventKind::kFreeRequested,
       .device = 3,
       .thread = 2,
       .object = 1,
       .site = 13,
       .time = 60,
       .stream = 8},
      {.kind = EventKind::kFree, .device = 3, .thread = 2, .object = 1, .site = 13, .time = 60, .stream = 8},
      {.kind = EventKind::kOutOfMemory,
       .device = 3,
       .object = 5,
       .site = 12,
       .size = Size{1} << 60,
       .time = 60,
       .stream = 9},
      {.kind = EventKind::kPool, .thread = 1, .size = ~std::uint64_t{0}, .time = 60},
      {.kind = EventKind::kSegmentMap,
       .device = 3,
       .thread = 1,
       .object = 0x9000,
       .site = 12,
       .size = 1,
       .time = 60,
       .stream = 8}};
  REQUIRE(trace.events().size() == std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    CAPTURE(i);
    CHECK(trace.events()[i] == expected[i]);
  }
}

TEST_CASE("an existing file is not overwritten, a folder that is missing is said") {
  TemporaryFolder folder;
  { TraceWriter writer((folder / "a.trace").c_str()); }
  TraceWriter again((folder / "a.trace").c_str());
  CHECK_FALSE(again.ok());
  CHECK(again.error() == EEXIST);
  CHECK_FALSE(again.free(1, 0));
  CHECK(again.bytes().empty());
  TraceWriter nowhere((folder / "missing/a.trace").c_str());
  CHECK(nowhere.error() == ENOENT);
  CHECK(Trace::open(folder / "a.trace").complete());
  CHECK(Trace::open(folder / "a.trace").events().empty());
}

TEST_CASE("the file of a process that was killed is read up to its last record") {
  TemporaryFolder folder;
  const std::string path = folder / "killed.trace";
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    TraceWriter writer(path.c_str());
    writer.define_site(1, kNoSite, "aten::empty");
    for (ObjectId object = 0;; ++object) {
      writer.allocate(object, 1, 64, 64, 0);
      if (object >= 10) writer.free(object - 10, 0);
      if (object == 50'000) [[maybe_unused]]
        const auto told = ::write(ready[1], "x", 1);
    }
  }
  char byte;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  ::close(ready[0]);
  ::close(ready[1]);
  const Trace trace = Trace::open(path);
  CHECK_FALSE(trace.complete());
  CHECK(trace.lost_bytes() == 0);
  REQUIRE(trace.events().size() >= 99'990);
  CHECK(trace.site_name(1) == "aten::empty");
  const Event& last = trace.events().back();
  CHECK(last.object >= 49'990);
}

TEST_CASE("a limit on file sizes ends the recording, not the program") {
  TemporaryFolder folder;
  const std::string path = folder / "limited.trace";
  const int status = in_child([&] {
    const rlimit limit{1'500'000, 1'500'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    TraceWriter writer(path.c_str());
    ObjectId object = 0;
    while (writer.allocate(object, 1, 64, 64, 0)) ++object;
    for (int i = 0; i < 9; ++i) writer.free(0, 0);
    if (writer.ok() || writer.error() != EFBIG || writer.dropped() != 10) ::_exit(3);
  });
  CHECK(status == 0);
  const Trace trace = Trace::open(path);
  CHECK(trace.complete());
  CHECK(trace.dropped() == 10);
  CHECK(trace.events().size() > 100'000);
}

TEST_CASE("a full disk ends the recording, not the program") {
  TemporaryFolder folder;
  constexpr int kNoRight = 77;
  const int status = in_child([&] {  // a file system of 2 MiB, seen by the child alone
    const std::string mount = folder / "";
    if (::unshare(::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", mount.c_str(), "tmpfs", 0, "size=2m") != 0) {
      ::_exit(kNoRight);
    }
    const std::string path = folder / "full.trace";
    TraceWriter writer(path.c_str());
    ObjectId object = 0;
    while (writer.allocate(object, 1, 64, 64, 0)) ++object;
    if (writer.error() != ENOSPC || writer.dropped() != 1) ::_exit(1);
    TraceWriter none((folder / "none.trace").c_str());
    if (none.ok() || none.error() != ENOSPC || ::access((folder / "none.trace").c_str(), F_OK) == 0)
      ::_exit(2);
    writer.close();
    const Trace trace = Trace::open(path);
    if (trace.events().size() != object || object < 40'000 || trace.dropped() != 1) ::_exit(3);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoRight) {
    MESSAGE("skipped: no right to mount a small file system here");
    return;
  }
  CHECK(status == 0);
}

TEST_CASE("a forked child does not write into its parent's file") {
  TemporaryFolder folder;
  const std::string path = folder / "parent.trace";
  TraceWriter writer(path.c_str());
  CHECK(writer.allocate(1, 1, 64, 64, 0));
  const int status = in_child([&] {
    if (writer.ok() || writer.allocate(2, 1, 64, 64, 0)) ::_exit(2);
    writer.close();
  });
  CHECK(status == 0);
  CHECK(writer.ok());
  CHECK(writer.free(1, 0));
  writer.close();
  const Trace trace = Trace::open(path);
  CHECK(trace.complete());
  CHECK(trace.events().size() == 2);
}

TEST_CASE("a forked child does not write into its parent's file where the system wipes nothing") {
  TemporaryFolder folder;
  const std::string path = folder / "parent.trace";
  const int status = in_child([&] {
    surround("refuse=madvise");
    TraceWriter writer(path.c_str());
    if (!writer.allocate(1, 1, 64, 64, 0)) ::_exit(3);
    const int of_child = in_child([&] {
      if (writer.allocate(2, 1, 64, 64, 0) || writer.ok()) ::_exit(2);
      writer.close();
    });
    if (of_child != 0 || !writer.ok() || !writer.free(1, 0)) ::_exit(4);
    writer.close();
  });
  CHECK(status == 0);
  const Trace trace = Trace::open(path);
  CHECK(trace.complete());
  CHECK(trace.events().size() == 2);
}

}  // namespace memoir

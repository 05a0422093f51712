// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "device/device_program.h"
#include "doctest/doctest.h"

using namespace memoir;
using run::as_address;
using run::as_stream;
using run::Program;

TEST_CASE(
    "a loop on two streams is planned and calls the driver for memory no more; a graph is captured "
    "meanwhile") {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    fake::fresh(512 * kMiB, 64 * kKiB);
    fake_seed(seed);
    Program program("memoir,patience=1000",
                    {.cap = 256 * kMiB});  // moves memory, so that there is something to plan
    void* const streams[] = {fake_stream_create(), fake_stream_create()};
    struct Object {
      Size size;
      int stream;
      size_t dies;  // when so many more have been allocated, at most at the end of its round
    };
    std::mt19937 random(seed);
    std::vector<Object> round;
    for (int i = 0; i < 200; ++i) {
      const bool large = random() % 3 == 0;
      const Size size = 1 + random() % (large ? kMiB : 32 * kKiB);
      const int stream = random() % 4 == 0;
      round.push_back({size, stream, 1 + random() % 30});
    }
    struct Live {
      void* pointer;
      Size size;
      int value;
      void* stream;
    };
    std::multimap<size_t, Live> live;  // by when it dies
    size_t now = 0;
    const auto run_round = [&] {
      const size_t end = now + round.size();
      for (const Object& object : round) {
        while (!live.empty() && live.begin()->first <= now) {
          const Live dead = live.begin()->second;
          live.erase(live.begin());
          fake_launch_check(dead.stream, as_address(dead.pointer), dead.size, dead.value);
          REQUIRE(program.free(dead.pointer));
        }
        void* const stream = streams[object.stream];
        program.runtime.finish_plans();
        void* const pointer = program.allocate(object.size, stream);
        REQUIRE(pointer != nullptr);
        const int value = 1 + static_cast<int>(random() % 250);
        fake_launch_fill(stream, as_address(pointer), object.size, value);
        live.insert({std::min(now + object.dies, end), {pointer, object.size, value, stream}});
        ++now;
        if (random() % 8 == 0) fake_run(static_cast<int>(random() % 6));
      }
    };
    const auto calls = [] {
      return fake_calls("cuMemMap") + fake_calls("cuMemUnmap") + fake_calls("cuMemCreate");
    };
    for (int i = 0; i < 3; ++i) run_round();
    const auto before = calls();
    for (int i = 0; i < 5; ++i) run_round();
    CHECK(calls() == before);
    const LearningHeap::Counters loops = program.runtime.view().loops;
    CHECK(loops.plans == 1);
    CHECK(loops.planned >= 5 * round.size());
    CHECK(loops.dropped == 0);

    // While a graph is captured with a pool of its own, the loop goes on, and so it does after it.
    const DevicePoolId graph{1, 0};
    program.runtime.begin_pool(graph, [&](cuda::Stream stream) { return stream == as_stream(streams[0]); });
    const int captured = fake_capture_begin(streams[0]);
    for (int i = 0; i < 3; ++i) {
      void* const pointer = program.allocate(kMiB, streams[0]);
      fake_launch_fill(streams[0], as_address(pointer), kMiB, 7);
      REQUIRE(program.free(pointer));
      REQUIRE(program.free(program.allocate(5 * kMiB, streams[1])));
    }
    CHECK(fake_capture_end(streams[0]) == 1);
    program.runtime.end_pool(graph);
    for (int i = 0; i < 4; ++i) run_round();
    fake_graph_launch(captured, streams[0]);
    program.runtime.release_pool(graph);
    // Another phase needs everything: the plan is in nobody's way.
    for (const auto& [when, object] : live) {
      fake_launch_check(object.stream, as_address(object.pointer), object.size, object.value);
      REQUIRE(program.free(object.pointer));
    }
    fake_run_all();
    void* const all = program.allocate(250 * kMiB, streams[1]);
    CHECK(all != nullptr);
    CHECK(program.free(all));
    fake_run_all();
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("who moves idle memory waits for the device once a request, and less from round to round") {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    fake::fresh(128 * kMiB, 64 * kKiB);
    std::mt19937 random(seed);
    std::vector<Size> sizes(200);
    for (Size& size : sizes) size = 64 * kKiB + random() % (4 * kMiB);
    // So little room that the pool has to be tight.
    std::vector<Size> held;
    Size bytes = 0, peak = 0;
    for (const Size size : sizes) {
      held.push_back(size);
      peak = std::max(peak, bytes += size);
      while (held.size() > 32) {
        std::swap(held[held.size() * 7 / 13], held.back());
        bytes -= held.back();
        held.pop_back();
      }
    }
    Program program("memoir,learn=false", {.cap = peak + peak / 12});
    std::vector<std::uint64_t> waits_of_round;
    const auto quiets = [&] { return program.runtime.view().stream_calls.quiets; };
    for (int round = 0; round < 6; ++round) {
      const std::uint64_t before_round = quiets();
      std::vector<void*> live;
      for (const Size size : sizes) {
        const std::uint64_t before = quiets(), retries = program.runtime.view().stats.retries;
        void* const pointer = program.allocate(size);
        REQUIRE(pointer != nullptr);
        const bool climbed = program.runtime.view().stats.retries != retries;
        CHECK(quiets() - before <= (climbed ? 3 : 1));  // a rung of the ladder may wait as well
        live.push_back(pointer);
        const std::uint64_t waited = quiets();
        while (live.size() > 32) {
          std::swap(live[live.size() * 7 / 13], live.back());
          REQUIRE(program.free(live.back()));
          live.pop_back();
        }
        CHECK(quiets() == waited);  // a free waits for nothing
      }
      for (void* const pointer : live) REQUIRE(program.free(pointer));
      waits_of_round.push_back(quiets() - before_round);
    }
    const auto calls = program.runtime.view().stream_calls;
    CHECK(waits_of_round[0] > 0);
    CHECK(waits_of_round[5] <= waits_of_round[0] + waits_of_round[0] / 4);  // where it could, it grew instead
    CHECK(program.runtime.device().counts().decommits >= calls.quiets);  // a wait is for one piece at least
    CHECK(calls.longest_quiet <= calls.quiet_time);
    CHECK(calls.quiet_time <= calls.quiets * calls.longest_quiet);
    MESSAGE("waits in each round: " << waits_of_round[0] << ", " << waits_of_round[1] << ", "
                                    << waits_of_round[2] << " ... " << waits_of_round[5]);
    CHECK(fake::misuses() == "");
  }
}

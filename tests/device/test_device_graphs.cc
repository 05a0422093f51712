// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "device/device_program.h"
#include "device/tried_policies.h"
#include "doctest/doctest.h"
#include "support/fake_cuda/fake.h"

using namespace memoir;
using run::as_address;
using run::as_stream;
using run::kGranule;
using run::Program;
using run::Tried;
using run::tried_policies;

TEST_CASE("a captured graph's memory is its own until it is released") {
  for (const Tried& policy : tried_policies()) {
    CAPTURE(policy.name);
    fake::fresh();
    {
      Program program(policy.name);
      void* const captured = fake_stream_create();
      void* const other = fake_stream_create();
      const DevicePoolId id{1, 0};
      program.runtime.begin_pool(id, [&](cuda::Stream stream) { return stream == as_stream(captured); });
      const int graph = fake_capture_begin(captured);
      void* const first = program.allocate(3 * kMiB, captured);
      fake_launch_fill(captured, as_address(first), 3 * kMiB, 5);
      fake_launch_check(captured, as_address(first), 3 * kMiB, 5);
      CHECK(program.free(first));
      void* const second = program.allocate(2 * kMiB, captured);
      fake_launch_fill(captured, as_address(second), 2 * kMiB, 6);
      void* const outside = program.allocate(kMiB, other);  // not of the graph
      fake_launch_fill(other, as_address(outside), kMiB, 7);
      CHECK(fake_capture_end(captured) == 1);
      program.runtime.end_pool(id);
      CHECK(program.free(second));  // the output of the capture, dropped by the program

      // Everybody else allocates all there is: nothing of it is the graph's.
      std::vector<void*> others;
      while (void* const pointer = program.allocate(kMiB, captured)) others.push_back(pointer);
      CHECK(others.size() > 20);
      for (void* const pointer : others) fake_launch_fill(captured, as_address(pointer), kMiB, 9);
      fake_run_all();
      fake_graph_launch(graph, other);
      for (void* const pointer : others) fake_launch_check(captured, as_address(pointer), kMiB, 9);
      fake_run_all();
      for (void* const pointer : others) program.free(pointer);
      program.runtime.empty_cache();
      fake_graph_launch(graph, other);  // its memory is still there
      fake_launch_check(other, as_address(second), 2 * kMiB, 6);
      fake_run_all();
      CHECK(program.free(outside));
      program.runtime.empty_cache();
      CHECK(fake_used(0) >= 3 * kMiB);
      program.runtime.release_pool(id);
      CHECK(fake_used(0) <= policy.kept);
      CHECK(fake::misuses() == "");
    }
    CHECK(fake_live_things() == 0);
  }
}

TEST_CASE("a graph's pool is shared by graphs, and outlives them while its objects live") {
  fake::fresh();
  Program program;
  void* const captured = fake_stream_create();
  const DevicePoolId id{0, 1};
  const auto all = [](cuda::Stream) { return true; };
  void* kept = nullptr;
  for (int i = 0; i < 2; ++i) {
    program.runtime.begin_pool(id, all);
    fake_capture_begin(captured);
    void* const pointer = program.allocate(kMiB, captured);
    if (i == 0) {
      program.free(pointer);
      kept = pointer;
    } else {
      CHECK(pointer == kept);  // the second graph runs after the first
    }
    fake_capture_end(captured);
    program.runtime.end_pool(id);
  }
  program.runtime.release_pool(id);
  CHECK(program.runtime.view().segments.size() == 1);
  program.runtime.release_pool(id);
  program.runtime.release_pool(id);  // once too often: nothing
  CHECK(fake_used(0) == kGranule);
  CHECK(program.free(kept));
  CHECK(fake_used(0) == 0);
  CHECK(program.runtime.view().segments.empty());
  CHECK(fake::misuses() == "");
}

TEST_CASE("a graph's memory stays until a replay is done, on a stream that never allocated") {
  fake::fresh();
  Program program("memoir");
  void* const captured = fake_stream_create();
  void* const unknown = fake_stream_create();
  program.runtime.begin_pool({1, 0}, [](cuda::Stream) { return true; });
  const int graph = fake_capture_begin(captured);
  void* const pointer = program.allocate(4 * kMiB, captured);
  fake_launch_fill(captured, as_address(pointer), 4 * kMiB, 1);
  program.free(pointer);
  CHECK(fake_capture_end(captured) == 1);
  program.runtime.end_pool({1, 0});
  fake_graph_launch(graph, unknown);
  program.runtime.release_pool({1, 0});
  CHECK(fake_used(0) == 0);
  CHECK(fake::misuses() == "");
}

TEST_CASE("a capture that failed, and whose pool was never ended, holds nothing up") {
  fake::fresh();
  Program program;
  void* const captured = fake_stream_create();
  void* const other = fake_stream_create();
  bool is_gone = false;  // the graph, and with it what its filter looks at
  program.runtime.begin_pool({1, 0}, [&](cuda::Stream stream) {
    CHECK_FALSE(is_gone);
    return stream == as_stream(captured);
  });
  fake_capture_begin(captured);
  void* const inside = program.allocate(kMiB, captured);
  void* const used = program.allocate(8 * kMiB);
  program.runtime.record_stream(used, as_stream(other));
  fake_launch_fill(other, as_address(used), 8 * kMiB, 1);
  CHECK(program.free(used));  // put off: something is captured
  fake_capture_end(captured);
  is_gone = true;

  CHECK(program.free(program.allocate(kMiB)));
  fake_run_all();
  CHECK(program.free(program.allocate(kMiB)));  // looks at events
  program.runtime.empty_cache();
  const DeviceView view = program.runtime.view();
  CHECK(view.objects.size() == 1);
  CHECK(fake_used(0) <= 2 * kGranule);  // the graph's pool, which nobody gave up
  CHECK(program.free(inside));
  CHECK(fake::misuses() == "");
}

TEST_CASE("frees and waits are put off while a graph is captured") {
  fake::fresh(16 * kMiB);
  Program program;
  void* const captured = fake_stream_create();
  void* const other = fake_stream_create();
  void* const used = program.allocate(4 * kMiB, other);
  program.runtime.record_stream(used, as_stream(captured));
  void* const cached = program.allocate(6 * kMiB, other);
  fake_launch_fill(other, as_address(cached), 6 * kMiB, 1);
  program.free(cached);
  program.runtime.begin_pool({1, 0}, [&](cuda::Stream stream) { return stream == as_stream(captured); });
  const int graph = fake_capture_begin(captured);
  fake_launch_fill(captured, as_address(used), 4 * kMiB, 1);
  program.free(used);  // no event may be recorded on the captured stream
  program.runtime.empty_cache();
  CHECK(program.allocate(8 * kMiB, captured) == nullptr);
  CHECK(program.refusal.find("a graph is being captured") != std::string::npos);
  CHECK(program.refusal.find("freed but still used by other streams 4.00 MiB") != std::string::npos);
  CHECK(fake_capture_end(captured) == 1);
  program.runtime.end_pool({1, 0});
  fake_run_all();
  CHECK(program.allocate(14 * kMiB, other) != nullptr);
  CHECK(fake::misuses() == "");
  fake_graph_launch(graph, other);
}

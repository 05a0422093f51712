// SPDX-License-Identifier: Apache-2.0
//
// Memory that one stream freed and another asks for: what the device says of markers that were left at frees.
#include <vector>

#include "device/device_program.h"
#include "doctest/doctest.h"

namespace memoir::run {

namespace {

constexpr Size kBlock = 8 * kMiB;

/// Blocks on one stream, all of them alive, on a device with two streams.
struct TwoStreams {
  explicit TwoStreams(int blocks) {
    program.free(program.allocate(kBlock, second));
    for (int i = 0; i < blocks; ++i) live.push_back(program.allocate(kBlock, first));
  }
  std::uint64_t waits() const { return program.runtime.view(DeviceDetail::kNumbers).stream_calls.waits; }

  bool is_fresh = (fake::fresh(8 * kGiB), true);
  void* first = fake_stream_create();
  void* second = fake_stream_create();
  Program program{"memoir,learn=false"};
  std::vector<void*> live;
};

}  // namespace

TEST_CASE("what was freed before a marker that is reached is taken without a wait") {
  TwoStreams streams(64);
  void* const busy = streams.program.allocate(kBlock, streams.first);
  for (void* const pointer : streams.live) streams.program.free(pointer);
  fake_run_all();
  // More is queued on the first stream, and does not run.
  fake_launch_fill(streams.first, as_address(busy), kBlock, 1);
  const std::uint64_t waits = streams.waits(), held = fake_used(0);
  void* const taken = streams.program.allocate(4 * kBlock, streams.second);
  CHECK(taken != nullptr);
  CHECK(streams.waits() == waits);
  CHECK(fake_used(0) == held);
  fake_launch_fill(streams.second, as_address(taken), 4 * kBlock, 2);
  fake_run_all();
  CHECK(fake_misuse_count() == 0);
}

TEST_CASE("where no marker is reached, the taker waits for its stream") {
  TwoStreams streams(64);
  for (void* const pointer : streams.live) fake_launch_fill(streams.first, as_address(pointer), kBlock, 1);
  for (void* const pointer : streams.live) streams.program.free(pointer);
  const std::uint64_t waits = streams.waits();
  void* const taken = streams.program.allocate(4 * kBlock, streams.second);
  CHECK(streams.waits() == waits + 1);
  fake_launch_fill(streams.second, as_address(taken), 4 * kBlock, 2);
  fake_launch_check(streams.second, as_address(taken), 4 * kBlock, 2);
  fake_run_all();
  CHECK(fake_misuse_count() == 0);
}

TEST_CASE("an event is asked about once for a request, however many blocks are looked at") {
  TwoStreams streams(400);
  for (void* const pointer : streams.live) fake_launch_fill(streams.first, as_address(pointer), kBlock, 1);
  for (std::size_t i = 0; i < streams.live.size(); i += 2) streams.program.free(streams.live[i]);
  const std::uint64_t queries = fake_calls("cuEventQuery");
  CHECK(streams.program.allocate(3 * kBlock, streams.second) != nullptr);
  CHECK(fake_calls("cuEventQuery") - queries <= 4);  // markers on their way
}

TEST_CASE("a program with one stream records no markers") {
  fake::fresh(8 * kGiB);
  Program program("memoir,learn=false");
  std::vector<void*> live;
  for (int i = 0; i < 200; ++i) live.push_back(program.allocate(kBlock));
  for (void* const pointer : live) program.free(pointer);
  CHECK(fake_calls("cuEventRecord") == 0);
}

}  // namespace memoir::run

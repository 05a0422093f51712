// SPDX-License-Identifier: Apache-2.0
//
// The functions that PyTorch calls, as it calls them. Slots are opened once per process: each test has its
// own.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/device/torch/pluggable.h"
#include "support/fake_cuda/fake.h"

using namespace memoir;

MEMOIR_EXPORT void* memoir_cuda_alloc_1(std::size_t, int, cuda::Stream);
MEMOIR_EXPORT void memoir_cuda_free_1(void*, std::size_t, int, cuda::Stream);
MEMOIR_EXPORT void* memoir_cuda_alloc_9(std::size_t, int, cuda::Stream);
MEMOIR_EXPORT void memoir_cuda_free_9(void*, std::size_t, int, cuda::Stream);

namespace {

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

SiteId g_site = kNoSite;

std::string text(char* json) {
  const std::string copied = json;
  memoir_cuda_free_text(json);
  return copied;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

cuda::Stream new_stream() { return static_cast<cuda::Stream>(fake_stream_create()); }

}  // namespace

namespace memoir::device_door {
void throw_refusal(bool out_of_memory, const std::string& why) {
  if (out_of_memory) throw OutOfMemory(why);
  throw std::runtime_error(why);
}
SiteId current_site() noexcept { return g_site; }
std::string site_name(SiteId site) { return site == 5 ? "aten::mm" : ""; }
}  // namespace memoir::device_door

TEST_CASE("the process's allocator, from its set-up to its last free") {
  fake::fresh(64 * kMiB, 2 * kMiB, 2);
  CHECK(memoir_cuda_problem() == nullptr);
  CHECK_THROWS_WITH(memoir_cuda_alloc(1, 0, nullptr),
                    "memoir's allocator was not set up: call memoir.torch.use_pool() or memoir.torch.pool()");
  CHECK(has(memoir_cuda_open(0, "mermoir", 0, 0), "did you mean 'memoir'?"));
  CHECK(has(memoir_cuda_open(999, "memoir", 0, 0), "no such slot"));
  memoir_cuda_memory_fraction(0.5, 1);  // before its device is used
  REQUIRE(memoir_cuda_open(0, "memoir", 48 * kMiB, 1000) == nullptr);
  CHECK(has(memoir_cuda_open(0, "split", 0, 0), "in use already, with policy memoir"));
  memoir_cuda_init(2);
  CHECK(text(memoir_cuda_stats(0)) == "[]");
  CHECK_THROWS_WITH(memoir_cuda_alloc(1, 2, nullptr), "there is no CUDA device 2: the driver shows 2");
  CHECK_THROWS_WITH(memoir_cuda_alloc(1, -1, nullptr), "there is no CUDA device -1");

  CHECK(memoir_cuda_alloc(0, 0, nullptr) == nullptr);
  memoir_cuda_free(nullptr, 0, 0, nullptr);
  const cuda::Stream stream = new_stream(), other = new_stream();
  void* const pointer = memoir_cuda_alloc(40 * kMiB, 0, stream);
  REQUIRE(pointer != nullptr);
  std::memset(pointer, 1, 40 * kMiB);
  g_site = 5;
  CHECK_THROWS_AS(memoir_cuda_alloc(20 * kMiB, 0, stream), OutOfMemory);
  try {
    memoir_cuda_alloc(20 * kMiB, 0, stream);
  } catch (const OutOfMemory& error) {
    CHECK(has(error.what(), "20.00 MiB asked for on stream 0x"));
    CHECK(has(error.what(), "by aten::mm"));
    CHECK(has(error.what(), "cap 48.00 MiB"));
  }
  CHECK_THROWS_AS(memoir_cuda_alloc(33 * kMiB, 1, nullptr), OutOfMemory);  // the fraction: 32 MiB
  void* const there = memoir_cuda_alloc(30 * kMiB, 1, nullptr);
  CHECK(fake_used(1) == 30 * kMiB);

  memoir_cuda_record_stream(pointer, other);
  fake_launch_fill(other, reinterpret_cast<std::uint64_t>(pointer), 40 * kMiB, 2);
  std::size_t size = 0;
  CHECK(memoir_cuda_base_alloc(pointer, &size) == pointer);
  CHECK(size == 40 * kMiB);
  CHECK(memoir_cuda_base_alloc(&size, nullptr) == &size);
  memoir_cuda_free(pointer, 40 * kMiB, 0, stream);
  CHECK(has(text(memoir_cuda_stats(0)), "\"active_bytes\": {\"current\": 41943040"));
  memoir_cuda_reset();
  CHECK(fake_used(0) == 0);
  memoir_cuda_free(there, 30 * kMiB, 1, nullptr);
  memoir_cuda_reset();
  CHECK(fake_used(1) == 0);
  const std::string stats = text(memoir_cuda_stats(0)), snapshot = text(memoir_cuda_snapshot(0));
  CHECK(has(stats, "\"num_ooms\": 2"));
  CHECK(has(stats, "\"device\": 1"));
  CHECK(has(snapshot, "\"action\": \"oom\""));
  memoir_cuda_reset_peaks(0);
  CHECK(has(text(memoir_cuda_stats(0)), "\"reserved_bytes\": {\"current\": 0, \"peak\": 0"));
  CHECK(has(text(memoir_cuda_policies()), "\"name\": \"memoir\""));

  // A captured graph, with the filter that PyTorch passes.
  const cuda::Stream captured = new_stream();
  memoir_cuda_begin_pool(0, {0, 7}, [captured](cuda::Stream asked) { return asked == captured; });
  const int graph = fake_capture_begin(captured);
  void* const inside = memoir_cuda_alloc(kMiB, 0, captured);
  fake_launch_fill(captured, reinterpret_cast<std::uint64_t>(inside), kMiB, 3);
  CHECK(fake_capture_end(captured) == 1);
  memoir_cuda_end_pool(0, {0, 7});
  memoir_cuda_free(inside, kMiB, 0, captured);
  memoir_cuda_reset();
  fake_graph_launch(graph, other);
  fake_run_all();
  memoir_cuda_release_pool(0, {0, 7});
  CHECK(fake_used(0) == 0);

  static int called = 0;
  memoir_cuda_on_low_memory([](int device, void*) { called += 1 + device; }, nullptr);
  CHECK_THROWS_AS(memoir_cuda_alloc(90 * kMiB, 0, stream), OutOfMemory);
  CHECK(called == 1);
  CHECK(fake::misuses() == "");
}

TEST_CASE("a MemPool's functions answer nullptr, and give memory back when PyTorch frees") {
  fake::fresh();
  REQUIRE(memoir_cuda_free_slot() == 1);
  REQUIRE(memoir_cuda_open(1, "direct", 8 * kMiB, 0) == nullptr);
  CHECK(memoir_cuda_free_slot() == 2);
  void* const segment = memoir_cuda_alloc_1(6 * kMiB, 0, nullptr);
  REQUIRE(segment != nullptr);
  CHECK(memoir_cuda_alloc_1(6 * kMiB, 0, nullptr) == nullptr);
  memoir_cuda_free_1(segment, 6 * kMiB, 0, nullptr);
  CHECK(fake_used(0) == 0);
  CHECK(has(text(memoir_cuda_stats(1)), "\"num_ooms\": 1"));
  memoir_cuda_close(1);
  CHECK(fake::misuses() == "");
}

TEST_CASE("a slot that is closed is free again once nothing lives in it, and then nothing is held") {
  fake::fresh(256 * kMiB, 2 * kMiB);
  for (int round = 0; round < 3; ++round) {
    for (const char* const policy : {"memoir", "split", "rmm", "span"}) {
      REQUIRE(memoir_cuda_free_slot() == 1);
      REQUIRE(memoir_cuda_open(1, policy, 64 * kMiB, 0) == nullptr);
      std::vector<void*> segments;
      for (const Size size : {3 * kMiB, 20 * kMiB, 6 * kMiB}) {
        segments.push_back(memoir_cuda_alloc_1(size, 0, nullptr));
        REQUIRE(segments.back() != nullptr);
      }
      memoir_cuda_close(1);
      CHECK(memoir_cuda_free_slot() == 2);
      CHECK(memoir_cuda_open(1, policy, 64 * kMiB, 0) != nullptr);
      // The last free ends it, of whichever thread.
      std::vector<std::thread> threads;
      for (void* const segment : segments)
        threads.emplace_back([segment] { memoir_cuda_free_1(segment, 0, 0, nullptr); });
      for (std::thread& thread : threads) thread.join();
      CHECK(fake_used(0) == 0);
    }
  }
  memoir_cuda_close(0);  // the process's allocator stays
  memoir_cuda_close(99);
  memoir_cuda_close(1000);
  CHECK(fake::misuses() == "");
}

TEST_CASE("a fork while other threads allocate: the child goes on without the device") {
  fake::fresh(256 * kMiB, 2 * kMiB);
  REQUIRE(memoir_cuda_open(9, "memoir", 128 * kMiB, 0) == nullptr);
  void* const kept = memoir_cuda_alloc_9(kMiB, 0, nullptr);
  REQUIRE(kept != nullptr);
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) memoir_cuda_free_9(memoir_cuda_alloc_9(kMiB, 0, nullptr), kMiB, 0, nullptr);
  });
  for (int round = 0; round < 50; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(60);  // a child that waits for a lock ends as a failure
      int code = 1;
      try {
        memoir_cuda_alloc_9(kMiB, 0, nullptr);
      } catch (const std::runtime_error& error) {
        code = has(error.what(), "forked from one that uses it") ? 0 : 2;
      }
      memoir_cuda_free_9(kept, kMiB, 0, nullptr);
      memoir_cuda_record_stream(kept, nullptr);
      memoir_cuda_reset_slot(9);
      ::_exit(code);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  stop = true;
  busy.join();
  memoir_cuda_free_9(kept, kMiB, 0, nullptr);
  CHECK(fake::misuses() == "");
}

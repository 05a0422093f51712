// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/device_program.h"
#include "device/tried_policies.h"
#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "support/fake_cuda/fake.h"

using namespace memoir;
using run::as_address;
using run::as_stream;
using run::Program;
using run::Tried;
using run::tried_policies;

TEST_CASE("allocations can be used, are aligned, and go back") {
  for (const Tried& policy : tried_policies()) {
    CAPTURE(policy.name);
    fake::fresh();
    {
      Program program(policy.name);
      CHECK(program.allocate(0) == nullptr);
      CHECK(program.refusal.empty());
      std::vector<void*> objects;
      for (Size size = 1; size < 8 * kMiB; size = size * 3 + 1) {
        void* const pointer = program.allocate(size);
        REQUIRE(pointer != nullptr);
        CHECK(as_address(pointer) % DeviceRuntime::kAlignment == 0);
        std::memset(pointer, 1, size);
        objects.push_back(pointer);
      }
      const DeviceView view = program.runtime.view();
      CHECK(view.objects.size() == objects.size());
      CHECK(view.held == fake_used(0));
      CHECK(view.stats.objects.current == objects.size());
      CHECK(view.stats.reserved_bytes.current == view.held);
      for (void* const pointer : objects) CHECK(program.free(pointer));
      for (void* const pointer : objects) CHECK_FALSE(program.free(pointer));
      CHECK_FALSE(program.free(nullptr));
      CHECK_FALSE(program.free(&program));
      CHECK(program.runtime.view().stats.allocated_bytes.current == 0);
      program.runtime.empty_cache();
      CHECK(fake_used(0) <= policy.kept);
    }
    CHECK(fake_live_things() == 0);
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("what cannot be is said at once") {
  fake::fresh();
  const auto problem = [](const char* policy, int device = 0) -> std::string {
    try {
      const DeviceRuntime runtime(device, choose_policy(policy, Substrate::kDevice));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  CHECK(problem("spam").starts_with(
      "there is no policy 'spam'; did you mean 'span'? (policies: memoir, memoir_plain, guided, "));
  CHECK(problem("span,peice=1MiB").find("has no setting 'peice'; did you mean 'piece'?") !=
        std::string::npos);
  CHECK(problem("span,piece=1MiB,piece=2MiB") == "policy 'span': piece is set twice");
  CHECK(problem("direct,piece=1MiB") == "policy 'direct' has no setting 'piece' (it has none)");
  CHECK(problem("span:piece:1MiB") == "policy 'span' has no text form; write its settings as span,key=value");
  CHECK(problem("pytorch:max_splt_size_mb:64").find("max_splt_size_mb") != std::string::npos);
  CHECK(problem("span", 3) == "there is no CUDA device 3: the driver shows 1");
  CHECK(problem("span,piece=3MiB") == "piece=3MiB: it must be a power of two");
  CHECK(problem("span,granule=64KiB") ==
        "granule=64KiB: Fake GPU 0 maps at least 2MiB at a time; give that or a larger power of two");
  CHECK(problem("span,granule=6MiB").find("a larger power of two") != std::string::npos);
  CHECK(problem("planned").find("policy 'planned' is one of a simulation, not of a device (policies there: "
                                "memoir, memoir_plain, guided, span") == 0);
  CHECK(problem("guided").find("with plan=FILE") != std::string::npos);
  fake_fail("cuMemAddressReserve", 0, 1, 2);
  CHECK(problem("span").find("no addresses for the device's memory") == 0);
  fake::fresh(64 * kMiB, 0);  // a device that cannot map
  CHECK(problem("span").find("Fake GPU 0 cannot map memory") == 0);
  CHECK(problem("direct").empty());
}

TEST_CASE("many streams have their own objects at once") {
  for (const Tried& policy : tried_policies()) {
    CAPTURE(policy.name);
    fake::fresh(1024 * kMiB);
    {
      Program program(policy.name);
      std::vector<void*> objects;
      for (int stream = 0; stream < 12; ++stream) {
        void* const its = fake_stream_create();
        for (const Size size : {Size{1000}, 12 * kMiB}) {
          objects.push_back(program.allocate(size, its));
          CHECK(objects.back() != nullptr);
        }
      }
      for (void* object : objects) program.free(object);
    }
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("bytes freed on one stream are not given to another while they are used") {
  for (const Tried& policy : tried_policies()) {
    CAPTURE(policy.name);
    for (unsigned seed = 0; seed < 5; ++seed) {
      fake::fresh(32 * kMiB);
      fake_seed(seed);
      Program program(policy.name, {.cap = 24 * kMiB});
      void* const streams[] = {fake_stream_create(), fake_stream_create(), fake_stream_create()};
      struct Live {
        void* pointer;
        Size size;
        int value;
        void* stream;
      };
      std::vector<Live> live;
      std::mt19937 random(seed);
      int served = 0;
      for (int step = 0; step < 600; ++step) {
        if (!live.empty() && random() % 5 < 2) {
          std::swap(live[random() % live.size()], live.back());
          const Live object = live.back();
          live.pop_back();
          fake_launch_check(object.stream, as_address(object.pointer), object.size, object.value);
          if (random() % 3 == 0) {  // another stream reads it: queued after what made it
            void* const reader = streams[random() % 3];
            fake_program_waits(object.stream, reader);
            fake_launch_check(reader, as_address(object.pointer), object.size, object.value);
            program.runtime.record_stream(object.pointer, as_stream(reader));
          }
          REQUIRE(program.free(object.pointer));
        } else {
          void* const stream = streams[random() % 3];
          const Size size = 1 + random() % (random() % 8 == 0 ? 3 * kMiB : 64 * kKiB);
          void* const pointer = program.allocate(size, stream);
          if (pointer == nullptr) continue;
          ++served;
          const int value = 1 + static_cast<int>(random() % 250);
          fake_launch_fill(stream, as_address(pointer), size, value);
          live.push_back({pointer, size, value, stream});
        }
        if (random() % 8 == 0) fake_run(static_cast<int>(random() % 6));
        if (random() % 100 == 0) program.runtime.empty_cache();
      }
      CHECK(served > 200);
      fake_run_all();
      REQUIRE(fake::misuses() == "");
    }
  }
}

TEST_CASE("a free waits for the streams that were recorded, and for no other") {
  fake::fresh();
  Program program;
  void* const a = fake_stream_create();
  void* const b = fake_stream_create();
  void* const first = program.allocate(kMiB, a);
  program.runtime.record_stream(first, as_stream(a));  // its own: nothing to wait for
  fake_launch_fill(a, as_address(first), kMiB, 1);
  CHECK(program.free(first));
  CHECK(program.runtime.view().stats.active_bytes.current == 0);

  void* const second = program.allocate(kMiB, a);
  program.runtime.record_stream(second, as_stream(b));
  program.runtime.record_stream(&program, as_stream(b));  // not memoir's: ignored
  fake_launch_fill(b, as_address(second), kMiB, 1);
  CHECK(program.free(second));
  CHECK_FALSE(program.free(second));
  CHECK(program.runtime.view().stats.active_bytes.current == kMiB);
  CHECK(program.runtime.view().stats.allocated_bytes.current == 0);
  CHECK(program.runtime.view().objects[0].pending);
  void* const third = program.allocate(kMiB, a);
  CHECK(third != second);
  fake_run_all();
  void* const fourth = program.allocate(kMiB, a);  // polls
  CHECK(fourth == second);
  CHECK(program.runtime.view().stats.active_bytes.current == 2 * kMiB);
  CHECK(fake::misuses() == "");
}

TEST_CASE("more streams than there are bits for them") {
  fake::fresh();
  Program program("direct");
  std::vector<void*> streams;
  for (int i = 0; i < 80; ++i) streams.push_back(fake_stream_create());
  void* const pointer = program.allocate(kMiB, streams[0]);
  for (int i = 1; i < 80; ++i) {
    program.runtime.record_stream(pointer, as_stream(streams[i]));
    if (i % 7 == 0) fake_launch_fill(streams[i], as_address(pointer), kMiB, i);
  }
  CHECK(program.free(pointer));
  fake_run(5);
  program.runtime.empty_cache();
  CHECK(fake_used(0) == 0);
  CHECK(fake::misuses() == "");
}

TEST_CASE("snapshots and statistics are JSON with PyTorch's fields") {
  fake::fresh();
  const SiteNames names = [](SiteId) { return "a \"quoted\" site"; };
  Program program("span", {.history = 3, .site_names = names});
  void* const a = program.allocate(1000, nullptr, 5);
  program.allocate(2000);
  program.free(a);
  const DeviceView view = program.runtime.view(DeviceDetail::kHistory);
  CHECK(view.history.size() == 3);  // the last three
  const std::string json = snapshot_json(view, names);
  CHECK(json.find("\"state\": \"inactive\"") != std::string::npos);
  CHECK(json.find("\"state\": \"active_allocated\"") != std::string::npos);
  CHECK(json.find("\"action\": \"free_completed\"") != std::string::npos);
  CHECK(json.find("a \\\"quoted\\\" site") != std::string::npos);
  CHECK(json.find("\"total_size\": 2097152") != std::string::npos);
  CHECK(stats_json(view).find(
            "\"allocated_bytes\": {\"current\": 2000, \"peak\": 3000, \"allocated\": 3000, \"freed\": "
            "1000}") != std::string::npos);
  program.runtime.reset_peaks();
  CHECK(program.runtime.view().stats.allocated_bytes.peak == 2000);
  size_t size = 0;
  CHECK(program.runtime.base_of(&program, &size) == &program);
}

TEST_CASE("plain memory: the base of an object is its segment") {
  fake::fresh();
  Program program("direct");
  void* const pointer = program.allocate(1000);
  size_t size = 0;
  CHECK(program.runtime.base_of(pointer, &size) == pointer);
  CHECK(size == 1000);
  CHECK(fake_calls("cuMemAlloc") == 1);
  CHECK(fake_calls("cuMemCreate") == 0);
}

TEST_CASE("threads allocate, hand over, record and free at the same time") {
  fake::fresh(256 * kMiB);
  Program program("span", {.cap = 64 * kMiB});
  std::mutex mutex;
  std::vector<void*> handed;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      void* const stream = fake_stream_create();
      std::mt19937 random(static_cast<unsigned>(t));
      std::string refusal;
      for (int i = 0; i < 1500; ++i) {
        void* const pointer =
            program.runtime.allocate(1 + random() % (256 * kKiB), as_stream(stream), kNoSite, refusal);
        if (random() % 4 == 0) fake_run(10);
        if (pointer != nullptr && random() % 4 == 0) {
          program.runtime.record_stream(pointer, as_stream(random() % 2 == 0 ? nullptr : stream));
        }
        if (i % 500 == 499) program.runtime.empty_cache();
        if (i % 300 == 299) program.runtime.view(DeviceDetail::kHistory);
        const std::lock_guard lock(mutex);
        if (pointer != nullptr) handed.push_back(pointer);
        if (handed.size() > 20) {
          std::swap(handed[random() % handed.size()], handed.back());
          program.runtime.free(handed.back());
          handed.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (void* const pointer : handed) program.runtime.free(pointer);
  program.runtime.empty_cache();
  CHECK(program.runtime.view().stats.active_bytes.current == 0);
  CHECK(fake_used(0) == 0);
  CHECK(fake::misuses() == "");
}

TEST_CASE("where memory cannot be mapped, memoir's pool is served over plain memory, and says so") {
  for (const char* policy : {"memoir", "memoir,learn=false", "memoir,piece=4MiB"}) {
    CAPTURE(std::string(policy));
    fake::fresh(64 * kMiB, 0);
    {
      Program program(policy);
      CHECK(program.runtime.notice().find("Fake GPU 0 cannot map memory: memoir_plain") == 0);
      CHECK(program.runtime.notice().find("serves it, over plain memory") != std::string::npos);
      void* const object = program.allocate(3 * kMiB);
      REQUIRE(object != nullptr);
      std::memset(object, 1, 3 * kMiB);
      CHECK(program.free(object));
    }
    CHECK(fake_live_things() == 0);
  }
  fake::fresh();
  CHECK(Program("memoir").runtime.notice().empty());
}

TEST_CASE("a reset of the device under a pool of any policy ends nobody") {
  for (const Tried& policy : tried_policies()) {
    CAPTURE(policy.name);
    fake::fresh();
    Program program(policy.name);
    std::vector<void*> objects;
    for (int i = 0; i < 8; ++i) objects.push_back(program.allocate(3 * kMiB));
    fake_device_reset();
    for (void* const object : objects) CHECK(program.free(object));
    program.runtime.empty_cache();
    program.allocate(5 * kMiB);  // it may or may not be there
  }
}

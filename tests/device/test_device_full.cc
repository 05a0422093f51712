// SPDX-License-Identifier: Apache-2.0
#include <random>
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

TEST_CASE("the ladder: pending frees are waited for, and what they free is found") {
  fake::fresh(32 * kMiB);
  Program program;
  void* const a = fake_stream_create();
  void* const b = fake_stream_create();
  void* const first = program.allocate(20 * kMiB, a);
  program.runtime.record_stream(first, as_stream(b));
  fake_launch_fill(b, as_address(first), 20 * kMiB, 1);
  program.free(first);
  CHECK(program.allocate(20 * kMiB, a) == first);
  CHECK(program.runtime.view().stats.retries == 1);
  CHECK(program.refusal.empty());
  CHECK(fake::misuses() == "");
}

TEST_CASE("the ladder: what other streams' pools keep is given back, after the device was waited for") {
  fake::fresh(32 * kMiB);
  Program program;
  void* const a = fake_stream_create();
  void* const b = fake_stream_create();
  void* const first = program.allocate(20 * kMiB, a);
  fake_launch_fill(a, as_address(first), 20 * kMiB, 1);
  program.free(first);
  CHECK(program.allocate(20 * kMiB, b) != nullptr);
  CHECK(fake_used(0) == 20 * kMiB);
  const DeviceView view = program.runtime.view();
  CHECK(view.stream_calls.quiets == 1);
  CHECK(view.stream_calls.quiet_time == view.stream_calls.longest_quiet);  // there was one
  const std::string time = std::to_string(view.stream_calls.quiet_time);
  CHECK(stats_json(view).find("\"sync_all_streams_ns\": " + time) != std::string::npos);
  CHECK(stats_json(view).find("\"sync_all_streams_ns_max\": " + time) != std::string::npos);
  CHECK(fake::misuses() == "");
}

TEST_CASE("the ladder: callbacks are called without the lock, and may free") {
  fake::fresh(32 * kMiB);
  struct Cache {
    Program program;
    void* kept = nullptr;
    int calls = 0;
  } cache;
  cache.kept = cache.program.allocate(20 * kMiB);
  cache.program.runtime.on_low_memory(
      [](int device, void* context) {
        CHECK(device == 0);
        auto& it = *static_cast<Cache*>(context);
        ++it.calls;
        if (it.kept != nullptr) it.program.free(std::exchange(it.kept, nullptr));
      },
      &cache);
  CHECK(cache.program.allocate(20 * kMiB) != nullptr);
  CHECK(cache.calls == 1);
  CHECK(cache.program.allocate(20 * kMiB) == nullptr);
  CHECK(cache.calls == 2);
}

TEST_CASE("out of memory: who holds what, and whether a layout could have held it") {
  fake::fresh(64 * kMiB);
  fake_set_foreign(0, 8 * kMiB);
  const SiteNames names = [](SiteId site) { return site == 7 ? "aten::addmm" : ""; };
  Program program("span", {.cap = 40 * kMiB, .history = 100, .site_names = names});
  std::vector<void*> objects;
  for (int i = 0; i < 10; ++i) objects.push_back(program.allocate(4 * kMiB, nullptr, i % 2 == 0 ? 7 : 9));
  for (int i = 0; i < 10; i += 2) program.free(objects[i]);
  CHECK(program.allocate(30 * kMiB, nullptr, 7) == nullptr);
  CHECK(program.refusal ==
        "memoir: out of memory on device 0 (Fake GPU 0), policy span: 30.00 MiB asked for on the default "
        "stream by "
        "aten::addmm.\n"
        "  live 20.00 MiB in 5 objects, freed but still used by other streams 0 bytes, reserved 20.00 MiB, "
        "largest free "
        "range in it 0 bytes;\n"
        "  cap 40.00 MiB, free on the device 36.00 MiB of 64.00 MiB, held by others 8.00 MiB.\n"
        "  No layout could have held it: only 20.00 MiB are not live, 10.00 MiB too little.\n"
        "  tried: events, trim, waiting for pending frees, waiting for the device, trim\n"
        "  largest sites:\n"
        "    20.00 MiB in 5: site 0x9\n"
        "  largest streams:\n"
        "    20.00 MiB in 5: the default stream\n"
        "  largest object: 4.00 MiB of site 0x9");
  CHECK(program.allocate(20 * kMiB) != nullptr);  // mapped memory has no holes
  const DeviceView view = program.runtime.view(DeviceDetail::kHistory);
  CHECK(view.stats.ooms == 1);
  CHECK(view.history.back().action == DeviceAction::kAlloc);
  int ooms = 0;
  for (const DeviceEntry& entry : view.history) ooms += entry.action == DeviceAction::kOutOfMemory;
  CHECK(ooms == 1);
  CHECK(fake::misuses() == "");
}

TEST_CASE("a cap, a fraction, and a device that others fill") {
  for (const Tried& policy : tried_policies()) {
    if (!policy.exact) continue;
    CAPTURE(policy.name);
    fake::fresh(64 * kMiB);
    Program program(policy.name, {.cap = 32 * kMiB});
    CHECK(program.allocate(40 * kMiB) == nullptr);
    CHECK(program.refusal.find("No layout could have held it: only 32.00 MiB") != std::string::npos);
    program.runtime.set_fraction(0.25);
    CHECK(program.runtime.device().cap() == 16 * kMiB);
    void* const pointer = program.allocate(16 * kMiB);
    CHECK(pointer != nullptr);
    CHECK(program.allocate(1) == nullptr);
    program.runtime.set_fraction(1);
    CHECK(program.runtime.device().cap() == 32 * kMiB);
    CHECK(program.allocate(1) != nullptr);
    fake_set_foreign(0, 48 * kMiB);
    CHECK(program.allocate(8 * kMiB) == nullptr);
    CHECK(program.free(pointer));
    CHECK(program.allocate(8 * kMiB) != nullptr);
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("the driver's own failures are told in the error") {
  fake::fresh();
  Program program;
  fake_fail("cuMemMap", 0, 100, 999);
  CHECK(program.allocate(kMiB) == nullptr);
  CHECK(program.refusal.find("the driver's last error: cuMemMap: CUDA_ERROR_UNKNOWN") != std::string::npos);
  fake_fail("cuMemMap", 0, 0, 0);
  CHECK(program.allocate(kMiB) != nullptr);
  CHECK(fake_used(0) == kGranule);
}

TEST_CASE("beside a neighbour that takes whatever is free, a program goes on in the memory that it has") {
  // Objects of many sizes over one peak; from the middle on the neighbour takes what goes back, at once.
  constexpr Size kDevice = 512 * kMiB;
  for (const char* const policy : {"memoir", "memoir,learn=false", "memoir,slack=0.1"}) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      CAPTURE(policy);
      CAPTURE(seed);
      fake::fresh(kDevice);
      Program program(policy);
      void* const streams[] = {nullptr, fake_stream_create()};
      std::mt19937 random(seed);
      std::vector<std::pair<void*, Size>> live;
      Size bytes = 0;
      bool beside = false;
      const auto drop = [&](size_t i) {
        program.free(live[i].first);
        bytes -= live[i].second;
        live[i] = live.back();
        live.pop_back();
      };
      for (int step = 0; step < 1500; ++step) {
        const Size size = (1 + random() % 48) * kMiB + random() % 5 * 512;
        while (bytes + size > 320 * kMiB) drop(random() % live.size());
        beside |= step > 500;
        if (beside) fake_set_foreign(0, kDevice - fake_used(0));
        void* const stream = streams[random() % 2];
        void* const pointer = program.allocate(size, stream);
        REQUIRE_MESSAGE(pointer != nullptr, program.refusal);
        fake_launch_fill(stream, as_address(pointer), 4096, step);
        live.emplace_back(pointer, size);
        bytes += size;
      }
      fake_run_all();
      CHECK(fake::misuses() == "");
    }
  }
}

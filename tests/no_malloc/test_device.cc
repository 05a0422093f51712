// SPDX-License-Identifier: Apache-2.0
//
// The device runtime under every policy that a device has, over the tests' own driver (which may call malloc:
// trap.h).
#include <random>
#include <vector>

#include "device/device_program.h"
#include "doctest/doctest.h"
#include "no_malloc/trap.h"

namespace memoir {

TEST_CASE("the runtime of a device calls no malloc for what it serves") {
  for (const PolicyInfo& policy : policies(Substrate::kDevice)) {
    if (policy.name == "guided")
      continue;  // asks for a plan's file; its heap is among those of test_heaps.cc
    CAPTURE(policy.name);
    fake::fresh(kGiB);
    {
      run::Program program(policy.name);
      std::vector<void*> streams = {nullptr, fake_stream_create(), fake_stream_create()};
      std::vector<void*> live;
      live.reserve(64);
      std::mt19937_64 random(1);
      const auto step = [&] {
        fake_run(4);  // the device gets on, so that no request has to climb: that names its rungs
        if (live.size() < 64 && random() % 2 == 0) {
          void* const pointer =
              program.allocate(1 + random() % (4 * kMiB), streams[random() % 3], 1 + random() % 9);
          if (pointer != nullptr) live.push_back(pointer);
        } else if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          if (random() % 4 == 0)
            program.runtime.record_stream(live.back(), run::as_stream(streams[random() % 3]));
          program.free(live.back());
          live.pop_back();
        }
      };
      for (int i = 0; i < 2000; ++i) step();  // its streams and pools are known then
      {
        const trap::NoMalloc here;
        for (int i = 0; i < 6000; ++i) step();
      }
      CHECK(program.refusal.empty());
      for (void* const pointer : live) program.free(pointer);
    }
    CHECK(fake::misuses() == "");
  }
}

}  // namespace memoir

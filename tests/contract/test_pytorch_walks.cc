// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's heaps with segments and areas of their real sizes, for which the suite's arenas are too small:
// walks on a machine that runs out of memory long before it runs out of addresses.
#include "contract/subjects.h"
#include "contract/walk.h"
#include "doctest/doctest.h"

namespace memoir::contract {

TEST_CASE("random walks of PyTorch's heaps under a cap, with real segments and every setting") {
  constexpr Size kCapacity = 512 * kMiB, kDevice = 100 * kMiB;
  const char* const texts[] = {"", "max_split_size_mb:20", "roundup_power2_divisions:4",
                               "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
                               "large_segment_size_mb:12"};
  for (const char* const text : texts) {
    CAPTURE(text);
    PyTorchOptions options = PyTorchOptions::parse(text);
    options.device_memory = kDevice;
    const Subject subjects[] = {
        {"PyTorchHeap",
         [&](Arena& arena, const RecordedPlan&) {
           return std::make_unique<OverSegments<PyTorchHeap>>(arena, options);
         }},
        {"ExpandableHeap",
         [&](Arena& arena, const RecordedPlan&) { return std::make_unique<ExpandableHeap>(arena, options); }},
    };
    for (const Subject& subject : subjects) {
      CAPTURE(subject.name);
      for (unsigned seed = 0; seed < 3; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const std::vector<Step> steps = random_steps(random, 3000, kDevice);
        const MakeHeap make = [&](Arena& arena) { return subject.make(arena, {}); };
        WalkOptions walk_options;
        walk_options.traits = {.serves_all = false, .strictest = 512, .fills = false, .joins = false};
        SimArena capped(kCapacity, {.granule = 2 * kMiB, .limit = kDevice});
        const Outcome outcome = walk(steps, make, capped, walk_options);
        CHECK(outcome.failure == "");
        CHECK(capped.peak_committed() > kDevice / 2);
        CHECK(capped.peak_committed() <= kDevice);
        SealedArena sealed(kCapacity);
        const Outcome open = walk(steps, make, sealed, walk_options);
        CHECK(open.failure == "");
        const auto served = [](const Outcome& some) {
          return some.offsets.size() -
                 static_cast<size_t>(std::count(some.offsets.begin(), some.offsets.end(), kNoOffset));
        };
        CHECK(served(outcome) > 500);
        CHECK(served(open) >= served(outcome));
      }
    }
  }
}

}  // namespace memoir::contract

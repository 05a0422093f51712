// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/policy/few_waits.h"
#include "policy/device_loop.h"

namespace memoir {

namespace {

/// Buffers that begin on bytes which another stream used last: each is a wait.
size_t handovers(const Problem& problem, std::span<const StreamId> streams, const Plan& plan) {
  constexpr Size kCell = 512;
  std::vector<StreamId> last(plan.arena_size / kCell + 1, ~StreamId{0});
  std::vector<size_t> order(problem.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return problem[a].lifetime.begin < problem[b].lifetime.begin; });
  size_t count = 0;
  for (const size_t i : order) {
    bool waits = false;
    for (Offset at = plan.offsets[i]; at < plan.offsets[i] + problem[i].size; at += kCell) {
      StreamId& user = last[at / kCell];
      waits |= user != ~StreamId{0} && user != streams[i];
      user = streams[i];
    }
    count += waits;
  }
  return count;
}

}  // namespace

TEST_CASE("streams get memory of their own where that is cheap, and lean on each other where it is not") {
  // Two streams that peak at different times: separate 3, together 2.
  Problem problem = {{{0, 4}, kMiB}, {{1, 3}, kMiB}, {{5, 8}, kMiB}, {{5, 8}, kMiB}};
  const std::vector<StreamId> streams = {0, 0, 0, 1};
  Plan plan = plan_with_few_waits(problem, streams, 512);
  CHECK_FALSE(check(problem, plan));
  CHECK(plan.arena_size == 2 * kMiB);

  Problem same = {{{0, 4}, kMiB}, {{1, 3}, 100}, {{0, 4}, kMiB}, {{1, 3}, kMiB}};  // both peak at once
  const std::vector<StreamId> two = {0, 0, 1, 1};
  plan = plan_with_few_waits(same, two, 512);
  CHECK_FALSE(check(same, plan));
  CHECK(plan.arena_size == 3 * kMiB + 512);
  CHECK(handovers(same, two, plan) == 0);
}

TEST_CASE("on a recorded program of two streams the least memory takes few waits") {
  const run::DeviceRun device = run::device_run("llama7b_lora_zero3_2stream");
  const Workload workload(device.events());
  Problem problem = workload.problem();
  std::vector<StreamId> streams;
  for (const Workload::Object& object : workload.objects()) streams.push_back(object.stream);
  const Plan plan = plan_with_few_waits(problem, streams, 512);
  CHECK_FALSE(quick_check(problem, plan));
  const double ratio = static_cast<double>(plan.arena_size) / static_cast<double>(workload.peak_live());
  const size_t waits = handovers(problem, streams, plan);
  MESSAGE(ratio << " of the peak, " << waits << " waits for " << problem.size() << " buffers");
  CHECK(ratio <= 1.01);
  CHECK(waits * 100 < problem.size());
}

TEST_CASE("plans of random problems on several streams are valid, aligned and no larger than together") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 60; ++i) {
    const size_t count = 1 + random() % 120;
    Problem problem;
    std::vector<StreamId> streams;
    for (size_t k = 0; k < count; ++k) {
      const Tick begin = random() % 100;
      problem.push_back({{begin, begin + 1 + random() % 40}, 1 + random() % 9000, Size{1} << random() % 12});
      streams.push_back(static_cast<StreamId>(random() % (1 + i % 5)));
    }
    const Plan plan = plan_with_few_waits(problem, streams, 512);
    CHECK_FALSE(check(problem, plan));
    for (size_t k = 0; k < count; ++k)
      CHECK(plan.offsets[k] % std::max<Size>(512, problem[k].alignment) == 0);
    Problem alone = problem;
    const std::vector<StreamId> one(count, 0);
    const Size together = plan_with_few_waits(alone, one, 512).arena_size;
    CHECK(static_cast<double>(plan.arena_size) <= static_cast<double>(together) * (1 + kShareForWaits) + 512);
  }
}

}  // namespace memoir

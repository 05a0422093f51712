// SPDX-License-Identifier: Apache-2.0
//
// The pools on recordings of real ones: what they reserve, and under which cap they complete.
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/simulate/simulation.h"
#include "support/gpu_trace_events.h"

namespace memoir {

namespace {

Workload workload_of(const std::string& path) {
  return Workload(gpu_trace::events_of(gpu_trace::read(path)));
}

double ratio(Size bytes, const Workload& workload) {
  return static_cast<double>(bytes) / static_cast<double>(workload.peak_live());
}

constexpr const char* kSmallTraces[] = {"magma27_cs336.d0", "silmont_fwd_fp32_128.d0", "bcrafton_cs336.d0"};

}  // namespace

TEST_CASE(
    "the pools on recorded programs: nothing below the floor, and they complete under the cap they need") {
  for (const std::string name : kSmallTraces) {
    CAPTURE(name);
    const Workload workload = workload_of(std::string(MEMOIR_TEST_DATA "/gpu/") + name + ".trace");
    REQUIRE(workload.operations() > 1000);
    for (const std::string policy :
         {"static_tensors", "binned", "split", "rmm", "rmm_arena", "pytorch", "expandable"}) {
      CAPTURE(policy);
      const Simulation free = simulate(workload, policy, {.timed = false});
      CHECK(free.completed);
      CHECK(free.peak_live == workload.peak_live());
      CHECK(free.peak_reserved >= workload.peak_live());
      CHECK(ratio(free.peak_reserved, workload) < 2.1);
      const CapSearch least = find_cap(workload, policy);
      CHECK(least.cap >= workload.peak_live());
      CHECK(least.cap <= free.peak_reserved + 4 * kMiB);
      CHECK(ratio(least.cap, workload) < 1.75);
      const Simulation capped = simulate(workload, policy, {.cap = least.cap, .timed = false});
      CHECK(capped.completed);
      CHECK(capped.peak_reserved <= least.cap);
    }
    // Best fit in one pool needs hardly more than the floor here; powers of two need much more.
    CHECK(ratio(find_cap(workload, "static_tensors").cap, workload) < 1.10);
    CHECK(find_cap(workload, "binned").cap > find_cap(workload, "static_tensors").cap);
  }
}

TEST_CASE("finalizers that come late cost memory; a cap makes the pools ask for them") {
  const Workload workload = workload_of(MEMOIR_TEST_DATA "/gpu/magma27_cs336.d0.trace");
  for (const std::string name : {"split", "binned"}) {
    CAPTURE(name);
    const Simulation prompt = simulate(workload, name, {.timed = false});
    const Simulation late = simulate(workload, name + ",finalizer_delay=500", {.timed = false});
    CHECK(late.completed);
    CHECK(late.peak_reserved > prompt.peak_reserved);
    const Simulation capped = simulate(
        workload, name + ",finalizer_delay=1000000",
        {.cap = prompt.peak_reserved + prompt.peak_reserved / 4, .timed = false, .with_phases = true});
    CHECK(capped.completed);
    std::uint64_t collections = 0, scans = 0;
    for (const Phase& phase : capped.phases) {
      if (std::string_view(phase.name).find("gc(") != std::string_view::npos) collections += phase.calls;
      scans += std::string_view(phase.name) == (name == "split" ? "1.2 scan" : "0 pop") ? phase.calls : 0;
    }
    CHECK(collections > 0);
    CHECK(scans == workload.objects().size());
  }
}

TEST_CASE("every shared recording: reserved and the smallest cap, as ratios to peak live bytes") {
  const std::filesystem::path folder = std::filesystem::path(MEMOIR_TEST_DATA) / "../../../shared/gpu-traces";
  if (!std::filesystem::exists(folder)) {
    MESSAGE("skipped: there is no " << folder);
    return;
  }
  std::vector<Workload> workloads;
  for (const char* const part : {"public", "synthetic"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder / part)) {
      if (entry.path().extension() == ".trace") workloads.push_back(workload_of(entry.path().string()));
    }
  }
  REQUIRE_FALSE(workloads.empty());
  for (const std::string policy :
       {"static_tensors", "binned", "split", "rmm", "rmm_arena", "pytorch", "expandable"}) {
    double reserved = 0, cap = 0, most_reserved = 0, most_cap = 0, nanoseconds = 0;
    for (const Workload& workload : workloads) {
      const Simulation free = simulate(workload, policy);
      REQUIRE(free.completed);
      const double here = ratio(free.peak_reserved, workload),
                   least = ratio(find_cap(workload, policy).cap, workload);
      CHECK(least >= 1);
      reserved += std::log(here) / static_cast<double>(workloads.size());
      cap += std::log(least) / static_cast<double>(workloads.size());
      most_reserved = std::max(most_reserved, here);
      most_cap = std::max(most_cap, least);
      nanoseconds = std::max(nanoseconds, free.times.p50);
    }
    MESSAGE(policy << ": reserved " << std::exp(reserved) << " / " << most_reserved << ", cap "
                   << std::exp(cap) << " / " << most_cap << ", at most " << nanoseconds << " ns");
  }
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// The time of one allocation and of one free through PyTorch's CPU allocator, on the sequence of a recorded
// pass: what a tensor pays, with nothing else of PyTorch around it. bench/torch/allocation.py records,
// runs this under each malloc, and makes the table.
//
//   bench_allocation TRACE planned|scoped|plain PASSES
//   bench_allocation --smoke TRACE             every mode in turn, three passes; fails unless the slab serves
//
// planned: from a slab, in step. scoped: from a slab, matching by operator; the scopes of each allocation's
// chain are entered and left through at::RecordFunction around it, timed separately. plain: PyTorch's own
// allocator over malloc.
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "memoir/plan/files/from_trace.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/remember/slab/slab_set.h"
#include "memoir/remember/torch/allocator.h"
#include "memoir/trace/read/trace.h"

namespace {

using namespace memoir;

double now_ns() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

double clock_cost_ns() {
  std::vector<double> costs(10001);
  for (double& cost : costs) {
    const double begin = now_ns();
    cost = now_ns() - begin;
  }
  std::nth_element(costs.begin(), costs.begin() + 5000, costs.end());
  return costs[5000];
}

void report(const char* what, std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double time : times) sum += time;
  const auto quantile = [&](double q) {
    return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))];
  };
  std::printf(
      "{\"what\": \"%s\", \"count\": %zu, \"mean\": %.1f, \"p50\": %.1f, \"p99\": %.1f, \"p99.9\": %.1f, "
      "\"max\": %.1f}\n",
      what, times.size(), sum / static_cast<double>(times.size()), quantile(0.5), quantile(0.99),
      quantile(0.999), times.back());
}

struct Step {  // one event of the pass: an allocation of `size` bytes, or the free of the allocation numbered
               // `slot`
  bool allocates;
  Size size;
  size_t slot;
  SiteId site;
};

std::vector<Step> steps_of(const Trace& trace) {
  std::vector<Step> steps;
  std::unordered_map<ObjectId, size_t> slots;
  bool in_pass = false;
  for (const Event& event : trace.events()) {
    if (event.kind == EventKind::kPassBegin) {
      steps.clear();
      slots.clear();
      in_pass = true;
    } else if (event.kind == EventKind::kPassEnd) {
      in_pass = false;
    } else if (in_pass && event.kind == EventKind::kAllocate) {
      const size_t slot = slots.size();
      slots.emplace(event.object, slot);
      steps.push_back({true, event.size, slot, event.site});
    } else if (in_pass && event.kind == EventKind::kFree && slots.contains(event.object)) {
      steps.push_back({false, 0, slots[event.object], kNoSite});
    }
  }
  return steps;
}

// Prints what a pass's allocations and frees took; 1 when no tensor came from the slab that should have.
int measure(const Trace& trace, const std::string& mode, long passes) {
  const std::vector<Step> steps = steps_of(trace);
  const RecordedPass pass = read_pass(trace.events());
  const auto layout =
      std::make_shared<const PlannedLayout>(record_plan(pass, plan_quickly(pass.problem), "quick"));
  SlabSet slabs({});
  if (mode != "plain") torch_door::install();
  c10::Allocator* const allocator = c10::GetCPUAllocator();

  std::unordered_map<SiteId, std::vector<std::string>> chains;  // outermost first
  for (const Step& step : steps) {
    auto& chain = chains[step.site];
    if (!chain.empty()) continue;
    for (std::optional<SiteId> site = step.site; site && *site != kNoSite; site = trace.site_parent(*site)) {
      chain.emplace(chain.begin(), trace.site_name(*site));
    }
  }

  std::vector<c10::DataPtr> live(steps.size());
  std::vector<double> allocation, release, scoping;
  const double clock_cost = clock_cost_ns();
  std::uint64_t planned = 0;
  for (long i = -2; i < passes; ++i) {
    Slab* slab = nullptr;
    if (mode != "plain") {
      slab = slabs.acquire(layout);
      if (slab == nullptr) return 1;
      torch_door::begin_planned(*slab, mode == "scoped");
    }
    for (const Step& step : steps) {
      if (step.allocates) {
        std::vector<std::unique_ptr<at::RecordFunction>> scopes;
        if (mode == "scoped") {
          const auto& chain = chains[step.site];
          const double begin = now_ns();
          for (const std::string& name : chain) {
            scopes.push_back(std::make_unique<at::RecordFunction>(at::RecordScope::FUNCTION));
            if (scopes.back()->isActive()) scopes.back()->before(std::string_view(name));
          }
          const double end = now_ns();
          if (i >= 0 && !chain.empty())
            scoping.push_back((end - begin - clock_cost) / static_cast<double>(chain.size()));
        }
        const double begin = now_ns();
        live[step.slot] = allocator->allocate(step.size);
        const double end = now_ns();
        while (!scopes.empty()) scopes.pop_back();
        if (i >= 0) allocation.push_back(std::max(0.0, end - begin - clock_cost));
        // A tensor is written: the page faults of fresh memory belong to the allocation that brought it.
        if (live[step.slot].get() != nullptr)
          std::memset(live[step.slot].get(), 1, std::min<Size>(step.size, 64));
      } else {
        const double begin = now_ns();
        live[step.slot].clear();
        const double end = now_ns();
        if (i >= 0) release.push_back(std::max(0.0, end - begin - clock_cost));
      }
    }
    for (auto& pointer : live) pointer.clear();  // those that escape their pass
    if (slab != nullptr) {
      planned = torch_door::end_planned().counters.planned;
      slabs.give_back(slab);
    }
  }
  report("allocate", allocation);
  report("free", release);
  if (!scoping.empty()) report("entering one operator scope", scoping);
  std::printf("{\"what\": \"planned\", \"count\": %llu, \"of\": %zu}\n",
              static_cast<unsigned long long>(planned), allocation.size() / static_cast<size_t>(passes));
  return mode == "plain" || planned > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc == 3 && std::string_view(argv[1]) == "--smoke";
  if (argc != 4 && !smoke) {
    std::fprintf(stderr, "usage: %s TRACE planned|scoped|plain PASSES\n       %s --smoke TRACE\n", argv[0],
                 argv[0]);
    return 2;
  }
  const Trace trace = Trace::open(argv[smoke ? 2 : 1]);
  if (!smoke) return measure(trace, argv[2], std::strtol(argv[3], nullptr, 10));
  for (const char* mode : {"plain", "planned", "scoped"}) {
    if (measure(trace, mode, 3) != 0) return 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// Every policy of the simulator on recorded device allocations (text traces, tests/support/gpu_trace.h) and
// on generated ones (NAME@SEED, pool_programs.h): memory held, the smallest cap, device calls, the same as a
// loop of eight rounds, and nanoseconds per operation on one thread that takes and leaves a lock each time.
// One JSON object a line and trace; bench/pool/device_pool.py makes the table.
//
//   bench_device_pool [--smoke | --quick] POLICY[;POLICY...] TRACE...
//
// --smoke: as few passes as can be timed. --quick: one run and two caps, no loop, no times.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include "memoir/base/json.h"
#include "memoir/simulate/operation_clock.h"
#include "memoir/simulate/simulation.h"
#include "pool_programs.h"
#include "support/gpu_trace_events.h"

namespace memoir {

namespace {

class SpinLock {
 public:
  void lock() noexcept {
    while (taken_.exchange(true, std::memory_order_acquire)) {
    }
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

struct Times {
  double mean, p50, p99_9;
};

/// A loop: what lives when a pass ends is freed there. Odd passes are timed in groups, even ones operation by
/// operation; what a stretch needs is brought near first, as it would be to the program that asks.
Times time_policy(const Workload& workload, const std::string& policy, bool smoke) {
  constexpr size_t kStretch = 128, kGroup = 16;  // operations
  struct Operation {
    Request request;
    Heap* heap;
    Offset* place;
    bool allocates;
  };
  const auto simulated = make_policy(policy, workload);
  std::vector<Offset> places(workload.objects().size(), kNoOffset);
  SpinLock lock;
  const auto take = [&](const Operation& operation) {
    lock.lock();
    if (operation.allocates) {
      *operation.place = operation.heap->allocate(operation.request);
    } else if (*operation.place != kNoOffset) {
      operation.heap->free(*operation.place);
      *operation.place = kNoOffset;
    }
    lock.unlock();
  };
  std::vector<Operation> stretch;
  stretch.reserve(kStretch);
  OperationTimer timer;
  const auto steps = workload.steps();
  const int most = smoke ? 5 : 4000;
  for (int pass = 0; pass < 5 || (timer.operations() < 400'000 && pass < most); ++pass) {
    for (size_t at = 0; at < steps.size();) {
      stretch.clear();
      for (; at < steps.size() && stretch.size() < kStretch; ++at) {
        const Workload::Object& object = workload.objects()[steps[at].object];
        Offset* const place = &places[steps[at].object];
        __builtin_prefetch(place, 1);
        stretch.push_back(
            {{object.size, object.alignment(), object.site, object.stream, simulated->is_plain()},
             &simulated->heap(object.pool, object.stream),
             place,
             steps[at].kind == Workload::Kind::kAllocate});
      }
      for (size_t i = 0; i < stretch.size();) {
        if (pass < 3) {
          take(stretch[i++]);
          continue;
        }
        const size_t begin = i, end = pass % 2 == 0 ? i + 1 : std::min(stretch.size(), i + kGroup);
        timer.begin();
        while (i < end) take(stretch[i++]);
        pass % 2 == 0 ? timer.end_of_one() : timer.end_of_group(end - begin);
      }
    }
    timer.end_of_pass();
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] != kNoOffset) simulated->free(workload.objects()[i], places[i]);
      places[i] = kNoOffset;
    }
  }
  return {timer.mean(), timer.median(), timer.quantile(0.999)};
}

struct Loop {
  std::vector<std::uint64_t> calls;  // to the device, in each round
  Size reserved = 0;                 // at most
};

/// The program again and again; what lives when a round ends is freed there.
Loop loop_policy(const Workload& workload, const std::string& policy) {
  constexpr int kRounds = 8;
  const auto simulated = make_policy(policy, workload);
  std::vector<Offset> places(workload.objects().size(), kNoOffset);
  Loop loop;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t before = simulated->calls().all();
    for (const Workload::Step& step : workload.steps()) {
      const Workload::Object& object = workload.objects()[step.object];
      Offset& place = places[step.object];
      if (step.kind == Workload::Kind::kAllocate) {
        place = simulated->allocate(object);
        loop.reserved = std::max(loop.reserved, simulated->reserved());
      } else if (place != kNoOffset) {
        simulated->free(object, place);
        place = kNoOffset;
      }
    }
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] != kNoOffset) simulated->free(workload.objects()[i], places[i]);
      places[i] = kNoOffset;
    }
    loop.calls.push_back(simulated->calls().all() - before);
  }
  return loop;
}

std::string text_of(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

enum class Effort { kAll, kSmoke, kQuick };

std::vector<Event> events_of(const std::string& trace) {
  const size_t at = trace.rfind('@');
  if (at == std::string::npos || trace.find('/') != std::string::npos)
    return gpu_trace::events_of(gpu_trace::read(trace));
  return programs::make(trace.substr(0, at), std::stoull(trace.substr(at + 1)));
}

std::string name_of(const std::string& trace) {
  const size_t slash = trace.rfind('/') + 1;
  return trace.substr(slash, trace.rfind(".trace") - slash);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void measure(const std::string& policy, const std::string& trace, Effort effort) {
  const Workload workload(events_of(trace));
  const double peak = static_cast<double>(workload.peak_live());
  const double before = cpu_seconds();
  const Simulation free = simulate(workload, policy, {.samples = 0, .timed = false});
  const double seconds = cpu_seconds() - before;
  const auto completes_at = [&](Size percent) {
    const Size cap = std::max(workload.peak_live() / 100 * percent, workload.largest());
    return simulate(workload, policy, {.cap = cap, .samples = 0, .timed = false}).completed ? "true"
                                                                                            : "false";
  };
  std::string policy_json, trace_json;
  append_json_string(policy_json, policy);
  append_json_string(trace_json, name_of(trace));
  std::printf(
      "{\"policy\": %s, \"trace\": %s, \"peak\": %llu, \"operations\": %llu, \"reserved\": %.5f, "
      "\"calls\": %llu, \"cpu\": %.3f, \"cap_1.02\": %s, \"cap_1.06\": %s",
      policy_json.c_str(), trace_json.c_str(), static_cast<unsigned long long>(workload.peak_live()),
      static_cast<unsigned long long>(workload.operations()), static_cast<double>(free.peak_reserved) / peak,
      static_cast<unsigned long long>(free.calls.all()), seconds, completes_at(102), completes_at(106));
  if (effort != Effort::kQuick) {
    const CapSearch cap = find_cap(workload, policy);
    const Loop loop = loop_policy(workload, policy);
    const Times times = time_policy(workload, policy, effort == Effort::kSmoke);
    std::printf(
        ", \"cap\": %.5f, \"cap_1.01\": %s, \"loop_reserved\": %.5f, \"loop_calls\": %s, \"mean_ns\": %.1f, "
        "\"p50_ns\": %.1f, \"p99.9_ns\": %.1f",
        static_cast<double>(cap.cap) / peak, completes_at(101), static_cast<double>(loop.reserved) / peak,
        text_of(loop.calls).c_str(), times.mean, times.p50, times.p99_9);
  }
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace

}  // namespace memoir

int main(int count, char** arguments) try {
  const std::string word = count > 1 ? arguments[1] : "";
  const memoir::Effort effort = word == "--smoke"   ? memoir::Effort::kSmoke
                                : word == "--quick" ? memoir::Effort::kQuick
                                                    : memoir::Effort::kAll;
  const int first = effort == memoir::Effort::kAll ? 1 : 2;
  if (count < first + 2) {
    std::fprintf(stderr, "usage: %s [--smoke | --quick] POLICY[;POLICY...] TRACE...\n", arguments[0]);
    return 2;
  }
  const std::string names = std::string(arguments[first]) + ";";
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = names.find(';', begin);
    for (int i = first + 1; i < count; ++i) {
      memoir::measure(names.substr(begin, end - begin), arguments[i], effort);
    }
    begin = end + 1;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}

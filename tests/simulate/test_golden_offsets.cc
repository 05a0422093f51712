// SPDX-License-Identifier: Apache-2.0
//
// A refactoring changes no offset: every policy on the recorded traces and every planner on the problems
// gives, to the bit, what tests/data/golden_offsets.txt holds. A change that means to place otherwise
// rewrites the file and says so:
//
//   MEMOIR_REWRITE_GOLDENS=1 build/release/tests/test_simulate -tc="*bit for bit*"
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/simulate/simulated_heap.h"
#include "support/gpu_trace_events.h"

namespace memoir {

namespace {

const std::string kFile = MEMOIR_TEST_DATA "/golden_offsets.txt";
constexpr const char* kTraces[] = {
    "bcrafton_cs336.d0",         "constructorsun_codeloc.d0", "constructorsun_codeloc.d2", "gpt2m_varlen",
    "magma27_cs336.d0",          "shreyansh_profile_grad.d0", "silmont_fwd_fp32_128.d0",   "silmont_mem.d0",
    "llama7b_lora_zero3_2stream"};
constexpr const char* kProblems[] = {"minimalloc/A.1048576", "minimalloc/G.1048576", "minimalloc/K.1048576",
                                     "iopddl/G_1",           "somas/resnet50",       "torch/qwen_decode"};

/// FNV-1a over numbers.
class Hash {
 public:
  void add(std::uint64_t number) noexcept {
    for (int byte = 0; byte < 8; ++byte) {
      sum_ = (sum_ ^ ((number >> (8 * byte)) & 255)) * 0x100000001b3;
    }
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum_));
    return digits;
  }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325;
};

/// All offsets that the policy gives the workload, and what it reserved after each step.
std::string offsets_of(const Workload& workload, const std::string& policy) {
  const auto simulated = make_policy(policy, workload);
  std::vector<Offset> places(workload.objects().size(), kNoOffset);
  Hash hash;
  for (const Workload::Step& step : workload.steps()) {
    simulated->tick(step.time);
    const Workload::Object& object = workload.objects()[step.object];
    Heap& heap = simulated->heap(object.pool, object.stream);
    if (step.kind == Workload::Kind::kAllocate) {
      places[step.object] = heap.allocate(simulated->request_of(object));
      hash.add(places[step.object]);
    } else if (places[step.object] != kNoOffset) {
      heap.free(places[step.object]);
    }
    hash.add(simulated->reserved());
  }
  for (size_t i = 0; i < places.size(); ++i) {  // what outlives the trace
    if (workload.objects()[i].end == workload.steps().size() && places[i] != kNoOffset) {
      const Workload::Object& object = workload.objects()[i];
      simulated->heap(object.pool, object.stream).free(places[i]);
    }
  }
  return hash.text();
}

std::string offsets_of(const Plan& plan) {
  Hash hash;
  hash.add(plan.arena_size);
  for (const Offset offset : plan.offsets) hash.add(offset);
  return hash.text();
}

std::map<std::string, std::string> read_goldens() {
  std::map<std::string, std::string> goldens;
  std::ifstream file(kFile);
  std::string kind, name, on, hash;
  while (file >> kind >> name >> on >> hash) goldens[kind + " " + name + " " + on] = hash;
  return goldens;
}

}  // namespace

TEST_CASE("every policy and every planner places bit for bit as the goldens say") {
  std::map<std::string, std::string> found;
  for (const std::string trace : kTraces) {
    const Workload workload(
        gpu_trace::events_of(gpu_trace::read(MEMOIR_TEST_DATA "/gpu/" + trace + ".trace")));
    for (const PolicyInfo& policy : policies(Substrate::kSimulation)) {
      found["policy " + policy.name + " " + trace] = offsets_of(workload, policy.name);
    }
  }
  for (const std::string problem : kProblems) {
    const CsvProblem csv = read_csv(MEMOIR_TEST_DATA "/planning/" + problem + ".csv");
    for (const Planner& planner : planners()) {
      found["planner " + std::string(planner.name) + " " + problem] = offsets_of(planner.run(csv.problem));
    }
  }
  if (std::getenv("MEMOIR_REWRITE_GOLDENS") != nullptr) {
    std::ofstream file(kFile);
    for (const auto& [what, hash] : found) file << what << ' ' << hash << '\n';
  }
  CHECK(found == read_goldens());
}

}  // namespace memoir

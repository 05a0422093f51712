// SPDX-License-Identifier: Apache-2.0
#include "contract/both_substrates.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "memoir/base/error.h"

namespace memoir::contract {

namespace {

Seen seen_of(const SimulatedHeap& simulated) {
  const DeviceCalls calls = simulated.calls();
  return {simulated.reserved(), calls.takes,  calls.give_backs, calls.creates, calls.releases,
          calls.maps,           calls.unmaps, calls.accesses,   calls.syncs,   calls.waits};
}

Seen seen_of(const DeviceRuntime& runtime) {
  const DeviceView view = runtime.view(DeviceDetail::kNumbers);
  const CudaCounts& calls = view.device_calls;
  return {view.held,
          calls.takes,
          calls.give_backs,
          calls.creates,
          calls.releases,
          calls.commits,
          calls.decommits,
          calls.accesses,
          view.stream_calls.quiets,
          view.stream_calls.waits};
}

/// A private pool of the workload, open while it is allocated from, as while a graph is captured.
class PoolScope {
 public:
  PoolScope(DeviceRuntime& runtime, std::uint32_t pool) : runtime_(runtime), id_{0, pool} {
    if (pool != 0) runtime_.begin_pool(id_, [](cuda::Stream) { return true; });
  }
  ~PoolScope() {
    if (id_.second != 0) runtime_.end_pool(id_);
  }

 private:
  DeviceRuntime& runtime_;
  DevicePoolId id_;
};

}  // namespace

BothResult run_on_both(const Workload& workload, const std::string& policy, Size cap) {
  BothResult result;
  const Size total = cap == kNoCap ? 64 * kGiB : cap;
  fake::fresh(total);
  SimulatedAddresses addresses;
  addresses.use();
  std::unique_ptr<SimulatedHeap> simulated;
  std::optional<DeviceRuntime> runtime;
  Tick now = 0;
  try {
    // Memoir's pools look at how much room the device has; to others a cap is more than that.
    const bool looks = policy.starts_with("memoir") || policy.starts_with("guided");
    simulated = make_policy(policy, workload, looks ? total : cap);
  } catch (const Error& error) {
    result.simulation = error.what();
  }
  try {
    runtime.emplace(0, choose_policy(policy, Substrate::kDevice),
                    DeviceRuntimeOptions{.cap = cap, .clock = [&now] { return now; }});
  } catch (const Error& error) {
    result.device = error.what();
  }
  result.made = simulated != nullptr && runtime.has_value();
  if (!result.made) {
    if ((simulated == nullptr) == runtime.has_value()) result.difference = "one of them was made";
    return result;
  }
  std::vector<cuda::Stream> streams{nullptr};
  while (streams.size() < workload.streams())
    streams.push_back(static_cast<cuda::Stream>(fake_stream_create()));
  std::vector<Offset> offsets(workload.objects().size(), kNoOffset);
  std::vector<void*> pointers(workload.objects().size());
  const auto compare = [&](const std::string& step) {
    const Seen simulation = seen_of(*simulated), device = seen_of(*runtime);
    if (simulation == device) return true;
    result.difference = step + ": simulation " + simulation.text() + "; device " + device.text();
    return false;
  };
  if (!compare("at the start")) return result;
  for (size_t at = 0; at < workload.steps().size(); ++at) {
    const Workload::Step& step = workload.steps()[at];
    const Workload::Object& object = workload.objects()[step.object];
    const std::string where = "step " + std::to_string(at);
    now = step.time;
    simulated->tick(now);
    runtime->finish_plans();
    if (step.kind == Workload::Kind::kAllocate) {
      offsets[step.object] = simulated->allocate(object);
      const PoolScope pool(*runtime, object.pool);
      std::string refusal;
      pointers[step.object] = runtime->allocate(object.size, streams[object.stream], object.site, refusal);
      const bool refused = pointers[step.object] == nullptr;
      if (refused != (offsets[step.object] == kNoOffset)) {
        result.difference = where + ": " + std::to_string(object.size) + " bytes were refused by the " +
                            (refused ? "device: " + refusal : "simulation alone");
        return result;
      }
      result.refused += refused;
    } else if (pointers[step.object] != nullptr) {
      simulated->free(object, offsets[step.object]);
      runtime->free(pointers[step.object]);
    }
    if (!compare(where)) return result;
    result.reserved = std::max(result.reserved, simulated->reserved());
  }
  result.planned = runtime->view(DeviceDetail::kNumbers).loops.planned;
  return result;
}

}  // namespace memoir::contract

// SPDX-License-Identifier: Apache-2.0
//
// One program under one policy, in a simulation and on a device at once, step by step: what the README says
// of the two is what is asked here.
//
//   step       allocate 3 on stream 1     ->  SimulatedHeap::allocate     reserved, calls, waits
//                                         ->  DeviceRuntime::allocate     the same?
//
// The device is the tests' fake driver. Two things a real one decides for itself, and a trace does not tell;
// here they are as a simulation has them:
//   * where plain memory lies: best fit looks at addresses, so the fake driver chooses as SimSegments does;
//   * how far its queues have come: they run only when the host waits for the device.
#pragma once

#include <string>
#include <vector>

#include "memoir/arena/sim_arena.h"
#include "memoir/device/device_runtime.h"
#include "memoir/simulate/simulated_heap.h"
#include "support/fake_cuda/fake.h"

namespace memoir::contract {

/// Addresses for the fake device's segments.
class SimulatedAddresses {
 public:
  void use() {
    fake_place_segments(
        [](void* self, uint64_t size) {
          const Size bytes = Segments::cost(size);
          return kBase + static_cast<SimulatedAddresses*>(self)->spans_.allocate(
                             {bytes, bytes < Segments::kPage ? Segments::kStep : Segments::kPage});
        },
        [](void* self, uint64_t address) {
          static_cast<SimulatedAddresses*>(self)->spans_.free(address - kBase);
        },
        this);
  }

 private:
  static constexpr uint64_t kBase = uint64_t{1} << 50;  // no host address
  Addresses addresses_{Size{1} << 47};
  SpanHeap spans_{addresses_};
};

/// What can be seen of a policy's use of a device.
struct Seen {
  Size reserved = 0;
  std::uint64_t takes = 0, give_backs = 0, creates = 0, releases = 0, maps = 0, unmaps = 0, accesses = 0;
  std::uint64_t syncs = 0, waits = 0;
  bool operator==(const Seen&) const = default;
  std::string text() const {
    std::string text = std::to_string(reserved) + " bytes";
    const auto add = [&](std::uint64_t count, const char* what) {
      text += ", " + std::to_string(count) + what;
    };
    add(takes, " takes"), add(give_backs, " give-backs"), add(creates, " creates");
    add(releases, " releases"), add(maps, " maps"), add(unmaps, " unmaps"), add(accesses, " accesses");
    add(syncs, " syncs"), add(waits, " waits");
    return text;
  }
};

struct BothResult {
  bool made = false;       // else both refused to make the policy
  std::string simulation;  // what it said then
  std::string device;
  std::string difference;     // "" when there was none
  Size reserved = 0;          // at most
  std::uint64_t refused = 0;  // requests, by both
  std::uint64_t planned = 0;  // requests that a plan served on the device
};

/// Runs the workload under the policy on both, under a cap (kNoCap: the device has 64 GiB).
BothResult run_on_both(const Workload& workload, const std::string& policy, Size cap);

}  // namespace memoir::contract

// SPDX-License-Identifier: Apache-2.0
//
// The state in which PyTorch's allocator was when a recorded history began, as the heaps can take it over
// (PyTorchHeap::restore, ExpandableHeap::restore).
//
//   the trace, time 0   segment 20 MiB at A, object 1 of 3,000,000 bytes at A, object 2 of 2 MiB at A + 4 MiB
//   a recorded area     | 1, rounded up to 512 bytes | free, over 1 MiB | 2 | free ..... |
//
// A trace has the objects' bytes as asked; their blocks follow from the recorded settings: requests are
// rounded up, and of a large segment what would be left over is cut off only when it is over 1 MiB. Where a
// large block ends then shows by what lies behind it, now or later; where nothing ever does, it is taken to
// end at once.
//
// Not told by a trace, and so not modelled: which private pools (CUDA graphs, MemPool) nobody uses any more,
// so all are taken for used (until restored_run.h sees one give memory back and ask for none again); the
// order in which free blocks were freed, which only `ties_by_record` looks at; how old they are, for
// garbage_collection_threshold; frees that still waited for another stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/heap/peers/pytorch/pytorch_pools.h"
#include "memoir/simulate/workload.h"

namespace memoir {

/// Addresses that the recorded allocator had as one: a segment, or the area that one pool's and stream's
/// expandable memory of one kind lies in.
struct RestoredArea {
  Offset base = 0;            // the lowest address that is known to be of it
  Size span = 0;              // bytes from there to the end of the highest memory ever in it
  StreamId stream = 0;        // of the workload
  std::uint32_t pool = 0;     // of the workload
  bool small = false;         // for blocks of up to 1 MiB
  std::vector<Range> memory;  // addresses, ascending, none touching another; of a segment, all of it
  std::vector<RestoredObject> objects;  // at addresses, ascending
};

struct RestoredState {
  std::string settings;  // of the recorded allocator: what torch_settings() makes of the policy
  bool expandable = false;
  std::vector<RestoredArea> areas;  // in ascending order of address
  Size held = 0;                    // bytes that it had from the device
  std::uint64_t segments = 0;       // or stretches of mapped memory
  std::uint64_t objects = 0;        // live, not empty
};

/// What made the recording: "pytorch", or "expandable" for mapped segments. Throws Error for a workload whose
/// trace has no segments, or has both kinds.
std::string recorded_policy(const Workload& workload);

/// The state from which `policy` went on: recorded_policy(), with the settings that the recording was made
/// with. Throws Error, naming the events, for what PyTorch's allocator cannot have held: segments that
/// overlap, objects that do or that lie in none or in another pool's, sizes beyond a device's addresses.
RestoredState restored_state(const Workload& workload, std::string_view policy);

}  // namespace memoir

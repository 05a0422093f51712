// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a trace: refused with an Error, or read and then all that trace.h promises of its events
// holds, and what it tells of PyTorch's allocator can be gone on from or is refused. Each input is also tried
// with its checksums made right, or no mutation would get past them.
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "memoir/arena/sim_arena.h"
#include "memoir/base/error.h"
#include "memoir/heap/classic/span_heap.h"
#include "memoir/simulate/simulation.h"
#include "memoir/trace/format.h"
#include "memoir/trace/trace.h"
#include "support/replay.h"

using namespace memoir;
using trace_format::kMaxSize;

namespace {

void must(bool holds) {
  if (!holds) std::abort();
}

/// The promises of Trace::open(), checked again in the plainest way.
void check_events(const Trace& trace) {
  struct Object {
    Size size;
    std::uint16_t device;
  };
  std::map<ObjectId, Object> live;
  std::set<ObjectId> seen, requested, addressed;
  std::map<std::uint16_t, Size> mapped;
  std::map<std::pair<std::uint16_t, Offset>, Size> segments;
  std::set<std::uint64_t> begun, running;
  Size live_bytes = 0;
  Tick last = 0;
  std::uint32_t pools = 0;  // private ones
  for (const Event& event : trace.events()) {
    must(event.time >= last);
    last = event.time;
    must(!names_pool(event.kind) || pool_of(event) <= pools);
    switch (event.kind) {
      case EventKind::kAllocate:
        must(event.size <= kMaxSize && event.alignment_log2 <= 56);
        must(seen.insert(event.object).second);
        live[event.object] = {event.size, event.device};
        live_bytes += event.size;
        must(live_bytes <= kMaxSize);
        break;
      case EventKind::kFree:
        must(live.contains(event.object) && live[event.object].device == event.device);
        live_bytes -= live[event.object].size;
        live.erase(event.object);
        break;
      case EventKind::kFreeRequested:
        must(live.contains(event.object) && live[event.object].device == event.device);
        must(requested.insert(event.object).second);
        break;
      case EventKind::kAddress:
        must(live.contains(event.object) && live[event.object].device == event.device);
        must(addressed.insert(event.object).second);
        must(event.size + live[event.object].size <= trace_format::kMaxAddress);
        break;
      case EventKind::kSegmentAllocate:
        must(segments.emplace(std::pair(event.device, event.object), event.size).second);
        break;
      case EventKind::kSegmentFree:
        must(segments[{event.device, event.object}] == event.size);
        segments.erase({event.device, event.object});
        break;
      case EventKind::kSegmentMap:
        must((mapped[event.device] += event.size) <= kMaxSize);
        break;
      case EventKind::kSegmentUnmap:
        must(mapped[event.device] >= event.size);
        mapped[event.device] -= event.size;
        break;
      case EventKind::kOutOfMemory:
        must(event.object <= kMaxSize && event.size <= trace_format::kMaxAddress);
        break;
      case EventKind::kPool:
        must(pool_of(event) == ++pools);
        break;
      case EventKind::kPassBegin:
        must(begun.insert(event.object).second);
        running.insert(event.object);
        break;
      case EventKind::kPassEnd:
        must(running.erase(event.object) == 1);
        break;
      case EventKind::kSite:
        must(trace.site_parent(event.site) == event.size);
        must(trace.site_chain(event.site).size() < 4096 * 4100);
        break;
      case EventKind::kMeta:
        break;
      default:
        must(false);
    }
  }
  must(!trace.complete() || trace.lost_bytes() == 0);
  for (const std::string_view key : trace.meta_keys()) trace.meta(key);
}

/// From the state that the trace says PyTorch's allocator was in: refused with an Error, or followed to the
/// end.
void simulate_from_recorded(const Trace& trace) {
  const Workload workload(trace.events());
  if (workload.peak_live() > 1024 * kGiB) return;  // takes long: bits for all its pages
  for (const char* const policy : {"pytorch", "expandable"}) {
    try {
      const Simulation result = simulate(
          workload, policy, {.stop_at_oom = false, .samples = 4, .timed = false, .recorded = policy});
      must(result.fidelity.has_value());
      must(result.fidelity->agreed <= result.fidelity->objects);
      must(result.fidelity->first_difference.has_value() ==
           (result.fidelity->agreed < result.fidelity->objects));
      must(result.peak_reserved >= result.fidelity->start_reserved);
      must(result.peak_live <= workload.peak_live());
    } catch (const Error& error) {
      must(std::strlen(error.what()) > 10);
    }
  }
}

void try_to_read(const std::vector<std::byte>& bytes) {
  try {
    const Trace trace = Trace::from_bytes(bytes);
    check_events(trace);
    SimArena arena(64 * kMiB, {.granule = 64 * kKiB});
    SpanHeap heap(arena);
    const Usage usage = replay(trace.events(), heap, arena);
    must(usage.served + usage.elsewhere <= usage.allocations && usage.peak_live <= usage.peak_load);
    must(heap.live() == 0);
    simulate_from_recorded(trace);
  } catch (const Error& error) {
    must(std::strlen(error.what()) > 10);
  }
}

/// Gives every record the checksum of what it holds.
void repair(std::vector<std::byte>& bytes) {
  for (size_t at = sizeof(trace_format::Header); at + sizeof(Event) <= bytes.size();) {
    Event event;
    std::memcpy(&event, &bytes[at], sizeof event);
    const size_t texts = bytes[8] == std::byte{1} ? event.device : text_records(event);
    if (texts > (bytes.size() - at) / sizeof event - 1) return;
    event.check = trace_format::checksum(event, bytes.data() + at + sizeof event, texts);
    std::memcpy(&bytes[at], &event, sizeof event);
    at += (1 + texts) * sizeof event;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  const auto* const first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  try_to_read(bytes);
  repair(bytes);
  try_to_read(bytes);
  return 0;
}

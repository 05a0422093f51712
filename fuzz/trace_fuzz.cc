// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a trace: refused with an Error, or read and then all that trace.h promises of its events
// holds, and what it tells of PyTorch's allocator can be gone on from or is refused. Each input is also tried
// with its checksums made right, or no mutation would get past them.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "memoir/arena/sim_arena.h"
#include "memoir/base/error.h"
#include "memoir/heap/plain/span_heap.h"
#include "memoir/simulate/simulation.h"
#include "memoir/trace/file/block_format.h"
#include "memoir/trace/format.h"
#include "memoir/trace/read/trace.h"
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
        must(event.address <= trace_format::kMaxAddress - event.size);
        must(trace.site_frames(event.site).size() <= 64 * 4096);
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
    for (const Only only : {Only::kTensors, Only::kMallocs}) {
      try {
        check_events(Trace::from_bytes(bytes, "x", only));
      } catch (const Error& error) {
        must(std::strlen(error.what()) > 10);
      }
    }
    const Trace trace = Trace::from_bytes(bytes);
    check_events(trace);
    SimArena arena(64 * kMiB, {.granule = 64 * kKiB});
    SpanHeap heap(arena);
    const ReplayUsage usage = replay(trace.events(), heap, arena);
    must(usage.served + usage.elsewhere <= usage.allocations && usage.peak_live <= usage.peak_load);
    must(heap.live() == 0);
    simulate_from_recorded(trace);
  } catch (const Error& error) {
    must(std::strlen(error.what()) > 10);
  }
}

/// Gives every block the checksum of what it holds, and a closed file its end.
void repair(std::vector<std::byte>& bytes) {
  using namespace trace_format;
  if (bytes.size() < sizeof(Header)) return;
  const std::uint64_t end = bytes.size();
  std::memcpy(&bytes[offsetof(Header, end)], &end, sizeof end);
  for (size_t at = sizeof(Header); at + sizeof(BlockHeader) <= bytes.size();) {
    BlockHeader header;
    std::memcpy(&header, &bytes[at], sizeof header);
    const size_t begin = at + sizeof header;
    if (header.used > bytes.size() - begin) return;
    header.check = block_checksum(header, bytes.data() + begin);
    std::memcpy(&bytes[at], &header, sizeof header);
    at = begin + header.room;
  }
}

/// What a writer promises of a file whose first `half` bytes are there: a tick before which all is in them.
/// 0 when there is none.
std::uint64_t settled(const std::vector<std::byte>& bytes, size_t half) {
  using namespace trace_format;
  std::uint64_t tick = ~std::uint64_t{0};
  for (size_t at = sizeof(Header); at + sizeof(BlockHeader) <= bytes.size();) {
    BlockHeader header;
    std::memcpy(&header, &bytes[at], sizeof header);
    const size_t begin = at + sizeof header;
    if (header.room > bytes.size() - begin) return 0;
    at = begin + header.room;
    if (at > half) tick = std::min(tick, header.tick);
  }
  return tick;
}

bool has_losses(const Trace& trace) {
  const Losses& losses = trace.losses();
  return losses.bytes + losses.cut_bytes + losses.blocks + losses.unknown_frees + losses.missed_frees > 0;
}

/// A file that grows: whatever was read of its first half, the whole is refused or is what open() gives, as
/// long as its writer keeps its promise and no event is missing.
void follow(const std::vector<std::byte>& bytes) {
  using trace_format::Header;
  if (bytes.size() < 2 * sizeof(Header)) return;
  char path[] = "/tmp/memoir-fuzz-XXXXXX";
  const int file = ::mkstemp(path);
  must(file >= 0);
  const auto put = [&](const std::vector<std::byte>& from, size_t begin, size_t end) {
    must(::pwrite(file, &from[begin], end - begin, static_cast<off_t>(begin)) ==
         static_cast<ssize_t>(end - begin));
  };
  try {
    const size_t half = sizeof(Header) + (bytes.size() - sizeof(Header)) / 2;
    std::vector<std::byte> growing(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(half));
    const std::uint64_t until = settled(bytes, half);
    if (until != 0) {
      Header header;
      std::memcpy(&header, growing.data(), sizeof header);
      header.flags &= ~trace_format::kComplete;
      header.end = 0;
      header.flushed = until;
      std::memcpy(growing.data(), &header, sizeof header);
    }
    put(growing, 0, half);
    Trace trace = Trace::follow(path);
    put(bytes, 0, bytes.size());
    trace.poll();
    check_events(trace);
    if (trace.complete() && until != 0) {
      const Trace whole = Trace::from_bytes(bytes);
      must(whole.events().size() == trace.events().size() || has_losses(whole));
    }
  } catch (const Error& error) {
    must(std::strlen(error.what()) > 10);
  }
  ::close(file);
  ::unlink(path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  const auto* const first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  try_to_read(bytes);
  repair(bytes);
  try_to_read(bytes);
  if (size % 16 == 0) follow(bytes);  // files are slow
  return 0;
}

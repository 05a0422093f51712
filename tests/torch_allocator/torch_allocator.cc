// SPDX-License-Identifier: Apache-2.0
//
// Follows a script (allocator_script.py) with PyTorch's own caching allocator, on the device of
// fake_cudart.cc.
//   torch_allocator SETTINGS DEVICE_MEMORY CAP AREA_STRIDE TORCH_MINOR [ENTRIES] < script
// With ENTRIES it says nothing of the steps, but ends with a memory snapshot, as JSON, whose history has so
// many at most.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*)(c10::DeviceIndex));  // exported, in no header
}

extern "C" {
void fake_configure(std::uint64_t memory, std::uint64_t cap, std::uint64_t stride);
void fake_complete_events();
void fake_capture(std::uint64_t stream, int more);
const char* fake_log();
}

namespace {

using c10::cuda::CUDACachingAllocator::get;

constexpr std::uint64_t kOffsetZero = std::uint64_t{1} << 40;  // where fake_cudart.cc puts it
constexpr std::uint64_t kAllStreams = 99;

bool prints = true;  // every step
std::map<std::uint64_t, void*> live;
std::vector<std::uint64_t> dead;                  // what the next callback frees
std::map<std::uint64_t, std::uint64_t> captured;  // stream, by pool of a capture

class FreesTheDead final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    if (prints) std::puts("callback");
    const bool any = !dead.empty();
    for (const auto id : dead) {
      get()->raw_delete(live.at(id));
      live.erase(id);
    }
    dead.clear();
    return any;
  }
};

cudaStream_t stream_of(std::uint64_t number) { return reinterpret_cast<cudaStream_t>(number * 4096); }

c10::cuda::CUDAStream external(std::uint64_t number) {
  return c10::cuda::getStreamFromExternal(stream_of(number), 0);
}

std::string allocate(std::uint64_t id, std::uint64_t size, std::uint64_t stream) {
  c10::cuda::setCurrentCUDAStream(external(stream));
  try {
    void* const pointer = get()->raw_alloc_with_stream(size, stream_of(stream));
    c10::cuda::setCurrentCUDAStream(external(0));
    live[id] = pointer;
    return " -> " + std::to_string(reinterpret_cast<std::uint64_t>(pointer) - kOffsetZero);
  } catch (const c10::OutOfMemoryError&) {
    c10::cuda::setCurrentCUDAStream(external(0));
    return " -> oom";
  }
}

void use(std::uint64_t id, std::uint64_t stream) {
  c10::DataPtr pointer(live[id], live[id], get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
  get()->recordStream(pointer, external(stream));
  pointer.release_context();
}

/// From torch 2.13 on, captures are told from other uses of private pools.
template <class Allocator>
void mark_capture(Allocator* allocator, bool begins) {
  if constexpr (requires { allocator->markCaptureBegin(0); }) {
    begins ? allocator->markCaptureBegin(0) : allocator->markCaptureEnd(0);
  }
}

void begin(std::uint64_t pool, bool capture, std::uint64_t stream) {
  if (capture) {
    mark_capture(get(), true);
    fake_capture(stream, 1);
    captured[pool] = stream;
  }
  get()->beginAllocateToPool(0, {pool, 0}, [stream](cudaStream_t other) {
    return stream == kAllStreams || other == stream_of(stream);
  });
}

void end(std::uint64_t pool, bool capture) {
  get()->endAllocateToPool(0, {pool, 0});
  if (capture) {
    mark_capture(get(), false);
    fake_capture(captured[pool], -1);
  }
}

std::string step(const std::string& verb, std::uint64_t id, std::uint64_t x, std::uint64_t y) {
  if (verb == "allocate") return allocate(id, x, y);
  if (verb == "events") fake_complete_events();
  if (verb == "trim") get()->emptyCache();
  if (verb == "trim_pool") get()->emptyCache({id, 0});
  if (verb == "begin") begin(id, x != 0, y);
  if (verb == "end") end(id, x != 0);
  if (verb == "add_use") get()->createOrIncrefPool(0, {id, 0});
  if (verb == "release") get()->releasePool(0, {id, 0});
  if (verb == "lend") get()->setUseOnOOM(0, {id, 0}, x != 0);
  if (verb == "whole") get()->setNoSplit(0, {id, 0});
  if (live.count(id) == 0) return "";
  if (verb == "use") use(id, x);
  if (verb == "dead") dead.push_back(id);
  if (verb == "free") {
    get()->raw_delete(live[id]);
    live.erase(id);
  }
  return "";
}

/// From now on, without stacks.
template <class Allocator>
void record(Allocator* allocator, std::uint64_t entries) {
  if constexpr (requires { allocator->recordHistory(true, nullptr, entries, {}, false, {}); }) {
    allocator->recordHistory(true, nullptr, entries, {}, false, {});
  } else {
    allocator->recordHistory(true, nullptr, entries, {}, false);
  }
}

/// One of several: a comma before all but the first.
template <class All, class Print>
void print_list(const char* name, const All& all, Print print) {
  std::printf("\"%s\": [", name);
  const char* comma = "";
  for (const auto& one : all) {
    std::printf("%s", comma);
    print(one);
    comma = ", ";
  }
  std::printf("]");
}

unsigned long long number_of(const void* stream) { return reinterpret_cast<std::uint64_t>(stream); }

void print_pool(const char* name, const c10::MempoolId_t& pool) {
  std::printf("\"%s\": [%llu, %llu], ", name, static_cast<unsigned long long>(pool.first),
              static_cast<unsigned long long>(pool.second));
}

/// What torch.cuda.memory._snapshot() makes of it, as far as memoir reads it.
void print_snapshot() {
  const auto info = get()->snapshot();
  std::printf("{");
  print_list("segments", info.segments, [](const auto& segment) {
    std::printf(
        "{\"device\": 0, \"address\": %zu, \"total_size\": %zu, \"stream\": %llu, \"is_expandable\": %s, ",
        segment.address, segment.total_size, number_of(segment.stream),
        segment.is_expandable ? "true" : "false");
    print_pool("segment_pool_id", segment.owner_private_pool_id);
    std::size_t address = segment.address;
    print_list("blocks", segment.blocks, [&](const auto& block) {
      const char* const state = block.allocated ? "active_allocated"
                                : block.active  ? "active_pending_free"
                                                : "inactive";
      std::printf("{\"address\": %zu, \"size\": %zu, \"requested_size\": %zu, \"state\": \"%s\"}", address,
                  block.size, block.requested_size, state);
      address += block.size;
    });
    std::printf("}");
  });
  std::printf(", ");
  print_list("trace", info.device_traces.at(0), [](const auto& entry) {
    const char* const kActions[] = {"alloc",         "free_requested", "free_completed",
                                    "segment_alloc", "segment_free",   "segment_map",
                                    "segment_unmap", "snapshot",       "oom"};
    std::printf("{");
    print_pool("pool_id", entry.mempool_);
    std::printf("\"action\": \"%s\", \"addr\": %zu, \"size\": %zu, \"stream\": %llu}",
                kActions[static_cast<int>(entry.action_)], entry.addr_, entry.size_,
                number_of(entry.stream_));
  });
  const auto& settings = info.config_metadata;
  std::printf(", \"settings\": {\"PYTORCH_CUDA_ALLOC_CONF\": \"%s\", \"max_split_size\": %lld, ",
              settings.last_allocator_settings.c_str(), static_cast<long long>(settings.max_split_size));
  std::printf("\"garbage_collection_threshold\": %f, \"expandable_segments\": %s, ",
              settings.garbage_collection_threshold, settings.expandable_segments ? "true" : "false");
  print_list("roundup_power2_divisions", settings.roundup_power2_divisions,
             [](std::size_t divisions) { std::printf("%zu", divisions); });
  std::printf("}}\n");
}

}  // namespace

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK(frees_the_dead, ::FreesTheDead)
}

int main(int count, char** argv) {
  fake_configure(std::stoull(argv[2]), std::stoull(argv[3]), std::stoull(argv[4]));
  try {
    c10::CachingAllocator::setAllocatorSettings(argv[1]);
  } catch (const std::exception&) {
    std::puts("refused");
    std::fflush(stdout);
    std::_Exit(0);  // without the ends of what was never begun
  }
  c10::cuda::detail::init_p2p_access_cache(1);
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  get()->init(1);
  if (count > 6) record(get(), std::stoull(argv[6]));
  prints = count <= 6;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string verb;
    std::uint64_t id = 0, x = 0, y = 0;
    in >> verb >> id >> x >> y;
    const std::string answer = step(verb, id, x, y);
    const std::string log = fake_log();
    if (prints) std::printf("%s%s\n%s", line.c_str(), answer.c_str(), log.c_str());
  }
  if (!prints) print_snapshot();
  std::fflush(stdout);
  std::_Exit(0);
}

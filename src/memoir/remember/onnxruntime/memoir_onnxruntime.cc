// SPDX-License-Identifier: Apache-2.0
#include "memoir_onnxruntime.h"

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "memoir/remember/memory.h"
#include "memoir/remember/slab/address_space.h"
#include "memoir/remember/slab/recorder.h"
#include "memoir/remember/slab/separate_memory.h"
#include "memoir/remember/slab/slab_set.h"

// The part of ONNX Runtime's struct that a version of 16 has: later members are not read then.
struct OrtAllocator {
  std::uint32_t version;
  void* (*Alloc)(OrtAllocator*, size_t);
  void (*Free)(OrtAllocator*, void*);
  const OrtMemoryInfo* (*Info)(const OrtAllocator*);
};

namespace {

using namespace memoir;

constexpr std::uint32_t kVersion = 16;
constexpr Size kAlignment = 64;  // what ONNX Runtime's kernels expect
// Bytes after an object that quantized kernels may read.
#if defined(__aarch64__)
constexpr Size kOverrun = 32;
#else
constexpr Size kOverrun = 0;
#endif
constexpr Size kMost = Size{1} << 56;

/// The run of the calling thread.
struct Run {
  memoir_onnxruntime* memory = nullptr;
  unsigned depth = 0;
  Memory::Decision decision;
  CallShape shape;
  Slab* slab = nullptr;              // follows a plan when set
  std::optional<Recorder> recorder;  // records when set
  RequestLog log;
};
thread_local Run t_run;

}  // namespace

struct memoir_onnxruntime {
  explicit memoir_onnxruntime(const OrtMemoryInfo* info);

  OrtAllocator allocator;  // the first member: ONNX Runtime's pointer is ours
  const OrtMemoryInfo* info;
  Memory memory;
};

namespace {

memoir_onnxruntime* self(const OrtAllocator* allocator) noexcept {
  return reinterpret_cast<memoir_onnxruntime*>(const_cast<OrtAllocator*>(allocator));
}

void* from_malloc(Size size) noexcept {
  const Size rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  if (void* const pointer = std::aligned_alloc(kAlignment, rounded)) return pointer;
  // What slabs hold idle is memory that the program would have had without them.
  return SlabSet::retire_idle_of_all() ? std::aligned_alloc(kAlignment, rounded) : nullptr;
}

void* allocate(OrtAllocator* allocator, size_t asked) {
  if (asked == 0 || asked > kMost) return nullptr;
  const Size size = asked + kOverrun;
  Run& run = t_run;
  if (run.memory != self(allocator)) return from_malloc(size);
  if (run.slab != nullptr) {
    if (run.decision.logged) run.log.push_back({size, kNoSite});
    if (void* const pointer = run.slab->allocate({size, kAlignment, kNoSite})) return pointer;
    return from_malloc(size);
  }
  if (!run.recorder) return from_malloc(size);
  void* pointer = nullptr;
  if (run.decision.large_apart && size >= SeparateMemory::kLeast)
    pointer = SeparateMemory::instance().allocate(size);
  if (pointer == nullptr) pointer = from_malloc(size);
  if (pointer != nullptr) run.recorder->allocated(pointer, size, kAlignment, nullptr);
  return pointer;
}

void deallocate(OrtAllocator* allocator, void* pointer) {
  if (pointer == nullptr) return;
  Run& run = t_run;
  if (run.memory == self(allocator) && run.recorder) run.recorder->freed(pointer);
  const AddressSpace& space = AddressSpace::instance();
  if (!space.contains(pointer)) {
    std::free(pointer);
  } else if (run.slab != nullptr && run.slab->contains(pointer)) {
    run.slab->free_held(pointer);
  } else {
    space.owner_of(pointer)->free_from_elsewhere(pointer);
  }
}

const OrtMemoryInfo* info_of(const OrtAllocator* allocator) { return self(allocator)->info; }

void end_run(Run& run) noexcept {
  run.memory = nullptr;
  run.decision = {};
  run.recorder.reset();
  run.log.clear();
}

}  // namespace

memoir_onnxruntime::memoir_onnxruntime(const OrtMemoryInfo* info)
    : allocator{kVersion, &allocate, &deallocate, &info_of},
      info(info),
      memory(MemoryOptions{}, std::make_shared<SlabSet>(SlabSetOptions{})) {}

extern "C" {

memoir_onnxruntime* memoir_onnxruntime_create(const OrtMemoryInfo* info) {
  try {
    return new memoir_onnxruntime(info);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void memoir_onnxruntime_destroy(memoir_onnxruntime* memory) { delete memory; }

OrtAllocator* memoir_onnxruntime_allocator(memoir_onnxruntime* memory) { return &memory->allocator; }

void memoir_onnxruntime_begin(memoir_onnxruntime* memory, std::uint64_t model, const std::int64_t* numbers,
                              size_t count) {
  Run& run = t_run;
  if (run.depth++ != 0) return;
  try {
    run.shape.clear();
    run.shape.add_to_form(model);
    run.shape.add_to_form(count);
    run.shape.numbers.assign(numbers, numbers + count);
  } catch (const std::bad_alloc&) {
    memory->memory.plain();
    return;
  }
  run.decision = memory->memory.decide(run.shape);
  if (run.decision.way == Memory::Way::kSlow)
    run.decision = memory->memory.decide_slowly(std::move(run.decision));
  if (run.decision.way == Memory::Way::kFollow) {
    run.slab = memory->memory.slabs().acquire(run.decision.layout);
    if (run.slab == nullptr) return memory->memory.plain();
  } else if (run.decision.way == Memory::Way::kRecord) {
    run.recorder.emplace();
    run.recorder->pass_begin(1);
  } else {
    return;
  }
  run.memory = memory;
}

void memoir_onnxruntime_end(memoir_onnxruntime* memory, int finished) {
  Run& run = t_run;
  if (run.depth == 0 || --run.depth != 0 || run.memory != memory) return;
  if (run.recorder) {
    run.recorder->pass_end(1);
    memory->memory.recorded(run.decision, *run.recorder, finished != 0);
  } else if (Slab* const slab = std::exchange(run.slab, nullptr)) {
    FollowedPass pass;
    pass.counters = slab->heap().counters();
    pass.repeated = slab->heap().in_step() && slab->heap().at_end();
    pass.finished = finished != 0;
    memory->memory.slabs().give_back(slab, &pass.kept);
    if (memory->memory.followed(run.decision, pass))
      memory->memory.learn(run.decision, run.shape, pass, run.log);
  }
  end_run(run);
}

void memoir_onnxruntime_forget(memoir_onnxruntime* memory) { memory->memory.forget(); }

memoir_onnxruntime_stats memoir_onnxruntime_get_stats(const memoir_onnxruntime* memory) {
  const MemoryStats all = memory->memory.stats();
  memoir_onnxruntime_stats out = {};
  out.runs = all.calls;
  out.recorded = all.recorded_passes;
  out.followed = all.plan_hits;
  out.derived = all.derived_passes;
  out.plain = all.plain_passes;
  out.planned = all.planned;
  out.fallen_back = all.unmatched + all.occupied;
  out.arena_size = all.arena_size;
  out.peak_live = all.peak_live_bytes;
  out.slab_bytes = const_cast<memoir_onnxruntime*>(memory)->memory.slabs().held_bytes();
  return out;
}

}  // extern "C"

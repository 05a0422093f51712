// SPDX-License-Identifier: Apache-2.0
//
// What programs on a CPU go through: slabs, separate memory, static tensors, the recorder and the trace
// writer.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/remember/slab/recorder.h"
#include "memoir/remember/slab/separate_memory.h"
#include "memoir/remember/slab/slab_set.h"
#include "memoir/static_tensors/static_tensors.h"
#include "memoir/trace/write/trace_writer.h"
#include "no_malloc/trap.h"

namespace memoir {

namespace {

constexpr int kBuffers = 64;

std::shared_ptr<const PlannedLayout> layout_of_pass() {
  RecordedPlan plan;
  for (int i = 0; i < kBuffers; ++i) {
    plan.sequence.push_back({.site = static_cast<SiteId>(1 + i % 5),
                             .size = 4096,
                             .alignment = 64,
                             .lifetime = {static_cast<Tick>(i), static_cast<Tick>(i + 1)},
                             .offset = static_cast<Offset>(i) * 4096});
  }
  plan.arena_size = kBuffers * 4096;
  auto layout = std::make_shared<const PlannedLayout>(plan);
  REQUIRE(layout->ok());
  return layout;
}

const void* address(std::uintptr_t value) { return reinterpret_cast<const void*>(value); }

void write_all_kinds(TraceWriter& writer) {
  for (ObjectId object = 1; object <= 20000; ++object) {
    writer.allocate(object, 1, 100, 64, 0, 1, 2);
    writer.address(object, object * 512, 1, 2);
    writer.free_requested(object, 0, 1, 2);
    writer.free(object, 0, 1, 2);
  }
  writer.segment(EventKind::kSegmentAllocate, 512, 4096, 1, 2);
  writer.out_of_memory(4096, 512, 1, 2);
  writer.define_pool(1, 0, 7);
  writer.pass_begin(1, 0);
  writer.pass_end(1, 0);
  writer.define_site(1, kNoSite, "site");
  writer.meta("model", "none");
}

}  // namespace

TEST_CASE("no pass in a slab calls malloc, nor what is freed in it from elsewhere") {
  SlabSet slabs({});
  const auto layout = layout_of_pass();
  slabs.give_back(slabs.acquire(layout));  // the first pass makes the slab
  std::vector<void*> objects(kBuffers);
  const trap::NoMalloc here;
  for (int pass = 0; pass < 20; ++pass) {
    Slab* const slab = slabs.acquire(layout);
    for (int i = 0; i < kBuffers; ++i) {
      const bool extra = pass > 10 && i % 9 == 0;  // the run leaves its recording
      objects[i] = slab->allocate({extra ? Size{100} : Size{4096}, 64, static_cast<SiteId>(1 + i % 5)});
    }
    for (int i = 0; i < kBuffers; ++i) {
      if (objects[i] == nullptr) continue;
      if (i % 2 == 0) {
        slab->free_held(objects[i]);
      } else {
        AddressSpace::instance().owner_of(objects[i])->free_from_elsewhere(objects[i]);
      }
    }
    slabs.give_back(slab);
  }
}

TEST_CASE("separate memory and the address space call no malloc") {
  SeparateMemory& memory = SeparateMemory::instance();
  const trap::NoMalloc here;
  for (Size size = 1; size <= 256 * kMiB; size *= 2) {
    void* const pointer = memory.allocate(size);
    if (pointer != nullptr) memory.free_from_elsewhere(pointer);
  }
}

TEST_CASE("no static tensor calls malloc, nor does making or ending their pool") {
  std::mt19937_64 random(1);
  std::vector<StaticTensors::Tensor*> tensors;
  tensors.reserve(4000);
  const trap::NoMalloc here;
  StaticTensors pool({.pool = kMiB, .tensors = 500, .buffers = 300});
  MEMOIR_CHECK(pool.ok(), "a pool of 1 MiB can be secured");
  for (int i = 0; i < 20000; ++i) {
    if (tensors.size() < 500 && random() % 2 == 0) {
      StaticTensors::Tensor* const tensor = tensors.empty() || random() % 2 == 0
                                                ? pool.create(1 + random() % 8192)
                                                : pool.view(tensors[0], 0, 1);
      if (tensor != nullptr) tensors.push_back(tensor);
    } else if (!tensors.empty()) {
      std::swap(tensors[random() % tensors.size()], tensors.back());
      pool.release(tensors.back());
      tensors.pop_back();
    }
  }
  for (StaticTensors::Tensor* const tensor : tensors) pool.release(tensor);
}

TEST_CASE("a recording calls no malloc, however it grows") {
  Recorder recorder;
  ScopeStack scopes;
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) names.push_back("aten::operator number " + std::to_string(i));
  const trap::NoMalloc here;
  recorder.meta("model", "none");
  recorder.pass_begin(1);
  for (std::uintptr_t i = 1; i <= 100000; ++i) {
    scopes.enter(names[i % names.size()].c_str());
    scopes.enter("aten::empty");
    recorder.allocated(address(64 * (i % 30000 + 1)), 100, 64, &scopes);
    scopes.leave();
    scopes.leave();
    if (i % 3 != 0) recorder.freed(address(64 * (i * 7 % 30000 + 1)));
  }
  recorder.pass_end(1);
}

TEST_CASE("a trace writer calls no malloc, in memory and in a file") {
  char folder[] = "/tmp/memoir-no-malloc-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/x.trace";
  {
    const trap::NoMalloc here;
    TraceWriter memory;
    write_all_kinds(memory);
    TraceWriter file(path.c_str());
    write_all_kinds(file);
    MEMOIR_CHECK(memory.ok() && file.ok(), "both writers take all records");
    MEMOIR_CHECK(memory.records() > 80000 && file.records() == memory.records(), "both write them");
  }
  unlink(path.c_str());
  rmdir(folder);
}

}  // namespace memoir

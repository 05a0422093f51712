// SPDX-License-Identifier: Apache-2.0
//
// What Memory decides for one call after another of a program that allocates rows * sizes, without PyTorch.
#include "memoir/remember/memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "doctest/doctest.h"
#include "memoir/remember/slab/address_space.h"
#include "remember/elsewhere.h"

namespace memoir {
namespace {

CallShape shape_of(std::vector<std::int64_t> numbers, std::vector<CallShape::Value> values = {},
                   std::uint64_t form = 7) {
  CallShape shape;
  shape.form = form;
  shape.numbers = std::move(numbers);
  shape.values = std::move(values);
  return shape;
}

/// A pass of one program: layer after layer, each result freed when the next one is there. What the door to
/// c10 does for PyTorch is done here by hand.
class Program {
 public:
  explicit Program(SlabSetOptions options = {}, MemoryOptions memory_options = {})
      : slabs(std::make_shared<SlabSet>(options)), memory(memory_options, slabs) {}

  static Size size_of(const CallShape& shape, SiteId layer) {
    return static_cast<Size>(shape.numbers[0]) * 256 * layer;
  }

  Memory::Way call(const CallShape& shape, SiteId layers = 6, std::vector<void*>* keep = nullptr,
                   bool finished = true) {
    Memory::Decision decision = memory.decide(shape);
    if (decision.way == Memory::Way::kSlow) decision = memory.decide_slowly(std::move(decision));
    if (decision.way == Memory::Way::kRecord) {
      Recorder recorder;
      recorder.pass_begin(1);
      std::vector<char> places(layers + 2);
      for (SiteId layer = 1; layer <= layers; ++layer) {
        ScopeStack scopes;
        scopes.enter(layer % 2 == 0 ? "even" : "odd");
        recorder.allocated(&places[layer], size_of(shape, layer), 64, &scopes);
        if (layer > 1) recorder.freed(&places[layer - 1]);
      }
      recorder.freed(&places[layers]);
      recorder.pass_end(1);
      memory.recorded(decision, recorder, true);
    } else if (decision.way == Memory::Way::kFollow) {
      if (decision.layout == nullptr) throw std::logic_error("there is no layout to follow");
      Slab* const slab = slabs->acquire(decision.layout);
      if (slab == nullptr) {
        memory.plain();
        return Memory::Way::kPlain;
      }
      FollowedPass pass;
      RequestLog log;
      Recorder recorder;  // told only when `records`
      recorder.pass_begin(1);
      std::vector<char> elsewhere(layers + 2);
      void *before = nullptr, *told = nullptr;
      for (SiteId layer = 1; layer <= layers; ++layer) {
        ScopeStack scopes;
        scopes.enter(layer % 2 == 0 ? "even" : "odd");
        log.push_back({size_of(shape, layer), scopes.site()});
        void* const now = slab->allocate({size_of(shape, layer), 64, scopes.site()});
        void* const tell = now != nullptr ? now : &elsewhere[layer];
        recorder.allocated(tell, size_of(shape, layer), 64, &scopes);
        if (told != nullptr) recorder.freed(told);
        if (before != nullptr) free_or_keep(*slab, before, layer == 4 ? keep : nullptr);
        before = now;
        told = tell;
      }
      if (told != nullptr) recorder.freed(told);
      recorder.pass_end(1);
      if (before != nullptr) slab->free_held(before);
      pass.counters = slab->heap().counters();
      pass.repeated = slab->heap().in_step() && slab->heap().at_end();
      pass.finished = finished;
      slabs->give_back(slab, &pass.kept);
      if (memory.followed(decision, pass)) memory.learn(decision, shape, pass, log);
      if (decision.records) memory.recorded(decision, recorder, true);
    }
    return decision.way;
  }

  std::shared_ptr<SlabSet> slabs;
  Memory memory;

 private:
  static void free_or_keep(Slab& slab, void* pointer, std::vector<void*>* keep) {
    if (keep != nullptr) keep->push_back(pointer);
    else slab.free_held(pointer);
  }
};

}  // namespace

TEST_CASE("two recordings, and every other size follows a plan in step") {
  Program program;
  CHECK(program.call(shape_of({10, 3})) == Memory::Way::kRecord);
  CHECK(program.call(shape_of({10, 3})) == Memory::Way::kFollow);
  CHECK(program.call(shape_of({11, 3})) == Memory::Way::kRecord);
  for (std::int64_t rows = 12; rows < 100; ++rows) {
    CHECK(program.call(shape_of({rows, 3})) == Memory::Way::kFollow);
  }
  CHECK(program.call(shape_of({5000, 3})) == Memory::Way::kFollow);
  CHECK(program.call(shape_of({12, 4})) == Memory::Way::kRecord);  // that number never varied before
  const MemoryStats stats = program.memory.stats();
  CHECK(stats.recorded_passes == 3);
  CHECK(stats.in_step_passes == stats.plan_hits);
  CHECK(stats.plans <= 16);
  CHECK(program.slabs->size() == 1);
  program.memory.forget();
  CHECK(program.slabs->held_bytes() == 0);
  CHECK(program.call(shape_of({10, 3})) == Memory::Way::kRecord);
}

TEST_CASE("values do not matter") {
  Program program;
  for (std::int64_t value = 0; value < 50; ++value) {
    const auto way = program.call(shape_of({10}, {{value, true}, {value * 77, false}}));
    CHECK(way == (value == 0 ? Memory::Way::kRecord : Memory::Way::kFollow));
  }
}

TEST_CASE("a plan that its passes do not repeat is followed while they are recorded again, in one slab") {
  Program program;
  const CallShape shape = shape_of({1000});
  CHECK(program.call(shape, 6) == Memory::Way::kRecord);
  CHECK(program.call(shape, 6) == Memory::Way::kFollow);
  const Size before = program.slabs->held_bytes();
  CHECK(program.call(shape, 9) == Memory::Way::kFollow);  // three layers more
  CHECK(program.memory.stats().recorded_passes == 1);
  CHECK(program.call(shape, 9) == Memory::Way::kFollow);  // which are recorded here
  CHECK(program.memory.stats().recorded_passes == 2);
  CHECK(program.memory.stats().guests > 0);
  CHECK(program.slabs->held_bytes() == before);
  CHECK(program.memory.stats().in_step_passes == 1);
  for (int pass = 0; pass < 3; ++pass) CHECK(program.call(shape, 9) == Memory::Way::kFollow);
  CHECK(program.memory.stats().in_step_passes == 4);
  CHECK(program.memory.stats().recorded_passes == 2);
  CHECK(program.slabs->size() == 1);
}

TEST_CASE("values are not blamed for one pass that differs from a plan whose first pass was recorded") {
  Program program;
  std::int64_t value = 0;
  const auto call = [&](std::int64_t rows, SiteId layers) {
    return program.call(shape_of({rows}, {{value++, true}}), layers);
  };
  CHECK(call(10, 6) == Memory::Way::kRecord);
  CHECK(call(11, 6) == Memory::Way::kRecord);
  CHECK(call(12, 7) == Memory::Way::kFollow);  // one layer more: what is derived near it is partial
  CHECK(program.memory.stats().recorded_passes == 2);
  CHECK(call(13, 7) == Memory::Way::kFollow);  // and so recorded
  CHECK(program.memory.stats().recorded_passes == 3);
  CHECK(call(13, 5) == Memory::Way::kFollow);  // differs, whatever its value
  CHECK(call(13, 7) == Memory::Way::kFollow);
  CHECK(call(14, 7) == Memory::Way::kFollow);
  CHECK(program.memory.stats().plans == 5);
}

TEST_CASE("guests come until one outlives its pass") {
  Program program;
  const CallShape shape = shape_of({1000}), large = shape_of({5000});
  CHECK(program.call(large, 6) == Memory::Way::kRecord);
  CHECK(program.call(large, 6) == Memory::Way::kFollow);  // that slab has room for all below
  CHECK(program.call(shape, 2) == Memory::Way::kRecord);
  std::vector<void*> kept;
  CHECK(program.call(shape, 6, &kept) == Memory::Way::kFollow);
  REQUIRE(kept.size() == 1);
  const MemoryStats before = program.memory.stats();
  CHECK(before.guests == 4);
  give_memory_back(kept[0]);
  for (SiteId layers = 3; layers < 9; ++layers) program.call(shape, layers);
  CHECK(program.memory.stats().guests == before.guests);
}

TEST_CASE("what was kept once is planned no more, in other plans neither") {
  Program program;
  program.call(shape_of({10}));
  program.call(shape_of({11}));
  std::vector<void*> kept;
  for (std::int64_t rows = 12; rows < 60; ++rows)
    program.call(shape_of({rows}), 6, rows == 12 ? &kept : nullptr);
  REQUIRE(kept.size() == 1);
  const MemoryStats stats = program.memory.stats();
  CHECK(stats.escaping >= 40);
  CHECK(stats.occupied <= 2);  // in that pass, what was to lie there next
  CHECK(program.slabs->size() == 1);
  give_memory_back(kept[0]);
}

TEST_CASE("what exceptions hold now and then is planned; where most passes end so, it is not while they do") {
  for (const int finished_between : {1, 0}) {
    Program program;
    std::vector<void*> kept;
    program.call(shape_of({10}));
    for (int i = 0; i < 40; ++i) {
      program.call(shape_of({10}), 6, &kept, false);
      while (!kept.empty()) {  // the exception is handled
        give_memory_back(kept.back());
        kept.pop_back();
      }
      for (int pass = 0; pass < finished_between; ++pass) program.call(shape_of({10}));
    }
    const std::uint64_t before = program.memory.stats().escaping;
    program.call(shape_of({10}));
    CHECK(program.memory.stats().escaping - before == (finished_between == 1 ? 0 : 1));
    for (int pass = 0; pass < 8; ++pass) program.call(shape_of({10}));
    const std::uint64_t after = program.memory.stats().escaping;
    program.call(shape_of({10}));
    CHECK(program.memory.stats().escaping == after);
  }
}

TEST_CASE("a recording without a pass is tried again, not at once") {
  Program program;
  const CallShape shape = shape_of({10});
  Memory::Decision decision = program.memory.decide(shape);
  REQUIRE(decision.way == Memory::Way::kRecord);
  Recorder nothing;  // no memory for anything
  program.memory.recorded(decision, nothing, true);
  CHECK(program.call(shape) == Memory::Way::kPlain);
  CHECK(program.call(shape) == Memory::Way::kRecord);
  CHECK(program.call(shape) == Memory::Way::kFollow);
}

TEST_CASE("a plan that a call is about to follow keeps its layout, whoever forgets the plan meanwhile") {
  Program program({}, {.max_plans = 3});
  program.call(shape_of({10}));
  program.call(shape_of({11}));
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (std::int64_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      for (std::int64_t call = 0; call < 4000; ++call) {
        try {
          program.call(shape_of({12 + (call * 7 + seed) % 50}));
        } catch (...) {
          ++failures;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failures.load() == 0);
}

TEST_CASE("the child of a fork records what another thread had begun to") {
  Program program;
  const CallShape shape = shape_of({10});
  Memory::Decision begun;
  std::thread([&] { begun = program.memory.decide(shape); }).join();
  REQUIRE(begun.way == Memory::Way::kRecord);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool good =
        program.call(shape) == Memory::Way::kRecord && program.call(shape) == Memory::Way::kFollow;
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace memoir

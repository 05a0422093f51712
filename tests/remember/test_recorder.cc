// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>
#include <thread>

#include "doctest/doctest.h"
#include "memoir/remember/slab/recorder.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

namespace {
const void* address(std::uintptr_t value) { return reinterpret_cast<const void*>(value); }
}  // namespace

TEST_CASE("a live table remembers what is live, next to a map") {
  LiveTable table;
  std::map<std::uintptr_t, ObjectId> expected;
  std::mt19937_64 random(1);
  for (ObjectId object = 1; object < 50000; ++object) {
    const std::uintptr_t at = 64 * (1 + random() % 3000);
    if (random() % 2 == 0) {
      REQUIRE(table.insert(address(at), object));
      expected[at] = object;
    } else {
      const auto found = expected.find(at);
      REQUIRE(table.take(address(at)) == (found == expected.end() ? 0 : found->second));
      if (found != expected.end()) expected.erase(found);
    }
    REQUIRE(table.size() == expected.size());
  }
  CHECK(table.take(nullptr) == 0);
  CHECK(table.size() == expected.size());
}

TEST_CASE("a reused address is another object, and every site comes with its chain") {
  Recorder recorder;
  ScopeStack scopes;
  recorder.pass_begin(1);
  scopes.enter("aten::conv2d");
  scopes.enter("aten::empty");
  recorder.allocated(address(64), 100, 64, &scopes);
  CHECK(recorder.freed(address(64)));
  CHECK_FALSE(recorder.freed(address(64)));
  CHECK_FALSE(recorder.freed(nullptr));
  recorder.allocated(address(64), 200, 64, &scopes);
  scopes.leave();
  scopes.leave();
  scopes.leave();  // of a scope that was entered before anyone listened
  recorder.allocated(address(128), 8, 64, &scopes);
  recorder.allocated(address(192), 8, 64, nullptr);
  recorder.pass_end(1);

  const Trace trace = Trace::from_bytes(recorder.writer().bytes());
  std::vector<Event> allocations, frees;
  for (const Event& event : trace.events()) {
    if (event.kind == EventKind::kAllocate) allocations.push_back(event);
    if (event.kind == EventKind::kFree) frees.push_back(event);
  }
  REQUIRE(allocations.size() == 4);
  REQUIRE(frees.size() == 1);
  CHECK(frees[0].object == allocations[0].object);
  CHECK(allocations[1].object != allocations[0].object);
  CHECK(allocations[0].site == allocations[1].site);
  CHECK(trace.site_chain(allocations[0].site) == "aten::conv2d > aten::empty");
  CHECK(trace.site_chain(allocations[2].site) == "(no operator)");
  CHECK(allocations[3].site == kNoSite);
}

TEST_CASE("an object whose record was dropped is not known, nor is its free") {
  Recorder recorder;
  recorder.allocated(address(64), Size{1} << 57, 64, nullptr);  // no reader would believe it
  CHECK_FALSE(recorder.freed(address(64)));
  recorder.allocated(address(64), 100, 64, nullptr);
  recorder.allocated(address(128), Size{1} << 57, 64, nullptr);
  CHECK_FALSE(recorder.freed(address(128)));
  CHECK(recorder.freed(address(64)));
  const Trace trace = Trace::from_bytes(recorder.writer().bytes());
  size_t allocations = 0, frees = 0;
  for (const Event& event : trace.events()) {
    allocations += event.kind == EventKind::kAllocate;
    frees += event.kind == EventKind::kFree;
  }
  CHECK(allocations == 1);
  CHECK(frees == 1);
}

TEST_CASE("scopes nest deeper than the stack keeps") {
  Recorder recorder;
  ScopeStack scopes;
  for (size_t i = 0; i < 3 * ScopeStack::kDepth; ++i) scopes.enter("deeper");
  recorder.allocated(address(64), 1, 1, &scopes);
  for (size_t i = 0; i < 3 * ScopeStack::kDepth; ++i) scopes.leave();
  CHECK(scopes.site() == ScopeStack::kOutside);
  CHECK(Trace::from_bytes(recorder.writer().bytes()).events().size() == ScopeStack::kDepth + 1);
}

TEST_CASE("thousands of sites, threads that allocate and free each other's objects") {
  Recorder recorder;
  const auto work = [&](std::uintptr_t thread) {
    ScopeStack scopes;
    for (std::uintptr_t i = 1; i <= 3000; ++i) {
      const std::string name = "operator " + std::to_string(i % 1500);
      scopes.enter(name.c_str());
      recorder.allocated(address((thread * 4000 + i) * 64), i, 64, &scopes);
      scopes.leave();
      recorder.freed(address(((thread ^ 1) * 4000 + i) * 64));
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  const Trace trace = Trace::from_bytes(recorder.writer().bytes());  // checks that ids and frees are sound
  size_t allocations = 0, sites = 0;
  for (const Event& event : trace.events()) {
    allocations += event.kind == EventKind::kAllocate;
    sites += event.kind == EventKind::kSite;
  }
  CHECK(allocations == 6000);
  CHECK(sites == 1500);
}

}  // namespace memoir

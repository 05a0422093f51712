// SPDX-License-Identifier: Apache-2.0
//
// What recordings, PyTorch's memory profiler and its callbacks see of the door to PyTorch.
#include <thread>
#include <utility>

#include "memoir/remember/slab/address_space.h"
#include "memoir/remember/slab/separate_memory.h"
#include "memoir/trace/read/trace.h"
#include "remember_torch/checked.h"

namespace memoir {

namespace {

std::vector<Event> of_kind(Recorder& recorder, EventKind kind) {
  std::vector<Event> found;
  const Trace trace = Trace::from_bytes(recorder.writer().bytes());
  for (const Event& event : trace.events()) {
    if (event.kind == kind) found.push_back(event);
  }
  return found;
}

}  // namespace

TEST_CASE("large objects of a recorded pass have pages of their own, and outlive the recording") {
  const Checked checked;
  const size_t large = SeparateMemory::kLeast;
  Tensor kept;
  const auto body = [&] {
    const Op op("op");
    const Tensor just_below(large - 1);
    kept = Tensor(large);
    const Tensor freed(3 * large + 1);
  };
  const auto layout = record(body, true);
  CHECK(kept.in_memoirs_memory());
  const void* const address = kept.data();
  std::thread([&] { kept.reset(); }).join();
  CHECK(AddressSpace::instance().owner_of(address) == nullptr);
  SlabSet slabs({});
  torch_door::PassResult outcome;
  REQUIRE(follow(slabs, layout, true, body, outcome));
  CHECK(repeated(outcome));
  CHECK(outcome.counters.escaping == 1);
  CHECK_FALSE(kept.in_memoirs_memory());
  kept.reset();
}

TEST_CASE("the memory profiler sees every byte come and go") {
  const Checked checked;
  auto& reporter = c10::profiledCPUMemoryReporter();
  Tensor kept;
  const auto body = [&] {
    const Op op("op");
    const Tensor first(1000);
    kept = Tensor(500);
    const Tensor second(300);
  };
  const auto layout = record([&] {
    body();
    kept.reset();  // so that it is planned
  });
  SlabSet slabs({});
  fake_c10::profile_memory(true);
  torch_door::PassResult outcome;
  REQUIRE(follow(slabs, layout, true, body, outcome));
  CHECK(repeated(outcome));
  CHECK(kept.in_memoirs_memory());
  CHECK(reporter.live_bytes() == 500);
  kept.reset();  // outside of the pass
  CHECK(reporter.live_bytes() == 0);
  record(
      [&] {
        kept = Tensor(SeparateMemory::kLeast);
        CHECK(kept.in_memoirs_memory());
        CHECK(reporter.live_bytes() == SeparateMemory::kLeast);
      },
      true);
  kept.reset();
  CHECK(reporter.live_bytes() == 0);
  fake_c10::profile_memory(false);
}

TEST_CASE("a recording holds what its thread does, by operator, and what a thread in no pass does, without") {
  const Checked checked;
  Recorder recorder;
  torch_door::begin_recording(recorder, false);
  CHECK(torch_door::in_pass());
  {
    const Op op("aten::add"), user("the user's own", at::RecordScope::USER_SCOPE);
    Tensor mine(10), nothing(0);
    std::thread([&] {
      const Op other("aten::other");
      const Tensor theirs(20);
      mine.reset();
    }).join();
  }
  const Tensor outside(30);
  torch_door::end_recording();
  const auto allocations = of_kind(recorder, EventKind::kAllocate);
  REQUIRE(allocations.size() == 3);
  CHECK(allocations[0].size == 10);
  ScopeStack scopes;
  scopes.enter("aten::add");
  CHECK(allocations[0].site == scopes.site());
  CHECK(allocations[1].size == 20);
  CHECK(allocations[1].site == kNoSite);
  CHECK(allocations[1].thread != allocations[0].thread);
  CHECK(allocations[2].site == ScopeStack::kOutside);
  CHECK(of_kind(recorder, EventKind::kFree).size() == 2);
}

TEST_CASE("a thread that follows a plan is in no other thread's recording") {
  const Checked checked;
  Tensor kept;
  const auto layout = record([&] { kept = Tensor(100); });  // it escapes: PyTorch's allocator serves it
  SlabSet slabs({});
  Recorder recorder;
  torch_door::begin_recording(recorder, false);
  std::thread([&] {
    torch_door::PassResult outcome;
    CHECK(follow(
        slabs, layout, true, [&] { kept = Tensor(100); }, outcome));
  }).join();
  torch_door::end_recording();
  CHECK_FALSE(kept.in_memoirs_memory());
  CHECK(of_kind(recorder, EventKind::kAllocate).empty());
  kept.reset();
}

TEST_CASE("callbacks that a thread inherits do nothing there, and not to its own pass either") {
  const Checked checked;
  const auto layout = record([] { network(3); });
  SlabSet slabs({.max_slabs = 2});
  torch_door::PassResult outcome, inner;
  fake_c10::Callbacks inherited;
  const auto body = [&] {
    inherited = fake_c10::callbacks();
    std::thread([&] {
      fake_c10::set_callbacks(inherited);
      const Op op("backward", at::RecordScope::BACKWARD_FUNCTION);
      CHECK_FALSE(network(3).in_memoirs_memory());
      CHECK_FALSE(torch_door::in_pass());
    }).join();
    network(3);
  };
  REQUIRE(follow(slabs, layout, true, body, outcome));
  CHECK(repeated(outcome));
  CHECK(inherited.size() == 1);
  std::thread([&] {
    fake_c10::set_callbacks(inherited);  // of a pass that has ended since
    follow(
        slabs, layout, true, [] { network(3); }, inner);
  }).join();
  CHECK(inner.counters.occupied == 0);
}

}  // namespace memoir

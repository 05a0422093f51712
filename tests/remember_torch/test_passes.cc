// SPDX-License-Identifier: Apache-2.0
//
// One thread's passes that follow a plan through the door to PyTorch, and what others free of them.
#include <ucontext.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "memoir/remember/slab/address_space.h"
#include "remember_torch/checked.h"

namespace memoir {

TEST_CASE("outside of passes PyTorch's allocator serves, and its deleter is memoir's everywhere") {
  const Checked checked;
  torch_door::install();  // again: nothing changes
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  const Tensor plain(100), nothing(0);
  CHECK_FALSE(plain.in_memoirs_memory());
  CHECK(plain.has_the_deleter_in_place());
  CHECK(nothing.data() == nullptr);
  CHECK(nothing.has_the_deleter_in_place());
  CHECK(plain.clone().holds_its_bytes());
  CHECK(nothing.clone().data() == nullptr);
  void* const raw = allocator->raw_allocate(77);
  std::memset(raw, 1, 77);
  allocator->raw_deallocate(raw);
  allocator->raw_deallocate(allocator->raw_allocate(0));
  c10::SetCPUAllocator(nullptr, 99);
  CHECK(c10::GetCPUAllocator() == allocator);
}

TEST_CASE("a recorded pass is followed in step, again and again") {
  const Checked checked;
  Tensor result;
  const auto layout = record([&] { result = network(12); });
  REQUIRE(layout->ok());
  SlabSet slabs({});
  std::vector<Tensor> kept;
  for (int pass = 0; pass < 50; ++pass) {
    torch_door::PassResult outcome;
    REQUIRE(follow(
        slabs, layout, pass == 0, [&] { kept.push_back(network(12)); }, outcome));
    CHECK(repeated(outcome));
    CHECK(outcome.counters.planned == planned_in(12));
    CHECK(outcome.counters.escaping == 1);
    CHECK(outcome.counters.unmatched + outcome.counters.occupied == 0);
    CHECK_FALSE(kept.back().in_memoirs_memory());
  }
  CHECK(slabs.size() == 1);
  for (const Tensor& tensor : kept) CHECK(tensor.holds_its_bytes());
}

TEST_CASE("a pass that differs finds its way back by operators, and its bytes are its own") {
  const Checked checked;
  const auto layout = record([] { network(12); });
  SlabSet slabs({});
  torch_door::PassResult outcome;
  for (const bool scoped : {true, false}) {
    for (int extra = 0; extra < 12; ++extra) {
      REQUIRE(follow(
          slabs, layout, scoped, [&] { network(12, extra); }, outcome));
      CHECK_FALSE(outcome.in_step);
      CHECK(outcome.counters.unmatched >= 1);
      CHECK(outcome.counters.planned > 0);
      if (scoped) CHECK(outcome.counters.planned >= planned_in(12) - 1);
    }
    REQUIRE(follow(
        slabs, layout, scoped, [&] { network(5); }, outcome));  // shorter
    CHECK_FALSE(outcome.at_end);
    REQUIRE(follow(
        slabs, layout, scoped, [&] { network(20); }, outcome));  // longer
    CHECK_FALSE(outcome.in_step);
    REQUIRE(follow(
        slabs, layout, scoped, [&] { network(12); }, outcome));
    CHECK(repeated(outcome));
  }
}

namespace {

/// Runs `body` on a stack of its own, as a fibre or a signal handler does.
void on_another_stack(const std::function<void()>& body) {
  static const std::function<void()>* running = nullptr;
  std::vector<char> stack(256 * 1024);
  ucontext_t here{}, there{};
  REQUIRE(::getcontext(&there) == 0);
  there.uc_stack.ss_sp = stack.data();
  there.uc_stack.ss_size = stack.size();
  there.uc_link = &here;
  running = &body;
  ::makecontext(
      &there, [] { (*running)(); }, 0);
  REQUIRE(::swapcontext(&here, &there) == 0);
}

}  // namespace

TEST_CASE("what a thread runs on another stack in the midst of a pass is none of the pass") {
  const Checked checked;
  std::vector<Tensor> others;
  for (const bool apart : {false, true}) {
    const auto body = [&](bool switches) {
      const Op op("op");
      const Tensor first(1000);
      if (switches) {
        on_another_stack([&] {
          CHECK(torch_door::in_pass());
          CHECK_FALSE(torch_door::Whereabouts::of(__builtin_frame_address(0)).has_value());
          const Op other("other");
          others.emplace_back(apart ? 1 << 20 : 2000);
          CHECK_FALSE(others.back().in_memoirs_memory());
        });
      }
      const Op next("next");
      const Tensor second(3000), third(500);
    };
    const auto layout = record([&] { body(true); }, apart);
    CHECK(layout->entries().size() == 3);
    SlabSet slabs({});
    for (const bool scoped : {true, false}) {
      torch_door::PassResult outcome;
      const auto where = torch_door::Whereabouts::of(__builtin_frame_address(0));
      REQUIRE(where.has_value());
      Slab* const slab = slabs.acquire(layout);
      REQUIRE(slab != nullptr);
      RequestLog log;
      torch_door::begin_planned(*slab, scoped, &log, nullptr, *where);
      body(true);
      outcome = torch_door::end_planned();
      slabs.give_back(slab);
      CHECK(repeated(outcome));
      CHECK(outcome.counters.planned == 3);
      CHECK(log.size() == 3);
    }
  }
  for (const Tensor& tensor : others) CHECK(tensor.holds_its_bytes());
}

TEST_CASE("what takes the pass's place on its own stack is known by its list of frames, and is none of it") {
  const Checked checked;
  struct Piece {
    const Piece* previous;
  };
  const Piece ours{nullptr}, deeper{&ours}, theirs{nullptr}, theirs_deeper{&theirs};
  const void* frames = &ours;
  const auto body = [&] {
    const Op op("op");
    const Tensor first(1000);
    frames = &theirs_deeper;  // a greenlet
    Tensor other(2000);
    CHECK_FALSE(other.in_memoirs_memory());
    frames = &theirs;
    CHECK_FALSE(Tensor(1000).in_memoirs_memory());
    frames = nullptr;  // one without frames
    CHECK_FALSE(Tensor(1000).in_memoirs_memory());
    frames = &deeper;  // the pass again, some calls deeper
    const Tensor second(3000);
    CHECK(second.in_memoirs_memory());
    frames = &theirs;
    other.reset();
    frames = &ours;
  };
  const auto layout = record([] {
    const Op op("op");
    const Tensor first(1000), second(3000);
  });
  SlabSet slabs({});
  for (const bool scoped : {true, false}) {
    const auto where = torch_door::Whereabouts::of(__builtin_frame_address(0), &frames);
    REQUIRE(where.has_value());
    Slab* const slab = slabs.acquire(layout);
    REQUIRE(slab != nullptr);
    torch_door::begin_planned(*slab, scoped, nullptr, nullptr, *where);
    body();
    const torch_door::PassResult outcome = torch_door::end_planned();
    slabs.give_back(slab);
    CHECK(outcome.counters.planned == 2);
    CHECK(repeated(outcome));
  }
}

TEST_CASE("the first difference may come inside of operators, which end after it") {
  const Checked checked;
  const auto body = [](bool differs) {
    const Op outer("outer");
    {
      const Op inner("inner");
      const Tensor first(differs ? 128 : 64);  // from here on operators are listened to: both are open
    }
    const Op next("next");
    const Tensor second(256);
    const Op deep("deep"), user("user", at::RecordScope::USER_SCOPE);
    const Tensor third(512);
  };
  const auto layout = record([&] { body(false); });
  SlabSet slabs({});
  torch_door::PassResult outcome;
  REQUIRE(follow(
      slabs, layout, false, [&] { body(true); }, outcome));
  CHECK_FALSE(outcome.in_step);
  CHECK(outcome.counters.planned + outcome.counters.unmatched + outcome.counters.occupied == 3);
  {
    const Op open("open");  // from before the pass to after it
    REQUIRE(follow(
        slabs, layout, true, [&] { body(false); }, outcome));
  }
  const Op* across = nullptr;
  REQUIRE(follow(
      slabs, layout, true, [&] { across = new Op("left in the pass, ended after it"); }, outcome));
  delete across;
  REQUIRE(follow(
      slabs, layout, true, [&] { body(false); }, outcome));
  CHECK(repeated(outcome));
}

TEST_CASE("tensors that are kept against the plan stay whole, and their ranges are not handed out") {
  const Checked checked;
  const auto body = [](std::vector<Tensor>* keep) {
    const Op op("op");
    std::vector<Tensor> own;
    for (size_t i = 0; i < 8; ++i) own.emplace_back(1000 + 64 * i);
    if (keep != nullptr) {
      keep->push_back(std::move(own[3]));
      keep->push_back(std::move(own[5]));
    }
  };
  const auto layout = record([&] { body(nullptr); });
  SlabSet slabs({});
  torch_door::PassResult outcome;
  std::vector<Tensor> kept;
  REQUIRE(follow(
      slabs, layout, true, [&] { body(&kept); }, outcome));
  CHECK(repeated(outcome));
  CHECK(kept[0].in_memoirs_memory());
  REQUIRE(follow(
      slabs, layout, true, [&] { body(&kept); }, outcome));
  CHECK(outcome.counters.occupied == 2);
  CHECK(outcome.counters.planned == 6);
  CHECK_FALSE(kept[2].in_memoirs_memory());
  for (const Tensor& tensor : kept) CHECK(tensor.holds_its_bytes());
  const Tensor copy = kept[0].clone();
  CHECK_FALSE(copy.in_memoirs_memory());
  CHECK(copy.holds_its_bytes());
  std::thread([&] { kept.clear(); }).join();
  REQUIRE(follow(
      slabs, layout, true, [&] { body(nullptr); }, outcome));
  CHECK(repeated(outcome));
}

TEST_CASE("freed bytes of a slab are poisoned when the slabs says so") {
  const Checked checked;
  const auto body = [](void (*look)(const unsigned char*)) {
    const Op op("op");
    Tensor tensor(4096);
    const auto* const bytes = static_cast<const unsigned char*>(tensor.data());
    tensor.reset();
    if (look != nullptr) look(bytes);
  };
  const auto layout = record([&] { body(nullptr); });
  SlabSet slabs({.poison = true});
  torch_door::PassResult outcome;
  const auto look = [](const unsigned char* bytes) {
    REQUIRE(AddressSpace::instance().contains(bytes));
    CHECK(bytes[0] == Slab::kPoison);
    CHECK(bytes[4095] == Slab::kPoison);
  };
  for (int pass = 0; pass < 3; ++pass) {
    REQUIRE(follow(
        slabs, layout, pass == 0, [&] { body(look); }, outcome));
    CHECK(repeated(outcome));
  }
}

TEST_CASE("an exception ends a pass wherever it comes from") {
  const Checked checked;
  const auto body = [](bool fails) {
    const Op op("op");
    const Tensor first(100);
    const Op inner("inner");
    const Tensor second(200);
    if (fails) throw std::runtime_error("of the program");
    const Tensor third(300);
  };
  CHECK_THROWS_WITH(record([&] { body(true); }), "of the program");
  CHECK_FALSE(torch_door::in_pass());
  const auto layout = record([&] { body(false); });
  SlabSet slabs({});
  for (const bool scoped : {true, false}) {
    torch_door::PassResult outcome;
    CHECK_THROWS_WITH(follow(
                          slabs, layout, scoped, [&] { body(true); }, outcome),
                      "of the program");
    CHECK_FALSE(torch_door::in_pass());
    CHECK(outcome.in_step);
    CHECK_FALSE(outcome.at_end);
    REQUIRE(follow(
        slabs, layout, scoped, [&] { body(false); }, outcome));
    CHECK(repeated(outcome));
  }
}

TEST_CASE("a forgotten slabs's memory goes with its last tensor") {
  const Checked checked;
  auto slabs = std::make_unique<SlabSet>(SlabSetOptions{.max_slabs = 2});
  const auto body = [](std::vector<Tensor>* keep) {
    const Op op("op");
    Tensor first(1000), second(2000);
    if (keep == nullptr) return;
    keep->push_back(std::move(first));
    keep->push_back(std::move(second));
  };
  auto layout = record([&] { body(nullptr); });
  torch_door::PassResult outcome;
  std::vector<Tensor> kept;
  REQUIRE(follow(
      *slabs, layout, true, [&] { body(&kept); }, outcome));
  // Forgotten in the middle of the next pass, which may go on. Its slab is the same one.
  REQUIRE(follow(
      *slabs, layout, true,
      [&] {
        kept.erase(kept.begin());
        const Op op("op");
        const Tensor first(1000);
        CHECK(first.in_memoirs_memory());
        slabs->retire_all();
        CHECK(slabs->held_bytes() == 4096);
      },
      outcome));
  slabs.reset();
  layout.reset();
  REQUIRE(kept[0].in_memoirs_memory());
  CHECK(kept[0].holds_its_bytes());
  const void* const address = kept[0].data();
  CHECK(AddressSpace::instance().owner_of(address) != nullptr);
  std::thread([&] { kept.clear(); }).join();
  CHECK(AddressSpace::instance().owner_of(address) == nullptr);
}

TEST_CASE("a slabs without a slab to give lets the program run on PyTorch's allocator") {
  const Checked checked;
  const auto layout = record([] { network(4); });
  SlabSet slabs({.max_slabs = 0});
  torch_door::PassResult outcome;
  CHECK_FALSE(follow(
      slabs, layout, true, [&] { CHECK_FALSE(network(4).in_memoirs_memory()); }, outcome));
}

}  // namespace memoir

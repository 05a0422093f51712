// SPDX-License-Identifier: Apache-2.0
//
// Several threads with passes at once. Nothing here orders the threads but the door and the hand-overs
// themselves, so that the thread sanitizer sees what the door leaves unordered.
#include <array>
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>

#include "doctest/doctest.h"
#include "memoir/trace/read/trace.h"
#include "remember_torch/program.h"

namespace memoir {

namespace {

/// Where a thread leaves a tensor for whoever comes next.
class HandOver {
 public:
  ~HandOver() { clear(); }
  void swap(size_t slot, Tensor tensor) {
    delete slots_[slot % slots_.size()].exchange(new Tensor(std::move(tensor)), std::memory_order_acq_rel);
  }
  void clear() {
    for (auto& slot : slots_) delete slot.exchange(nullptr, std::memory_order_acq_rel);
  }

 private:
  std::array<std::atomic<Tensor*>, 8> slots_{};
};

}  // namespace

TEST_CASE("threads follow, differ, fail, keep, hand over, record and forget at once") {
  torch_door::install();
  const std::int64_t mismatches = Tensor::mismatches(), blocks = fake_c10::live_blocks();
  Tensor kept;
  const auto layout = record([&] { kept = network(6); });
  kept.reset();
  SlabSet slabs({.max_slabs = 3, .poison = true});
  HandOver others;
  std::atomic<std::uint64_t> planned{0}, repeated{0}, failed{0};

  const auto caller = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    for (int pass = 0; pass < 150; ++pass) {
      if (seed == 0 && pass % 40 == 39) slabs.retire_all();
      const auto body = [&] {
        Tensor result = network(6, random() % 4 == 0 ? static_cast<int>(random() % 6) : -1);
        if (random() % 8 == 0) throw std::runtime_error("of the program");
        others.swap(random(), std::move(result));
        if (random() % 4 == 0) others.swap(random(), Tensor(4096));  // may be of the slab: a plan's range
        if (random() % 4 == 0) others.swap(random(), Tensor(0));
      };
      torch_door::PassResult outcome;
      try {
        follow(slabs, layout, random() % 2 == 0, body, outcome);
      } catch (const std::runtime_error&) {
        ++failed;
      }
      planned += outcome.counters.planned;
      repeated += outcome.counters.planned > 0 && outcome.in_step && outcome.at_end;
      if (random() % 4 == 0) others.swap(random(), network(2));  // in no pass
    }
  };
  const auto recording = [&](unsigned seed) {
    for (int pass = 0; pass < 60; ++pass) {
      const auto again = record([&] { others.swap(seed + static_cast<unsigned>(pass), network(6)); }, true);
      CHECK(again->ok());
      torch_door::PassResult outcome;
      follow(
          slabs, again, true, [&] { others.swap(static_cast<size_t>(pass), network(6)); }, outcome);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back(caller, seed);
  for (unsigned seed = 0; seed < 2; ++seed) threads.emplace_back(recording, seed);
  for (auto& thread : threads) thread.join();
  others.clear();
  CHECK(Tensor::mismatches() == mismatches);
  CHECK(fake_c10::live_blocks() == blocks);
  CHECK(planned.load() > 1000);
  CHECK(repeated.load() > 0);
  CHECK(failed.load() > 0);
}

TEST_CASE("planned tensors are freed by other threads while their pass goes on") {
  torch_door::install();
  const std::int64_t mismatches = Tensor::mismatches();
  constexpr size_t kTensors = 64;
  const auto body = [](HandOver* to) {
    for (size_t i = 0; i < kTensors; ++i) {
      const Op op("op");
      Tensor tensor(512 + 64 * (i % 7));
      if (to != nullptr) to->swap(i, std::move(tensor));
    }
  };
  const auto layout = record([&] { body(nullptr); });
  SlabSet slabs({.max_slabs = 2});
  HandOver others;
  std::atomic<bool> done = false;
  std::thread freeing([&] {
    while (!done.load(std::memory_order_relaxed)) others.clear();
  });
  std::uint64_t planned = 0;
  const auto caller = [&] {
    std::uint64_t mine = 0;
    for (int pass = 0; pass < 200; ++pass) {
      torch_door::PassResult outcome;
      if (follow(
              slabs, layout, true, [&] { body(&others); }, outcome))
        mine += outcome.counters.planned;
    }
    return mine;
  };
  std::uint64_t theirs = 0;
  std::thread other([&] { theirs = caller(); });
  planned = caller();
  other.join();
  done = true;
  freeing.join();
  others.clear();
  CHECK(planned + theirs > 1000);
  CHECK(Tensor::mismatches() == mismatches);
}

TEST_CASE("slabs are forgotten while they and their tensors are in use on other threads") {
  torch_door::install();
  const std::int64_t mismatches = Tensor::mismatches();
  const auto body = [](HandOver* to, size_t seed) {
    const Op op("op");
    Tensor first(3000), second(5000);
    if (to != nullptr) to->swap(seed, std::move(first));
  };
  const auto layout = record([&] { body(nullptr, 0); });
  HandOver others;
  const auto caller = [&](size_t seed) {
    for (size_t round = 0; round < 20; ++round) {
      SlabSet slabs({.max_slabs = 1});
      torch_door::PassResult outcome;
      follow(
          slabs, layout, round % 2 == 0, [&] { body(&others, seed + round); }, outcome);
      if (round % 3 == 0) slabs.retire_all();
    }
  };
  std::vector<std::thread> threads;
  for (size_t seed = 0; seed < 4; ++seed) threads.emplace_back(caller, seed);
  for (auto& thread : threads) thread.join();
  others.clear();
  CHECK(Tensor::mismatches() == mismatches);
}

TEST_CASE("one recording sees threads in no pass; two at once see only their own") {
  torch_door::install();
  Recorder recorder;
  std::atomic<bool> done = false;
  HandOver others;
  const auto plain = [&](size_t seed) {
    for (size_t i = 0; !done.load(std::memory_order_relaxed) || i < 100; ++i)
      others.swap(seed + i, Tensor(64 + i % 64));
  };
  std::thread first(plain, 0), second(plain, 3);
  torch_door::begin_recording(recorder, false);
  std::thread rival([&] {
    for (int i = 0; i < 50; ++i) record([&] { others.swap(5, network(2)); });
  });
  for (size_t i = 0; i < 300; ++i) {
    const Op op("op");
    others.swap(i, Tensor(1000));
  }
  rival.join();
  std::thread([] { const Tensor theirs(64); }).join();  // at least this one while ours is the only recording
  torch_door::end_recording();
  done = true;
  first.join();
  second.join();
  others.clear();
  const Trace trace = Trace::from_bytes(recorder.writer().bytes());  // checks that ids and frees are sound
  size_t mine = 0, theirs = 0;
  for (const Event& event : trace.events()) {
    if (event.kind == EventKind::kAllocate) ++(event.site == kNoSite ? theirs : mine);
  }
  CHECK(mine == 300);
  CHECK(theirs >= 1);
}

}  // namespace memoir

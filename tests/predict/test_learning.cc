// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <random>

#include "doctest/doctest.h"
#include "memoir/predict/lifetime_learner.h"

namespace memoir {

namespace {

constexpr Size kHeld = 64 * kMiB;

/// A program of `contexts` contexts that allocates `total` bytes in samples; whether an object of a context
/// lives long is for `lives_long` to say. Short-lived objects die after an eighth of the heap, long-lived
/// after ten heaps.
template <class LivesLong>
void run(LifetimeLearner& learner, Size total, ContextKey contexts, LivesLong lives_long) {
  struct Open {
    Size dies;
    LifetimeLearner::Sample sample;
    Size born;
  };
  std::mt19937 random(3);
  std::deque<Open> open;
  Size clock = learner.clock();
  for (const Size end = clock + total; clock < end;) {
    clock += learner.sample_every();
    learner.advance(clock, kHeld);
    std::erase_if(open, [&](const Open& one) {
      if (one.dies > clock) return false;
      learner.freed(one.sample, one.born);
      return true;
    });
    const ContextKey key = random() % contexts;
    const auto sample = learner.born(key);
    if (sample == LifetimeLearner::kNoSample) continue;
    open.push_back({clock + (lives_long(key) ? 10 * kHeld : kHeld / 8), sample, clock});
  }
}

}  // namespace

TEST_CASE("contexts: a class changes with hysteresis") {
  ContextTable table;
  CHECK(table.observe(5, true));
  CHECK(table.learned(5) == LifetimeClass::kLong);
  CHECK(table.row_of(5) == 0);  // splitting is off
  table.set_split(true);
  CHECK(table.row_of(5) == 1);
  CHECK_FALSE(table.observe(5, false));  // half of them: stays
  CHECK(table.observe(5, false));
  CHECK(table.row_of(5) == 0);
  CHECK(table.long_contexts() == 0);
}

TEST_CASE("contexts: what a model expects counts as so many samples, and samples overrule it") {
  ContextTable table;
  CHECK(table.expect(5, LifetimeClass::kLong, 0.9, 1));
  CHECK(table.learned(5) == LifetimeClass::kLong);
  CHECK(table.long_contexts() == 1);
  table.set_split(true);
  CHECK(table.row_of(5) == 1);
  CHECK_FALSE(table.observe(5, false));  // 0.45
  CHECK(table.observe(5, false));        // 0.3
  CHECK(table.row_of(5) == 0);
  CHECK_FALSE(table.expect(5, LifetimeClass::kLong, 1, 2));  // samples were there first
  CHECK(table.row_of(5) == 0);
  CHECK(table.expect(6, LifetimeClass::kShort, 0.1, 2));
  table.observe(6, true);
  CHECK(table.learned(6) == LifetimeClass::kShort);
  table.observe(6, true);
  table.observe(6, true);
  CHECK(table.learned(6) == LifetimeClass::kLong);
}

TEST_CASE("contexts: how often outcomes are as learned before, each context counting alike") {
  ContextTable table;
  CHECK(table.right_by_context() == 0);
  for (int i = 0; i < 100'000; ++i) table.observe(5, false);  // more than are counted
  CHECK(table.right_by_context() == 1);
  table.observe(6, true);  // was short-lived until then
  CHECK(table.right_by_context() == 0.5);
  table.observe(6, true);
  CHECK(table.right_by_context() == 0.75);
}

TEST_CASE("contexts: the home row is where short-lived objects go") {
  ContextTable table;
  CHECK_FALSE(table.has_rows());
  CHECK(table.observe(5, true));
  table.set_home(1);  // without a split all go there
  CHECK(table.has_rows());
  CHECK(table.row_of(5) == 1);
  CHECK(table.row_of(6) == 1);
  table.set_split(true);
  CHECK(table.row_of(5) == 0);
  CHECK(table.row_of(6) == 1);
  CHECK(table.observe(6, true));
  CHECK(table.row_of(6) == 0);
  table.set_home(0);
  CHECK(table.row_of(6) == 1);
  table.set_split(false);
  CHECK(table.row_of(6) == 0);
  CHECK_FALSE(table.has_rows());
}

TEST_CASE("learner: a model's split begins at once, stays if right, soon ends if inverted") {
  for (const bool inverted : {false, true}) {
    LifetimeLearner learner;
    REQUIRE(learner.start({}));
    const auto is_long = [](ContextKey key) { return key % 4 == 0; };
    for (ContextKey key = 0; key < 64; ++key) {
      const bool called = is_long(key) != inverted;
      CHECK(learner.expect(key, called ? LifetimeClass::kLong : LifetimeClass::kShort, called ? 0.95 : 0.05,
                           2));
    }
    CHECK(learner.table().split());
    run(learner, 2 * kHeld / 4, 64, is_long);  // a quarter of the horizon
    CHECK(learner.table().split() == !inverted);
    // The inverted one sent three objects of four to row 1: there they stay.
    CHECK(learner.table().home() == (inverted ? 1 : 0));
    run(learner, 30 * kHeld, 64, is_long);
    CHECK(learner.table().split());
    unsigned wrong = 0;
    for (ContextKey key = 0; key < 64; ++key)
      wrong += (learner.table().learned(key) == LifetimeClass::kLong) != is_long(key);
    CHECK(wrong == 0);
  }
}

TEST_CASE("learner: without a long-lived context a model begins nothing") {
  LifetimeLearner learner;
  REQUIRE(learner.start({}));
  learner.expect(1, LifetimeClass::kShort, 0.1, 1);
  CHECK_FALSE(learner.table().split());
}

TEST_CASE("contexts: keys depend on the caller and on the height of the stack") {
  CHECK(ContextTable::key_of(0x401000, 128) != ContextTable::key_of(0x401005, 128));
  CHECK(ContextTable::key_of(0x401000, 128) != ContextTable::key_of(0x401000, 144));
  CHECK(ContextTable::key_of(~std::uintptr_t{0}, ~std::uintptr_t{0}) < ContextTable::kEntries);
}

TEST_CASE("learning: contexts that live long are told from those that do not, and the heap splits") {
  LifetimeLearner learner;
  REQUIRE(learner.start({}));
  run(learner, 20 * kHeld, 64, [](ContextKey key) { return key % 16 == 0; });
  for (ContextKey key = 0; key < 64; ++key)
    CHECK((learner.table().learned(key) == LifetimeClass::kLong) == (key % 16 == 0));
  CHECK(learner.table().split());
  const LifetimeLearner::Counts counts = learner.counts();
  CHECK(counts.precision > 0.9);
  CHECK(counts.long_right <= counts.long_samples);
  CHECK(counts.long_right > counts.long_samples / 2);
  CHECK(counts.right - counts.long_right <= counts.samples - counts.long_samples);
}

TEST_CASE("learning: a rare context that lives long is worth a split, though others do so by chance") {
  for (const unsigned seed : {1, 2, 3, 4, 5, 6}) {
    CAPTURE(seed);
    LifetimeLearner learner;
    REQUIRE(learner.start({}));
    std::mt19937 random(seed);
    // Of 300 contexts, one: of all that lives long it makes one in 31.
    run(learner, 120 * kHeld, 300, [&](ContextKey key) { return key == 7 || random() % 10 == 0; });
    CHECK(learner.table().learned(7) == LifetimeClass::kLong);
    CHECK(learner.table().split());
  }
}

TEST_CASE("no regret: lifetimes that contexts do not tell keep the heap in one class") {
  LifetimeLearner learner;
  REQUIRE(learner.start({}));
  std::mt19937 random(11);
  run(learner, 30 * kHeld, 64, [&](ContextKey) { return random() % 3 == 0; });
  CHECK_FALSE(learner.table().split());
}

TEST_CASE("no regret: a program that frees nothing stays in one class") {
  LifetimeLearner learner;
  REQUIRE(learner.start({}));
  run(learner, 20 * kHeld, 64, [](ContextKey) { return true; });
  CHECK_FALSE(learner.table().split());
}

TEST_CASE("learning: a context that changes its ways is learned again") {
  LifetimeLearner learner;
  REQUIRE(learner.start({}));
  run(learner, 12 * kHeld, 16, [](ContextKey key) { return key < 4; });
  CHECK(learner.table().learned(1) == LifetimeClass::kLong);
  run(learner, 40 * kHeld, 16, [](ContextKey key) { return key >= 12; });
  CHECK(learner.table().learned(1) == LifetimeClass::kShort);
  CHECK(learner.table().learned(13) == LifetimeClass::kLong);
}

TEST_CASE("learning: survival of the horizon decides, at that moment") {
  LifetimeLearner learner;
  REQUIRE(learner.start({.tau = 2, .sample_every = kMiB}));
  learner.advance(0, kHeld);
  const auto sample = learner.born(9);
  learner.advance(kHeld, kHeld);
  CHECK(learner.open(sample, 0));
  learner.advance(2 * kHeld, kHeld);
  CHECK_FALSE(learner.open(sample, 0));
  CHECK(learner.counts().long_samples == 1);
  learner.freed(sample, 0);  // of no more interest
  CHECK(learner.counts().samples == 1);
}

TEST_CASE("learning: memory is bounded; what finds no room is not sampled") {
  LifetimeLearner learner;
  REQUIRE(learner.start({.tau = 3, .sample_every = 1}));
  learner.advance(0, kHeld);
  size_t taken = 0;
  for (int i = 0; i < 10000; ++i) taken += learner.born(i % 64) != LifetimeLearner::kNoSample;
  CHECK(taken == LifetimeLearner::kMostSamples);
}

}  // namespace memoir

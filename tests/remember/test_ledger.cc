// SPDX-License-Identifier: Apache-2.0
//
// What the ledger allows, call for call, of programs whose times are made up: no clock is read.
#include "memoir/remember/ledger.h"

#include <random>
#include <utility>

#include "doctest/doctest.h"
#include "memoir/remember/memory.h"

namespace memoir {
namespace {

/// A callable whose every pass takes `pass`, a look at a call `look`, and learning from one, when it may,
/// `learning`. Counts what all of it took.
struct Calls {
  Ledger ledger;
  double spent = 0, passes = 0;
  int looked_at = 0, learned = 0;

  void call(Ledger::Nanoseconds pass, Ledger::Nanoseconds look, Ledger::Nanoseconds learning, bool useful) {
    passes += static_cast<double>(pass);
    if (!ledger.looks_at_call()) return;
    ++looked_at;
    if (learning > 0 && ledger.may_learn()) {
      ++learned;
      ledger.learned(learning);
      ledger.proved(useful);
      spent += static_cast<double>(learning);
    }
    ledger.called(look, pass);
    spent += static_cast<double>(look);
  }
  double share() const { return spent / passes; }
};

}  // namespace

TEST_CASE("what is learned once, and is cheap to follow, is learned at once and never stops anything") {
  Calls calls;
  for (int i = 0; i < 1000; ++i) calls.call(1'000'000, 2'000, i < 3 ? 900'000 : 0, true);
  CHECK(calls.learned == 3);
  CHECK(calls.looked_at == 1000);
}

TEST_CASE("learning that every call asks for takes its share, and less and less while it is of no use") {
  for (const Ledger::Nanoseconds learning : {200'000, 5'000'000, 75'000'000, 400'000'000}) {
    CAPTURE(learning);
    Calls useful, useless;
    for (int i = 0; i < 40'000; ++i) {
      useful.call(5'000'000, 3'000, learning, true);
      useless.call(5'000'000, 3'000, learning, false);
    }
    CHECK(useful.share() < 0.035);
    CHECK(useless.share() < 0.01);
    CHECK(useful.looked_at == 40'000);
    CHECK(useful.learned > 2);
  }
}

TEST_CASE("a look that a pass is too short for is taken ever more seldom, and again once passes are longer") {
  Calls calls;
  for (int i = 0; i < 100'000; ++i) calls.call(8'000, 1'500, 0, true);
  CHECK(calls.share() < 0.005);
  CHECK(calls.looked_at > 10);
  const int before = calls.looked_at;
  for (int i = 0; i < 1000; ++i) calls.call(1'000'000, 1'500, 0, true);
  CHECK(calls.looked_at > before + 800);
  const Ledger::Figures figures = calls.ledger.figures();
  CHECK(figures.skipped + static_cast<std::uint64_t>(calls.looked_at) == 101'000);
  CHECK(static_cast<double>(figures.looks) < 0.005 * static_cast<double>(figures.passes) + 1e6);
}

TEST_CASE("whatever passes, looks and learning take, in any order, their sum stays within the share") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto up_to = [&](int log2) {
      return Ledger::Nanoseconds{1} << std::uniform_int_distribution<int>(log2 / 2, log2)(random);
    };
    const int pass = 13 + static_cast<int>(random() % 15), look = 9 + static_cast<int>(random() % 9),
              learning = 15 + static_cast<int>(random() % 14);
    const bool useful = seed % 2 == 0;
    Calls calls;
    double longest = 0;  // of what is spent in one call, which nobody knows before it is
    for (int i = 0; i < 200'000; ++i) {
      const auto learns = up_to(learning);
      longest = std::max(longest, static_cast<double>(learns));
      calls.call(up_to(pass), up_to(look), learns, useful);
    }
    const double in_advance = 8 * static_cast<double>(Ledger::Nanoseconds{1} << pass);
    CHECK(calls.spent < 0.04 * calls.passes + 2 * longest + in_advance);
  }
}

TEST_CASE("while nothing may be learned, what has a plan follows it, and what has none runs plain") {
  const auto ledger = std::make_shared<Ledger>();
  Memory memory({}, std::make_shared<SlabSet>(SlabSetOptions{}), ledger);
  const auto shape_of = [](std::int64_t rows) {
    CallShape shape;
    shape.form = 7;
    shape.numbers = {rows};
    return shape;
  };
  const auto record = [&](std::int64_t rows) {
    Memory::Decision decision = memory.decide(shape_of(rows));
    if (decision.way == Memory::Way::kSlow) decision = memory.decide_slowly(std::move(decision));
    REQUIRE(decision.way == Memory::Way::kRecord);
    Recorder recorder;
    char place = 0;
    ScopeStack scopes;
    scopes.enter("one");
    recorder.pass_begin(1);
    recorder.allocated(&place, static_cast<Size>(rows) * 1024, 64, &scopes);
    recorder.freed(&place);
    recorder.pass_end(1);
    memory.recorded(decision, recorder, true);
  };
  record(10);
  ledger->learned(1'000'000'000);
  ledger->called(1000, 1'000'000);
  CHECK(memory.decide(shape_of(10)).way == Memory::Way::kFollow);
  CHECK(memory.decide(shape_of(20)).way == Memory::Way::kPlain);
  for (int i = 0; i < 100 && !ledger->may_learn(); ++i) ledger->called(0, 1'000'000'000);
  record(20);
  CHECK(memory.stats().plain_passes == 1);
  CHECK(ledger->figures().learning > 1'000'000'000);  // recordings are told of
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Passes of one structure whose operators take other ways at other sizes: which allocation is which, what is
// asked for where, and plans for sizes never seen. The programs are drawn from seeds.
#include <algorithm>
#include <map>
#include <random>

#include "doctest/doctest.h"
#include "memoir/heap/planned/planned_heap.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/remember/pass_alignment.h"
#include "memoir/remember/pass_template.h"

namespace memoir {
namespace {

using Numbers = std::vector<std::int64_t>;

/// A network of layers: each asks for its result, rounded as strided operators round, and beyond some number
/// of elements for a workspace instead of two others. A result lives until the next one is there.
class Network {
 public:
  explicit Network(unsigned seed, SiteId base = 0) : base_(base) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return random() % n; };
    std::int64_t step = 1, shift = 0;
    for (unsigned i = 0, count = 10 + below(20); i < count; ++i) {
      if (below(6) == 0 && step < 16) {
        shift += step * static_cast<std::int64_t>(below(3));
        step *= 2;
      }
      const auto least = static_cast<std::int64_t>(6'000 + below(40'000));
      layers_.push_back({step, shift, 64 * (1 + below(16)), below(6) == 0 ? least : kNever});
    }
  }

  RecordedPass pass(const Numbers& n) const {
    RecordedPass pass;
    pass.pass = 1;
    Tick now = 0;
    size_t result = 0;
    for (SiteId i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const auto of = [&](std::int64_t side) { return static_cast<Size>((side + layer.shift) / layer.step); };
      const Size size = of(n[0]) * of(n[1]) * layer.width;
      const size_t before = result;
      std::vector<size_t> works;
      const auto ask = [&](SiteId site, Size bytes) {
        pass.sequence.push_back(
            {.site = base_ + site, .size = bytes, .alignment = 64, .lifetime = {now++, 0}});
        return pass.sequence.size() - 1;
      };
      if (n[0] * n[1] < layer.least) {
        if (layer.least != kNever) works = {ask(300 + i % 3, 3 * size), ask(300 + i % 3, size)};
      } else {
        works = {ask(400 + i % 2, 2 * size)};
      }
      result = ask(100 + i % 4, size);
      for (const size_t work : works) pass.sequence[work].lifetime.end = now++;
      if (i > 0) pass.sequence[before].lifetime.end = now++;
    }
    pass.sequence[result].lifetime.end = now;
    for (std::uint32_t i = 0; i < pass.sequence.size(); ++i) {
      const PlannedAllocation& one = pass.sequence[i];
      pass.problem.push_back({one.lifetime, one.size, one.alignment});
      pass.positions.push_back(i);
    }
    return pass;
  }

 private:
  static constexpr std::int64_t kNever = std::int64_t{1} << 40;
  struct Layer {
    std::int64_t step, shift;
    Size width;
    std::int64_t least;  // elements of the input from which on there is a workspace
  };
  SiteId base_;
  std::vector<Layer> layers_;
};

/// Bytes of the pass that its plan served, of all.
double served(const DerivedPlan& derived, const RecordedPass& pass) {
  const PlannedLayout layout(derived.plan, PlannedFit::kSmallerToo);
  REQUIRE(layout.ok());
  PlannedHeap heap(layout);
  std::map<std::pair<Tick, bool>, size_t> events;
  for (size_t i = 0; i < pass.sequence.size(); ++i) {
    events[{pass.sequence[i].lifetime.begin, true}] = i;
    events[{pass.sequence[i].lifetime.end, false}] = i;
  }
  std::vector<Offset> at(pass.sequence.size(), kNoOffset);
  double all = 0, planned = 0;
  for (const auto& [event, i] : events) {
    const PlannedAllocation& one = pass.sequence[i];
    if (event.second) {
      at[i] = heap.allocate({one.size, one.alignment, one.site});
      all += static_cast<double>(one.size);
      if (at[i] != kNoOffset) planned += static_cast<double>(one.size);
    } else if (at[i] != kNoOffset) {
      REQUIRE(heap.free(at[i]));
    }
  }
  return planned / all;
}

std::vector<Asked> asked(std::initializer_list<std::pair<SiteId, Size>> all) {
  std::vector<Asked> made;
  for (const auto& [site, size] : all) made.push_back({site, size});
  return made;
}

}  // namespace

TEST_CASE("partners are of one site, in order, and as alike as can be") {
  const auto known = asked({{1, 64}, {2, 8}, {1, 32}, {3, 16}});
  const auto pass = asked({{1, 60}, {1, 30}, {4, 48}, {3, 20}});
  CHECK(align_passes(known, pass) == std::vector<std::uint32_t>{0, 2, kNoPartner, 3});
  CHECK(align_passes(known, known) == std::vector<std::uint32_t>{0, 1, 2, 3});
  CHECK(align_passes({}, pass) == std::vector<std::uint32_t>(4, kNoPartner));
  CHECK(align_passes(known, {})->empty());
  // One of two alike is left over: the other one is told by its size.
  CHECK(align_passes(asked({{1, 36'864}, {1, 330'240}}), asked({{1, 330'240}})) ==
        std::vector<std::uint32_t>{1});
}

TEST_CASE("partners of random sequences, whatever was taken out and put in") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<Asked> known, pass;
    size_t both = 0;
    for (unsigned i = 0, count = random() % 300; i < count; ++i) {
      const Asked one{1 + random() % 5, 64 + random() % 100'000};
      const unsigned way = random() % 20;
      if (way != 0) known.push_back(one);
      if (way != 1) pass.push_back(one);
      both += way > 1;
    }
    const auto partners = align_passes(known, pass);
    REQUIRE(partners.has_value());
    REQUIRE(partners->size() == pass.size());
    std::uint32_t next = 0;
    size_t found = 0;
    for (size_t i = 0; i < pass.size(); ++i) {
      const std::uint32_t partner = (*partners)[i];
      if (partner == kNoPartner) continue;
      REQUIRE(partner >= next);
      REQUIRE(known[partner].site == pass[i].site);
      next = partner + 1;
      ++found;
    }
    CHECK(found >= both);
  }
}

TEST_CASE("operators that take other ways are one structure, and every plan of it is valid") {
  double all = 0, late = 0;
  int plans = 0, lates = 0, others = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    const Network network(seed);
    std::mt19937 random(seed + 1000);
    const auto side = [&] { return static_cast<std::int64_t>(96 + random() % 160); };
    const auto draw = [&] { return Numbers{1, side(), side()}; };
    const auto pass_at = [&](const Numbers& n) { return network.pass({n[1], n[2]}); };
    const Numbers first = draw();
    PassTemplate known(pass_at(first), first);
    for (int call = 0; call < 40; ++call) {
      const Numbers point = draw();
      const RecordedPass pass = pass_at(point);
      auto derived = known.at(point);
      REQUIRE(derived.has_value() == (known.points() > 1));
      if (derived) {
        RecordedPlan& plan = derived->plan;
        Problem problem;
        Plan placed;
        for (const PlannedAllocation& one : plan.sequence) {
          problem.push_back({one.lifetime, one.size, one.alignment});
          placed.offsets.push_back(one.offset);
        }
        placed.arena_size = plan.arena_size;
        CHECK_FALSE(quick_check(problem, placed).has_value());
        const double share = served(*derived, pass);
        all += share;
        ++plans;
        if (call >= 20) late += share, ++lates;
      }
      if (call < 3 || (derived && derived->is_partial)) {
        if (!known.add(pass, point)) ++others;  // too many of a few layers: a structure of its own
        continue;
      }
      RequestLog log;
      for (const PlannedAllocation& one : pass.sequence) log.push_back({one.size, one.site});
      CHECK(known.add(log, point, {derived->plan.sequence, derived->allocations}));
    }
    CHECK(known.allocations() <= 5 * pass_at(first).sequence.size());
  }
  CHECK(others < 20);
  CHECK(all / plans > 0.85);
  CHECK(late / lates > 0.93);
}

TEST_CASE("a pass of other operators is another structure") {
  const Network network(1), other(1, 1000);
  PassTemplate known(network.pass({100, 100}), {100, 100});
  CHECK_FALSE(known.add(other.pass({100, 120}), {100, 120}));
  CHECK(known.points() == 1);
  CHECK(known.at({100, 120}) == std::nullopt);
}

}  // namespace memoir

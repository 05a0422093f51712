// SPDX-License-Identifier: Apache-2.0
//
// What a simulated device has handed out over time, next to the same kept byte by byte.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "memoir/simulate/memory/held_log.h"

namespace memoir {
namespace {

constexpr size_t kBytes = 48;

/// Every byte's time of being handed out, by its event; 0: not held.
using HeldBytes = std::array<std::uint64_t, kBytes>;

void check_against(const HeldLog& log, const std::array<HeldBytes, 40>& truth, size_t events) {
  std::array<HeldBytes, 40> drawn{};
  for (const HeldLog::Row& row : log.rows()) {
    CHECK(row.range.size > 0);
    for (size_t event = row.born; event < std::min<std::uint64_t>(row.died, events); ++event) {
      for (Offset at = row.range.begin; at < row.range.end(); ++at) {
        CHECK(drawn[event][at] == 0);  // nothing is told twice
        drawn[event][at] = row.born;
      }
    }
  }
  for (size_t event = 1; event < events; ++event) CHECK(drawn[event] == truth[event]);
}

TEST_CASE("what is held is told as it was, byte by byte, whatever overlaps") {
  for (const bool mapped : {false, true}) {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
      std::mt19937 random(seed);
      HeldLog log;
      if (mapped) log.set_mapped();
      std::array<HeldBytes, 40> truth{};
      HeldBytes now{};
      for (size_t event = 1; event < truth.size(); ++event) {
        log.at(event);
        const Offset begin = random() % (kBytes - 1);
        const Range range{begin, 1 + random() % (kBytes - begin)};
        const bool is_hold = random() % 2 == 0;
        if (is_hold) log.hold(7, range);
        else log.release(7, range);
        Size held = 0;
        for (Offset at = range.begin; at < range.end(); ++at)
          now[at] = is_hold ? (now[at] ? now[at] : event) : 0;
        for (const std::uint64_t since : now) held += since != 0;
        CHECK(log.held() == held);
        truth[event] = now;
      }
      check_against(log, truth, truth.size());
    }
  }
}

TEST_CASE("segments that touch stay two, mapped ranges become one; spaces are apart") {
  for (const bool mapped : {false, true}) {
    HeldLog log;
    if (mapped) log.set_mapped();
    log.at(3);
    log.hold(0, {0, 10});
    log.hold(0, {10, 10});
    log.hold(1, {5, 10});
    CHECK(log.rows().size() == (mapped ? 2 : 3));
    CHECK(log.held() == 30);
    log.at(4);
    log.release(0, {0, 10});
    log.release(0, {10, 10});
    const auto rows = log.rows();
    CHECK(rows.size() == (mapped ? 2 : 3));
    CHECK(rows.front().died == 4);
    CHECK(rows.back().died == HeldLog::kNever);
    CHECK(rows.back().space == 1);
  }
}

TEST_CASE("what is handed out and back within one event is not told") {
  HeldLog log;
  log.at(1);
  log.hold(0, {0, 8});
  log.release(0, {0, 8});
  CHECK(log.rows().empty());
  CHECK(log.held() == 0);
}

}  // namespace
}  // namespace memoir

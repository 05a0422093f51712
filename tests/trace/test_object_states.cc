// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/objects/object_states.h"

#include <map>
#include <random>
#include <vector>

#include "doctest/doctest.h"

namespace memoir {

using Life = ObjectStates::Life;

TEST_CASE("objects in order, out of order and far apart are as a plain map has them") {
  struct Known {
    bool gone;
    std::uint32_t number, marks;
  };
  std::mt19937_64 random(7);
  ObjectStates states;
  std::map<ObjectId, Known> known;
  std::vector<ObjectId> ids, live;  // by number
  const auto id_of = [&](std::uint32_t number) { return ids[number]; };
  const auto agrees = [&](ObjectId id) {
    const ObjectStates::State state = states.find(id, id_of);
    const auto found = known.find(id);
    if (found == known.end()) return state.life == Life::kUnknown;
    if (found->second.gone) return state.life == Life::kGone;
    return state.life == Life::kLive && state.number == found->second.number &&
           state.marks == found->second.marks;
  };
  ObjectId next = 0;
  for (int step = 0; step < 60'000; ++step) {
    const auto choice = random() % 100;
    if (live.size() < 300 && choice < 60) {
      const ObjectId id = choice < 50   ? next++
                          : choice < 55 ? next + random() % 5000
                                        : random() >> random() % 64;
      REQUIRE(agrees(id));
      if (known.contains(id)) continue;
      states.add(id, static_cast<std::uint32_t>(ids.size()), id_of);
      known[id] = {false, static_cast<std::uint32_t>(ids.size()), 0};
      ids.push_back(id);
      live.push_back(id);
    } else if (!live.empty()) {
      const size_t which = random() % live.size();
      const ObjectId id = live[which];
      REQUIRE(agrees(id));
      if (choice < 70) {
        const std::uint32_t mark = 1 + random() % 2;
        states.mark(id, mark, id_of);
        known[id].marks |= mark;
      } else {
        states.end(id, id_of);
        known[id].gone = true;
        live[which] = live.back();
        live.pop_back();
      }
      REQUIRE(agrees(id));
    }
  }
  for (const auto& [id, _] : known) REQUIRE(agrees(id));
  for (ObjectId id = 0; id < next + 9000; ++id) REQUIRE(agrees(id));
}

TEST_CASE("a group that is gone is still known to be") {
  ObjectStates states;
  const auto id_of = [](std::uint32_t number) { return ObjectId{number}; };
  for (std::uint32_t id = 0; id < 20'000; ++id) {
    states.add(id, id, id_of);
    if (id != 9'000) states.end(id, id_of);
  }
  for (std::uint32_t id = 0; id < 20'000; ++id)
    REQUIRE(states.find(id, id_of).life == (id == 9'000 ? Life::kLive : Life::kGone));
  CHECK(states.find(9'000, id_of).number == 9'000);
  CHECK(states.find(20'000, id_of).life == Life::kUnknown);
}

}  // namespace memoir

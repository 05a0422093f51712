// SPDX-License-Identifier: Apache-2.0
//
// A native program of several threads as a trace of version 1, and what must come back of it.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/trace/read/trace.h"
#include "support/native_trace.h"

namespace memoir {

using namespace trace_format;
using Bytes = std::vector<std::byte>;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

inline std::string refusal(const Bytes& bytes) {
  try {
    Trace::from_bytes(bytes, "x.trace");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// What became of one object.
struct Fate {
  Size size = 0;
  std::uint32_t thread = 0;
  std::uint64_t born = 0;  // tick
  std::uint32_t free_thread = ~0u;
  std::uint64_t died = ~std::uint64_t{0};
  bool operator==(const Fate&) const = default;
};
using Fates = std::map<std::uint64_t, std::vector<Fate>>;  // by address, in the order in which they had it

/// A program of some threads on one heap of few addresses, so that they take over each other's at once.
struct Program {
  NativeTrace trace{BlockEncoder::kLeastBlock};
  Fates fates;
  std::uint64_t frees = 0, allocations = 0;

  void run(std::uint64_t seed, int steps, int ticks_per_step) {
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> unused, live;
    for (std::uint64_t i = 0; i < 400; ++i) unused.push_back(0x7f0000000000 + i * 48 + i % 3);
    std::uint64_t tick = 5;
    const auto take = [&](std::vector<std::uint64_t>& from) {
      std::swap(from[random() % from.size()], from.back());
      const std::uint64_t address = from.back();
      from.pop_back();
      return address;
    };
    for (int step = 0; step < steps; ++step) {
      if (random() % static_cast<unsigned>(ticks_per_step) == 0) tick += 1 + random() % 3;
      const auto thread = static_cast<std::uint32_t>(random() % 5);
      const auto end = [&](std::uint64_t address) {
        fates[address].back().free_thread = thread;
        fates[address].back().died = tick;
        unused.push_back(address);
        ++frees;
      };
      const auto begin = [&](std::uint64_t address, bool moved) {
        const Size size = random() % 7 == 0 ? random() % kGiB : 8 * (random() % 30);
        trace.write(thread, tick, [&](BlockEncoder& to) {
          return to.allocate(tick, address, size, 4, Family::kMalloc, 0, moved);
        });
        fates[address].push_back({size, thread, tick});
        live.push_back(address);
        ++allocations;
      };
      switch (live.empty() ? 0 : unused.empty() ? 1 : random() % 5) {
        case 0:
        case 2:
          begin(take(unused), false);
          break;
        case 1:
        case 3: {
          const std::uint64_t address = take(live);
          trace.free(thread, tick, address);
          end(address);
          break;
        }
        default: {  // a realloc, which may fail
          const std::uint64_t address = take(live);
          BlockEncoder::Freed freed;
          trace.write(thread, tick,
                      [&](BlockEncoder& to) { return to.free(tick, address, 0, true, false, &freed); });
          if (random() % 3 == 0) {
            REQUIRE(trace.encoder(thread).undo(freed));
            live.push_back(address);
          } else {
            end(address);
            begin(random() % 2 == 0 ? (unused.pop_back(), address) : take(unused), true);
          }
        }
      }
    }
  }
};

inline Fates fates_of(const Trace& trace) {
  Fates fates;
  std::map<ObjectId, std::pair<std::uint64_t, std::size_t>> objects;
  Tick last = 0;
  for (const Event& event : trace.events()) {
    CHECK(event.time >= last);
    last = event.time;
    if (event.kind == EventKind::kAllocate) {
      auto& had = fates[event.address];
      objects[event.object] = {event.address, had.size()};
      had.push_back({event.size, event.thread, event.time / kMillisecondTick});
    } else if (event.kind == EventKind::kFree) {
      const auto [address, number] = objects.at(event.object);
      fates[address][number].free_thread = event.thread;
      fates[address][number].died = event.time / kMillisecondTick;
    }
  }
  return fates;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Profiles made up from a seed: they share modules, frames and contexts with each other.
#pragma once

#include <random>

#include "memoir/predict/profile/byte_sampling.h"
#include "memoir/predict/profile/lifetime_profile.h"
#include "memoir/predict/profile/log_buckets.h"
#include "memoir/predict/profile/profile_merger.h"

namespace memoir {

/// One run. Some frames have names, in some profiles; contexts repeat.
inline LifetimeProfile made_up_profile(unsigned seed) {
  using P = LifetimeProfile;
  std::mt19937_64 random(seed);
  P profile;
  for (unsigned i = 0; i < 4; ++i) {
    P::Module module;
    const std::string path =
        (random() % 2 ? "/usr/lib/" : "/opt/lib/") + std::string("lib") + static_cast<char>('a' + i) + ".so";
    module.path = profile.store(i == 3 ? "/app/server" : path);
    module.id_size = i == 3 ? 0 : 20;  // the last has no build id: its path is its name
    for (unsigned k = 0; k < module.id_size; ++k) module.id[k] = static_cast<unsigned char>(17 * i + k + 1);
    profile.modules.push_back(module);
  }
  for (unsigned i = 0; i < 30; ++i) {
    P::Frame frame{0x1000 + i / 4 * 0x10, i % 5 == 4 ? P::kNoModule : i % 5, {}};
    if (frame.module == P::kNoModule) frame.offset = 0;
    if (random() % 2)
      frame.name = profile.store("function_" + std::to_string(i % 5) + "_" + std::to_string(i / 4));
    profile.frames.push_back(frame);
  }
  P::Run run;
  run.id[0] = random();
  run.id[1] = random();
  run.start = 1'700'000'000'000'000'000 + random() % 1'000'000'000;
  run.milliseconds = 100'000;
  run.allocated = kGiB;
  run.every = 64 * kKiB << seed % 3;
  run.process = 1000 + seed;
  run.threads = 3;
  run.missed_frees = random() % 3;
  run.program = profile.store(seed % 2 ? "server" : "client");
  const auto contexts = static_cast<std::uint32_t>(5 + random() % 10);
  for (std::uint32_t number = 0; number < contexts; ++number) {
    P::Context context;
    context.first = static_cast<std::uint32_t>(profile.stacks.size());
    context.frames = static_cast<std::uint32_t>(random() % 5);
    for (std::uint32_t k = 0; k < context.frames; ++k)
      profile.stacks.push_back(
          static_cast<std::uint32_t>(random() % 2 ? k : random() % profile.frames.size()));
    context.flags = random() % 8 == 0 ? P::kCut : 0u;
    context.height = random() % 4 * 128;
    context.least_size = ~Size{0};
    const unsigned samples = 1 + random() % 20;
    for (unsigned i = 0; i < samples; ++i) {
      P::Pair pair;
      pair.context = number;
      pair.size = 16 + random() % 100'000;
      pair.weight = byte_sampling::weight(pair.size, run.every);
      pair.begin = random() % run.milliseconds;
      pair.begin_clock = random() % run.allocated;
      pair.flags = random() % 4 == 0 ? P::kNeverFreed : 0u;
      const bool freed = pair.flags == 0;
      pair.end = freed ? pair.begin + random() % (run.milliseconds - pair.begin) : run.milliseconds;
      pair.end_clock =
          freed ? pair.begin_clock + random() % (run.allocated - pair.begin_clock) : run.allocated;
      pair.allocated_by = 1 + random() % 3;
      pair.freed_by = freed ? 1 + random() % 3 : 0;
      pair.priority = random();
      context.least_size = std::min(context.least_size, pair.size);
      context.most_size = std::max(context.most_size, pair.size);
      context.freed_elsewhere += freed && pair.freed_by != pair.allocated_by;
      const P::Fate fate = freed ? P::kFreed : P::kCensored;
      const P::Estimate one{1, pair.weight, byte_sampling::weighted_bytes(pair.size, pair.weight)};
      context.estimates[fate].add(one);
      const std::uint64_t lifetimes[] = {pair.end - pair.begin, pair.end_clock - pair.begin_clock};
      for (const auto clock : {P::kMilliseconds, P::kBytes}) {
        context.tallies[fate][clock].add(lifetimes[clock]);
        profile.cells.push_back(
            {number, static_cast<std::uint16_t>(log_buckets::of(lifetimes[clock])), clock, fate, one});
      }
      profile.pairs.push_back(pair);
    }
    run.samples += samples;
    profile.contexts.push_back(context);
  }
  for (std::uint64_t i = 0; i < 10; ++i)
    profile.points.push_back({i * 1000, i * kMiB, (i % 4 + 1) * kMiB, 8 * kMiB});
  run.pairs = static_cast<std::uint32_t>(profile.pairs.size());
  run.points = static_cast<std::uint32_t>(profile.points.size());
  run.priority = run_priority(run);
  profile.totals.runs = 1;
  profile.totals.samples = run.samples;
  profile.totals.missed_frees = run.missed_frees;
  profile.totals.milliseconds = run.milliseconds;
  profile.totals.allocated = run.allocated;
  profile.totals.most_pairs = seed % 5 == 0 ? 60 : 80;
  profile.totals.most_runs = seed % 7 == 0 ? 3 : 4;
  profile.runs.push_back(run);
  return canonical(profile);
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>
#include <thread>

#include "doctest/doctest.h"
#include "lifetimes/sampled.h"
#include "memoir/base/error.h"
#include "memoir/predict/profile/log_buckets.h"
#include "memoir/predict/profile/profile_file.h"

namespace memoir {

namespace {

using P = LifetimeProfile;

std::uintptr_t code(int number) {
  return reinterpret_cast<std::uintptr_t>(&code) + 1 + static_cast<unsigned>(number);
}

}  // namespace

TEST_CASE("sampler: where every object is sampled, the tallies are those of a plain count") {
  Sampled sampled(1);  // objects of 64 bytes and more are missed with exp(-64)
  REQUIRE(sampled.started());
  SamplerThread thread;
  std::mt19937_64 random(11);
  struct Object {
    int context;
    Size size;
    std::uint64_t born;
  };
  std::map<std::uintptr_t, Object> live;
  std::map<int, Tally> freed, alive;
  std::map<std::pair<int, size_t>, std::uint64_t> cells;
  std::uint64_t clock = 0, samples = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (!live.empty() && random() % 2 == 0) {
      auto victim = live.lower_bound(random() % 4096 * 16 + 16);
      if (victim == live.end()) victim = live.begin();
      const Object& object = victim->second;
      freed[object.context].add(clock - object.born);
      ++cells[{object.context, log_buckets::of(clock - object.born)}];
      sampled.free(thread, victim->first);
      live.erase(victim);
    } else {
      const std::uintptr_t address = random() % 4096 * 16 + 16;
      if (live.contains(address)) continue;
      const Object object{static_cast<int>(random() % 7), 64 + random() % 1000, clock + 0};
      clock += object.size;
      live[address] = {object.context, object.size, clock};
      sampled.allocate(thread, address, object.size, {code(object.context), code(100)});
      ++samples;
    }
  }
  for (const auto& [address, object] : live) alive[object.context].add(clock - object.born);
  const P profile = sampled.profile();
  REQUIRE(profile.contexts.size() == 7);
  REQUIRE(profile.runs.size() == 1);
  CHECK(profile.runs[0].samples == samples);
  CHECK(profile.runs[0].allocated == clock);
  CHECK(profile.runs[0].lost == 0);
  CHECK(profile.runs[0].missed_frees == 0);
  for (int number = 0; number < 7; ++number) {  // frames are sorted by offset, and so contexts are by number
    const P::Context& context = profile.contexts[static_cast<size_t>(number)];
    CHECK(context.frames == 2);
    CHECK(context.tallies[P::kFreed][P::kBytes] == freed[number]);
    CHECK(context.tallies[P::kCensored][P::kBytes] == alive[number]);
    CHECK(context.estimates[P::kFreed].objects == freed[number].count * byte_sampling::kOne);
    CHECK(context.freed_elsewhere == 0);
  }
  size_t bytes_cells = 0;
  for (const P::Cell& cell : profile.cells) {
    if (cell.fate != P::kFreed || cell.clock != P::kBytes) continue;
    ++bytes_cells;
    CHECK(cell.estimate.samples == cells[{static_cast<int>(cell.context), cell.bucket}]);
  }
  CHECK(bytes_cells == cells.size());
  const std::string file = write_lifetimes(profile);
  CHECK(write_lifetimes(read_lifetimes(file, "again")) == file);
}

TEST_CASE("sampler: counts and bytes through all of it are unbiased") {
  constexpr int kSeeds = 60, kObjects = 3000;
  constexpr Size kSize = 100, kEvery = 4 * kKiB;
  double objects = 0, bytes = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    Sampled sampled(kEvery, static_cast<std::uint64_t>(seed));
    SamplerThread thread;
    for (std::uintptr_t i = 1; i <= kObjects; ++i) {
      sampled.allocate(thread, i * 16, kSize, {code(1)});
      if (i % 3 != 0) sampled.free(thread, i * 16);
    }
    const P profile = sampled.profile();
    for (const P::Estimate& estimate : profile.contexts[0].estimates) {
      objects += static_cast<double>(estimate.objects) / byte_sampling::kOne / kSeeds;
      bytes += static_cast<double>(estimate.bytes) / kSeeds;
    }
  }
  const double p = 1 - std::exp(-double{kSize} / kEvery);
  CHECK(std::abs(objects - kObjects) < 4 * std::sqrt(kObjects * (1 - p) / p / kSeeds));
  CHECK(bytes == doctest::Approx(objects * kSize).epsilon(1e-4));
}

TEST_CASE("sampler: objects that other threads free are counted so, and nothing is lost") {
  Sampled sampled(1);
  constexpr int kThreads = 4, kObjects = 2000;
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&sampled, number] {
      SamplerThread thread;
      const auto base = static_cast<std::uintptr_t>(number + 1) << 24;
      for (std::uintptr_t i = 0; i < kObjects; ++i)
        sampled.allocate(thread, base + i * 16, 64, {code(number)});
      for (std::uintptr_t i = 0; i < kObjects / 2; ++i) sampled.free(thread, base + i * 16);
      sampled.sampler->thread_ended(thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
  SamplerThread last;
  for (int number = 0; number < kThreads; ++number) {
    const auto base = static_cast<std::uintptr_t>(number + 1) << 24;
    for (std::uintptr_t i = kObjects / 2; i < kObjects - 10; ++i) sampled.free(last, base + i * 16);
  }
  const P profile = sampled.profile();
  CHECK(profile.runs[0].allocated == kThreads * kObjects * 64);
  CHECK(profile.runs[0].threads == kThreads);
  REQUIRE(profile.contexts.size() == kThreads);
  for (const P::Context& context : profile.contexts) {
    CHECK(context.estimates[P::kFreed].samples == kObjects - 10);
    CHECK(context.estimates[P::kCensored].samples == 10);
    CHECK(context.freed_elsewhere == kObjects / 2 - 10);
  }
}

TEST_CASE("sampler: a realloc that fails leaves its object as it was") {
  Sampled sampled(1);
  SamplerThread thread;
  sampled.allocate(thread, 0x1000, 100, {code(1)});
  void* const block = reinterpret_cast<void*>(0x1000);
  Sampler::Taken taken = sampled.sampler->take_out(thread, block);
  REQUIRE(taken.found);
  CHECK_FALSE(sampled.sampler->maybe_sampled(block));
  sampled.sampler->put_back(thread, block, taken);
  sampled.allocate(thread, 0x2000, 300, {code(1)});
  taken = sampled.sampler->take_out(thread, block);
  REQUIRE(taken.found);
  sampled.sampler->finish(thread, taken);
  const P::Context context = sampled.profile().contexts.at(0);
  CHECK(context.estimates[P::kFreed].samples == 1);
  CHECK(context.estimates[P::kCensored].samples == 1);
  CHECK(context.tallies[P::kFreed][P::kBytes].sum.value() == 300);
}

TEST_CASE("sampler: without memory samples are lost and counted, and what there is can be read") {
  for (const Size steps : {0, 1, 4, 6, 7, 8, 9}) {
    CAPTURE(steps);
    Sampled sampled(1, 3, steps * sample_image::kStep);
    if (steps == 0) {
      CHECK_FALSE(sampled.started());
      continue;
    }
    REQUIRE(sampled.started());
    SamplerThread thread;
    for (std::uintptr_t i = 1; i <= 3000; ++i) {
      sampled.allocate(thread, i * 16, 64, {code(static_cast<int>(i)), code(0)});
      if (i % 2 == 0) sampled.free(thread, i * 16);
    }
    const P profile = sampled.profile();
    CHECK(profile.totals.samples + profile.totals.lost == 3000);
    CHECK(write_lifetimes(read_lifetimes(write_lifetimes(profile), "x")) == write_lifetimes(profile));
  }
}

TEST_CASE("sampler: the reservoir keeps the pairs of least priority, and the curve its maxima") {
  Sampled sampled(1);
  SamplerThread thread;
  constexpr std::uintptr_t kObjects = 40'000;  // more than pairs and points are kept
  for (std::uintptr_t i = 1; i <= kObjects; ++i) {
    sampled.allocate(thread, i * 16, i == 20'000 ? kMiB : 64, {code(1)});
    if (i > 100) sampled.free(thread, (i - 100) * 16);
  }
  const P profile = sampled.profile();
  CHECK(profile.pairs.size() == profile.totals.most_pairs);
  CHECK(profile.points.size() > 200);
  CHECK(profile.points.size() <= 512);
  Size most = 0;
  for (const P::Point& point : profile.points) most = std::max(most, point.live);
  CHECK(most == kMiB + 100 * 64);  // a free is told after the next allocation
  double mean = 0;
  for (const P::Pair& pair : profile.pairs)
    mean += static_cast<double>(pair.begin_clock) / static_cast<double>(profile.pairs.size());
  CHECK(mean == doctest::Approx(static_cast<double>(profile.runs[0].allocated) / 2).epsilon(0.35));
}

TEST_CASE("sampler: code of no file is a frame that is not known; a deep stack is cut") {
  Sampled sampled(1);
  SamplerThread thread;
  std::vector<std::uintptr_t> deep(1000, code(3));
  sampled.allocate(thread, 16, 100, {0x10, code(1)});
  sampled.allocate(thread, 32, 100, deep);
  const P profile = sampled.profile();
  REQUIRE(profile.contexts.size() == 2);
  const P::Context& cut = profile.contexts[profile.contexts[0].frames == 2 ? 1 : 0];
  const P::Context& unknown = profile.contexts[profile.contexts[0].frames == 2 ? 0 : 1];
  CHECK(cut.flags == P::kCut);
  CHECK(cut.frames == SampledStack::kMost);
  CHECK(unknown.height == 16);
  CHECK(profile.frames[profile.stack(unknown)[0]].module == P::kNoModule);
  CHECK(profile.frames[profile.stack(unknown)[1]].module != P::kNoModule);
}

TEST_CASE("sampler: an image whose program was killed anywhere reads as a profile or is refused") {
  Sampled sampled(1);
  SamplerThread thread;
  for (std::uintptr_t i = 1; i <= 500; ++i) {
    sampled.allocate(thread, i * 16, 64, {code(static_cast<int>(i % 5)), code(0)});
    if (i % 2 == 0) sampled.free(thread, i * 16);
  }
  const std::string bytes(sampled.bytes());
  std::mt19937_64 random(4);
  for (int round = 0; round < 20; ++round) {
    std::string damaged = bytes.substr(0, random() % 3 == 0 ? random() % bytes.size() : bytes.size());
    for (int flips = 0; flips < 40; ++flips) {
      const unsigned region = static_cast<unsigned>(random() % (sample_image::kRegions + 1));
      const Size begin = region == sample_image::kRegions ? 0 : sample_image::region_begin(region);
      const size_t at =
          begin + random() % (region == sample_image::kRegions ? sizeof(sample_image::Header) : 4096);
      if (at < damaged.size()) damaged[at] = static_cast<char>(random());
    }
    try {
      const P profile = sample_image::read_image(damaged, "p", "image", 0);
      CHECK(write_lifetimes(read_lifetimes(write_lifetimes(profile), "x")) == write_lifetimes(profile));
    } catch (const Error&) {
    }
  }
}

}  // namespace memoir

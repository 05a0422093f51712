// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <fstream>
#include <iterator>

#include "doctest/doctest.h"
#include "lifetimes/profiles.h"
#include "memoir/base/error.h"
#include "memoir/predict/profile/profile_file.h"

namespace memoir {

namespace {

using P = LifetimeProfile;

std::string why_refused(const P& profile) {
  try {
    read_lifetimes(write_lifetimes(profile), "x.lifetimes");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string why_refused(std::string bytes, bool repair = true) {
  if (repair && bytes.size() >= sizeof(lifetimes_format::Header)) {
    const std::uint64_t checksum = lifetimes_format::checksum(bytes);
    std::memcpy(bytes.data() + offsetof(lifetimes_format::Header, checksum), &checksum, sizeof checksum);
  }
  try {
    read_lifetimes(bytes, "x.lifetimes");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

P merged(const std::vector<P>& profiles) {
  ProfileMerger merger;
  for (const P& profile : profiles) merger.add(profile, "x");
  return merger.finish();
}

}  // namespace

TEST_CASE("lifetimes file: what is written reads as the same, and is canonical") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const P profile = made_up_profile(seed);
    const std::string file = write_lifetimes(profile);
    const P again = read_lifetimes(file, "x");
    CHECK(write_lifetimes(again) == file);
    CHECK(write_lifetimes(canonical(again)) == file);
  }
}

TEST_CASE("lifetimes file: the golden file of version 1 reads as ever") {
  std::ifstream stream(MEMOIR_TEST_DATA "/small.v1.lifetimes", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  const P profile = read_lifetimes(file, "small.v1.lifetimes");
  CHECK(write_lifetimes(profile) == file);
  CHECK(profile.totals.runs == 2);
  CHECK(profile.contexts.size() == 24);
  CHECK(profile.pairs.size() == profile.runs[0].pairs + profile.runs[1].pairs);
}

TEST_CASE("write the golden file of the lifetimes format" * doctest::skip()) {
  for (unsigned seed = 40, seeds = 0; seeds < 3; ++seed) {
    const std::string small = write_lifetimes(made_up_profile(seed));
    if (small.size() > 14'000) continue;
    std::ofstream(
        MEMOIR_TEST_DATA "/../../fuzz/seeds/lifetimes_fuzz/" + std::to_string(++seeds) + ".lifetimes",
        std::ios::binary)
        << small;
  }
  std::ofstream(MEMOIR_TEST_DATA "/small.v1.lifetimes", std::ios::binary)
      << write_lifetimes(merged({made_up_profile(1), made_up_profile(2)}));
}

TEST_CASE("lifetimes file: each rule of the format is checked") {
  const P good = made_up_profile(3);
  REQUIRE(why_refused(good) == "");
  const auto refuses = [&](auto&& spoil, const char* words) {
    P bad = good;
    spoil(bad);
    const std::string why = why_refused(bad);
    CHECK_MESSAGE(why.find(words) != std::string::npos, "'", why, "' for ", words);
    CHECK(why.find("x.lifetimes") == 0);
  };
  refuses([](P& p) { p.modules[0].path.begin = 1u << 31; }, "module 0 has text");
  refuses([](P& p) { p.modules[0].path.size -= 1; }, "module 0 has text");
  refuses([](P& p) { p.modules[0].path.begin += 1, p.modules[0].path.size -= 1; }, "module 0 has text");
  refuses([](P& p) { p.modules[0].path.size += 5; }, "module 0 has text");
  refuses([](P& p) { p.modules[0].id_size = 33; }, "build id");
  refuses([](P& p) { p.modules[0].reserved = 1; }, "reserved");
  refuses([](P& p) { p.text[p.frames[0].name.begin] = '\xff'; }, "UTF-8");
  refuses([](P& p) { p.frames[0].module = 77; }, "module that is not there");
  refuses([](P& p) { p.stacks[0] = 1u << 30; }, "frame that is not there");
  refuses([](P& p) { p.contexts[1].first += 1; }, "context 1 has a stack");
  refuses([](P& p) { p.contexts.back().frames += 1; }, "has a stack");
  refuses([](P& p) { p.contexts[0].most_size = p.contexts[0].least_size - 1; }, "sizes");
  refuses([](P& p) { p.contexts[0].tallies[0][1].count += 1; }, "contradicts");
  refuses([](P& p) { p.contexts[0].flags = 2; }, "reserved");
  refuses([](P& p) { std::swap(p.cells[0], p.cells[1]); }, "follow");
  refuses([](P& p) { p.cells[0].bucket = 999; }, "cell 0");
  refuses([](P& p) { p.runs[0].pairs -= 1; }, "of no run");
  refuses([](P& p) { p.runs[0].points += 1; }, "points");
  refuses([](P& p) { p.runs[0].every = 0; }, "figures");
  refuses([](P& p) { p.runs[0].priority = -1; }, "figures");
  refuses([](P& p) { p.pairs[0].end = p.runs[0].milliseconds + 1; }, "pair 0");
  refuses([](P& p) { p.pairs[1].priority = 0; }, "follow");
  refuses([](P& p) { p.points[2].decayed = 0; }, "point 2");
  refuses([](P& p) { p.points[2].time = 0; }, "follow");
  refuses([](P& p) { p.totals.most_runs = 0; }, "totals");
  refuses([](P& p) { p.totals.runs = 0; }, "totals");
}

TEST_CASE("lifetimes file: damaged, cut and later ones are refused in words") {
  const std::string good = write_lifetimes(made_up_profile(4));
  CHECK(why_refused("") != "");
  CHECK(why_refused(std::string(200, 'x')).find("not a lifetime profile") != std::string::npos);
  CHECK(why_refused(good.substr(0, good.size() - 8)).find("cut") != std::string::npos);
  CHECK(why_refused(good + std::string(8, '\0')).find("added") != std::string::npos);
  std::string later = good;
  later[8] = 2;
  CHECK(why_refused(later).find("version 2") != std::string::npos);
  for (size_t at = 0; at < good.size(); at += 61) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CHECK(why_refused(damaged, false) != "");
  }
}

TEST_CASE("lifetimes file: a later section that is optional is passed over, another is not") {
  using namespace lifetimes_format;
  for (const std::uint32_t flags : {0u, kOptionalSection}) {
    std::string bytes = write_lifetimes(made_up_profile(5));
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.sections += 1;
    header.file_size += sizeof(Section) + 8;
    std::memcpy(bytes.data(), &header, sizeof header);
    for (std::uint32_t i = 0; i < kSections; ++i) {
      Section section;
      char* const place = bytes.data() + sizeof header + i * sizeof section;
      std::memcpy(&section, place, sizeof section);
      section.begin += sizeof section;
      std::memcpy(place, &section, sizeof section);
    }
    const Section extra{99, flags, header.file_size - 8, 8, 1};
    std::string raw(sizeof extra, '\0');
    std::memcpy(raw.data(), &extra, sizeof extra);
    bytes.insert(sizeof header + kSections * sizeof(Section), raw);
    bytes += "later it";
    CHECK(why_refused(bytes).find("does not know") ==
          (flags == 0 ? why_refused(bytes).find("does") : std::string::npos));
    CHECK((why_refused(bytes) == "") == (flags == kOptionalSection));
  }
}

TEST_CASE("merging lifetimes: order and grouping change nothing") {
  std::vector<P> profiles;
  for (unsigned seed = 10; seed < 19; ++seed) profiles.push_back(made_up_profile(seed));
  const std::string all = write_lifetimes(merged(profiles));
  CHECK(why_refused(all) == "");
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(profiles.begin(), profiles.end(), random);
    std::vector<P> groups;
    for (size_t begin = 0; begin < profiles.size();) {
      const size_t end = std::min(profiles.size(), begin + 1 + random() % 4);
      groups.push_back(merged({profiles.begin() + static_cast<std::ptrdiff_t>(begin),
                               profiles.begin() + static_cast<std::ptrdiff_t>(end)}));
      begin = end;
    }
    CHECK(write_lifetimes(merged(groups)) == all);
  }
}

TEST_CASE("merging lifetimes: sums are those of the parts; names and paths are kept") {
  const P a = made_up_profile(21), b = made_up_profile(22), both = merged({a, b});
  const auto sum = [](const P& profile) {
    P::Estimate all;
    for (const P::Context& context : profile.contexts) {
      for (const P::Estimate& estimate : context.estimates) all.add(estimate);
    }
    return all;
  };
  P::Estimate parts = sum(a);
  parts.add(sum(b));
  CHECK(sum(both) == parts);
  CHECK(both.totals.samples == a.totals.samples + b.totals.samples);
  CHECK(both.contexts.size() < a.contexts.size() + b.contexts.size());  // some are the same
  CHECK(both.modules.size() == 4);
  CHECK(both.runs.size() == 2);
  size_t named = 0, named_a = 0;
  for (const P::Frame& frame : both.frames) named += frame.name.size > 0;
  for (const P::Frame& frame : a.frames) named_a += frame.name.size > 0;
  CHECK(named >= named_a);
}

TEST_CASE("merging lifetimes: an empty one changes nothing; a run is not counted twice") {
  const P a = made_up_profile(31);
  P empty;
  empty.totals.most_pairs = P::kMostPairs;
  empty.totals.most_runs = P::kMostRuns;
  CHECK(write_lifetimes(merged({a, empty})) == write_lifetimes(a));
  CHECK_THROWS_WITH_AS(merged({a, a}), doctest::Contains("count twice"), Error);
}

TEST_CASE("merging lifetimes: runs with more samples are kept more often") {
  P::Run small, large;
  small.samples = 10;
  large.samples = 1000;
  std::mt19937_64 random(3);
  int kept = 0;
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) {
    small.id[0] = random();
    large.id[0] = random();
    kept += run_priority(large) < run_priority(small);
  }
  CHECK(kept > kRounds * 0.97);
}

}  // namespace memoir

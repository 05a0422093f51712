// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>
#include <set>
#include <string>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/base/near_spelling.h"
#include "memoir/heap/peers/pytorch/free_block_set.h"
#include "memoir/heap/peers/pytorch/pytorch_options.h"

namespace memoir {

namespace {

std::string refusal(const char* text) {
  try {
    PyTorchOptions::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("PyTorch's text becomes options") {
  const PyTorchOptions options = PyTorchOptions::parse(
      " max_split_size_mb:128, max_non_split_rounding_mb : 64,large_segment_size_mb:32,"
      "garbage_collection_threshold:0.75,per_process_memory_fraction:0.5,expandable_segments:True,"
      "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],backend:native,pinned_num_register_threads:4,");
  CHECK(options.max_split_size == 128 * kMiB);
  CHECK(options.max_non_split_rounding == 64 * kMiB);
  CHECK(options.large_segment_size == 32 * kMiB);
  CHECK(options.garbage_collection_threshold == 0.75);
  CHECK(options.per_process_memory_fraction == 0.5);
  CHECK(options.expandable_segments);
  const std::map<Size, Size> divisions = {{1, 1},           {300 * kMiB, 1}, {512 * kMiB, 2},
                                          {1024 * kMiB, 4}, {2 * kGiB, 8},   {100 * kGiB, 8}};
  for (const auto& [size, count] : divisions) CHECK(options.divisions_for(size) == count);

  CHECK(PyTorchOptions::parse("").text() == "");
  CHECK(PyTorchOptions::parse("large_segment_size_mb:40").max_non_split_rounding == 40 * kMiB);
  CHECK(PyTorchOptions::parse("roundup_power2_divisions:8").divisions_for(1) == 8);
}

TEST_CASE("options become PyTorch's text, and the same options again") {
  for (const char* const text :
       {"expandable_segments:True", "max_split_size_mb:128", "large_segment_size_mb:40,max_split_size_mb:64",
        "max_non_split_rounding_mb:200", "garbage_collection_threshold:0.8,per_process_memory_fraction:0.25",
        "roundup_power2_divisions:16"}) {
    CHECK(PyTorchOptions::parse(text).text() == text);
  }
  const PyTorchOptions ranges = PyTorchOptions::parse("roundup_power2_divisions:[64:8,256:4,>:2]");
  const PyTorchOptions again = PyTorchOptions::parse(ranges.text());
  for (int i = 0; i < 40; ++i) CHECK(again.divisions_for(Size{1} << i) == ranges.divisions_for(Size{1} << i));
}

TEST_CASE("what PyTorch does not know is refused by name, with what was probably meant") {
  const std::map<const char*, const char*> refused = {
      {"max_splt_size_mb:128",
       "max_splt_size_mb: PyTorch has no such setting; did you mean 'max_split_size_mb:...'?"},
      {"max_split_size_mb=128", "did you mean 'max_split_size_mb:...'?"},
      {"expandable_segment:True", "did you mean 'expandable_segments:...'?"},
      {"nonsense:1", "nonsense: PyTorch has no such setting"},
      {"max_split_size_mb", "expected ':' after max_split_size_mb"},
      {"max_split_size_mb,128", "expected ':' after max_split_size_mb"},
      {"max_split_size_mb:", "it ends before the value of max_split_size_mb"},
      {"max_split_size_mb:128:expandable_segments:True", "expected ',' before ':'"},
      {"max_split_size_mb:12", "max_split_size_mb: must be at least 20"},
      {"large_segment_size_mb:10", "must be at least 11"},
      {"max_split_size_mb:big", "'big' is not a whole number"},
      {"max_split_size_mb:99999999999999999999", "above 2^64"},
      {"garbage_collection_threshold:80", "must lie between 0 and 1"},
      {"per_process_memory_fraction:-1", "must lie between 0 and 1"},
      {"expandable_segments:true", "'true' is neither True nor False"},
      {"pinned_use_background_threads:1", "'1' is neither True nor False"},
      {"backend:cudaMallocAsync", "the driver's pool"},
      {"roundup_power2_divisions:3", "'3' is not a power of two"},
      {"roundup_power2_divisions:[256:3]", "neither a power of two nor 0"},
      {"roundup_power2_divisions:[100:4]", "size '100' (of MiB) is not a power of two"},
      {"roundup_power2_divisions:[256:4", "the list has no ']'"},
      {"roundup_power2_divisions:[256 4]", "the list holds size:divisions"},
      {"roundup_power2_divisions:[256:4:5]", "expected ',' or ']' before ':'"},
  };
  for (const auto& row : refused) {
    const char *const text = row.first, *const message = row.second;
    CAPTURE(text);
    const std::string said = refusal(text);
    CAPTURE(said);
    CHECK(said.find(message) != std::string::npos);
    CHECK(said.find(text) != std::string::npos);
  }
}

TEST_CASE("the nearest spelling, if any is near") {
  constexpr std::string_view kWords[] = {"alpha", "beta", "gamma"};
  CHECK(nearest_spelling("alhpa", kWords) == "alpha");
  CHECK(nearest_spelling("BETA", kWords) == "beta");
  CHECK(nearest_spelling("gama", kWords) == "gamma");
  CHECK(nearest_spelling("delta", kWords) == "beta");
  CHECK(nearest_spelling("omega-three", kWords) == "");
  CHECK(nearest_spelling("", {}) == "");
}

TEST_CASE("free blocks come in the order of size and address, however they are binned") {
  CachedBlocks blocks;
  REQUIRE(blocks.ok());
  FreeBlockSet set;
  std::set<std::pair<Size, Offset>> oracle;
  std::map<std::pair<Size, Offset>, BlockIndex> indices;
  std::mt19937_64 random(3);
  const auto at = [&](auto where) { return where == oracle.end() ? BlockIndex{0} : indices.at(*where); };
  Offset next = 0;
  for (int step = 0; step < 20'000; ++step) {
    const bool growing = step / 2'000 % 2 == 0;
    if (random() % 100 < (growing ? 70 : 30) || oracle.empty()) {
      const Size size = 512 * (1 + random() % (Size{1} << random() % 40));
      const Range range{next, random() % 3 == 0 ? 512 * (1 + random() % 4) : size};
      next += 512 * (1 + random() % 8);
      const BlockIndex index = blocks.take(range, 1);
      set.insert(blocks, index);
      oracle.insert({range.size, range.begin});
      indices[{range.size, range.begin}] = index;
    } else {
      const auto victim = std::next(oracle.begin(), static_cast<long>(random() % oracle.size()));
      set.erase(blocks, at(victim));
      blocks.give_back(at(victim));
      oracle.erase(victim);
    }
    const Size wanted = 512 * (1 + random() % (Size{1} << random() % 42));
    const auto best = oracle.lower_bound({wanted, 0});
    REQUIRE(set.best_fit(blocks, wanted) == at(best));
    if (best != oracle.end()) {
      REQUIRE(set.next(blocks, at(best)) == at(std::next(best)));
      REQUIRE(set.previous(blocks, at(best)) == (best == oracle.begin() ? 0 : at(std::prev(best))));
    }
    REQUIRE(set.first(blocks) == at(oracle.begin()));
    REQUIRE(set.last(blocks) == (oracle.empty() ? 0 : at(std::prev(oracle.end()))));
  }
}

}  // namespace memoir

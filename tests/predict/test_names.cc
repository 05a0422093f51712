// SPDX-License-Identifier: Apache-2.0
//
// tests/data/model_names.txt is shared with the Python tests: a name, its plain name, its words.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/predict/model/model_stack.h"
#include "memoir/predict/model/name_words.h"
#include "memoir/predict/model/plain_name.h"

namespace memoir {

TEST_CASE("names: plain names and words are those of the golden file") {
  std::ifstream file(MEMOIR_TEST_DATA "/model_names.txt");
  std::string line;
  unsigned rows = 0;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    ++rows;
    std::istringstream parts(line);
    std::string name, plain, words, found;
    std::getline(parts, name, '\t');
    std::getline(parts, plain, '\t');
    std::getline(parts, words, '\t');
    const PlainName one(name);
    CHECK(std::string(one.view()) == plain);
    for_each_word(one.view(), [&](std::string_view word) { (found += found.empty() ? "" : " ") += word; });
    CHECK_MESSAGE(found == words, name);
  }
  CHECK(rows >= 30);
}

TEST_CASE("names: what is long or broken is cut, never read beyond") {
  for (const std::string& name :
       {std::string(5000, 'a'), "_ZN" + std::string(3000, '1') + "a", std::string("_ZN3foo"),
        std::string("_Z"), "_Z" + std::string(200, 'N'), "_ZN3fooI" + std::string(200, 'I') + "E",
        std::string("operator"), std::string("(((("), std::string("a<b<c"), std::string("{lambda("),
        std::string(" "), std::string("::")}) {
    const PlainName plain(name);
    CHECK(plain.view().size() <= PlainName::kMost);
  }
  unsigned words = 0;
  std::string many;
  for (int i = 0; i < 100; ++i) many += "ab_";
  for_each_word(many, [&](std::string_view) { ++words; });
  CHECK(words == kMostNameWords);
}

TEST_CASE("names: a stack begins behind the functions that ask for memory") {
  const std::vector<std::string_view> names = {"__libc_malloc",
                                               "_Znwm",
                                               "std::vector<int>::reserve(unsigned long)",
                                               "malloc_wrapper",
                                               "malloc_wrapper",
                                               "",
                                               "main"};
  const ModelStack stack(names, 0);
  CHECK(stack.skipped() == 2);
  REQUIRE(stack.names().size() == 3);
  CHECK(stack.names()[0] == model_hash("std::vector::reserve", 0));
  CHECK(stack.words(1).size() == 2);
  const std::vector<std::string_view> unnamed = {"", "operator new(unsigned long)", "main"};
  CHECK(ModelStack(unnamed, 0).skipped() == 0);
  CHECK(ModelStack(unnamed, 0).names().size() == 2);
}

}  // namespace memoir

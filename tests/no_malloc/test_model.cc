// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/predict/model/lifetime_model.h"
#include "no_malloc/trap.h"

namespace memoir {

TEST_CASE("no malloc: a model is opened, and answers") {
  std::ifstream file(MEMOIR_TEST_DATA "/small.v1.model", std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(content.size() > 1000);
  std::vector<std::uint64_t> words((content.size() + 7) / 8);
  content.copy(reinterpret_cast<char*>(words.data()), content.size());
  const std::string_view names[] = {"_Znwm", "insert", "table_add", "unheard_of(std::vector<int>)",
                                    "serve", "main"};
  static LifetimeModel model;
  LifetimeModel::Prediction near, by_words;
  const char* why = nullptr;
  {
    const trap::NoMalloc no_malloc;
    why = model.open({reinterpret_cast<const char*>(words.data()), content.size()});
    if (why == nullptr) {
      const ModelStack stack(names, model.key());
      near = model.predict(stack, {.size = 100});
      by_words = model.predict(stack, {.size = 100, .stages = 1u << LifetimeModel::kByWords});
    }
  }
  REQUIRE(why == nullptr);
  CHECK(near.stage == LifetimeModel::kByNames);
  CHECK(by_words.stage == LifetimeModel::kByWords);
}

}  // namespace memoir

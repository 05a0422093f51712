// SPDX-License-Identifier: Apache-2.0
#include "memoir/static_tensors/static_tensors.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"

namespace memoir {

using Tensor = StaticTensors::Tensor;

TEST_CASE("a view keeps the bytes, a retained tensor stays, and the last reference gives everything back") {
  StaticTensors tensors({.pool = kMiB});
  REQUIRE(tensors.ok());
  Tensor* const whole = tensors.create(1000);
  REQUIRE(whole != nullptr);
  CHECK(whole->size == 1000);
  CHECK(reinterpret_cast<std::uintptr_t>(whole->data) % 64 == 0);
  CHECK(tensors.used() == 1024);
  std::memset(whole->data, 7, 1000);
  Tensor* const part = tensors.view(whole, 100, 50);
  REQUIRE(part != nullptr);
  CHECK(part->data == whole->data + 100);
  Tensor* const part_of_part = tensors.view(part, 49, 1);
  REQUIRE(part_of_part != nullptr);
  CHECK(tensors.tensors() == 3);
  CHECK(tensors.release(whole));
  CHECK(tensors.release(part));
  CHECK(tensors.used() == 1024);
  CHECK(*part_of_part->data == std::byte{7});
  CHECK(tensors.retain(part_of_part));
  CHECK(tensors.release(part_of_part));
  CHECK(tensors.used() == 1024);
  CHECK(tensors.release(part_of_part));
  CHECK(tensors.used() == 0);
  CHECK(tensors.tensors() == 0);
  CHECK(tensors.largest_free() == kMiB);
}

TEST_CASE("what is wrong is refused, says why, and changes nothing") {
  StaticTensors tensors({.pool = 64 * kKiB, .tensors = 3, .buffers = 2});
  REQUIRE(tensors.ok());
  Tensor* const first = tensors.create(40'000);
  CHECK(tensors.create(0) == nullptr);
  CHECK(tensors.create(40'000) == nullptr);
  CHECK(std::string(tensors.why()).find("larger pool") != std::string::npos);
  for (const auto& [offset, size] :
       {std::pair<Size, Size>{0, 0}, {0, 40'001}, {40'000, 1}, {40'001, ~Size{0}}, {1, ~Size{0}}}) {
    CHECK(tensors.view(first, offset, size) == nullptr);
  }
  CHECK(tensors.view(nullptr, 0, 1) == nullptr);
  Tensor* const second = tensors.create(64);
  CHECK(tensors.create(64) == nullptr);
  CHECK(std::string(tensors.why()).find("buffer") != std::string::npos);
  Tensor* const third = tensors.view(second, 0, 64);
  CHECK(tensors.view(second, 0, 64) == nullptr);
  CHECK(std::string(tensors.why()).find("descriptor") != std::string::npos);
  CHECK(tensors.release(third));
  CHECK_FALSE(tensors.release(third));  // twice
  CHECK_FALSE(tensors.retain(third));
  Tensor elsewhere{.references = 1};
  CHECK_FALSE(tensors.release(&elsewhere));
  CHECK_FALSE(tensors.release(nullptr));
  CHECK(tensors.view(third, 0, 1) == nullptr);
  CHECK(tensors.tensors() == 2);
}

TEST_CASE("what cannot be secured is refused at the start") {
  for (const StaticTensorsSizes& sizes :
       {StaticTensorsSizes{.pool = Size{1} << 60}, StaticTensorsSizes{.pool = 0},
        StaticTensorsSizes{.pool = ~Size{0}}, StaticTensorsSizes{.pool = kMiB, .tensors = 0},
        StaticTensorsSizes{.pool = kMiB, .buffers = 0}, StaticTensorsSizes{.pool = kMiB, .alignment = 100},
        StaticTensorsSizes{.pool = kMiB, .alignment = 8192}}) {
    StaticTensors tensors(sizes);
    CHECK_FALSE(tensors.ok());
    CHECK(tensors.create(64) == nullptr);
    CHECK(std::string(tensors.why()).size() > 30);
  }
}

TEST_CASE("random tensors and views keep their contents") {
  StaticTensors tensors({.pool = 4 * kMiB});
  REQUIRE(tensors.ok());
  struct Owned {
    Tensor* tensor;
    unsigned char pattern;
  };
  std::mt19937_64 random(1);
  std::vector<Owned> live;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0) {
      Owned made{nullptr, static_cast<unsigned char>(random())};
      if (!live.empty() && random() % 3 == 0) {
        const Owned& of = live[random() % live.size()];
        const Size offset = random() % of.tensor->size;
        made = {tensors.view(of.tensor, offset, 1 + random() % (of.tensor->size - offset)), of.pattern};
      } else if ((made.tensor = tensors.create(1 + random() % 20'000)) != nullptr) {
        std::memset(made.tensor->data, made.pattern, made.tensor->size);
      }
      if (made.tensor != nullptr) live.push_back(made);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const Owned& last = live.back();
      REQUIRE(last.tensor->data[0] == std::byte{last.pattern});
      REQUIRE(std::memcmp(last.tensor->data, last.tensor->data + 1, last.tensor->size - 1) == 0);
      REQUIRE(tensors.release(last.tensor));
      live.pop_back();
    }
    REQUIRE(tensors.tensors() == live.size());
  }
  for (const Owned& owned : live) CHECK(tensors.release(owned.tensor));
  CHECK(tensors.used() == 0);
}

}  // namespace memoir

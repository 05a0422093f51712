// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a model: refused with a sentence, or read, and then it answers for any stack, with numbers
// that are probabilities. Size and checksum are made to match, or no mutation would get past them.
#include <cstring>
#include <string_view>
#include <vector>

#include "memoir/base/check.h"
#include "memoir/predict/model/lifetime_model.h"

namespace {

using namespace memoir;

void check(const LifetimeModel::Prediction& found) {
  if (found.stage == LifetimeModel::kAbstains) return;
  MEMOIR_CHECK(found.long_lived >= 0 && found.long_lived <= 1, "long-lived is a probability");
  float sum = 0;
  for (const float share : found.wall) {
    MEMOIR_CHECK(share >= 0 && share <= 1.0001f, "a class has a probability");
    sum += share;
  }
  MEMOIR_CHECK(sum > 0.99f && sum < 1.01f, "probabilities add up");
}

/// Names that the seeds have, others, and what stands in the file.
void ask(const LifetimeModel& model, std::string_view bytes) {
  std::vector<std::string_view> names = {"operator new(unsigned long)", "insert", "table_add", "serve",
                                         "main"};
  const std::string_view more[] = {"parse",           "read_file", "load",   "",
                                   "_ZN5table3addEi", "unknown",   "insert", "main"};
  for (size_t round = 0; round < 6; ++round) {
    const ModelStack stack(names, model.key());
    for (const bool calibrated : {false, true})
      check(model.predict(stack, {.size = Size{1} << (7 * round),
                                  .module = static_cast<std::uint32_t>(round % 2),
                                  .offset = 0x1000,
                                  .height = 64,
                                  .stages = round < 3 ? LifetimeModel::kAllStages : 1u << round % 5,
                                  .calibrated = calibrated,
                                  .program = model.program(bytes.substr(0, 9 * round))}));
    names.insert(names.begin() + static_cast<std::ptrdiff_t>(round % names.size()), more[round]);
    if (round == 3) names.assign(std::begin(more), std::end(more));
    if (round == 4) names.assign(300, bytes.substr(0, 200));
  }
  for (const model_format::Address& address : model.addresses()) check(model.predict(address));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  std::vector<std::uint64_t> words((size + 7) / 8);
  if (size > 0) std::memcpy(words.data(), data, size);
  const std::string_view bytes(reinterpret_cast<const char*>(words.data()), size);
  if (size >= sizeof(model_format::Header)) {
    const std::uint64_t file_size = size;
    std::memcpy(reinterpret_cast<char*>(words.data()) + offsetof(model_format::Header, file_size), &file_size,
                8);
    const std::uint64_t checksum = model_format::checksum(bytes);
    std::memcpy(reinterpret_cast<char*>(words.data()) + offsetof(model_format::Header, checksum), &checksum,
                8);
  }
  LifetimeModel model;
  if (const char* const why = model.open(bytes))
    MEMOIR_CHECK(std::strlen(why) > 10, "an error says something");
  else ask(model, bytes);
  return 0;
}

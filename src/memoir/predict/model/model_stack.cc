// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/model_stack.h"

#include "memoir/predict/model/plain_name.h"

namespace memoir {

ModelStack::ModelStack(std::span<const std::string_view> names, std::uint64_t key) noexcept : given_(names) {
  bool inner = true;
  for (const std::string_view name : names) {
    const PlainName plain(name);
    inner = inner && is_allocation_name(plain.view());
    skipped_ += inner;
    if (inner || plain.view().empty()) continue;
    const std::uint64_t hash = model_hash(plain.view(), key);
    if (count_ > 0 && names_[count_ - 1] == hash) continue;
    if (count_ == kMostFrames) break;
    if (count_ < kMostWordFrames) {
      std::uint8_t& count = word_counts_[count_];
      std::uint32_t* const words = words_[count_];
      for_each_word(plain.view(), [&](std::string_view word) { words[count++] = word_hash(word, key); });
    }
    names_[count_++] = hash;
  }
}

}  // namespace memoir

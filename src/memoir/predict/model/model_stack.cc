// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/model_stack.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>

#include "memoir/predict/model/plain_name.h"

namespace memoir {

FrameName::FrameName(std::string_view name, std::uint64_t key) noexcept {
  const PlainName plain(name);
  is_empty = plain.view().empty();
  asks_for_memory = is_allocation_name(plain.view());
  hash = model_hash(plain.view(), key);
  for_each_word(plain.view(), [&](std::string_view word) { words[word_count++] = word_hash(word, key); });
}

SizeName::SizeName(Size size) noexcept {
  static constexpr std::string_view kHead = "size ";
  char* const digits = std::copy(kHead.begin(), kHead.end(), text_);
  count_ = static_cast<size_t>(std::to_chars(digits, std::end(text_), begin_of(size)).ptr - text_);
}

std::uint64_t NameCache::hash_of(std::string_view name) noexcept {
  std::uint64_t hash = name.size() + 1;
  for (size_t at = 0; at < name.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, name.data() + at, std::min(sizeof bytes, name.size() - at));
    hash = (hash ^ bytes) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return hash | 1;
}

ModelStack::ModelStack(std::span<const std::string_view> names, std::uint64_t key, NameCache* cache) noexcept
    : given_(names) {
  bool inner = true;
  FrameName own;
  for (const std::string_view name : names) {
    if (cache == nullptr) own = FrameName(name, key);
    const FrameName& frame = cache == nullptr ? own : cache->find(name, key);
    inner = inner && frame.asks_for_memory;
    skipped_ += inner;
    if (inner || frame.is_empty) continue;
    if (count_ > 0 && names_[count_ - 1] == frame.hash) continue;
    if (count_ == kMostFrames) break;
    if (count_ < kMostWordFrames) {
      word_counts_[count_] = frame.word_count;
      std::copy_n(frame.words, frame.word_count, words_[count_]);
    }
    const size_t place = count_ % kMostOuterFrames;
    outer_counts_[place] = frame.word_count;
    std::copy_n(frame.words, frame.word_count, outer_words_[place]);
    names_[count_++] = frame.hash;
  }
}

}  // namespace memoir

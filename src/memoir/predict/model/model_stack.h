// SPDX-License-Identifier: Apache-2.0
//
// A stack as models read it: of names, or of code addresses, or both. About 5 KiB, no memory of its own: it
// may lie on a thread's stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "memoir/base/units.h"
#include "memoir/predict/model/name_words.h"

namespace memoir {

/// What models read of a function's name.
struct FrameName {
  std::uint64_t hash = 0;  // of the plain name
  bool is_empty = true;    // nobody knows what it is called
  bool asks_for_memory = false;
  std::uint8_t word_count = 0;
  std::uint32_t words[kMostNameWords];  // hashes

  FrameName() noexcept = default;
  FrameName(std::string_view name, std::uint64_t key) noexcept;
};

/// The names that were looked at last: a program's stacks share most of their frames, and to take a long
/// mangled name apart is most of the work. About 90 KiB; all zero is an empty one. For one thread and one
/// key.
class NameCache {
 public:
  const FrameName& find(std::string_view name, std::uint64_t key) noexcept {
    const std::uint64_t hash = hash_of(name);
    Entry& entry = entries_[hash % kEntries];
    if (entry.name != hash) entry = {hash, FrameName(name, key)};
    return entry.frame;
  }

 private:
  static constexpr size_t kEntries = 1024;
  struct Entry {
    std::uint64_t name = 0;  // a hash: two names that share all of it are taken for one
    FrameName frame;
  };

  /// Never 0.
  static std::uint64_t hash_of(std::string_view name) noexcept;

  Entry entries_[kEntries];
};

class ModelStack {
 public:
  static constexpr size_t kMostFrames = 256;  // with names; those further out are left out
  static constexpr size_t kMostWordFrames = 16;
  static constexpr size_t kMostOuterFrames = 8;

  /// `names`: of the frames' functions, mangled or readable, innermost first; empty where nobody knows. They
  /// are kept alive by the caller. `key`: the model's. `cache`: one of this key, or none.
  ModelStack(std::span<const std::string_view> names, std::uint64_t key, NameCache* cache = nullptr) noexcept;

  /// Hashes of plain names, innermost first, without the functions that programs ask for memory by and
  /// without frames that have no name; equal neighbours are there once.
  std::span<const std::uint64_t> names() const noexcept { return {names_, count_}; }
  /// Of the innermost kMostWordFrames of them: the hashes of their words, in order.
  std::span<const std::uint32_t> words(size_t frame) const noexcept {
    return {words_[frame], word_counts_[frame]};
  }
  /// The same of the outermost frames, in no order; `frame` < outer_frames().
  std::span<const std::uint32_t> outer_words(size_t frame) const noexcept {
    return {outer_words_[frame], outer_counts_[frame]};
  }
  size_t outer_frames() const noexcept { return count_ < kMostOuterFrames ? count_ : kMostOuterFrames; }
  size_t word_frames() const noexcept { return count_ < kMostWordFrames ? count_ : kMostWordFrames; }
  /// How many of the given frames, at the inner end, only ask for memory.
  size_t skipped() const noexcept { return skipped_; }
  std::span<const std::string_view> given() const noexcept { return given_; }

 private:
  std::span<const std::string_view> given_;
  size_t count_ = 0, skipped_ = 0;
  std::uint8_t word_counts_[kMostWordFrames] = {};
  std::uint64_t names_[kMostFrames];
  std::uint32_t words_[kMostWordFrames][kMostNameWords];
  std::uint8_t outer_counts_[kMostOuterFrames] = {};
  std::uint32_t outer_words_[kMostOuterFrames][kMostNameWords];
};

/// What models call objects of about a size, as if it were the name of a frame: four of them from one power
/// of two to the next. No function is called so.
class SizeName {
 public:
  explicit SizeName(Size size) noexcept;
  std::string_view view() const noexcept { return {text_, count_}; }
  std::uint64_t hash(std::uint64_t key) const noexcept { return model_hash(view(), key); }
  /// The smallest size that is called so.
  static constexpr Size begin_of(Size size) noexcept {
    const int below = 61 - __builtin_clzll(size | 7);  // bits that do not count
    return size < 8 ? size : size >> below << below;
  }

 private:
  char text_[32];
  size_t count_;
};

/// Calls visit(row) for each row of the linear model that a stack has; `size`: of the object, 0: not known;
/// `log2_rows`: 8 to 20; `sizes`: also of the size together with the innermost function.
template <class Visit>
void for_each_feature(const ModelStack& stack, Size size, unsigned log2_rows, bool sizes,
                      Visit visit) noexcept {
  const auto feature = [&](std::uint64_t kind, std::uint64_t x, std::uint64_t y) {
    visit(static_cast<std::uint32_t>(detail::mix(detail::mix(x + kind * 0x9e3779b97f4a7c15ull) ^ y) >>
                                     (64 - log2_rows)));
  };
  static constexpr std::uint8_t kBand[ModelStack::kMostWordFrames] = {0, 1, 2, 2, 3, 3, 3, 3,
                                                                      4, 4, 4, 4, 4, 4, 4, 4};
  const auto names = stack.names();
  for (size_t i = 0; i < stack.word_frames(); ++i) {
    feature(1, names[i], 0);
    if (i + 1 < stack.word_frames()) feature(2, names[i], names[i + 1]);
    const auto words = stack.words(i);
    for (size_t w = 0; w < words.size(); ++w) {
      feature(3, words[w], 0);
      feature(4, words[w], kBand[i]);
      if (w + 1 < words.size()) feature(5, words[w], words[w + 1]);
    }
  }
  if (size == 0) return;
  feature(6, static_cast<std::uint64_t>(64 - __builtin_clzll(size)), 0);
  if (!sizes || names.empty()) return;
  const Size about = SizeName::begin_of(size);
  feature(7, names[0], about);
  for (const std::uint32_t word : stack.words(0)) feature(8, word, about);
}

}  // namespace memoir

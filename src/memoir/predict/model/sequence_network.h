// SPDX-License-Identifier: Apache-2.0
//
// A small recurrent network over the words of a stack, run as it lies in the file
// (docs/reference/formats-model.md): an LSTM as in the LLAMA paper, or a minGRU, whose gates do not look at
// the state. Plain loops over floats, equal to torch's results within 1e-5. Some 0.1 to 1 ms a stack: never
// on an allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "memoir/predict/model/model_format.h"

namespace memoir {

class SequenceNetwork {
 public:
  static constexpr size_t kMostTokens = 256, kMostWidth = 256;
  static constexpr std::uint32_t kSeparator = 0, kUnknown = 1, kBegin = 2, kFirst = 3;

  /// nullptr, or what is wrong. An empty section is a model without a network.
  const char* open(std::string_view section) noexcept;
  explicit operator bool() const noexcept { return embedding_ != nullptr; }
  const model_format::NetworkHead& head() const noexcept { return head_; }

  /// The numbers of a stack's tokens, at most kMostTokens, into `tokens`; returns how many. `names` as
  /// ModelStack has them.
  size_t tokenize(std::span<const std::string_view> names, std::uint64_t key,
                  std::uint32_t (&tokens)[kMostTokens]) const noexcept {
    return tokenize(names, key, hashes_, head_.split, head_.most_tokens, tokens);
  }
  /// The same for a network that is to be.
  static size_t tokenize(std::span<const std::string_view> names, std::uint64_t key,
                         std::span<const std::uint32_t> hashes, std::uint32_t split, size_t most,
                         std::uint32_t (&tokens)[kMostTokens]) noexcept;
  void run(std::span<const std::uint32_t> tokens, float (&outputs)[model_format::kOutputs]) const noexcept;

 private:
  void step_lstm(const float* input, float* state, float* cell) const noexcept;
  void step_min_gru(const float* input, float* state) const noexcept;

  model_format::NetworkHead head_;
  std::span<const std::uint32_t> hashes_;
  const float* embedding_ = nullptr;
  const float* matrices_ = nullptr;  // behind the embedding
  const float* out_ = nullptr;
};

}  // namespace memoir

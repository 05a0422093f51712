// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/sequence_network.h"

#include <algorithm>
#include <cstring>

#include "memoir/predict/model/name_words.h"
#include "memoir/predict/model/plain_math.h"
#include "memoir/predict/model/plain_name.h"

namespace memoir {

namespace {

using model_format::kOutputs;
constexpr std::uint32_t kLstm = 1, kMinGru = 2;

using plain_math::sigmoid;

/// out[i] = bias[i] + sum over j of matrix[i, j] * x[j]. Four sums run at once.
void multiply_add(const float* matrix, const float* bias, const float* x, size_t rows, size_t columns,
                  float* out) noexcept {
  for (size_t i = 0; i < rows; ++i) {
    const float* const row = matrix + i * columns;
    float sums[4] = {};
    size_t j = 0;
    for (; j + 4 <= columns; j += 4)
      for (size_t k = 0; k < 4; ++k) sums[k] += row[j + k] * x[j + k];
    for (; j < columns; ++j) sums[0] += row[j] * x[j];
    out[i] = bias[i] + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

}  // namespace

const char* SequenceNetwork::open(std::string_view section) noexcept {
  if (section.empty()) return nullptr;
  if (section.size() < sizeof head_) return "its network is cut off";
  std::memcpy(&head_, section.data(), sizeof head_);
  if ((head_.kind != kLstm && head_.kind != kMinGru) || head_.split > 1 || head_.reserved != 0)
    return "its network is of a kind that this memoir does not know";
  if (head_.tokens < kFirst || head_.tokens > 65536 || head_.embedding == 0 || head_.embedding > kMostWidth ||
      head_.hidden == 0 || head_.hidden > kMostWidth || head_.most_tokens == 0 ||
      head_.most_tokens > kMostTokens)
    return "its network has sizes that cannot be";
  const size_t hashes = head_.tokens - kFirst;
  const size_t padded = (hashes * 4 + 7) / 8 * 8;
  const size_t e = head_.embedding, h = head_.hidden;
  const size_t embedding = head_.tokens * e;
  const size_t middle = head_.kind == kLstm ? 4 * h * (e + h + 2) : 2 * h * (e + 1);
  const size_t floats = embedding + middle + kOutputs * (h + 1);
  if (section.size() != sizeof head_ + padded + floats * sizeof(float)) return "its network has another size";
  hashes_ = {reinterpret_cast<const std::uint32_t*>(section.data() + sizeof head_), hashes};
  for (size_t i = 1; i < hashes; ++i)
    if (hashes_[i - 1] >= hashes_[i]) return "the tokens of its network are not in order";
  for (size_t i = sizeof head_ + hashes * 4; i < sizeof head_ + padded; ++i)
    if (section[i] != 0) return "its network has bytes where zeros belong";
  const float* const values = reinterpret_cast<const float*>(section.data() + sizeof head_ + padded);
  for (size_t i = 0; i < floats; ++i)
    if (!plain_math::is_below(values[i], 1e6f))
      return "its network has a number that is not finite, or very large";
  embedding_ = values;
  matrices_ = values + embedding;
  out_ = matrices_ + middle;
  return nullptr;
}

size_t SequenceNetwork::tokenize(std::span<const std::string_view> names, std::uint64_t key,
                                 std::span<const std::uint32_t> hashes, std::uint32_t split, size_t most,
                                 std::uint32_t (&tokens)[kMostTokens]) noexcept {
  size_t count = 0;
  most = std::min(most, kMostTokens);
  const auto add = [&](std::uint32_t token) {
    if (count < most) tokens[count++] = token;
  };
  const auto add_text = [&](std::string_view text) {
    const std::uint32_t hash = word_hash(text, key);
    const auto found = std::lower_bound(hashes.begin(), hashes.end(), hash);
    const bool known = found != hashes.end() && *found == hash;
    add(known ? kFirst + static_cast<std::uint32_t>(found - hashes.begin()) : kUnknown);
  };
  add(kBegin);
  bool inner = true;
  std::uint64_t last = 0;
  bool any = false;
  for (const std::string_view name : names) {
    if (count == most) break;
    const PlainName plain(name);
    inner = inner && is_allocation_name(plain.view());
    if (inner || plain.view().empty()) continue;
    const std::uint64_t hash = model_hash(plain.view(), key);
    if (any && hash == last) continue;
    any = true;
    last = hash;
    if (split == 0) for_each_part(plain.view(), add_text);
    else for_each_word(plain.view(), add_text);
    add(kSeparator);
  }
  return count;
}

void SequenceNetwork::step_lstm(const float* input, float* state, float* cell) const noexcept {
  const size_t e = head_.embedding, h = head_.hidden;
  const float* const from_input = matrices_;
  const float* const from_state = from_input + 4 * h * e;
  const float* const bias = from_state + 4 * h * h;
  float by_input[4 * kMostWidth], gates[4 * kMostWidth];
  multiply_add(from_input, bias, input, 4 * h, e, by_input);
  multiply_add(from_state, bias + 4 * h, state, 4 * h, h, gates);
  for (size_t i = 0; i < 4 * h; ++i) gates[i] += by_input[i];
  for (size_t i = 0; i < h; ++i) {
    const float in = sigmoid(gates[i]), forget = sigmoid(gates[h + i]);
    const float candidate = plain_math::tanh(gates[2 * h + i]), out = sigmoid(gates[3 * h + i]);
    cell[i] = forget * cell[i] + in * candidate;
    state[i] = out * plain_math::tanh(cell[i]);
  }
}

void SequenceNetwork::step_min_gru(const float* input, float* state) const noexcept {
  const size_t e = head_.embedding, h = head_.hidden;
  const float* const gate = matrices_;
  const float* const next = gate + h * (e + 1);
  float z[kMostWidth], candidate[kMostWidth];
  multiply_add(gate, gate + h * e, input, h, e, z);
  multiply_add(next, next + h * e, input, h, e, candidate);
  for (size_t i = 0; i < h; ++i) {
    const float open = sigmoid(z[i]);
    state[i] = (1 - open) * state[i] + open * candidate[i];
  }
}

void SequenceNetwork::run(std::span<const std::uint32_t> tokens, float (&outputs)[kOutputs]) const noexcept {
  float state[kMostWidth] = {}, cell[kMostWidth] = {};
  for (const std::uint32_t token : tokens) {
    const float* const input = embedding_ + size_t{token} * head_.embedding;
    if (head_.kind == kLstm) step_lstm(input, state, cell);
    else step_min_gru(input, state);
  }
  multiply_add(out_, out_ + kOutputs * head_.hidden, state, kOutputs, head_.hidden, outputs);
}

}  // namespace memoir

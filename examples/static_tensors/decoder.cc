// SPDX-License-Identifier: Apache-2.0
#include "decoder.h"

#include <random>

#include "tensor.h"

namespace example {

namespace {

std::vector<float> random_floats(std::mt19937& random, std::size_t count, float scale) {
  std::vector<float> floats(count);
  for (float& one : floats) one = (static_cast<float>(random()) / 4294967296.0f - 0.5f) * 2 * scale;
  return floats;
}

}  // namespace

Weights::Weights(const Shape& shape) {
  std::mt19937 random(1);
  const auto matrix = [&](std::size_t inputs, std::size_t outputs) {
    return random_floats(random, inputs * outputs, 1 / std::sqrt(static_cast<float>(inputs)));
  };
  q = matrix(shape.hidden, shape.hidden);
  k = matrix(shape.hidden, shape.kv_size());
  v = matrix(shape.hidden, shape.kv_size());
  o = matrix(shape.hidden, shape.hidden);
  gate = matrix(shape.hidden, shape.ffn);
  up = matrix(shape.hidden, shape.ffn);
  down = matrix(shape.ffn, shape.hidden);
  head = matrix(shape.hidden, shape.vocabulary / kHeadTiles);
  q_bias = random_floats(random, shape.hidden, 0.1f);
  k_bias = random_floats(random, shape.kv_size(), 0.1f);
  v_bias = random_floats(random, shape.kv_size(), 0.1f);
  norm.assign(shape.hidden, 1);
  embedding = random_floats(random, shape.hidden * 1024, 1);  // tokens share rows
}

struct Decoder::Library : Operations {
  Library(TimedMemory& memory, bool arithmetic) : Operations{memory, arithmetic} {}

  /// A parameter that lives as long as the decoder.
  Tensor parameter(const std::vector<float>& values) const {
    Tensor made = make(values.size());
    std::copy(values.begin(), values.end(), made.data());
    return made;
  }
  /// x W, with the transposed view of W and the flat one of x that eager code makes first.
  Tensor linear(const Tensor& x, const std::vector<float>& weight, std::size_t outputs,
                std::size_t tiles = 1) const {
    const Tensor flat = view(x), transposed = view(x);
    return product(flat, weight.data(), outputs, tiles);
  }
  Tensor linear(const Tensor& x, const std::vector<float>& weight, const Tensor& bias) const {
    const Tensor made = linear(x, weight, bias.count());
    const Tensor broadcast = view(bias);
    return add(made, broadcast);
  }
};

/// What one layer holds all the time. The matrices are shared by all layers (decoder.h): a tensor of one
/// float stands for each, so that as many tensors are live as there would be.
struct Decoder::Layer {
  Layer(const Library& l, const Shape& shape, const Weights& weights)
      : keys(l.make(shape.context * shape.kv_size())),
        values(l.make(shape.context * shape.kv_size())),
        attention_norm(l.parameter(weights.norm)),
        feed_forward_norm(l.parameter(weights.norm)),
        q_bias(l.parameter(weights.q_bias)),
        k_bias(l.parameter(weights.k_bias)),
        v_bias(l.parameter(weights.v_bias)) {
    for (Tensor& matrix : matrices) matrix = l.make(1);
  }

  Tensor keys, values;  // caches
  Tensor attention_norm, feed_forward_norm, q_bias, k_bias, v_bias;
  Tensor matrices[7];
};

Decoder::Decoder(const Shape& shape, const Weights& weights, TimedMemory& memory, bool arithmetic)
    : shape_(shape), weights_(weights), library_(std::make_unique<Library>(memory, arithmetic)) {
  for (std::size_t i = 0; i < shape.layers; ++i) layers_.emplace_back(*library_, shape, weights);
  norm_ = std::make_unique<Tensor>(library_->parameter(weights.norm));
  embedding_ = std::make_unique<Tensor>(library_->make(1));
}

Decoder::~Decoder() = default;

/// Root mean square norm (Zhang and Sennrich 2019).
Tensor Decoder::normalised(const Tensor& x, const Tensor& weight) {
  const Library& l = *library_;
  const Tensor squares = l.multiply(x, x);
  const Tensor mean = l.reduce(squares, x.count(), [](const float* a, const float* b) {
    float sum = 0;
    for (const float* at = a; at != b; ++at) sum += *at;
    return sum / static_cast<float>(b - a);
  });
  const Tensor root = l.map(l.add(mean, 1e-6f), [](float a) { return 1 / std::sqrt(a); });
  const Tensor broadcast = l.view(weight);
  return l.multiply(l.multiply(x, root), broadcast);
}

/// Rotary position embedding (Su et al. 2021): x cos + rotate_half(x) sin, head by head.
Tensor Decoder::rotated(const Tensor& x, std::size_t heads, const Tensor& cosines, const Tensor& sines) {
  const Library& l = *library_;
  const std::size_t size = shape_.head_size(), half = size / 2;
  const Tensor by_head = l.view(x), cosine = l.view(cosines), sine = l.view(sines);
  const Tensor straight = l.multiply(by_head, cosine);
  const Tensor first = l.view(x), second = l.view(x);
  const Tensor negative = l.map(second, [](float a) { return -a; });
  Tensor turned = l.make(x.count());
  for (std::size_t head = 0; l.arithmetic && head < heads; ++head) {
    std::copy_n(negative.data() + head * size + half, half, turned.data() + head * size);
    std::copy_n(first.data() + head * size, half, turned.data() + head * size + half);
  }
  return l.add(straight, l.multiply(turned, sine));
}

Tensor Decoder::attention(const Tensor& x, const Layer& layer, std::size_t position, const Tensor& cosines,
                          const Tensor& sines) {
  const Library& l = *library_;
  const std::size_t size = shape_.head_size(), kv = shape_.kv_size(), tokens = position + 1;
  const std::size_t group = shape_.heads / shape_.kv_heads;
  const Tensor q = l.linear(x, weights_.q, layer.q_bias);
  const Tensor k = l.linear(x, weights_.k, layer.k_bias);
  const Tensor v = l.linear(x, weights_.v, layer.v_bias);
  const Tensor q_heads = l.view(q), k_heads = l.view(k), v_heads = l.view(v);
  const Tensor query = rotated(q_heads, shape_.heads, cosines, sines);
  const Tensor key = rotated(k_heads, shape_.kv_heads, cosines, sines);
  {
    Tensor key_slot(layer.keys, position * kv, kv), value_slot(layer.values, position * kv, kv);
    std::memcpy(key_slot.data(), key.data(), kv * sizeof(float));
    std::memcpy(value_slot.data(), v_heads.data(), kv * sizeof(float));
  }
  const Tensor keys(layer.keys, 0, tokens * kv), values(layer.values, 0, tokens * kv);
  // The key and value heads are repeated for the query heads that share them: [heads][tokens][size].
  const auto repeated = [&](const Tensor& cache) {
    const Tensor grouped = l.view(cache);
    Tensor made = l.make(shape_.heads * tokens * size);
    for (std::size_t head = 0; l.arithmetic && head < shape_.heads; ++head) {
      for (std::size_t token = 0; token < tokens; ++token) {
        std::copy_n(grouped.data() + token * kv + head / group * size, size,
                    made.data() + (head * tokens + token) * size);
      }
    }
    return made;
  };
  const Tensor all_keys = repeated(keys), all_values = repeated(values);
  const Tensor transposed = l.view(all_keys);
  Tensor scores = l.make(shape_.heads * tokens);
  for (std::size_t i = 0; l.arithmetic && i < scores.count(); ++i) {
    const float *const a = query.data() + i / tokens * size, *const b = transposed.data() + i * size;
    float sum = 0;
    for (std::size_t j = 0; j < size; ++j) sum += a[j] * b[j];
    scores.data()[i] = sum;
  }
  const Tensor scaled = l.multiply(scores, 1 / std::sqrt(static_cast<float>(size)));
  const Tensor masked = l.add(scaled, 0.0f);  // nothing to mask: one token sees all before it
  const Tensor shares = l.softmax(masked, tokens);
  Tensor mixed = l.make(shape_.hidden);
  if (l.arithmetic) std::memset(mixed.data(), 0, mixed.count() * sizeof(float));
  for (std::size_t i = 0; l.arithmetic && i < shares.count(); ++i) {
    float* const out = mixed.data() + i / tokens * size;
    for (std::size_t j = 0; j < size; ++j) out[j] += shares.data()[i] * all_values.data()[i * size + j];
  }
  const Tensor transposed_back = l.view(mixed), flat = l.view(transposed_back);
  return l.linear(flat, weights_.o, shape_.hidden);
}

Tensor Decoder::feed_forward(const Tensor& x) {
  const Library& l = *library_;
  const Tensor gate = l.linear(x, weights_.gate, shape_.ffn);
  const Tensor up = l.linear(x, weights_.up, shape_.ffn);
  // x / (1 + exp(-x)) in the steps of an eager library.
  const Tensor negative = l.map(gate, [](float a) { return -a; });
  const Tensor power = l.map(negative, [](float a) { return std::exp(a); });
  const Tensor silu = l.divide(gate, l.add(power, 1.0f));
  return l.linear(l.multiply(silu, up), weights_.down, shape_.hidden);
}

std::size_t Decoder::next(std::size_t token, std::size_t position) {
  const Library& l = *library_;
  const std::size_t size = shape_.head_size();
  Tensor angles = l.make(size);
  for (std::size_t i = 0; i < size; ++i) {
    const auto frequency =
        std::pow(1e6f, -2.0f * static_cast<float>(i % (size / 2)) / static_cast<float>(size));
    angles.data()[i] = static_cast<float>(position) * frequency;
  }
  const Tensor cosines = l.map(angles, [](float a) { return std::cos(a); });
  const Tensor sines = l.map(angles, [](float a) { return std::sin(a); });
  Tensor x = l.make(shape_.hidden);
  std::copy_n(weights_.embedding.data() + token % 1024 * shape_.hidden, shape_.hidden, x.data());
  for (const Layer& layer : layers_) {
    const Tensor normal = normalised(x, layer.attention_norm);
    const Tensor attended = l.add(x, attention(normal, layer, position, cosines, sines));
    x = l.add(attended, feed_forward(normalised(attended, layer.feed_forward_norm)));
  }
  const Tensor logits = l.linear(normalised(x, *norm_), weights_.head,
                                 shape_.vocabulary / Weights::kHeadTiles, Weights::kHeadTiles);
  const Tensor shares = l.softmax(logits, logits.count());
  const Tensor best = l.reduce(shares, shares.count(), [](const float* a, const float* b) {
    return static_cast<float>(std::max_element(a, b) - a);
  });
  return l.arithmetic ? static_cast<std::size_t>(*best.data()) : position;
}

}  // namespace example

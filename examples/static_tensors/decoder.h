// SPDX-License-Identifier: Apache-2.0
//
// A decoder of the shape of Qwen2.5-0.5B on a small tensor library that makes a tensor for every result, as
// eager libraries do. The arithmetic is real, the weights are random; all layers share one set of them, and
// the vocabulary's matrix is a sixteenth of its rows used sixteen times, so that it fits small machines and
// still reads more from memory than a cache holds.
#pragma once

#include <cstddef>
#include <vector>

#include "memories.h"

namespace example {

struct Shape {
  std::size_t layers = 24;
  std::size_t hidden = 896;
  std::size_t heads = 14;
  std::size_t kv_heads = 2;
  std::size_t ffn = 4864;
  std::size_t vocabulary = 151'936;
  std::size_t context = 256;  // tokens that the caches hold

  std::size_t head_size() const { return hidden / heads; }
  std::size_t kv_size() const { return kv_heads * head_size(); }
};

struct Weights {
  explicit Weights(const Shape& shape);

  static constexpr std::size_t kHeadTiles = 16;
  std::vector<float> q, k, v, o, gate, up, down, head;  // [inputs][outputs]
  std::vector<float> q_bias, k_bias, v_bias, norm, embedding;
};

class Tensor;

class Decoder {
 public:
  /// Both outlive the decoder. `arithmetic` false: tensors are made and dropped, nothing is computed.
  Decoder(const Shape& shape, const Weights& weights, TimedMemory& memory, bool arithmetic);
  ~Decoder();

  /// One pass: the token after `token` at `position`.
  std::size_t next(std::size_t token, std::size_t position);

 private:
  struct Library;
  struct Layer;
  Tensor attention(const Tensor& x, const Layer& layer, std::size_t position, const Tensor& cosines,
                   const Tensor& sines);
  Tensor feed_forward(const Tensor& x);
  Tensor normalised(const Tensor& x, const Tensor& weight);
  Tensor rotated(const Tensor& x, std::size_t heads, const Tensor& cosines, const Tensor& sines);

  const Shape shape_;
  const Weights& weights_;
  std::unique_ptr<Library> library_;
  std::vector<Layer> layers_;
  std::unique_ptr<Tensor> norm_, embedding_;
};

}  // namespace example

// SPDX-License-Identifier: Apache-2.0
//
// The small tensor library of the example: rows of floats, a new tensor for every result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "memories.h"

namespace example {

class Tensor {
 public:
  Tensor() = default;
  Tensor(TimedMemory& memory, std::size_t count)
      : memory_(&memory), handle_(memory.create(count * sizeof(float))), count_(count) {}
  /// A view of `count` floats from `begin` on.
  Tensor(const Tensor& of, std::size_t begin, std::size_t count)
      : memory_(of.memory_),
        handle_(of.memory_->view(of.handle_, begin * sizeof(float), count * sizeof(float))),
        count_(count) {}
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) memory_->release(handle_);
  }

  std::size_t count() const { return count_; }
  float* data() { return memory_->data(handle_); }
  const float* data() const { return memory_->data(handle_); }

 private:
  void swap(Tensor& other) {
    std::swap(memory_, other.memory_);
    std::swap(handle_, other.handle_);
    std::swap(count_, other.count_);
  }

  TimedMemory* memory_ = nullptr;
  Handle handle_ = nullptr;
  std::size_t count_ = 0;
};

/// The operations; each makes one tensor, and those with a plain number one more for it.
struct Operations {
  TimedMemory& memory;
  bool arithmetic;

  Tensor make(std::size_t count) const { return Tensor(memory, count); }
  Tensor scalar(float value) const {
    Tensor made = make(1);
    *made.data() = value;
    return made;
  }
  Tensor view(const Tensor& x) const { return Tensor(x, 0, x.count()); }  // reshaped, transposed, broadcast

  template <class Function>
  Tensor map(const Tensor& x, Function function) const {
    Tensor made = make(x.count());
    if (arithmetic) std::transform(x.data(), x.data() + x.count(), made.data(), function);
    return made;
  }
  /// The shorter operand is repeated.
  template <class Function>
  Tensor map(const Tensor& x, const Tensor& y, Function function) const {
    Tensor made = make(std::max(x.count(), y.count()));
    if (!arithmetic) return made;
    const float *const a = x.data(), *const b = y.data();
    float* const out = made.data();
    for (std::size_t i = 0, j = 0, k = 0; i < made.count(); ++i) {
      out[i] = function(a[j], b[k]);
      if (++j == x.count()) j = 0;
      if (++k == y.count()) k = 0;
    }
    return made;
  }
  Tensor add(const Tensor& x, const Tensor& y) const {
    return map(x, y, [](float a, float b) { return a + b; });
  }
  Tensor subtract(const Tensor& x, const Tensor& y) const {
    return map(x, y, [](float a, float b) { return a - b; });
  }
  Tensor multiply(const Tensor& x, const Tensor& y) const {
    return map(x, y, [](float a, float b) { return a * b; });
  }
  Tensor divide(const Tensor& x, const Tensor& y) const {
    return map(x, y, [](float a, float b) { return a / b; });
  }
  Tensor add(const Tensor& x, float y) const { return add(x, scalar(y)); }
  Tensor multiply(const Tensor& x, float y) const { return multiply(x, scalar(y)); }

  /// One number for every `row` floats.
  template <class Function>
  Tensor reduce(const Tensor& x, std::size_t row, Function function) const {
    Tensor made = make(x.count() / row);
    for (std::size_t i = 0; arithmetic && i < made.count(); ++i) {
      const float* const begin = x.data() + i * row;
      made.data()[i] = function(begin, begin + row);
    }
    return made;
  }
  /// x times a matrix of [inputs][outputs], `tiles` times side by side.
  Tensor product(const Tensor& x, const float* matrix, std::size_t outputs, std::size_t tiles = 1) const {
    Tensor made = make(outputs * tiles);
    if (!arithmetic) return made;
    const float* const in = x.data();
    std::memset(made.data(), 0, made.count() * sizeof(float));
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      float* const out = made.data() + tile * outputs;
      for (std::size_t i = 0; i < x.count(); ++i) {
        const float scale = in[i] * (1 + 0.01f * static_cast<float>(tile));
        const float* const row = matrix + i * outputs;
        for (std::size_t j = 0; j < outputs; ++j) out[j] += scale * row[j];
      }
    }
    return made;
  }
  /// Softmax over rows, in the five steps of an eager library. One row count for all.
  Tensor softmax(const Tensor& x, std::size_t row) const {
    const Tensor most =
        reduce(x, row, [](const float* a, const float* b) { return *std::max_element(a, b); });
    const Tensor shifted = by_row(x, most, row, [](float a, float b) { return a - b; });
    const Tensor powers = map(shifted, [](float a) { return std::exp(a); });
    const Tensor sums = reduce(powers, row, [](const float* a, const float* b) {
      float sum = 0;
      for (; a != b; ++a) sum += *a;
      return sum;
    });
    return by_row(powers, sums, row, [](float a, float b) { return a / b; });
  }

 private:
  template <class Function>
  Tensor by_row(const Tensor& x, const Tensor& of_row, std::size_t row, Function function) const {
    Tensor made = make(x.count());
    for (std::size_t i = 0; arithmetic && i < x.count(); ++i) {
      made.data()[i] = function(x.data()[i], of_row.data()[i / row]);
    }
    return made;
  }
};

}  // namespace example

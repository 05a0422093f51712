// SPDX-License-Identifier: Apache-2.0
//
// Fits the linear model of a .model file: a softmax over the eight classes and a logistic output for long, on
// features that are there or not.
//
//   loss = sum over examples of (weight * cross entropy of the class + weight * log loss of long)
//          + l2 * sum of squares of the weights
//
// It is convex, so that there is one answer; L-BFGS finds it, with no rate to choose and no random numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memoir/predict/model/model_format.h"

namespace memoir {

struct LinearExamples {
  std::span<const std::uint32_t> rows;    // of all examples, one behind the other; repeats count
  std::span<const std::uint64_t> begins;  // one more than there are examples
  std::span<const float> targets;         // 9 of each example, from 0 to 1: the classes' add up to 1; long
  std::span<const float> weights;         // 2 of each example, >= 0: of its class, of long
};

struct LinearFit {
  std::vector<float> weights;  // 9 for each row of the model
  float bias[model_format::kOutputs] = {};
};

/// `count`: rows of the model, each row of the examples is below it. Throws std::bad_alloc.
LinearFit fit_linear(const LinearExamples& examples, size_t count, float l2, unsigned most_steps);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/fit_linear.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace memoir {

namespace {

constexpr size_t kOutputs = model_format::kOutputs;
constexpr size_t kLong = kOutputs - 1;
constexpr size_t kHistory = 8;       // steps that L-BFGS remembers
constexpr double kEnough = 1e-4;     // a step that gains a smaller part of the loss is the last one
constexpr unsigned kMostTries = 20;  // lengths of a step

using Vector = std::vector<float>;

double dot(const Vector& a, const Vector& b) noexcept {
  double sum = 0;
  for (size_t begin = 0; begin < a.size(); begin += 4096) {  // floats add up well over short stretches alone
    float part[8] = {};
    const size_t end = std::min(begin + 4096, a.size());
    size_t i = begin;
    for (; i + 8 <= end; i += 8)
      for (size_t k = 0; k < 8; ++k) part[k] += a[i + k] * b[i + k];
    for (; i < end; ++i) part[0] += a[i] * b[i];
    for (const float one : part) sum += one;
  }
  return sum;
}

void add(Vector& to, float factor, const Vector& what) noexcept {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * what[i];
}

/// The examples with equal features joined, over those rows alone that occur. Its variables: kOutputs for
/// each such row, then the biases.
class Problem {
 public:
  Problem(const LinearExamples& examples, size_t count, float l2) : examples_(examples), l2_(l2) {
    std::vector<std::uint32_t> number(count, 0), times(count, 0), seen;
    begins_.push_back(0);
    for (size_t i = 0; i + 1 < examples.begins.size(); ++i) {
      seen.clear();
      const size_t begin = examples.begins[i], end = examples.begins[i + 1];
      for (size_t k = begin; k < end; ++k)
        if (times[examples.rows[k]]++ == 0) seen.push_back(examples.rows[k]);
      const float scale = 1 / std::sqrt(static_cast<float>(std::max<size_t>(end - begin, 1)));
      for (const std::uint32_t row : seen) {
        if (number[row] == 0) {
          used_.push_back(row);
          number[row] = static_cast<std::uint32_t>(used_.size());
        }
        features_.push_back({number[row] - 1, scale * static_cast<float>(times[row])});
        times[row] = 0;
      }
      begins_.push_back(features_.size());
    }
  }

  size_t variables() const noexcept { return (used_.size() + 1) * kOutputs; }
  const std::vector<std::uint32_t>& used() const noexcept { return used_; }

  /// The loss at `at`, and its slope.
  double loss(const Vector& at, Vector& slope) const noexcept {
    std::fill(slope.begin(), slope.end(), 0.0f);
    const float* const bias = at.data() + used_.size() * kOutputs;
    float* const bias_slope = slope.data() + used_.size() * kOutputs;
    double sum = 0;
    for (size_t i = 0; i + 1 < begins_.size(); ++i) {
      float outputs[kOutputs];
      std::copy(bias, bias + kOutputs, outputs);
      for (size_t k = begins_[i]; k < begins_[i + 1]; ++k) {
        const float* const row = at.data() + features_[k].number * kOutputs;
        for (size_t o = 0; o < kOutputs; ++o) outputs[o] += features_[k].value * row[o];
      }
      sum += error_of(i, outputs);
      for (size_t o = 0; o < kOutputs; ++o) bias_slope[o] += outputs[o];
      for (size_t k = begins_[i]; k < begins_[i + 1]; ++k) {
        float* const row = slope.data() + features_[k].number * kOutputs;
        for (size_t o = 0; o < kOutputs; ++o) row[o] += features_[k].value * outputs[o];
      }
    }
    double squares = 0;
    for (size_t i = 0; i < used_.size() * kOutputs; ++i) {
      squares += double{at[i]} * at[i];
      slope[i] += 2 * l2_ * at[i];
    }
    return sum + l2_ * squares;
  }

 private:
  struct Feature {
    std::uint32_t number;
    float value;
  };

  /// What an example loses; its outputs become the slope by them.
  double error_of(size_t example, float* outputs) const noexcept {
    const float* const wanted = examples_.targets.data() + example * kOutputs;
    const float class_weight = examples_.weights[2 * example];
    const float long_weight = examples_.weights[2 * example + 1];
    float most = outputs[0], sum = 0, error = 0;
    for (size_t o = 1; o < kLong; ++o) most = std::max(most, outputs[o]);
    float powers[kLong];
    for (size_t o = 0; o < kLong; ++o) sum += powers[o] = std::exp(outputs[o] - most);
    const float log_sum = std::log(sum) + most;
    for (size_t o = 0; o < kLong; ++o) {
      error += class_weight * wanted[o] * (log_sum - outputs[o]);
      outputs[o] = class_weight * (powers[o] / sum - wanted[o]);
    }
    const float x = outputs[kLong], tail = std::exp(-std::abs(x));
    error += long_weight * (std::max(x, 0.0f) - x * wanted[kLong] + std::log1p(tail));
    outputs[kLong] = long_weight * ((x >= 0 ? 1 / (1 + tail) : tail / (1 + tail)) - wanted[kLong]);
    return error;
  }

  const LinearExamples& examples_;
  float l2_;
  std::vector<Feature> features_;
  std::vector<size_t> begins_;
  std::vector<std::uint32_t> used_;  // rows of the model
};

/// The last steps, and how the slope changed in them: an estimate of the curvature.
class History {
 public:
  void add(Vector&& step, Vector&& change) {
    const double product = dot(step, change);
    if (!(product > 0)) return;
    if (pairs_.size() == kHistory) pairs_.erase(pairs_.begin());
    const double length = product / dot(change, change);
    pairs_.push_back({std::move(step), std::move(change), 1 / product, length});
  }
  /// Where to go from where the loss has this slope.
  Vector direction(const Vector& slope) const {
    Vector result = slope;
    std::vector<double> factors(pairs_.size());
    for (size_t i = pairs_.size(); i-- > 0;) {
      factors[i] = pairs_[i].rho * dot(pairs_[i].step, result);
      memoir::add(result, static_cast<float>(-factors[i]), pairs_[i].change);
    }
    if (!pairs_.empty())
      for (float& value : result) value *= static_cast<float>(pairs_.back().length);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const double other = pairs_[i].rho * dot(pairs_[i].change, result);
      memoir::add(result, static_cast<float>(factors[i] - other), pairs_[i].step);
    }
    for (float& value : result) value = -value;
    return result;
  }
  bool empty() const noexcept { return pairs_.empty(); }

 private:
  struct Pair {
    Vector step, change;
    double rho, length;
  };
  std::vector<Pair> pairs_;
};

}  // namespace

LinearFit fit_linear(const LinearExamples& examples, size_t count, float l2, unsigned most_steps) {
  const Problem problem(examples, count, l2);
  Vector at(problem.variables(), 0.0f), slope(at.size()), next(at.size()), next_slope(at.size());
  double loss = problem.loss(at, slope);
  History history;
  for (unsigned step = 0; step < most_steps; ++step) {
    const Vector direction = history.direction(slope);
    const double descent = dot(direction, slope);
    if (!(descent < 0)) break;
    // The first step has no curvature to go by.
    double length = history.empty() ? 1 / std::max(1e-12, std::sqrt(-descent)) : 1;
    double reached = loss;
    unsigned tries = 0;
    for (; tries < kMostTries; ++tries, length /= 2) {
      next = at;
      add(next, static_cast<float>(length), direction);
      reached = problem.loss(next, next_slope);
      if (reached <= loss + 1e-4 * length * descent) break;
    }
    if (tries == kMostTries) break;
    Vector moved = next, change = next_slope;
    add(moved, -1, at);
    add(change, -1, slope);
    history.add(std::move(moved), std::move(change));
    std::swap(at, next);
    std::swap(slope, next_slope);
    const bool enough = loss - reached < kEnough * reached;
    loss = reached;
    if (enough) break;
  }
  LinearFit fit;
  fit.weights.assign(count * kOutputs, 0.0f);
  for (size_t i = 0; i < problem.used().size(); ++i)
    std::copy_n(at.begin() + static_cast<std::ptrdiff_t>(i * kOutputs), kOutputs,
                fit.weights.begin() + static_cast<std::ptrdiff_t>(problem.used()[i] * kOutputs));
  std::copy_n(at.end() - static_cast<std::ptrdiff_t>(kOutputs), kOutputs, fit.bias);
  return fit;
}

}  // namespace memoir

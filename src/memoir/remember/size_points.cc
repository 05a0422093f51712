// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/size_points.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace memoir {

namespace {

constexpr size_t kMostSizes = 256 * 1024;  // of all points together
constexpr size_t kFewestPoints = 4, kMostPoints = 48;
constexpr size_t kMostTries = 150'000;  // forms that one fit looks at, some ms; the rest waits for the next
constexpr unsigned kMostFailures = 4;   // searches for one column that found none before it is given up
constexpr double kOfEach = 0.2;  // what the difference of one variable counts next to that of their product

double log_of(std::int64_t number) noexcept {
  return std::log(static_cast<double>(std::max<std::int64_t>(number, 1)));
}

double log_of_product(std::span<const std::int64_t> variables) noexcept {
  double sum = 0;
  for (const std::int64_t variable : variables) sum += log_of(variable);
  return sum;
}

/// What decides how an operator works is mostly how much there is to do.
double distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b) noexcept {
  double each = 0;
  for (size_t i = 0; i < a.size(); ++i) each += std::abs(log_of(a[i]) - log_of(b[i]));
  return std::abs(log_of_product(a) - log_of_product(b)) + kOfEach * each;
}

}  // namespace

void SizePoints::add(std::vector<std::int64_t> numbers, std::vector<Size> sizes, bool partial) {
  const auto erase = [this](auto which) {
    points_.erase(which);
    fitted_ = std::min(fitted_, points_.size());
  };
  roles_stand_ = false;
  const auto known = std::find_if(points_.begin(), points_.end(),
                                  [&](const Point& point) { return point.numbers == numbers; });
  columns_.resize(sizes.size());
  if (known != points_.end()) erase(known);  // a form that fits the others is checked against the new one
  const size_t most = std::clamp(kMostSizes / std::max<size_t>(sizes.size(), 1), kFewestPoints, kMostPoints);
  if (points_.size() >= most) erase(points_.begin());
  points_.push_back({std::move(numbers), std::move(sizes), partial, {}});
  ++added_;
}

void SizePoints::spread(std::span<const std::uint32_t> columns, size_t count) {
  std::erase_if(points_, [](const Point& point) { return point.partial; });
  roles_stand_ = false;
  fitted_ = std::min(fitted_, points_.size());
  for (Point& point : points_) {
    std::vector<Size> sizes(count);
    for (size_t i = 0; i < columns.size(); ++i) sizes[columns[i]] = point.sizes[i];
    point.sizes = std::move(sizes);
  }
  std::vector<Column> all(count);
  for (size_t i = 0; i < columns.size(); ++i) all[columns[i]] = columns_[i];
  columns_ = std::move(all);
}

const SizePoints::Point* SizePoints::find(const std::vector<std::int64_t>& numbers) const noexcept {
  for (const Point& point : points_) {
    if (point.numbers == numbers) return &point;
  }
  return nullptr;
}

std::optional<std::vector<Size>> SizePoints::at(const std::vector<std::int64_t>& numbers) {
  if (const Point* const seen = find(numbers)) return seen->sizes;
  if (points_.size() < 2 || !fit()) return std::nullopt;
  const auto variables = variables_of(numbers);
  if (!variables) return std::nullopt;
  const auto nearest = by_distance(*variables);
  std::vector<Size> sizes(columns_.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (nearest.front()->sizes[i] != 0) sizes[i] = size_at(i, *variables, nearest);
  }
  return sizes;
}

std::vector<Size> SizePoints::all_at(const std::vector<std::int64_t>& numbers) {
  std::optional<Variables> variables;
  if (points_.size() >= 2 && fit()) variables = variables_of(numbers);
  const Point* const seen = find(numbers);
  std::vector<Size> sizes(columns_.size());
  std::vector<const Point*> nearest;
  if (variables) nearest = by_distance(*variables);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (seen != nullptr) sizes[i] = seen->sizes[i];
    if (sizes[i] == 0 && variables) sizes[i] = size_at(i, *variables, nearest);
    for (size_t p = points_.size(); p-- > 0 && sizes[i] == 0;) sizes[i] = points_[p].sizes[i];
  }
  return sizes;
}

bool SizePoints::is_partial_near(const std::vector<std::int64_t>& numbers) const {
  const auto variables = variables_of(numbers);
  if (fitted_ != points_.size() || !variables) return false;  // at() fits
  return by_distance(*variables).front()->partial;
}

Size SizePoints::size_at(size_t column, const Variables& variables,
                         std::span<const Point* const> nearest) const {
  if (columns_[column].form) {
    if (const auto size = columns_[column].form->at(variables)) return *size;
  }
  // What follows no form: as it was near, and as much more as there is to do. A range of the wrong size
  // serves nobody, or somebody smaller, and does no harm.
  for (const Point* const point : nearest) {
    if (point->sizes[column] == 0) continue;
    const double more = std::exp(log_of_product(variables) - log_of_product(point->variables));
    return static_cast<Size>(static_cast<double>(point->sizes[column]) * std::clamp(more, 1.0, 16.0));
  }
  return 0;
}

std::vector<const SizePoints::Point*> SizePoints::by_distance(const Variables& variables) const {
  std::vector<std::pair<double, const Point*>> all;
  for (const Point& point : points_) all.emplace_back(distance(point.variables, variables), &point);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Point*> nearest;
  for (const auto& [far, point] : all) nearest.push_back(point);
  return nearest;
}

bool SizePoints::fit() {
  const auto before = chosen_;
  const bool all = find_roles() && chosen_ != before;
  if (fitted_ == points_.size() && !all) return true;
  for (Point& point : points_) {
    auto variables = variables_of(point.numbers);
    if (!variables) return false;
    point.variables = std::move(*variables);
  }
  std::map<std::vector<Size>, std::optional<SizeForm>> known;  // many columns are the same throughout
  std::vector<Size> sizes(points_.size());
  size_t tries = kMostTries, first_left = columns_.size();
  for (size_t turn = 0; turn < columns_.size(); ++turn) {
    const size_t i = (next_column_ + turn) % columns_.size();
    Column& column = columns_[i];
    column.stale = column.stale || all;
    for (size_t p = all ? 0 : fitted_; p < points_.size() && !column.stale; ++p) {
      const Size size = points_[p].sizes[i];
      column.stale = size != 0 && (!column.form || column.form->at(points_[p].variables) != size);
    }
    if (!column.stale || (column.failures > 0 && added_ < column.try_again)) continue;
    for (size_t p = 0; p < points_.size(); ++p) sizes[p] = points_[p].sizes[i];
    const size_t had = tries;
    const auto [entry, is_new] = known.try_emplace(sizes);
    if (is_new) entry->second = fit_column(i, tries);
    column.form = entry->second;
    if (tries == 0 && !column.form && had < kMostTries) {  // its turn comes with the next fit
      known.erase(entry);
      first_left = std::min(first_left, turn);
      continue;
    }
    column.stale = false;
    if (column.form) {
      column.failures = 0;
      continue;
    }
    ++column.failures;
    column.try_again = column.failures >= kMostFailures ? ~size_t{0} : 2 * added_;
  }
  if (first_left < columns_.size()) next_column_ = (next_column_ + first_left) % columns_.size();
  fitted_ = points_.size();
  return true;
}

std::optional<SizeForm> SizePoints::fit_column(size_t column, size_t& tries) const {
  std::vector<SizePoint> seen;
  for (const Point& point : points_) {
    if (point.sizes[column] != 0) seen.push_back({point.variables, point.sizes[column]});
  }
  // Where no form is exact for all, one for the latest: beyond some number an operator may do otherwise.
  for (size_t skip = 0; seen.size() - skip >= 2; skip += (seen.size() - skip + 1) / 2) {
    if (auto form = SizeForm::fit(std::span(seen).subspan(skip), tries)) return form;
  }
  return std::nullopt;
}

bool SizePoints::find_roles() {
  if (roles_stand_) return false;
  const std::vector<std::int64_t>& first = points_.front().numbers;
  // The difference of two numbers (or one number: n == other) is the same at all points.
  const auto goes_with = [&](size_t n, size_t other) {
    const auto difference = [&](const std::vector<std::int64_t>& numbers) {
      return numbers[n] - (other == n ? 0 : numbers[other]);
    };
    return std::all_of(points_.begin(), points_.end(),
                       [&](const Point& point) { return difference(point.numbers) == difference(first); });
  };
  std::vector<Role> roles(first.size());
  std::vector<size_t> chosen;
  for (size_t n = 0; n < first.size(); ++n) {
    if (goes_with(n, n)) {
      roles[n].difference = first[n];
      continue;
    }
    const auto like =
        std::find_if(chosen.begin(), chosen.end(), [&](size_t other) { return goes_with(n, other); });
    roles[n].like = like == chosen.end() ? n : *like;
    if (roles[n].like == n) chosen.push_back(n);
    roles[n].difference = first[n] - first[roles[n].like];
  }
  roles_stand_ = true;
  const bool changed = roles != roles_;
  roles_ = std::move(roles);
  chosen_ = std::move(chosen);
  return changed;
}

std::optional<SizePoints::Variables> SizePoints::variables_of(
    const std::vector<std::int64_t>& numbers) const {
  if (numbers.size() != roles_.size()) return std::nullopt;
  for (size_t n = 0; n < numbers.size(); ++n) {
    const Role& role = roles_[n];
    const std::int64_t base = role.like == Role::kConstant ? 0 : numbers[role.like];
    // it never varied before, or went together with another one
    if (numbers[n] - base != role.difference) return std::nullopt;
  }
  Variables variables;
  for (const size_t n : chosen_) variables.push_back(numbers[n]);
  return variables;
}

size_t SizePoints::likeness(const std::vector<std::int64_t>& numbers) const noexcept {
  size_t best = 0;
  for (const Point& seen : points_) {
    if (seen.numbers.size() != numbers.size()) continue;
    size_t same = 0;
    for (size_t n = 0; n < numbers.size(); ++n) same += seen.numbers[n] == numbers[n];
    best = std::max(best, same);
  }
  return best;
}

}  // namespace memoir

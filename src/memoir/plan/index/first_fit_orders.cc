// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/index/first_fit_orders.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "memoir/base/error.h"
#include "memoir/plan/random.h"
#include "memoir/plan/stop_point.h"

namespace memoir {

std::vector<Size> fullest_section(const Problem& problem, const Sections& sections) {
  // Sparse table: row k holds the maximum of 2^k sections.
  std::vector<std::vector<Size>> rows{sections.load};
  for (std::uint32_t width = 1; 2 * width <= sections.count; width *= 2) {
    const std::vector<Size>& below = rows.back();
    stop_point();
    std::vector<Size> row(below.size() - width);
    for (std::size_t s = 0; s < row.size(); ++s) row[s] = std::max(below[s], below[s + width]);
    rows.push_back(std::move(row));
  }
  std::vector<Size> fullest(problem.size());
  for (std::size_t i = 0; i < problem.size(); ++i) {
    const std::uint32_t first = sections.first[i], last = sections.last[i];
    const auto k = static_cast<std::size_t>(std::bit_width(last - first) - 1);
    fullest[i] = std::max(rows[k][first], rows[k][last - (std::uint32_t{1} << k)]);
  }
  return fullest;
}

Order make_order(const Problem& problem, const Sections& sections, std::string_view keys) {
  return make_order(problem, sections, keys, 0.0, 0);
}

Order make_order(const Problem& problem, const Sections& sections, std::string_view keys, double noise,
                 std::uint64_t seed) {
  const std::size_t n = problem.size();
  Random random(seed);
  std::vector<double> factor(n, 1.0);
  if (noise > 0) {
    for (double& f : factor) f = std::exp(noise * random.normal());
  }
  std::vector<Size> fullest;
  if (keys.find('T') != keys.npos) fullest = fullest_section(problem, sections);
  std::vector<std::vector<double>> columns;
  for (const char key : keys) {
    stop_point();
    std::vector<double>& column = columns.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto& [begin, end] = problem[i].lifetime;
      const double width = static_cast<double>(end - begin) * factor[i];
      switch (key) {
        case 'W':
          column[i] = width;
          break;
        case 'A':
          column[i] = width * static_cast<double>(problem[i].size);
          break;
        case 'Z':
          column[i] = static_cast<double>(problem[i].size);
          break;
        case 'T':
          column[i] = static_cast<double>(fullest[i]);
          break;
        case 'L':
          column[i] = -static_cast<double>(begin);
          break;
        case 'U':
          column[i] = static_cast<double>(end);
          break;
        default:
          throw Error("an order has no key '" + std::string(1, key) + "'; it has W, A, Z, T, L and U");
      }
    }
  }
  Order order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    stop_point();
    for (const std::vector<double>& column : columns) {
      if (column[a] != column[b]) return column[a] > column[b];
    }
    return false;
  });
  return order;
}

}  // namespace memoir

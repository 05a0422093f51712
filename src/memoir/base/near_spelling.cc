// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/near_spelling.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace memoir {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        next[j] = std::min(next[j], before[j - 2] + 1);
      }
    }
    before.swap(row);
    row.swap(next);
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_spelling(std::string_view word, std::span<const std::string_view> known) {
  std::string_view nearest;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    if (const size_t count = edits(word, candidate); count < least) {
      least = count;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace memoir

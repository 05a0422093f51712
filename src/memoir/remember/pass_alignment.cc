// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/pass_alignment.h"

#include <algorithm>
#include <utility>

namespace memoir {

namespace {

constexpr size_t kMostCells = 1024 * 1024;
constexpr size_t kReach = 96;  // how far apart partners may be, next to the difference in length

// What it costs to leave one without a partner, and at most to pair two whose sizes differ.
constexpr int kAlone = 60, kUnlike = 50;

enum Step : std::uint8_t { kPair, kSkipKnown, kSkipPass };

int cost_of(const Asked& a, const Asked& b) noexcept {
  if (a.size == b.size) return 0;
  const Size least = std::min(a.size, b.size), most = std::max(a.size, b.size);
  if (least == 0) return kUnlike;
  return static_cast<int>(std::min<Size>(1 + (most - least) / (least / 16 + 1), kUnlike));
}

}  // namespace

// The cheapest path through the table of both sequences (Needleman & Wunsch 1970), in a band around its
// diagonal: cell [i][j] is of the first i known ones and the first j of the pass, begin(i) <= j < end(i).
std::optional<std::vector<std::uint32_t>> align_passes(std::span<const Asked> known,
                                                       std::span<const Asked> pass) {
  const size_t rows = known.size() + 1, columns = pass.size() + 1;
  const size_t reach = kReach + std::max(rows, columns) - std::min(rows, columns), width = 2 * reach + 1;
  if (rows > kMostCells / width) return std::nullopt;
  const auto begin = [&](size_t i) { return i > reach ? i - reach : 0; };
  const auto end = [&](size_t i) { return std::min(columns, i + reach + 1); };
  constexpr int kFar = 1 << 30;
  std::vector<std::uint8_t> steps(rows * width);
  std::vector<int> above(columns + 1, kFar), row(columns + 1, kFar);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = begin(i); j < end(i); ++j) {
      int best = i == 0 && j == 0 ? 0 : kFar;
      Step step = kPair;
      if (i > 0 && j > begin(i - 1) && j <= end(i - 1) && j > 0 && known[i - 1].site == pass[j - 1].site) {
        best = above[j - 1] + cost_of(known[i - 1], pass[j - 1]);
      }
      if (i > 0 && j < end(i - 1) && above[j] + kAlone < best) {
        best = above[j] + kAlone;
        step = kSkipKnown;
      }
      if (j > begin(i) && row[j - 1] + kAlone < best) {
        best = row[j - 1] + kAlone;
        step = kSkipPass;
      }
      row[j] = best;
      steps[i * width + j - begin(i)] = step;
    }
    std::swap(above, row);
  }
  std::vector<std::uint32_t> partners(pass.size(), kNoPartner);
  for (size_t i = rows - 1, j = columns - 1; i > 0 || j > 0;) {
    switch (static_cast<Step>(steps[i * width + j - begin(i)])) {
      case kPair:
        partners[--j] = static_cast<std::uint32_t>(--i);
        break;
      case kSkipKnown:
        --i;
        break;
      case kSkipPass:
        --j;
        break;
    }
  }
  return partners;
}

}  // namespace memoir

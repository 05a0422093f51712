// SPDX-License-Identifier: Apache-2.0
//
// What the allocation of tensors costs one pass of a small language model (a decoder of Qwen2.5-0.5B's shape,
// one token a pass), with three memories: malloc, fixed arrays that are scanned, and memoir's static tensors.
// After the table in C. Gilli's account of the tensor library DSC.
//
//   decoder [--passes N] [--layers N] [--no-arithmetic]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "decoder.h"
#include "tensor.h"

namespace example {

namespace {

using Clock = std::chrono::steady_clock;

struct Row {
  const char* name;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<TimedMemory> timed;
  std::unique_ptr<Decoder> decoder;
  std::size_t token = 1;
  std::uint64_t sum_of_tokens = 0;
  double nanoseconds = 0;  // of all measured passes
};

/// What the clock itself adds to every call, nanoseconds.
double clock_cost() {
  Times times;
  for (int i = 0; i < 100'000; ++i) {
    const auto begin = Clock::now();
    times.add(static_cast<std::uint64_t>((Clock::now() - begin).count()));
  }
  return times.mean();
}

int usage() {
  std::fprintf(stderr,
               "usage: decoder [--passes N] [--layers N] [--no-arithmetic]   (N > 0, at most 250 passes)\n");
  return 2;
}

int run(std::size_t passes, const Shape& shape, bool arithmetic) {
  constexpr std::size_t kPool = 64 << 20, kObjects = 1000;
  const Weights weights(shape);
  Row rows[3] = {{"malloc", make_malloc_memory(), {}, {}},
                 {"scanned lists", make_scanned_memory(kPool, kObjects), {}, {}},
                 {"memoir", make_memoir_memory(kPool, kObjects), {}, {}}};
  for (Row& row : rows) {
    row.timed = std::make_unique<TimedMemory>(*row.memory);
    row.decoder = std::make_unique<Decoder>(shape, weights, *row.timed, arithmetic);
  }
  for (std::size_t pass = 0; pass <= passes;
       ++pass) {  // in turns: what else the machine does meets all three
    for (Row& row : rows) {
      if (pass == 1) {  // the first one warms up
        row.timed->made = row.timed->released = {};
        row.timed->views = 0;
        row.nanoseconds = 0;
      }
      const auto begin = Clock::now();
      row.token = row.decoder->next(row.token, pass);
      row.nanoseconds += static_cast<double>((Clock::now() - begin).count());
      row.sum_of_tokens += row.token;
    }
  }
  const TimedMemory& any = *rows[0].timed;
  std::printf("%zu layers, one token a pass, %zu passes: %llu tensors a pass, %llu of them views\n",
              shape.layers, passes, static_cast<unsigned long long>(any.made.calls / passes),
              static_cast<unsigned long long>(any.views / passes));
  std::printf("each call includes %.0f ns of the clock\n\n", clock_cost());
  std::printf("%-15s %12s %9s | %10s %10s | %10s %10s\n", "per pass", "total", "share", "alloc", "worst",
              "free", "worst");
  for (const Row& row : rows) {
    const Times &made = row.timed->made, &released = row.timed->released;
    const double total = static_cast<double>(made.total + released.total);
    const std::string share =
        arithmetic ? std::to_string(100 * total / row.nanoseconds).substr(0, 5) + " %" : std::string("-");
    std::printf("%-15s %9.1f us %9s | %7.0f ns %7.1f us | %7.0f ns %7.1f us\n", row.name,
                total / 1e3 / static_cast<double>(passes), share.c_str(), made.mean(),
                static_cast<double>(made.worst) / 1e3, released.mean(),
                static_cast<double>(released.worst) / 1e3);
  }
  if (arithmetic) {
    std::printf("\na pass takes");
    for (const Row& row : rows)
      std::printf(" %.1f ms (%s)", row.nanoseconds / 1e6 / static_cast<double>(passes), row.name);
    std::printf("\n");
  }
  const bool same =
      rows[0].sum_of_tokens == rows[1].sum_of_tokens && rows[0].sum_of_tokens == rows[2].sum_of_tokens;
  std::printf("the three say %s\n",
              same ? "the same tokens" : "DIFFERENT TOKENS: one of them shares bytes that it must not");
  return same ? 0 : 1;
}

}  // namespace

}  // namespace example

int main(int count, char** words) {
  std::size_t passes = 16;
  example::Shape shape;
  bool arithmetic = true;
  for (int i = 1; i < count; ++i) {
    const bool has_value = i + 1 < count;
    if (std::strcmp(words[i], "--no-arithmetic") == 0) {
      arithmetic = false;
    } else if (has_value && std::strcmp(words[i], "--passes") == 0) {
      passes = static_cast<std::size_t>(std::atoi(words[++i]));
    } else if (has_value && std::strcmp(words[i], "--layers") == 0) {
      shape.layers = static_cast<std::size_t>(std::atoi(words[++i]));
    } else {
      return example::usage();
    }
  }
  if (passes < 1 || passes > 250 || shape.layers < 1 || shape.layers > 400) return example::usage();
  return example::run(passes, shape, arithmetic);
}

// SPDX-License-Identifier: Apache-2.0
//
// What the allocation of tensors costs one pass of a small language model (a decoder of Qwen2.5-0.5B's shape,
// one token a pass), with three memories: malloc, fixed arrays that are scanned, and memoir's static tensors.
// After the table in C. Gilli's account of the tensor library DSC.
//
//   decoder [--passes N] [--layers N] [--no-arithmetic] [--trace FILE]
//
// --trace writes the calls of the last pass as JSON that Perfetto (ui.perfetto.dev) opens, a track for each
// memory. Times are the thread's: one pre-emption would be more than all the calls of a pass.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "decoder.h"
#include "tensor.h"

namespace example {

namespace {

struct Row {
  const char* name = "";
  std::unique_ptr<Memory> memory;
  std::unique_ptr<TimedMemory> timed;
  std::unique_ptr<Decoder> decoder;
  std::size_t token = 1;
  std::uint64_t sum_of_tokens = 0;
  double nanoseconds = 0;  // of all measured passes
  std::vector<Call> last_pass;
};

/// What the clock itself adds to every call, nanoseconds.
std::uint64_t clock_cost() {
  Times times;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t begin = thread_time();
    times.add(thread_time() - begin);
  }
  return times.quantile(0.5);
}

/// Of one kind of call, a line: without what the clock adds.
void print_times(const char* memory, const char* what, const Times& times, std::uint64_t clock) {
  const auto own = [&](double nanoseconds) {
    return std::max(nanoseconds - static_cast<double>(clock), 0.0);
  };
  const auto at = [&](double share) { return own(static_cast<double>(times.quantile(share))); };
  std::printf("%-15s %-6s %8.0f %8.0f %8.0f %8.0f %10.1f us\n", memory, what, own(times.mean()), at(0.5),
              at(0.99), at(0.999), at(1) / 1e3);
}

/// In the Trace Event Format: complete events ("X") in microseconds. False when it cannot be written.
bool write_trace(const char* path, const Row* rows, std::size_t count) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return false;
  std::fprintf(file, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
  for (std::size_t i = 0; i < count; ++i) {
    const Row& row = rows[i];
    const std::uint64_t origin = row.last_pass.empty() ? 0 : row.last_pass.front().begin;
    std::fprintf(file,
                 "%s\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": %zu, "
                 "\"args\": {\"name\": \"%s\"}}",
                 i == 0 ? "" : ",", i + 1, row.name);
    for (const Call& call : row.last_pass) {
      std::fprintf(file,
                   ",\n{\"ph\": \"X\", \"name\": \"%s\", \"pid\": 1, \"tid\": %zu, \"ts\": %.3f, "
                   "\"dur\": %.3f, \"args\": {\"bytes\": %zu}}",
                   call.name, i + 1, static_cast<double>(call.begin - origin) / 1e3,
                   static_cast<double>(call.end - call.begin) / 1e3, call.bytes);
    }
  }
  std::fprintf(file, "\n]}\n");
  const bool written = std::ferror(file) == 0;
  return std::fclose(file) == 0 && written;
}

int usage() {
  std::fprintf(stderr,
               "usage: decoder [--passes N] [--layers N] [--no-arithmetic] [--trace FILE]\n"
               "N > 0, at most 250 passes\n");
  return 2;
}

int run(std::size_t passes, const Shape& shape, bool arithmetic, const char* trace) {
  constexpr std::size_t kPool = 64 << 20, kObjects = 1000;
  const Weights weights(shape);
  Row rows[3];
  rows[0].name = "malloc", rows[0].memory = make_malloc_memory();
  rows[1].name = "scanned lists", rows[1].memory = make_scanned_memory(kPool, kObjects);
  rows[2].name = "memoir", rows[2].memory = make_memoir_memory(kPool, kObjects);
  for (Row& row : rows) {
    row.timed = std::make_unique<TimedMemory>(*row.memory);
    row.decoder = std::make_unique<Decoder>(shape, weights, *row.timed, arithmetic);
  }
  for (std::size_t pass = 0; pass <= passes;
       ++pass) {  // in turns: what else the machine does meets all three
    for (Row& row : rows) {
      if (pass == 1) {  // the first one warms up
        row.timed->made.clear();
        row.timed->released.clear();
        row.timed->views = 0;
        row.nanoseconds = 0;
      }
      if (pass == passes && trace != nullptr) row.timed->log = &row.last_pass;
      const std::uint64_t begin = thread_time();
      row.token = row.decoder->next(row.token, pass);
      row.nanoseconds += static_cast<double>(thread_time() - begin);
      row.sum_of_tokens += row.token;
    }
  }
  const TimedMemory& any = *rows[0].timed;
  const std::uint64_t clock = clock_cost();
  std::printf("%zu layers, one token a pass, %zu passes: %llu tensors a pass, %llu of them views\n",
              shape.layers, passes, static_cast<unsigned long long>(any.made.calls() / passes),
              static_cast<unsigned long long>(any.views / passes));
  std::printf("nanoseconds of the thread's time a call, less the %llu that its clock takes\n\n",
              static_cast<unsigned long long>(clock));
  std::printf("%-15s %-6s %8s %8s %8s %8s %13s\n", "", "", "mean", "median", "p99", "p99.9", "worst");
  for (const Row& row : rows) {
    print_times(row.name, "alloc", row.timed->made, clock);
    print_times(row.name, "free", row.timed->released, clock);
  }
  std::printf("\n%-15s %12s %9s\n", "per pass", "total", "share");
  for (const Row& row : rows) {
    const Times &made = row.timed->made, &released = row.timed->released;
    const std::uint64_t clocks = (made.calls() + released.calls()) * clock,
                        all = made.total() + released.total();
    const auto total = static_cast<double>(all - std::min(all, clocks));
    const std::string share =
        arithmetic ? std::to_string(100 * total / row.nanoseconds).substr(0, 5) + " %" : std::string("-");
    std::printf("%-15s %9.1f us %9s\n", row.name, total / 1e3 / static_cast<double>(passes), share.c_str());
  }
  if (arithmetic) {
    std::printf("\na pass takes");
    for (const Row& row : rows)
      std::printf(" %.1f ms (%s)", row.nanoseconds / 1e6 / static_cast<double>(passes), row.name);
    std::printf("\n");
  }
  if (trace != nullptr) {
    if (!write_trace(trace, rows, 3)) {
      std::fprintf(stderr, "%s: cannot be written\n", trace);
      return 1;
    }
    std::printf("wrote %s: open it in ui.perfetto.dev\n", trace);
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
  const char* trace = nullptr;
  for (int i = 1; i < count; ++i) {
    const bool has_value = i + 1 < count;
    if (std::strcmp(words[i], "--no-arithmetic") == 0) {
      arithmetic = false;
    } else if (has_value && std::strcmp(words[i], "--passes") == 0) {
      passes = static_cast<std::size_t>(std::atoi(words[++i]));
    } else if (has_value && std::strcmp(words[i], "--layers") == 0) {
      shape.layers = static_cast<std::size_t>(std::atoi(words[++i]));
    } else if (has_value && std::strcmp(words[i], "--trace") == 0) {
      trace = words[++i];
    } else {
      return example::usage();
    }
  }
  if (passes < 1 || passes > 250 || shape.layers < 1 || shape.layers > 400) return example::usage();
  return example::run(passes, shape, arithmetic, trace);
}

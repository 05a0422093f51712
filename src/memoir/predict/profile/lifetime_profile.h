// SPDX-License-Identifier: Apache-2.0
//
// A lifetime profile: how long the sampled objects of a program lived, per allocation context. It is what a
// .lifetimes file holds, as arrays of the records that stand in the file (docs/reference/formats-lifetimes.md
// says what each field means):
//
//   modules <- frames <- stacks <- contexts <- cells     tallies and histograms, of all runs that were merged
//                                     ^
//   runs <- pairs --------------------+                  single samples and the curve of live bytes, of a few
//     ^---- points                                       runs: from these a heap can be replayed
//
// A profile is canonical when equal content has equal bytes; what reads, merges or makes one gives that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/base/units.h"
#include "memoir/predict/profile/tally.h"

namespace memoir {

struct LifetimeProfile {
  static constexpr std::uint32_t kNoModule = ~std::uint32_t{0};
  static constexpr size_t kMostFrames = 1024;  // of a stack
  static constexpr size_t kMostIdSize = 32;
  static constexpr std::uint64_t kMostSize = std::uint64_t{1} << 56;
  static constexpr std::uint64_t kMostTime = std::uint64_t{1} << 48;   // ms
  static constexpr std::uint64_t kMostClock = std::uint64_t{1} << 62;  // bytes
  static constexpr std::uint32_t kMostPairs = 1 << 16, kMostPoints = 4096, kMostRuns = 4096;

  static constexpr size_t kMostWord = 4096;  // bytes of one path or name

  /// A word of `text`, which holds words with a zero behind each. Nothing: {0, 0}.
  struct Text {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  /// An executable or a library, known by its build id where it has one, else by its path.
  struct Module {
    Text path;
    std::uint32_t id_size = 0;
    std::uint32_t reserved = 0;
    unsigned char id[kMostIdSize] = {};
  };
  /// A return address, as its module has it in its own address space. kNoModule: nobody knows whose; then
  /// the offset is 0.
  struct Frame {
    std::uint64_t offset = 0;
    std::uint32_t module = kNoModule;
    Text name;  // of the function; those inlined into it before it, one a line. Empty: not known yet
    std::uint32_t reserved = 0;
  };
  enum Fate : std::uint8_t { kFreed, kCensored };       // censored: alive when the run ended
  enum Clock : std::uint8_t { kMilliseconds, kBytes };  // bytes: that the program allocated meanwhile

  /// Of all objects of one fate: what was sampled, and what that stands for.
  struct Estimate {
    std::uint64_t samples = 0;
    std::uint64_t objects = 0;  // in 1 / byte_sampling::kOne
    Size bytes = 0;

    void add(const Estimate& other) noexcept {
      samples = add_up_to_most(samples, other.samples);
      objects = add_up_to_most(objects, other.objects);
      bytes = add_up_to_most(bytes, other.bytes);
    }
    bool operator==(const Estimate&) const = default;
  };
  enum ContextFlags : std::uint32_t {
    kCut = 1
  };  // the stack has a gap: it was too deep, or could not be followed
  struct Context {
    std::uint32_t first = 0;   // in `stacks`
    std::uint32_t frames = 0;  // innermost first
    std::uint32_t flags = 0;
    std::uint32_t reserved = 0;
    std::uint64_t height = 0;            // bytes of stack at the allocation, the fewest; 0: not known
    Size least_size = 0, most_size = 0;  // of a sampled object
    std::uint64_t freed_elsewhere = 0;   // samples that another thread freed
    Estimate estimates[2];               // by Fate
    Tally tallies[2][2];                 // by Fate and Clock; of the samples, not weighted
  };
  /// One bar of a histogram.
  struct Cell {
    std::uint32_t context = 0;
    std::uint16_t bucket = 0;  // log_buckets
    std::uint8_t clock = 0;
    std::uint8_t fate = 0;
    Estimate estimate;
  };
  struct Run {
    std::uint64_t id[2] = {};        // random
    std::uint64_t start = 0;         // nanoseconds since 1970-01-01 UTC
    std::uint64_t milliseconds = 0;  // that were sampled
    Size allocated = 0;              // bytes meanwhile
    Size every = 0;                  // bytes between samples, on average
    std::uint64_t samples = 0;
    std::uint64_t lost = 0;          // samples that found no room
    std::uint64_t missed_frees = 0;  // frees that were missed
    double priority = 0;             // the least are kept; see run_priority()
    Text program;
    std::uint32_t process = 0;
    std::uint32_t threads = 0;
    std::uint32_t pairs = 0, points = 0;  // of this run: they stand in the order of the runs
  };
  enum PairFlags : std::uint32_t { kNeverFreed = 1 };
  struct Pair {
    std::uint32_t context = 0;
    std::uint32_t flags = 0;
    std::uint32_t allocated_by = 0, freed_by = 0;  // threads, by small numbers of the run
    Size size = 0;
    std::uint64_t weight = 0;                      // objects that it stands for, in 1 / byte_sampling::kOne
    std::uint64_t begin = 0, end = 0;              // ms of the run
    std::uint64_t begin_clock = 0, end_clock = 0;  // bytes that the run had allocated
    std::uint64_t priority = 0;                    // random; the least are kept
  };
  struct Point {
    std::uint64_t time = 0;   // ms of the run
    std::uint64_t clock = 0;  // bytes that the run had allocated
    Size live = 0;            // estimated: the most since the point before
    Size decayed = 0;         // the decayed maximum of it
  };
  struct Totals {
    std::uint64_t runs = 0;  // all that were merged
    std::uint64_t samples = 0, lost = 0, missed_frees = 0;
    std::uint64_t milliseconds = 0;
    Size allocated = 0;
    std::uint32_t most_pairs = 1 << 14;  // of a run
    std::uint32_t most_runs = 16;        // that keep their pairs and points
  };

  std::string text;
  std::vector<Module> modules;
  std::vector<Frame> frames;
  std::vector<std::uint32_t> stacks;  // frames' numbers
  std::vector<Context> contexts;
  std::vector<Cell> cells;
  std::vector<Run> runs;
  std::vector<Pair> pairs;
  std::vector<Point> points;
  Totals totals;

  std::string_view view(Text part) const noexcept {
    return std::string_view(text).substr(part.begin, part.size);
  }
  std::span<const std::uint32_t> stack(const Context& context) const noexcept {
    return std::span(stacks).subspan(context.first, context.frames);
  }
  /// Appends a word to `text`, cut at kMostWord bytes. Throws Error when `text` passes 4 GiB.
  Text store(std::string_view word);
};

static_assert(sizeof(LifetimeProfile::Module) == 48 && sizeof(LifetimeProfile::Frame) == 24);
static_assert(sizeof(LifetimeProfile::Context) == 320 && sizeof(LifetimeProfile::Cell) == 32);
static_assert(sizeof(LifetimeProfile::Run) == 104 && sizeof(LifetimeProfile::Pair) == 72);
static_assert(sizeof(LifetimeProfile::Point) == 32 && sizeof(LifetimeProfile::Totals) == 56);

/// Which runs a merged profile keeps in full: those of least priority. -ln(u) / samples, with u from the
/// run's random id: a run with more samples is kept more often, whatever it is merged with (Efraimidis and
/// Spirakis 2006).
double run_priority(const LifetimeProfile::Run& run) noexcept;

}  // namespace memoir

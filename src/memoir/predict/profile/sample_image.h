// SPDX-License-Identifier: Apache-2.0
//
// What a program that is sampled keeps of it: shared memory that another process reads while the program
// runs, or after it was killed. Not a file format: the program and the reader are of one memoir (`version`).
//
//   | header | modules | paths | contexts | frames | cells | live | pairs | points |
//
// Each region has room for a fixed number of records; the memory behind it is taken in steps, from the
// region's begin on. Numbers that link records (`next`) are one more than the record's index; 0 ends a chain.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "memoir/base/units.h"
#include "memoir/predict/profile/lifetime_profile.h"

namespace memoir::sample_image {

inline constexpr std::uint64_t kMagic = 0x676d6965696c7073;  // "splieimg"
inline constexpr std::uint32_t kVersion = 1;

struct Module {
  std::uint64_t begin = 0, end = 0;  // addresses of its code
  std::uint64_t bias = 0;            // address in memory - address in its file's own space
  std::uint32_t path = 0, path_size = 0;
  std::uint32_t id_size = 0;
  std::uint32_t reserved = 0;
  unsigned char id[LifetimeProfile::kMostIdSize] = {};
};

/// A return address: the number of its module + 1 in the upper 16 bits, then the offset. 0: not known.
using Frame = std::uint64_t;
inline constexpr unsigned kOffsetBits = 48;

struct Context {
  LifetimeProfile::Context context;
  std::uint64_t hash = 0;
  std::uint32_t next = 0;   // of the same hash
  std::uint32_t cells = 0;  // the first
};
struct Cell {
  std::uint32_t next = 0;
  std::uint16_t bucket = 0;
  std::uint8_t clock = 0, fate = 0;
  LifetimeProfile::Estimate estimate;
};
/// A sampled object that was not freed yet; a free slot has address 0.
struct Live {
  std::atomic<std::uint64_t> address{0};
  std::atomic<std::uint32_t> next{0};
  std::uint32_t context = 0;
  std::uint32_t thread = 0;
  std::uint32_t reserved = 0;
  Size size = 0;
  std::uint64_t weight = 0;
  std::uint64_t begin = 0;
  std::uint64_t begin_clock = 0;
  std::uint64_t priority = 0;
};

enum Region : unsigned { kModules, kPaths, kContexts, kFrames, kCells, kLive, kPairs, kPoints, kRegions };
struct Shape {
  Size record = 0;
  std::uint64_t most = 0;
};
inline constexpr Shape kShapes[kRegions] = {{sizeof(Module), 4096},
                                            {1, 512 * kKiB},
                                            {sizeof(Context), 1 << 15},
                                            {sizeof(Frame), 1 << 20},
                                            {sizeof(Cell), 1 << 18},
                                            {sizeof(Live), 1 << 16},
                                            {sizeof(LifetimeProfile::Pair), 1 << 14},
                                            {sizeof(LifetimeProfile::Point), 512}};
inline constexpr Size kStep = 64 * kKiB;       // memory is taken in these
inline constexpr Size kMostTaken = 16 * kMiB;  // of all regions together

struct Header {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t process = 0;
  std::atomic<std::uint32_t> changes{0};  // odd while something changes
  std::atomic<std::uint32_t> threads{0};
  std::uint64_t id[2] = {};
  std::uint64_t start = 0;            // nanoseconds since 1970
  std::uint64_t start_monotonic = 0;  // the same moment by CLOCK_MONOTONIC
  std::uint64_t last = 0;             // ms since then, at the last sample or the end
  Size every = 0;
  std::atomic<std::uint64_t> allocated{0};
  std::uint64_t samples = 0;
  std::atomic<std::uint64_t> lost{0};
  std::atomic<std::uint64_t> missed_frees{0};
  Size live = 0;                  // bytes, estimated
  double decayed = 0;             // decayed maximum of it
  std::uint64_t point_every = 0;  // points that one point stands for
  std::uint64_t used[kRegions] = {};
  std::uint64_t taken[kRegions] = {};  // records that have memory
};

/// Where a region begins, from the start of the header.
constexpr Size region_begin(unsigned region) noexcept {
  Size at = align_up(sizeof(Header), 4 * kKiB);
  for (unsigned i = 0; i < region; ++i) at += align_up(kShapes[i].record * kShapes[i].most, kStep);
  return at;
}
inline constexpr Size kSize = region_begin(kRegions);

/// The run as a profile. `bytes` begin with the header and end wherever the file ended; `now`:
/// CLOCK_MONOTONIC in nanoseconds when the run ended, 0 when only the program knows. Throws Error when they
/// are not an image.
LifetimeProfile read_image(std::string_view bytes, const std::string& program, const std::string& name,
                           std::uint64_t now);

}  // namespace memoir::sample_image

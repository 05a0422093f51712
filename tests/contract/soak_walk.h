// SPDX-License-Identifier: Apache-2.0
//
// Walks that are as long as one likes: millions of random operations a second over a heap, with an oracle
// that is exact and cheap. A walk is its seed, so that nothing is kept of it; walk.h is for walks that are to
// be made short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "contract/walk.h"

namespace memoir::contract {

struct SoakResult {
  std::uint64_t operations = 0;   // calls that the walk made: allocate, free, wild free, trim
  std::uint64_t allocations = 0;  // of these, those that were served
  std::uint64_t refusals = 0;
  std::string failure;  // what the heap did wrong in the last operation; empty when all was well
};

/// Makes `operations` random calls of a fresh heap over `arena` and then frees everything. No two live ranges
/// may overlap; each lies in committed memory, keeps its contents (where `options.memory` is given: a byte
/// pattern at both ends and on every page between), and is known by its size; what `options.traits` promises
/// holds.
SoakResult soak_walk(std::uint64_t seed, std::uint64_t operations, const MakeHeap& make, Arena& arena,
                     const WalkOptions& options);

}  // namespace memoir::contract

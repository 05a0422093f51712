// SPDX-License-Identifier: Apache-2.0
//
// Random walks over a heap, beside an oracle that is slow and obviously right. A walk is a list of steps, so
// that one that fails can be made short and printed as C++, to be pasted into a test as a regression.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "memoir/arena/arena.h"
#include "memoir/heap/heap.h"

namespace memoir::contract {

struct Step {
  enum class Kind { kAllocate, kFree, kWildFree, kTrim };
  Kind kind = Kind::kTrim;
  std::uint64_t object = 0;  // kAllocate, kFree: a name; a free of one that is dead is a double free
  Request request;           // kAllocate
  Offset offset = 0;         // kWildFree
};

inline Step allocate(std::uint64_t object, Size size, Size alignment, SiteId site) {
  return {Step::Kind::kAllocate, object, {size, alignment, site}, 0};
}
inline Step release(std::uint64_t object) { return {Step::Kind::kFree, object, {}, 0}; }
inline Step wild_free(Offset offset) { return {Step::Kind::kWildFree, 0, {}, offset}; }
inline Step trim() { return {}; }

/// An ordinary request: one of a dozen sites, each with its own size and alignment.
Request menu_request(std::mt19937_64& random);
/// A walk that fills an arena and empties it again, several times, with impossible requests and wild and
/// double frees.
std::vector<Step> random_steps(std::mt19937_64& random, size_t count, Size capacity);

struct Outcome {
  std::vector<Offset> offsets;  // one per kAllocate step
  std::string failure;          // empty when all was well
  size_t failed_at = 0;         // index of the step
};

struct WalkOptions {
  bool serves_all = true;       // a refusal though there is room is a failure
  std::byte* memory = nullptr;  // where offset 0 lies, when contents can be written and checked
};

/// Makes a heap over the arena that it is given, which watches what the heap asks of it.
using MakeHeap = std::function<std::unique_ptr<Heap>(Arena&)>;

/// Walks a fresh heap over `arena` and then frees everything.
Outcome walk(const std::vector<Step>& steps, const MakeHeap& make, Arena& arena, const WalkOptions& options);

/// A shortest walk, as far as leaving steps out finds it, for which `fails` still holds.
std::vector<Step> shortened(std::vector<Step> steps,
                            const std::function<bool(const std::vector<Step>&)>& fails);
/// The steps as C++ to paste.
std::string as_code(const std::vector<Step>& steps);

}  // namespace memoir::contract

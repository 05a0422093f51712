// SPDX-License-Identifier: Apache-2.0
//
// Random walks over a heap, next to an oracle that is slow and obviously right. A walk is a list of steps, so
// that one that fails can be made short and printed as C++, to be pasted into a test as a regression.
#pragma once

#include <array>
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
/// What every heap of this capacity refuses.
std::array<Request, 7> impossible_requests(Size capacity);
/// A walk that fills an arena and empties it again, several times, with impossible requests and wild and
/// double frees.
std::vector<Step> random_steps(std::mt19937_64& random, size_t count, Size capacity);

struct Outcome {
  std::vector<Offset> offsets;  // one per kAllocate step
  std::string failure;          // empty when all was well
  size_t failed_at = 0;         // index of the step
};

/// What a heap promises beyond what every heap must do; those that promise less say so here.
struct Traits {
  bool serves_all = true;     // any request for which there is room between the live objects
  Size strictest = ~Size{0};  // bytes: requests that are aligned more strictly are refused
  Size grain = 1;             // bytes: sizes are rounded up to a multiple of it
  bool fills = true;          // equal requests of a power of two fill a whole arena
  bool gives_back = true;     // nothing is committed once nothing is live and trim() was called,
  bool joins = true;          // and the whole arena can then be had in one piece
  Size page = ~Size{0};       // bytes that it gives back at a time: no granule goes that is larger
  bool secures = false;       // it commits all that it will ever need when it is made
  size_t serves = 150;        // of the requests of a walk where memory is short, more than this
};

/// Whether the heap is to have given everything back, once nothing is live and trim() was called.
inline bool is_to_be_empty(const Traits& traits, const Arena& arena) noexcept {
  return traits.gives_back && arena.granule() <= traits.page;
}

struct WalkOptions {
  Traits traits;
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

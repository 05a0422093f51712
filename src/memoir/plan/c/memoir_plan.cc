// SPDX-License-Identifier: Apache-2.0
#include "memoir_plan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/plan/c/fixed_planner.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/simple/aligned_load.h"
#include "memoir/plan/skeleton.h"

using memoir::BufferArrays;

struct memoir_planner {
  memoir::FixedPlanner planner;
};

struct memoir_skeleton {
  memoir::Skeleton skeleton;
  std::vector<memoir::Size> alignments;
};

namespace {

thread_local char why[512] = "";

int refuse(const char* what, int code = MEMOIR_PLAN_BAD_INPUT) noexcept {
  std::snprintf(why, sizeof why, "%s", what);
  return code;
}

/// Runs it, and turns what it throws into a code and a reason.
template <class Run>
int guarded(Run run) noexcept {
  try {
    return run();
  } catch (const memoir::Error& error) {
    return refuse(error.what());
  } catch (const std::bad_alloc&) {
    return refuse("there is not enough memory to plan with", MEMOIR_PLAN_NO_MEMORY);
  } catch (const std::exception& error) {
    return refuse(error.what(), MEMOIR_PLAN_FAILED);
  } catch (...) {
    return refuse("an error of memoir's own", MEMOIR_PLAN_FAILED);
  }
}

/// Without allocating; what is not a problem is told as validate() tells it.
int check_arrays(const BufferArrays& buffers, const void* offsets) noexcept {
  if (buffers.count == 0) return MEMOIR_PLAN_OK;
  if (buffers.lower == nullptr || buffers.upper == nullptr || buffers.size == nullptr || offsets == nullptr)
    return refuse("lower, upper, size and offsets must not be NULL");
  if (buffers.count >= std::numeric_limits<std::uint32_t>::max())
    return refuse("there are 2^32 - 1 buffers or more");
  memoir::Size total = 0;
  for (std::size_t i = 0; i < buffers.count; ++i) {
    const char* what = nullptr;
    if (buffers.lower[i] >= buffers.upper[i])
      what = "has an empty or inverted lifetime: it must end after it begins";
    else if (buffers.alignment_of(i) == 0) what = "has the alignment 0: it must be at least 1";
    else if (__builtin_add_overflow(total, buffers.size[i], &total) ||
             __builtin_add_overflow(total, buffers.alignment_of(i) - 1, &total) || total >> 63 != 0)
      what = "brings the sum of all sizes to 2^63 bytes or more";
    if (what == nullptr) continue;
    std::snprintf(why, sizeof why, "buffer %zu %s", i, what);
    return MEMOIR_PLAN_BAD_INPUT;
  }
  return MEMOIR_PLAN_OK;
}

memoir::Problem problem_of(const BufferArrays& buffers) {
  memoir::Problem problem(buffers.count);
  for (std::size_t i = 0; i < buffers.count; ++i)
    problem[i] = {{buffers.lower[i], buffers.upper[i]}, buffers.size[i], buffers.alignment_of(i)};
  return problem;
}

/// The search on a thread of its own, and the caller's function on this one.
memoir::SearchResult plan_with_progress(const memoir::Problem& problem, memoir::SearchOptions options,
                                        const memoir_plan_options& given) {
  constexpr std::chrono::milliseconds kOften{100};
  const auto start = std::chrono::steady_clock::now();
  std::mutex mutex;
  std::condition_variable news;
  std::atomic<bool> stop{false};
  bool ended = false;
  std::uint64_t best = MEMOIR_PLAN_NO_LIMIT;
  options.stop = &stop;
  options.improved = [&](memoir::Size arena, double) {
    const std::lock_guard lock(mutex);
    best = std::min<std::uint64_t>(best, arena);
    news.notify_one();
  };
  memoir::SearchResult result;
  std::exception_ptr error;
  std::thread search([&] {
    try {
      result = memoir::plan_auto(problem, options);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    ended = true;
    news.notify_one();
  });
  for (std::uint64_t told = best;;) {
    std::unique_lock lock(mutex);
    news.wait_for(lock, kOften, [&] { return ended || best != told; });
    if (ended) break;
    told = best;
    lock.unlock();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!stop && given.progress(given.context, told, seconds.count()) != 0) stop = true;
  }
  search.join();
  if (error) std::rethrow_exception(error);
  return result;
}

int plan(const BufferArrays& buffers, const memoir_plan_options& given, uint64_t* offsets,
         memoir_plan_result* result) {
  if (!(given.deadline_s >= 0)) return refuse("deadline_s must be 0 seconds or more");
  if (!(given.tolerance_share >= 0)) return refuse("tolerance_share must be 0 or more");
  const auto start = std::chrono::steady_clock::now();
  const memoir::Problem problem = problem_of(buffers), sized = memoir::sized(problem);
  memoir::SearchOptions options;
  options.deadline_s = given.deadline_s;
  options.work_limit = given.work_limit;
  options.threads = given.threads;
  options.tolerance = {given.tolerance_bytes, given.tolerance_share};
  options.seed = given.seed;
  if (given.capacity != MEMOIR_PLAN_NO_LIMIT) options.capacity = given.capacity;
  const memoir::SearchResult found = given.progress == nullptr ? memoir::plan_auto(sized, options)
                                                               : plan_with_progress(sized, options, given);
  const memoir::Plan plan = memoir::with_empty(problem, found.plan);
  if (const auto violation = memoir::quick_check(problem, plan))
    return refuse(violation->what.c_str(), MEMOIR_PLAN_FAILED);
  std::copy(plan.offsets.begin(), plan.offsets.end(), offsets);
  const memoir::Size floor = std::max(found.lower_bound, memoir::aligned_load(sized));
  if (result != nullptr) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    *result = {plan.arena_size, memoir::load(problem), floor, plan.arena_size == floor ? 1 : 0,
               seconds.count()};
  }
  if (plan.arena_size <= given.capacity) return MEMOIR_PLAN_OK;
  if (floor > given.capacity) return refuse("no plan fits the capacity", MEMOIR_PLAN_INFEASIBLE);
  return refuse("no plan was found that fits the capacity, but there may be one", MEMOIR_PLAN_NOT_FOUND);
}

}  // namespace

extern "C" {

memoir_plan_options memoir_plan_defaults(void) {
  return {sizeof(memoir_plan_options), 1.0, 0, 0, MEMOIR_PLAN_NO_LIMIT, 1, 0, 0, nullptr, nullptr, {}};
}

const char* memoir_plan_version(void) { return MEMOIR_VERSION; }

const char* memoir_plan_why(void) { return why; }

int memoir_plan(size_t count, const uint64_t* lower, const uint64_t* upper, const uint64_t* size,
                const uint64_t* alignment, const memoir_plan_options* options, uint64_t* offsets,
                memoir_plan_result* result) {
  const BufferArrays buffers{count, lower, upper, size, alignment};
  if (const int code = check_arrays(buffers, offsets); code != MEMOIR_PLAN_OK) return code;
  memoir_plan_options chosen = memoir_plan_defaults();
  if (options != nullptr) {
    if (options->struct_size == 0 || options->struct_size > sizeof chosen)
      return refuse("struct_size of the options is not that of memoir_plan_defaults()");
    std::memcpy(&chosen, options, options->struct_size);
  }
  return guarded([&] { return plan(buffers, chosen, offsets, result); });
}

int memoir_plan_check(size_t count, const uint64_t* lower, const uint64_t* upper, const uint64_t* size,
                      const uint64_t* alignment, const uint64_t* offsets, uint64_t arena_size) {
  const BufferArrays buffers{count, lower, upper, size, alignment};
  if (const int code = check_arrays(buffers, offsets); code != MEMOIR_PLAN_OK) return code;
  return guarded([&] {
    const memoir::Plan plan{{offsets, offsets + count}, arena_size};
    const auto violation = memoir::quick_check(problem_of(buffers), plan);
    if (!violation) return int{MEMOIR_PLAN_OK};
    const std::string pair =
        violation->first == violation->second
            ? "buffer " + std::to_string(violation->first)
            : "buffers " + std::to_string(violation->first) + " and " + std::to_string(violation->second);
    return refuse((pair + ": " + violation->what).c_str());
  });
}

memoir_planner* memoir_planner_create(size_t most) {
  memoir_planner* made = nullptr;
  guarded([&] {
    if (most >= std::numeric_limits<std::uint32_t>::max())
      return refuse("a planner is for less than 2^32 - 1 buffers");
    made = new memoir_planner{memoir::FixedPlanner(most)};
    return int{MEMOIR_PLAN_OK};
  });
  return made;
}

void memoir_planner_destroy(memoir_planner* planner) { delete planner; }

int memoir_planner_plan(memoir_planner* planner, size_t count, const uint64_t* lower, const uint64_t* upper,
                        const uint64_t* size, const uint64_t* alignment, uint64_t* offsets,
                        uint64_t* arena_size) {
  const BufferArrays buffers{count, lower, upper, size, alignment};
  if (planner == nullptr) return refuse("the planner must not be NULL");
  if (count > planner->planner.most()) return refuse("there are more buffers than the planner was made for");
  if (const int code = check_arrays(buffers, offsets); code != MEMOIR_PLAN_OK) return code;
  const memoir::Size arena = planner->planner.plan(buffers, offsets);
  if (arena_size != nullptr) *arena_size = arena;
  return MEMOIR_PLAN_OK;
}

memoir_skeleton* memoir_skeleton_create(size_t count, const uint64_t* lower, const uint64_t* upper,
                                        const uint64_t* size, const uint64_t* alignment,
                                        const uint64_t* offsets) {
  memoir_skeleton* made = nullptr;
  const BufferArrays buffers{count, lower, upper, size, alignment};
  if (check_arrays(buffers, offsets) != MEMOIR_PLAN_OK) return nullptr;
  guarded([&] {
    const memoir::Problem problem = problem_of(buffers);
    memoir::validate(problem);
    memoir::Plan plan{{offsets, offsets + count}, 0};
    std::vector<memoir::PlannedAllocation> sequence;
    std::vector<memoir::Size> alignments;
    for (std::size_t i = 0; i < count; ++i) {
      memoir::Size end = 0;
      if (__builtin_add_overflow(plan.offsets[i], problem[i].size, &end))
        return refuse("an offset is beyond 2^64");
      plan.arena_size = std::max(plan.arena_size, end);
      sequence.push_back({.size = problem[i].size,
                          .alignment = problem[i].alignment,
                          .lifetime = problem[i].lifetime,
                          .offset = plan.offsets[i]});
      alignments.push_back(problem[i].alignment);
    }
    if (const auto violation = memoir::quick_check(problem, plan))
      return refuse(("the offsets are not a plan: " + violation->what).c_str());
    made = new memoir_skeleton{memoir::find_skeleton(sequence), std::move(alignments)};
    return int{MEMOIR_PLAN_OK};
  });
  return made;
}

void memoir_skeleton_destroy(memoir_skeleton* skeleton) { delete skeleton; }

size_t memoir_skeleton_count(const memoir_skeleton* skeleton) { return skeleton->alignments.size(); }

int memoir_skeleton_place(const memoir_skeleton* skeleton, const uint64_t* size, uint64_t* offsets,
                          uint64_t* arena_size) {
  if (skeleton == nullptr) return refuse("the skeleton must not be NULL");
  const std::size_t count = skeleton->alignments.size();
  if (count != 0 && (size == nullptr || offsets == nullptr))
    return refuse("size and offsets must not be NULL");
  if (const auto bad =
          memoir::place_on(skeleton->skeleton, {size, count}, skeleton->alignments, {offsets, count})) {
    std::snprintf(why, sizeof why, "buffer %u brings the sum of all sizes to 2^63 bytes or more", *bad);
    return MEMOIR_PLAN_BAD_INPUT;
  }
  memoir::Size arena = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (size[i] == 0) offsets[i] = 0;
    arena = std::max(arena, offsets[i] + size[i]);
  }
  if (arena_size != nullptr) *arena_size = arena;
  return MEMOIR_PLAN_OK;
}

}  // extern "C"

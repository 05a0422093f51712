// SPDX-License-Identifier: Apache-2.0
//
// Random walks of every heap on every arena, as many operations on each pair: `soak_heaps --operations N
// --first-seed S` makes N operations in all and prints one line of JSON. A failure names the heap, the arena
// and the seed, with which `--only HEAP,ARENA --first-seed SEED --operations N` walks the same way again.
// Exit status 1 after a failure.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "contract/soak_walk.h"
#include "contract/subjects.h"

using namespace memoir;
using namespace memoir::contract;

namespace {

constexpr std::uint64_t kWalk = 50'000;  // operations of one heap, from its making to its end

double seconds_of_cpu() {
  timespec time;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Sums {
  std::uint64_t operations = 0, allocations = 0, failures = 0;
};

/// `operations` of one heap on one arena, in walks from `seed` on.
Sums soak(const Subject& subject, const ArenaKind& kind, std::uint64_t seed, std::uint64_t operations) {
  Sums sums;
  static const RecordedPlan plan = menu_plan();
  const MakeHeap make = [&](Arena& arena) { return subject.make(arena, plan); };
  for (; sums.operations < operations; ++seed) {
    const std::unique_ptr<Arena> arena = kind.make(kArenaSize);
    const std::uint64_t walk = std::min(kWalk, operations - sums.operations);
    const SoakResult result =
        soak_walk(seed, walk, make, *arena, {.traits = subject.traits, .memory = kind.memory(*arena)});
    sums.operations += result.operations;
    sums.allocations += result.allocations;
    if (result.failure.empty()) continue;
    ++sums.failures;
    std::fprintf(stderr, "%s on %s, seed %llu, operation %llu: %s\n", subject.name.c_str(), kind.name.c_str(),
                 static_cast<unsigned long long>(seed), static_cast<unsigned long long>(result.operations),
                 result.failure.c_str());
  }
  return sums;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t operations = 0, seed = 0;
  std::string only;
  bool timed = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--timed") {
      timed = true;
    } else if (i + 1 < argc && option == "--operations") {
      operations = std::strtoull(argv[++i], nullptr, 10);
    } else if (i + 1 < argc && option == "--first-seed") {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (i + 1 < argc && option == "--only") {
      only = argv[++i];
    }
  }
  std::vector<std::pair<Subject, ArenaKind>> pairs;
  for (const Subject& subject : subjects()) {
    for (const ArenaKind& kind : soaked_arenas()) {
      if (only.empty() || only == subject.name + "," + kind.name) pairs.emplace_back(subject, kind);
    }
  }
  if (operations == 0 || pairs.empty()) {
    std::fprintf(stderr, "usage: %s --operations N [--first-seed S] [--only HEAP,ARENA] [--timed]\n",
                 argv[0]);
    return 2;
  }
  const std::uint64_t each = (operations + pairs.size() - 1) / pairs.size();
  Sums all;
  for (const auto& [subject, kind] : pairs) {
    const double begin = seconds_of_cpu();
    const Sums sums = soak(subject, kind, seed, each);
    all.operations += sums.operations;
    all.allocations += sums.allocations;
    all.failures += sums.failures;
    if (timed) {
      std::fprintf(stderr, "%-18s %-7s %5.0f ns\n", subject.name.c_str(), kind.name.c_str(),
                   1e9 * (seconds_of_cpu() - begin) / static_cast<double>(sums.operations));
    }
  }
  std::printf("{\"done\": %llu, \"allocations\": %llu, \"failures\": %llu, \"pairs\": %zu}\n",
              static_cast<unsigned long long>(all.operations),
              static_cast<unsigned long long>(all.allocations), static_cast<unsigned long long>(all.failures),
              pairs.size());
  return all.failures == 0 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
//
// Pairs of malloc and free under stacks of one depth, chosen at random among so many: what a recorder of
// stacks costs where nothing else happens. record_churn STACKS PAIRS DEPTH; DEPTH 0 is a tight loop.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

volatile std::uint64_t sink = 0;
void* live[1024];

std::uint64_t state = 88172645463325252ull;
std::uint32_t pick() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<std::uint32_t>(state >> 32);
}

template <int kSite>
__attribute__((noinline)) void pair() {
  const unsigned i = pick() & 1023;
  std::free(live[i]);
  live[i] = std::malloc(16 + (pick() & 255));
  sink = sink + 1;
}

// Three ways down from each level: `path` says which.
__attribute__((noinline)) void down(int depth, unsigned path) {
  if (depth == 0) {
    path % 3 == 0 ? pair<0>() : path % 3 == 1 ? pair<1>() : pair<2>();
  } else if (path % 3 == 0) {
    down(depth - 1, path / 3);
  } else if (path % 3 == 1) {
    down(depth - 1, path / 3);
    sink = sink + 2;
  } else {
    down(depth - 1, path / 3);
    sink = sink + 3;
  }
  sink = sink + 1;
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned stacks = count > 1 ? static_cast<unsigned>(std::atoi(arguments[1])) : 9;
  const long pairs = count > 2 ? std::atol(arguments[2]) : 3'000'000;
  const int depth = count > 3 ? std::atoi(arguments[3]) : 12;
  if (depth == 0) {
    for (long i = 0; i < pairs; ++i) {
      void* volatile block = std::malloc(64);
      std::free(block);
    }
  } else {
    for (long i = 0; i < pairs; ++i) down(depth - 1, pick() % stacks);
  }
  std::printf("%lu\n", static_cast<unsigned long>(sink));
}

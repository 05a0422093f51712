// SPDX-License-Identifier: Apache-2.0
//
// The trap itself: a proof by a trap that does not snap would be none.
#include <fcntl.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "doctest/doctest.h"
#include "no_malloc/trap.h"

namespace memoir {

namespace {

/// The signal that a child ends with that does this while malloc is forbidden; 0 when it comes to its end.
template <class Do>
int signal_of(Do&& what) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test program's own handler
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    const trap::NoMalloc here;
    what();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void* volatile kept = nullptr;  // what is stored here is really asked for

}  // namespace

TEST_CASE("every function of the family snaps") {
  CHECK(signal_of([] { kept = std::malloc(8); }) == SIGABRT);
  CHECK(signal_of([] { kept = std::calloc(2, 8); }) == SIGABRT);
  CHECK(signal_of([] { kept = std::realloc(nullptr, 8); }) == SIGABRT);
  CHECK(signal_of([] { kept = std::aligned_alloc(64, 64); }) == SIGABRT);
  CHECK(signal_of([] { kept = memalign(64, 64); }) == SIGABRT);
  CHECK(signal_of([] { kept = valloc(64); }) == SIGABRT);
  CHECK(signal_of([] {
          void* pointer = nullptr;
          if (posix_memalign(&pointer, 64, 64) == 0) kept = pointer;
        }) == SIGABRT);
  CHECK(signal_of([] { kept = ::operator new(8); }) == SIGABRT);
  CHECK(signal_of([] { kept = ::operator new[](8); }) == SIGABRT);
  CHECK(signal_of([] { kept = ::operator new(8, std::nothrow); }) == SIGABRT);
  CHECK(signal_of([] { kept = ::operator new (64, std::align_val_t{64}); }) == SIGABRT);
  void* const before = std::malloc(8);
  CHECK(signal_of([&] { std::free(before); }) == SIGABRT);
  std::free(before);
  CHECK(signal_of([] { kept = new std::string(100, 'x'); }) == SIGABRT);
}

TEST_CASE("what does not call malloc comes to its end, and other threads may") {
  CHECK(signal_of([] { kept = nullptr; }) == 0);
  std::atomic<int> stage = 0;
  std::thread other([&] {
    while (stage == 0) std::this_thread::yield();
    kept = std::malloc(8);
    std::free(kept);
    stage = 2;
  });
  const std::uint64_t before = trap::calls();
  {
    const trap::NoMalloc here;
    stage = 1;
    while (stage != 2) std::this_thread::yield();
  }
  other.join();
  CHECK(trap::calls() >= before + 2);
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Kills programs that record, at random moments, and reads what they leave: `soak_kill --kills N --seed S
// --folder F`. A program records with two threads and says after each call how many events it has recorded.
// Its file must be readable, hold every event of which it said so, and at most one more of each thread. A
// program that was killed before it had a file must not have said anything. Prints one line of JSON; exit
// status 1 after a failure, and the file stays.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/remember/slab/recorder.h"
#include "memoir/trace/format.h"
#include "memoir/trace/read/trace.h"

using namespace memoir;

namespace {

constexpr int kThreads = 2;
constexpr Size kInFlight = 0;  // bytes: an event counts when it is whole

struct Progress {
  std::atomic<std::uint64_t> recorded{0};  // events whose call has returned
};

/// Allocates and frees made-up addresses until it is killed.
void record(Recorder& recorder, Progress& progress, int thread, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uintptr_t> live;
  ScopeStack scopes;
  const char* const names[] = {"aten::conv2d", "aten::relu", "aten::linear"};
  for (std::uintptr_t next = 1;; ++next) {
    if (live.size() < 8 || random() % 2 == 0) {
      const std::uintptr_t address = (next * kThreads + static_cast<unsigned>(thread)) * 64;
      scopes.enter(names[random() % 3]);
      recorder.allocated(reinterpret_cast<void*>(address), 1 + random() % 100'000, 64, &scopes);
      scopes.leave();
      live.push_back(address);
    } else {
      const size_t at = random() % live.size();
      recorder.freed(reinterpret_cast<void*>(live[at]));
      live[at] = live.back();
      live.pop_back();
    }
    progress.recorded.fetch_add(1, std::memory_order_relaxed);
  }
}

[[noreturn]] void be_recorded(const char* path, Progress& progress, std::uint64_t seed) {
  static Recorder recorder(path);
  if (!recorder.writer().ok()) std::abort();
  std::thread second([&] { record(recorder, progress, 1, seed + 1); });
  record(recorder, progress, 0, seed);
  std::abort();
}

/// Kills the child after some time or some events, as the draw has it. Returns how many it said it had
/// recorded.
std::uint64_t kill_somewhen(pid_t child, const Progress& progress, std::mt19937_64& random) {
  const std::uint64_t events = random() % 4 == 0 ? ~std::uint64_t{0} : std::uint64_t{1} << random() % 18;
  for (int naps = static_cast<int>(random() % 400); naps > 0 && progress.recorded < events; --naps)
    ::usleep(20);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
    std::fprintf(stderr, "a recorded program ended by itself, with status %d\n", status);
    std::exit(2);
  }
  return progress.recorded;
}

/// What is wrong with what the child left; "" when nothing is.
std::string wrong_with(const std::string& path, std::uint64_t recorded, std::uint64_t& events,
                       bool& had_file) {
  had_file = ::access(path.c_str(), F_OK) == 0;
  events = 0;
  if (!had_file) return recorded == 0 ? "" : "there is no file";
  try {
    const Trace trace = Trace::open(path);
    for (const Event& event : trace.events()) {
      events += event.kind == EventKind::kAllocate || event.kind == EventKind::kFree;
    }
    if (trace.complete()) return "the trace says that it was closed";
    if (trace.lost_bytes() > kInFlight) return "more is torn than the record that was being written";
  } catch (const Error& error) {
    return error.what();
  }
  if (events < recorded) return std::to_string(recorded - events) + " recorded events are missing";
  if (events > recorded + kThreads) return "there are more events than were recorded";
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t kills = 0, seed = 0;
  std::string folder;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--kills") kills = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--folder") folder = argv[i + 1];
  }
  if (kills == 0 || folder.empty()) {
    std::fprintf(stderr, "usage: %s --kills N --folder F [--seed S]\n", argv[0]);
    return 2;
  }
  void* const shared =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  std::mt19937_64 random(seed);
  std::uint64_t failures = 0, without_file = 0, without_event = 0, all_events = 0;
  for (std::uint64_t i = 0; i < kills; ++i) {
    const std::string path = folder + "/kill-" + std::to_string(seed) + "-" + std::to_string(i) + ".trace";
    ::unlink(path.c_str());
    auto& progress = *new (shared) Progress;
    const std::uint64_t child_seed = random();
    const pid_t child = ::fork();
    if (child < 0) return 2;
    if (child == 0) be_recorded(path.c_str(), progress, child_seed);
    const std::uint64_t recorded = kill_somewhen(child, progress, random);
    std::uint64_t events;
    bool had_file;
    const std::string wrong = wrong_with(path, recorded, events, had_file);
    all_events += events;
    without_file += !had_file;
    without_event += had_file && events == 0;
    if (wrong.empty()) {
      ::unlink(path.c_str());
    } else {
      ++failures;
      std::fprintf(stderr, "%s, after %llu events: %s\n", path.c_str(),
                   static_cast<unsigned long long>(recorded), wrong.c_str());
    }
  }
  std::printf(
      "{\"done\": %llu, \"failures\": %llu, \"before_the_file\": %llu, \"before_the_first_event\": %llu, "
      "\"events\": %llu}\n",
      static_cast<unsigned long long>(kills), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(without_file), static_cast<unsigned long long>(without_event),
      static_cast<unsigned long long>(all_events));
  return failures == 0 ? 0 : 1;
}

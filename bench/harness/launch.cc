// SPDX-License-Identifier: Apache-2.0
// memoir-launch: runs one command and reports what the kernel accounted for its whole process tree.
//
//   memoir-launch --report FD [OPTION VALUE]... -- COMMAND...
//   memoir-launch --list-counters
//
// Options: --timeout SECONDS, --grace SECONDS, --cpus 0,1, --counters a,b, --env NAME=VALUE (may be
// repeated), --memory PERIOD (samples of the tree's memory), --witness FOLDER (see witness.h).
//
// SIGTERM and SIGINT kill the tree. SIGUSR1 asks the command to end, with SIGTERM, and kills it 10 s later.
//
// Writes one line of JSON to FD; standard streams are the command's. Nothing is loaded into the command: the
// numbers are wait4's and getrusage's. As the reaper of orphans (PR_SET_CHILD_SUBREAPER) it also waits for
// daemons that the command left; what outlives the command by more than the grace is killed, reaped and
// counted too. Wall time runs from the call of exec, noted by the child itself, until the launcher hears that
// the command has ended.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "counters.h"
#include "memory.h"
#include "tree.h"
#include "witness.h"

namespace {

using memoir::bench::Counter;
using memoir::bench::MemorySampler;
using memoir::bench::Witness;

constexpr double kSamplePeriod = 0.05;  // seconds between looks at a tree that may have more than one process

constexpr double kWitnessPeriod = 0.001;  // seconds between looks of the witness
constexpr double kPatience = 10.0;        // seconds that a command may take to end when it is asked to

struct Options {
  int report = -1;
  double timeout = 0.0;  // 0: none
  double grace = 0.2;
  std::vector<int> cpus;
  std::vector<char*> environment;
  std::vector<std::string> counters;
  double memory = 0.0;  // seconds between samples; 0: none
  std::string witness;  // the probe's folder; empty: no witness
  char** command = nullptr;
};

struct Observed {
  bool ended = false;
  int status = 0;
  double wall = 0.0;
  bool timed_out = false;
  bool interrupted = false;
  bool asked = false;          // the command was asked to end
  int leftover = 0;            // processes that were killed after the command had ended
  int most_at_once = 1;        // processes seen alive together
  uint64_t tree_resident = 0;  // largest sum of resident bytes seen over more than one process
};

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

[[noreturn]] void fail(int report, const char* what, int error) {
  dprintf(report >= 0 ? report : 2, "{\"error\": \"%s\", \"errno\": %d}\n", what, error);
  std::exit(125);
}

std::vector<std::string> split(const char* text) {
  std::vector<std::string> parts(1);
  for (; *text != '\0'; ++text) {
    if (*text == ',') {
      parts.emplace_back();
    } else {
      parts.back() += *text;
    }
  }
  return parts;
}

Options parse(int count, char** arguments) {
  Options options;
  for (char** entry = environ; *entry != nullptr; ++entry) options.environment.push_back(*entry);
  int index = 1;
  for (; index + 1 < count; index += 2) {
    const std::string_view name = arguments[index];
    char* value = arguments[index + 1];
    if (name == "--") break;
    if (name == "--report") {
      options.report = std::atoi(value);
    } else if (name == "--timeout") {
      options.timeout = std::atof(value);
    } else if (name == "--grace") {
      options.grace = std::atof(value);
    } else if (name == "--cpus") {
      for (const std::string& cpu : split(value)) options.cpus.push_back(std::atoi(cpu.c_str()));
    } else if (name == "--env") {
      const char* equals = std::strchr(value, '=');
      if (equals == nullptr) fail(options.report, "--env without =", EINVAL);
      const size_t key = static_cast<size_t>(equals - value) + 1;
      auto same = [&](const char* entry) { return std::strncmp(entry, value, key) == 0; };
      std::erase_if(options.environment, same);
      options.environment.push_back(value);
    } else if (name == "--memory") {
      options.memory = std::atof(value);
    } else if (name == "--witness") {
      options.witness = value;
    } else if (name == "--counters") {
      options.counters = split(value);
    } else {
      fail(options.report, "unknown option", EINVAL);
    }
  }
  if (index + 1 >= count) fail(options.report, "no command", EINVAL);
  options.environment.push_back(nullptr);
  options.command = arguments + index + 1;
  return options;
}

// In the child: waits until the parent is ready, then becomes the command; `failed` carries errno when it
// cannot.
[[noreturn]] void become(const Options& options, int go, int failed, double* started, const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  signal(SIGPIPE, SIG_DFL);  // Python ignores it, and what is ignored survives exec
  if (!options.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu : options.cpus) CPU_SET(static_cast<size_t>(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
      const int error = errno;
      if (write(failed, &error, sizeof error) < 0) _exit(126);
      _exit(126);
    }
  }
  char byte;
  if (read(go, &byte, 1) != 1) _exit(126);
  *started = now();
  execvpe(options.command[0], options.command, options.environment.data());
  const int error = errno;
  if (write(failed, &error, sizeof error) < 0) _exit(127);
  _exit(127);
}

void kill_descendants() {
  for (pid_t process : memoir::bench::descendants(getpid())) kill(process, SIGKILL);
}

// Reaps all that have ended. False when no child is left.
bool reap(pid_t command, const double* started, Observed& observed, Witness* witness) {
  for (;;) {
    int status;
    const double time = now();
    const pid_t process = waitpid(-1, &status, witness == nullptr ? WNOHANG : WNOHANG | __WALL);
    if (process == 0) return true;
    if (process < 0) return errno != ECHILD;
    if (witness != nullptr && witness->on_status(process, status, time)) continue;
    if (process == command) {
      observed.ended = true;
      observed.status = status;
      observed.wall = time - *started;
    }
  }
}

// One process alone has an exact peak in its own rusage, so it is left alone: only its list of children is
// read.
void sample(Observed& observed) {
  const std::vector<pid_t> processes = memoir::bench::descendants(getpid());
  observed.most_at_once = std::max(observed.most_at_once, static_cast<int>(processes.size()));
  if (processes.size() < 2) return;
  uint64_t sum = 0;
  for (pid_t process : processes) sum += memoir::bench::resident_bytes(process);
  observed.tree_resident = std::max(observed.tree_resident, sum);
}

Observed watch(pid_t command, const double* started, const Options& options, const sigset_t& signals,
               MemorySampler& memory, Witness* witness) {
  Observed observed;
  const double forked = now();
  const double deadline = options.timeout > 0.0 ? forked + options.timeout : 1e300;
  double next_sample = forked + kSamplePeriod, last_call = 1e300, patience = 1e300;
  bool killing = false;
  while (reap(command, started, observed, witness)) {
    const double time = now();
    if (observed.ended && last_call == 1e300) last_call = time + options.grace;
    if (!observed.ended && !killing && time >= deadline) observed.timed_out = killing = true;
    if (observed.ended && !killing && time >= last_call) {
      observed.leftover = static_cast<int>(memoir::bench::descendants(getpid()).size());
      killing = true;
    }
    if (!observed.ended && time >= patience) killing = true;
    if (killing) kill_descendants();
    if (!killing && memory.active() && *started > 0.0 && memory.wants(time)) {
      memory.sample(getpid(), *started, time);
    }
    if (!killing && witness != nullptr) witness->tick(time);
    if (!killing && time >= next_sample) {
      sample(observed);
      next_sample = time + kSamplePeriod;
    }
    double pause = std::min({next_sample, observed.ended ? last_call : deadline}) - now();
    if (memory.active()) pause = std::min(pause, std::max(memory.next() - now(), 0.001));
    if (witness != nullptr) pause = std::min(pause, kWitnessPeriod);
    if (killing) pause = 0.002;
    pause = std::clamp(pause, 1e-4, kSamplePeriod);
    const timespec limit{0, static_cast<long>(pause * 1e9)};
    const int signal = sigtimedwait(&signals, nullptr, &limit);
    if (signal == SIGTERM || signal == SIGINT) observed.interrupted = killing = true;
    if (signal == SIGUSR1 && !observed.asked) {
      observed.asked = true;
      patience = now() + kPatience;
      kill(command, SIGTERM);
    }
  }
  return observed;
}

void report(const Options& options, const Observed& observed, const std::vector<Counter>& counters,
            const MemorySampler& memory, const Witness* witness) {
  rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  FILE* out = fdopen(options.report, "w");
  const uint64_t largest = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  std::fprintf(
      out,
      "{\"wall\": %.9f, \"user\": %.6f, \"system\": %.6f, \"peak_rss\": %llu, \"largest_rss\": %llu, "
      "\"minor_faults\": %ld, \"major_faults\": %ld, \"voluntary_switches\": %ld, "
      "\"involuntary_switches\": %ld, \"processes\": %d, \"leftover\": %d, \"timed_out\": %s, "
      "\"interrupted\": %s, \"asked\": %s, ",
      observed.wall, seconds(usage.ru_utime), seconds(usage.ru_stime),
      static_cast<unsigned long long>(std::max(largest, observed.tree_resident)),
      static_cast<unsigned long long>(largest), usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw,
      usage.ru_nivcsw, observed.most_at_once, observed.leftover, observed.timed_out ? "true" : "false",
      observed.interrupted ? "true" : "false", observed.asked ? "true" : "false");
  if (WIFSIGNALED(observed.status)) {
    std::fprintf(out, "\"exit_code\": null, \"signal\": %d", WTERMSIG(observed.status));
  } else {
    std::fprintf(out, "\"exit_code\": %d, \"signal\": null", WEXITSTATUS(observed.status));
  }
  std::fprintf(out, ", \"counters\": {");
  const char* separator = "";
  for (const Counter& counter : counters) {
    const double value = counter.file < 0 ? -1.0 : read_counter(counter);
    if (value < 0.0) continue;
    std::fprintf(out, "%s\"%s%s\": %.0f", separator, counter.name.c_str(), counter.user_only ? "_user" : "",
                 value);
    separator = ", ";
  }
  std::fprintf(out, "}");
  if (memory.active()) {
    std::fprintf(out, ", \"memory\": ");
    memory.report(out);
    std::fprintf(out, ", \"memory_held\": %.6f", memory.held());
  }
  if (witness != nullptr) {
    std::fprintf(out, ", \"images\": ");
    witness->report(out);
  }
  std::fprintf(out, "}\n");
  std::fclose(out);
}

int list_counters() {
  for (const std::string& name : memoir::bench::known_counters()) {
    const Counter counter = memoir::bench::open_counter(name, 0);
    std::printf("%s %s\n", name.c_str(),
                counter.file < 0    ? std::strerror(counter.error)
                : counter.user_only ? "user"
                                    : "all");
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--list-counters") == 0) return list_counters();
  const Options options = parse(count, arguments);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  fcntl(options.report, F_SETFD, FD_CLOEXEC);
  sigset_t signals, previous;
  sigemptyset(&signals);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, &previous);
  int go[2], failed[2];
  if (pipe2(go, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) fail(options.report, "pipe", errno);

  // written by the child just before exec, which unmaps it there; read here afterwards
  void* shared = mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail(options.report, "mmap", errno);
  double* started = static_cast<double*>(shared);

  const pid_t command = fork();
  if (command < 0) fail(options.report, "fork", errno);
  if (command == 0) {
    close(go[1]);  // else a launcher that died before the start would never be noticed
    become(options, go[0], failed[1], started, previous);
  }
  close(failed[1]);
  std::vector<Counter> counters;
  for (const std::string& name : options.counters)
    counters.push_back(memoir::bench::open_counter(name, command));

  Witness observer(options.witness, getpid());
  Witness* witness = options.witness.empty() ? nullptr : &observer;
  if (witness != nullptr) witness->seize(command);
  MemorySampler memory(options.memory);

  if (write(go[1], "", 1) != 1) fail(options.report, "start", errno);
  const Observed observed = watch(command, started, options, signals, memory, witness);
  int error;
  if (read(failed[0], &error, sizeof error) == sizeof error) fail(options.report, "exec", error);
  report(options, observed, counters, memory, witness);
  return 0;
}

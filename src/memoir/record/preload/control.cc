// SPDX-License-Identifier: Apache-2.0
//
// Beginnings and ends: of the recording, of threads, of forked children.
#include "memoir/record/preload/control.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memoir/base/privileges.h"
#include "memoir/base/system_calls.h"
#include "memoir/process/control/control_page.h"
#include "memoir/record/preload/oracle.h"
#include "memoir/record/preload/process.h"
#include "memoir/record/preload/real.h"
#include "memoir/record/preload/sampled.h"

extern char** environ;

namespace memoir::record {

constinit ForkPage fork_page{};
__thread ThreadState thread_state __attribute__((tls_model("initial-exec")));

namespace {

constinit Process process_state;
std::atomic<int> settling{0};  // the thread that is at it
pthread_key_t thread_key;
bool have_key = false;

}  // namespace

constinit ProgramRecorder recorder;
Process& process = process_state;

void switch_to(Mode mode) noexcept {
  const auto ticket_of = [mode](Mode one) {
    return one == mode ? std::uint64_t{host_control::answered} : Tickets::kNever;
  };
  fork_page.tickets = {.dormant = ticket_of(Mode::kDormant),
                       .sampled = ticket_of(Mode::kSampled),
                       .everything = ticket_of(Mode::kEverything)};
  fork_page.mode.store(mode, std::memory_order_release);
}

namespace {

/// Our own code: what it allocates or maps is not the program's.
class Inside {
 public:
  Inside() noexcept : errno_(errno) { ++thread_state.inside; }
  ~Inside() {
    --thread_state.inside;
    errno = errno_;
  }

 private:
  int errno_;
};

int this_thread() noexcept { return static_cast<int>(::syscall(SYS_gettid)); }

/// Of the environment; nothing in a program that runs with more rights than who started it has.
const char* variable(const char* name) noexcept {
  if (has_more_rights()) return nullptr;
  const size_t length = strlen(name);
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  return nullptr;
}

/// Of thread-specific data. It asks to be called again until the last round, after the program's own
/// destructors.
void thread_ends(void* data) {
  ThreadState& state = thread_state;
  if (++state.rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(thread_key, data);
    return;
  }
  const Inside inside;
  state.record = nullptr;
  state.ended = true;
  if (mode() == Mode::kEverything) recorder.detach(*static_cast<ThreadRecord*>(data));
}

void program_exits(int status, void*) { process.ends(static_cast<unsigned>(status) & 0xff, false); }

/// A control page of this process; samples from the start where that is wanted.
void open_own_control() noexcept {
  if (has_more_rights()) return;
  const bool set_up = process.control[0] != '\0';
  const bool open = host_control::open_control(set_up ? process.control : nullptr, set_up);
  if (process.wanted == Mode::kSampled && (!open || start_sampling(process.every) != 0))
    process.wanted = Mode::kDormant;
}

/// Somebody asks for something else.
void answer() noexcept {
  using host_control::Ask;
  using host_control::control_page;
  const std::uint32_t asked = control_page.asked.load(std::memory_order_acquire);
  int failed = 0;
  if (mode() == Mode::kSampled) stop_sampling();
  if (mode() == Mode::kEverything) {
    if (ThreadRecord* const thread = recorder.attach()) {
      recorder.program_ends(*thread, false, 0);
      recorder.detach(*thread);
    }
  }
  Mode next = Mode::kDormant;
  switch (static_cast<Ask>(control_page.mode.load(std::memory_order_relaxed))) {
    case Ask::kDormant:
      break;
    case Ask::kLifetimes:
      failed = start_sampling(control_page.every);
      if (failed == 0) next = Mode::kSampled;
      break;
    case Ask::kEverything:
      // A recorder records once: threads hold on to their parts of it.
      if (recorder.is_open()) failed = EALREADY;
      else {
        control_page.output[sizeof control_page.output - 1] = '\0';
        process.clock.start(nullptr);
        copy_text(process.trace, control_page.output);
        if (process.trace[0] != '\0' && process.begin_trace(process.trace, true)) next = Mode::kEverything;
        else failed = EIO;
      }
      break;
  }
  host_control::answered = asked;
  switch_to(next);
  control_page.failed.store(static_cast<std::uint32_t>(failed), std::memory_order_relaxed);
  control_page.answered.store(asked, std::memory_order_release);
}

/// What the variables ask for.
Mode read_variables() noexcept {
  Mode wanted = Mode::kDormant;
  copy_text(process.trace, variable("MEMOIR_RECORD_TRACE"));
  copy_text(process.checks, variable("MEMOIR_RECORD_CHECK_STACKS"));
  copy_text(process.clock_path, variable("MEMOIR_RECORD_CLOCK"));
  copy_text(process.control, variable("MEMOIR_CONTROL"));
  process.keep_arguments = variable("MEMOIR_RECORD_KEEP_ARGUMENTS") != nullptr;
  if (const char* const every = variable("MEMOIR_SAMPLE_EVERY")) {
    for (const char* digit = every; *digit >= '0' && *digit <= '9' && process.every < (Size{1} << 40);
         ++digit)
      process.every = process.every * 10 + static_cast<Size>(*digit - '0');
    if (process.every != 0) wanted = Mode::kSampled;
  }
  if (process.trace[0] != '\0') wanted = Mode::kEverything;
  return wanted;
}

/// The first start in this process image.
void start_process() noexcept {
  Mode wanted = read_variables();
  process.find_own_modules();
  have_key = pthread_key_create(&thread_key, thread_ends) == 0;
  // A child of fork() then finds kUnset. Where the kernel cannot wipe, fork's own handlers do.
  if (::madvise(&fork_page, sizeof fork_page, MADV_WIPEONFORK) != 0)
    pthread_atfork(nullptr, nullptr, [] { switch_to(Mode::kUnset); });
  process.pid = ::getpid();
  process.started = true;
  if (wanted == Mode::kEverything) {
    process.clock.start(process.clock_path[0] == '\0' ? nullptr : process.clock_path);
    if (process.checks[0] != '\0') recorder.check_stacks(find_oracle());
    if (!process.begin_trace(process.trace)) wanted = Mode::kDormant;
  }
  on_exit(program_exits, nullptr);
  process.wanted = wanted;
  open_own_control();
  switch_to(process.wanted);
}

void start_child() noexcept {
  process.pid = ::getpid();
  process.forked = true;
  if (process.wanted == Mode::kEverything) {
    recorder.after_fork();
    thread_state.record = nullptr;
    thread_state.ended = false;
    if (!process.begin_trace(process.trace)) process.wanted = Mode::kDormant;
  }
  forget_samples();
  host_control::leave_control();
  open_own_control();
  switch_to(process.wanted);
}

}  // namespace

void settle() noexcept {
  if (thread_state.inside != 0) return;
  if (mode() != Mode::kUnset && host_control::asked() == host_control::answered) return;
  if (!may_call_system()) {  // a child of a process that confined itself is left alone
    if (mode() == Mode::kUnset) switch_to(Mode::kDormant);
    return;
  }
  const Inside inside;
  if (!find_real()) return;
  if (environ == nullptr) return;  // the C library has not begun yet
  const int self = this_thread();
  int holder = 0;
  if (!settling.compare_exchange_strong(holder, self, std::memory_order_acq_rel)) {
    // Another thread is at it. After a fork the one that was is not there any more.
    if (process.started && process.pid != ::getpid()) settling.store(0, std::memory_order_release);
    return;
  }
  if (mode() == Mode::kUnset) {
    if (!process.started) start_process();
    else start_child();
  } else if (host_control::asked() != host_control::answered) {
    answer();
  }
  settling.store(0, std::memory_order_release);
}

ThreadRecord* attach_thread() noexcept {
  ThreadState& state = thread_state;
  if (state.inside != 0) return nullptr;
  const Inside inside;
  ThreadRecord* const record = recorder.attach();
  if (record == nullptr) {
    recorder.count_lost();
    return nullptr;
  }
  state.record = record;
  if (!state.ended && have_key) pthread_setspecific(thread_key, record);
  return record;
}

void release_late() noexcept {
  ThreadState& state = thread_state;
  if (state.record == nullptr) return;
  const Inside inside;
  recorder.detach(*state.record);
  state.record = nullptr;
}

bool is_loader(const void* code) noexcept { return process.loader.holds(code); }
bool is_malloc(const void* code) noexcept { return process.malloc_library.holds(code); }

/// The recording begins with the program at the latest, so that one that allocates nothing has a trace too.
__attribute__((constructor(101))) static void begin() { settle(); }

}  // namespace memoir::record

// SPDX-License-Identifier: Apache-2.0
//
// Beginnings and ends: of the recording, of threads, of forked children.
#include "memoir/shim/record/control.h"

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

#include "memoir/shim/record/oracle.h"
#include "memoir/shim/record/process.h"
#include "memoir/shim/record/real.h"

extern char** environ;

namespace memoir::record {

ForkPage fork_page;
__thread ThreadState thread_state __attribute__((tls_model("initial-exec")));

namespace {

constinit ProgramRecorder process_recorder;
constinit Process process_state;
std::atomic<int> settling{0};  // the thread that is at it
pthread_key_t thread_key;
bool have_key = false;

}  // namespace

ProgramRecorder& recorder = process_recorder;
Process& process = process_state;

void switch_to(Mode mode) noexcept { fork_page.mode.store(mode, std::memory_order_release); }

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

const char* variable(const char* name) noexcept {
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

/// The first start in this process image.
void start_process() noexcept {
  Mode wanted = Mode::kDormant;
  copy_text(process.trace, variable("MEMOIR_RECORD_TRACE"));
  copy_text(process.checks, variable("MEMOIR_RECORD_CHECK_STACKS"));
  copy_text(process.clock_path, variable("MEMOIR_RECORD_CLOCK"));
  if (process.trace[0] != '\0') wanted = Mode::kEverything;
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
    on_exit(program_exits, nullptr);
    if (!process.begin_trace(process.trace)) wanted = Mode::kDormant;
  }
  process.wanted = wanted;
  switch_to(wanted);
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
  switch_to(process.wanted);
}

}  // namespace

void settle() noexcept {
  if (thread_state.inside != 0) return;
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
  }
  settling.store(0, std::memory_order_release);
}

ThreadRecord* attach_thread() noexcept {
  ThreadState& state = thread_state;
  if (state.inside != 0) return nullptr;
  const Inside inside;
  ThreadRecord* const record = recorder.attach();
  if (record == nullptr) return nullptr;
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

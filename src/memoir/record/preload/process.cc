// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/preload/process.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memoir/base/files.h"
#include "memoir/base/secrets.h"
#include "memoir/base/system_calls.h"
#include "memoir/process/control/control_page.h"
#include "memoir/record/preload/real.h"
#include "memoir/record/preload/sampled.h"

namespace memoir::record {

namespace {

CodeRange range_of(const void* code) noexcept {
  stacks::ModuleTable modules;
  if (!modules.start()) return {};
  const stacks::LoadedModule* const module = modules.find_holder(reinterpret_cast<std::uintptr_t>(code));
  return module == nullptr ? CodeRange{} : CodeRange{module->begin, module->end - module->begin};
}

/// A malloc in the program itself is found before any that is preloaded: its calls do not come here.
bool has_own_malloc() noexcept {
  void* const served = dlsym(RTLD_DEFAULT, "malloc");
  if (served == nullptr || range_of(&fork_page).holds(served)) return false;
  // A program at a fixed address that takes malloc's address has a jump to ours at that address.
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  const bool is_known = ::dladdr1(served, &info, const_cast<void**>(reinterpret_cast<const void**>(&symbol)),
                                  RTLD_DL_SYMENT) != 0;
  return !is_known || symbol == nullptr || symbol->st_shndx != SHN_UNDEF;
}

void say(const char* text, const char* more) noexcept {
  char line[1400];
  const int length = snprintf(line, sizeof line, "memoir: %s%s\n", text, more);
  if (length > 0) [[maybe_unused]]
    const auto written = ::write(STDERR_FILENO, line, strnlen(line, sizeof line));
}

std::string_view read_command(char* to, std::size_t room, bool keep_secrets) noexcept {
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t length = ::read(file, to, room);
  ::close(file);
  if (length <= 0) return {};
  auto size = static_cast<std::size_t>(length);
  if (to[size - 1] == '\0') --size;
  if (!keep_secrets) size = mask_secrets(to, size);
  for (std::size_t i = 0; i < size; ++i)
    if (to[i] == '\0') to[i] = ' ';
  return {to, size};
}

}  // namespace

/// Adds a line to the list of the other processes' traces: x.index next to x.trace. Each is written at once.
void Process::list_trace(const char* first, int stem, const char* own) const noexcept {
  char text[kMostPath + 100];
  snprintf(text, sizeof text, "%.*s.index", stem, first);
  const int file = open_beside(text, O_WRONLY | O_CREAT | O_APPEND);
  if (file < 0) {
    if (!clock.refuse(errno)) say("the list of other processes' traces cannot be written: ", text);
    return;
  }
  const char* const slash = strrchr(own, '/');
  const int length = snprintf(text, sizeof text, "%s\t%d\t%d\t%s\n", slash == nullptr ? own : slash + 1, pid,
                              static_cast<int>(::getppid()), forked ? "fork" : "exec");
  [[maybe_unused]] const auto written = ::write(file, text, static_cast<std::size_t>(length));
  ::close(file);
}

bool Process::begin_trace(const char* path, bool asked) noexcept {
  char own[kMostPath + 32];
  const std::size_t length = strlen(path);
  constexpr char kSuffix[] = ".trace";
  const std::size_t suffix = sizeof kSuffix - 1;
  const bool named = length > suffix && memcmp(path + length - suffix, kSuffix, suffix) == 0;
  // The program's own malloc may be what is starting up now: nothing here may call it.
  const bool own_malloc = has_own_malloc();
  const auto stem = static_cast<int>(named ? length - suffix : length);
  memcpy(own, path, length + 1);
  for (unsigned number = 0;; ++number) {
    if (!(number == 0 && forked) && recorder.start(own, clock, !own_malloc)) {
      if (number != 0) list_trace(path, stem, own);
      break;
    }
    if (!(number == 0 && forked) && (errno != EEXIST || number > 1000)) {
      const int why = errno;
      // What a child says may be taken for the program's.
      if (!clock.refuse(why) && !forked) {
        char text[120];
        snprintf(text, sizeof text, "cannot write a trace (%s), not recording: ", strerrordesc_np(why));
        say(text, own);
      }
      return false;
    }
    if (number == 0) snprintf(own, sizeof own, "%.*s.%d%s", stem, path, pid, named ? kSuffix : "");
    else snprintf(own, sizeof own, "%.*s.%d.%u%s", stem, path, pid, number + 1, named ? kSuffix : "");
  }
  ThreadRecord* const thread = recorder.attach();
  if (thread == nullptr) return false;
  char text[4096];
  const auto number = [&](long value) {
    return std::string_view(text, static_cast<std::size_t>(snprintf(text, sizeof text, "%ld", value)));
  };
  recorder.meta(*thread, "recorder", "native");
  recorder.meta(*thread, "pid", number(pid));
  recorder.meta(*thread, "parent", number(::getppid()));
  recorder.meta(*thread, "begun", asked ? "attach" : forked ? "fork" : "exec");
  recorder.meta(*thread, "command", read_command(text, sizeof text, keep_arguments));
  if (own_malloc) recorder.meta(*thread, "malloc", "the program's own");
  recorder.detach(*thread);
  return true;
}

void Process::find_own_modules() noexcept {
  malloc_library = range_of(reinterpret_cast<const void*>(real.malloc));
  const CodeRange c_library = range_of(reinterpret_cast<const void*>(&::getppid));
  // its own mappings do not pass through here
  if (malloc_library.begin == c_library.begin) malloc_library = {};
  void* const in_loader = dlsym(RTLD_DEFAULT, "_r_debug");
  if (in_loader != nullptr) loader = range_of(in_loader);
}

void Process::found_names_of_code(int file) noexcept {
  char link[40], path[kMostPath];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const int kept = errno;
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  errno = kept;
  if (length <= 0) return;
  path[length] = '\0';
  const char* const slash = strrchr(path, '/');
  const char* const name = slash == nullptr ? path : slash + 1;
  if (strncmp(name, "jit-", 4) != 0 || strcmp(path + length - 5, ".dump") != 0) return;
  if (ThreadRecord* const thread = own_record()) recorder.meta(*thread, "jitdump", path);
}

bool Process::is_own() const noexcept { return !may_call_system() || ::syscall(SYS_getpid) == pid; }

void Process::goes_on() noexcept {
  if (is_own()) host_control::control_page.ended.store(0, std::memory_order_release);
}

void Process::ends(unsigned status, bool by_exec) noexcept {
  if (!is_own()) return;
  if (mode() == Mode::kSampled) tell_samples(!by_exec);
  host_control::control_page.ended.store(1, std::memory_order_release);
  // What was sampled is somebody's to read; a page without anything is nobody's.
  if (control[0] == '\0' && !by_exec && may_call_system()) host_control::remove_control();
  if (mode() != Mode::kEverything) return;
  ThreadRecord* const thread = own_record();
  if (thread != nullptr) recorder.program_ends(*thread, by_exec, status);
  if (thread_state.ended) release_late();
  if (checks[0] == '\0' || by_exec || !may_call_system()) return;
  const int file = open_beside(checks, O_WRONLY | O_CREAT | O_APPEND);
  if (file < 0) return;
  char line[256];
  const ProgramRecorder::Checked all = recorder.checked();
  const int length = snprintf(line, sizeof line, "%d %lu %lu %lu %lu %lu %lx %lx %lx %lx\n", pid, all.stacks,
                              all.different, all.cut, all.in_made_code, all.at_fibre, all.first[0],
                              all.first[1], all.first[2], all.first[3]);
  [[maybe_unused]] const auto written = ::write(file, line, static_cast<std::size_t>(length));
  ::close(file);
}

}  // namespace memoir::record

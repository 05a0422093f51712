// SPDX-License-Identifier: Apache-2.0
//
// What else the program calls that a recording has to know of: the ends of programs, libraries that go,
// memory that it maps by itself.
#include <alloca.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memoir/process/control/exported_names.h"
#include "memoir/record/preload/control.h"
#include "memoir/record/preload/process.h"
#include "memoir/record/preload/real.h"
#include "memoir/record/preload/sampled.h"

#if !defined(__clang__)  // which does not know the warning
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

using namespace memoir::record;
using memoir::stacks::StackWalker;

extern char** environ;

// Names that not every C library's headers have. Only their addresses are used.
extern "C" {
void* reallocarray(void*, size_t, size_t);
void* memalign(size_t, size_t);
void* valloc(size_t);
void* pvalloc(size_t);
size_t malloc_usable_size(void*);
void cfree(void*);
}

namespace {

using Entry = StackWalker::Entry;

/// The thread's part when the program itself maps memory: not our own code, and not the malloc behind us.
ThreadRecord* mapping_thread(const Entry& entry) noexcept {
  if (mode() != Mode::kEverything || thread_state.inside != 0) return nullptr;
  if (thread_state.record != nullptr && thread_state.record->busy) return nullptr;
  if (is_malloc(*reinterpret_cast<void* const*>(entry.slot))) return nullptr;
  return thread_state.ended ? nullptr : own_record();
}

void note_map(void* at, size_t size, const Entry& entry) noexcept {
  if (at == MAP_FAILED) return;
  if (ThreadRecord* const thread = mapping_thread(entry)) recorder.mapped(*thread, at, size, entry);
}

/// Code made at run time has its names in a file that a profiler finds by this mapping: jit-PID.dump.
void note_file(int file, int protection) noexcept {
  if ((protection & PROT_EXEC) == 0 || mode() != Mode::kEverything || thread_state.inside != 0) return;
  process.found_names_of_code(file);
}

void note_unmap(void* at, size_t size, const Entry& entry) noexcept {
  if (ThreadRecord* const thread = mapping_thread(entry)) recorder.unmapped(*thread, at, size, entry);
}

void* map(void* at, size_t size, int protection, int flags, int file, off_t offset,
          const Entry& entry) noexcept {
  auto* const mapped =
      reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, protection, flags, file, offset));
  note_map(mapped, size, entry);
  if (mapped != MAP_FAILED && (flags & MAP_ANONYMOUS) == 0) note_file(file, protection);
  return mapped;
}

#define MEMOIR_NAME(name) \
  { #name, reinterpret_cast < void*>(&name) }
const memoir::host_control::ExportedName malloc_family[] = {
    MEMOIR_NAME(malloc),        MEMOIR_NAME(free),           MEMOIR_NAME(calloc),
    MEMOIR_NAME(realloc),       MEMOIR_NAME(reallocarray),   MEMOIR_NAME(memalign),
    MEMOIR_NAME(aligned_alloc), MEMOIR_NAME(posix_memalign), MEMOIR_NAME(valloc),
    MEMOIR_NAME(pvalloc),       MEMOIR_NAME(cfree),          MEMOIR_NAME(malloc_usable_size),
};

/// execl's arguments as an array: from `first`, which is not null, to the null.
#define MEMOIR_COLLECT(first)                                                        \
  va_list counted, taken;                                                            \
  va_start(counted, first);                                                          \
  va_copy(taken, counted);                                                           \
  size_t count = 1;                                                                  \
  while (va_arg(counted, char*) != nullptr) ++count;                                 \
  va_end(counted);                                                                   \
  auto** const arguments = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  arguments[0] = const_cast<char*>(first);                                           \
  for (size_t i = 1; i <= count; ++i) arguments[i] = va_arg(taken, char*)

void before_exec() noexcept {
  settle();
  const int kept = errno;
  process.ends(0, true);
  errno = kept;
}
/// Only an exec that failed returns: the program goes on.
int after_exec(int failed) noexcept {
  process.goes_on();
  return failed;
}

}  // namespace

MEMOIR_EXPORT void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  return map(at, size, protection, flags, file, offset, MEMOIR_ENTRY);
}
MEMOIR_EXPORT void* mmap64(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  return map(at, size, protection, flags, file, offset, MEMOIR_ENTRY);
}
MEMOIR_EXPORT int munmap(void* at, size_t size) {
  note_unmap(at, size, MEMOIR_ENTRY);
  return static_cast<int>(::syscall(SYS_munmap, at, size));
}
MEMOIR_EXPORT void* mremap(void* at, size_t old_size, size_t new_size, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void* const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  auto* const moved = reinterpret_cast<void*>(::syscall(SYS_mremap, at, old_size, new_size, flags, wanted));
  if (moved != MAP_FAILED) {
    note_unmap(at, old_size, MEMOIR_ENTRY);
    note_map(moved, new_size, MEMOIR_ENTRY);
  }
  return moved;
}
MEMOIR_EXPORT void* sbrk(intptr_t change) {
  settle();
  void* const before = real.sbrk(change);
  if (before != reinterpret_cast<void*>(-1)) {
    if (change > 0) note_map(before, static_cast<size_t>(change), MEMOIR_ENTRY);
    if (change < 0)
      note_unmap(static_cast<char*>(before) + change, static_cast<size_t>(-change), MEMOIR_ENTRY);
  }
  return before;
}

/// A jump to the real one, which looks at who called it ($ORIGIN, RUNPATH).
MEMOIR_EXPORT void* dlopen(const char* file, int flags) {
  settle();
  return real.dlopen(file, memoir::host_control::before_dlopen(file, flags, malloc_family,
                                                               sizeof malloc_family / sizeof *malloc_family));
}
MEMOIR_EXPORT int dlclose(void* handle) {
  settle();
  const int failed = real.dlclose(handle);
  if (mode() == Mode::kEverything)
    recorder.modules_changed(thread_state.inside == 0 ? own_record() : nullptr);
  if (mode() == Mode::kSampled) Sampled::modules_changed();
  return failed;
}

MEMOIR_EXPORT void _exit(int status) {
  settle();
  process.ends(static_cast<unsigned>(status) & 0xff, false);
  real.exit_now(status);
}
MEMOIR_EXPORT void _Exit(int status) {
  settle();
  process.ends(static_cast<unsigned>(status) & 0xff, false);
  real.exit_now(status);
}

MEMOIR_EXPORT int execve(const char* path, char* const* arguments, char* const* environment) {
  before_exec();
  return after_exec(real.execve(path, arguments, environment));
}
MEMOIR_EXPORT int execv(const char* path, char* const* arguments) {
  before_exec();
  return after_exec(real.execve(path, arguments, environ));
}
MEMOIR_EXPORT int execvp(const char* file, char* const* arguments) {
  before_exec();
  return after_exec(real.execvpe(file, arguments, environ));
}
MEMOIR_EXPORT int execvpe(const char* file, char* const* arguments, char* const* environment) {
  before_exec();
  return after_exec(real.execvpe(file, arguments, environment));
}
MEMOIR_EXPORT int fexecve(int file, char* const* arguments, char* const* environment) {
  before_exec();
  return after_exec(real.fexecve(file, arguments, environment));
}
MEMOIR_EXPORT int execl(const char* path, const char* first, ...) {
  MEMOIR_COLLECT(first);
  va_end(taken);
  before_exec();
  return after_exec(real.execve(path, arguments, environ));
}
MEMOIR_EXPORT int execlp(const char* file, const char* first, ...) {
  MEMOIR_COLLECT(first);
  va_end(taken);
  before_exec();
  return after_exec(real.execvpe(file, arguments, environ));
}
MEMOIR_EXPORT int execle(const char* path, const char* first, ...) {
  MEMOIR_COLLECT(first);
  auto** const environment = va_arg(taken, char**);
  va_end(taken);
  before_exec();
  return after_exec(real.execve(path, arguments, environment));
}

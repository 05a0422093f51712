// SPDX-License-Identifier: Apache-2.0
// libmemoir_proof.so: preloaded in front of an allocator, in a run of its own that is never measured, it says
// who serves malloc in each process and how often the program asks. It forwards every call to the next object
// in line.
//
// $MEMOIR_PROOF names a folder; each process image maps a Record in a file of its own there, so what it
// counted survives _exit, exec and SIGKILL alike. Does nothing when the variable is absent.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Record {   // read by memoir/bench/proof.py
  char magic[8];  // "memproof"
  uint64_t process;
  std::atomic<uint64_t> calls;  // malloc, calloc, realloc, operator new: since main's object was initialised
  std::atomic<uint64_t> bytes;
  char provider[1024];  // the object whose malloc serves, as the dynamic loader names it
  char program[1024];   // /proc/self/exe
};

Record* record = nullptr;

using Malloc = void* (*)(size_t);
using Calloc = void* (*)(size_t, size_t);
using Realloc = void* (*)(void*, size_t);

// dlsym may itself call calloc, and takes no for an answer; so a symbol is looked up once, and "not yet" is
// null.
thread_local bool looking [[gnu::tls_model("initial-exec")]] = false;

template <class Function>
Function next(const char* name, std::atomic<Function>& cached) {
  Function function = cached.load(std::memory_order_relaxed);
  if (function == nullptr && !looking) {
    looking = true;
    function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    looking = false;
    cached.store(function, std::memory_order_relaxed);
  }
  return function;
}

// True while operator new of the C++ library is called: it calls malloc, which has then been counted already.
thread_local bool counted [[gnu::tls_model("initial-exec")]] = false;

void count(size_t size) {
  if (record == nullptr || counted) return;
  record->calls.fetch_add(1, std::memory_order_relaxed);
  record->bytes.fetch_add(size, std::memory_order_relaxed);
}

std::atomic<Malloc> next_malloc, next_new, next_new_array;
std::atomic<Calloc> next_calloc;
std::atomic<Realloc> next_realloc;

[[gnu::constructor]] void start() {
  const char* folder = getenv("MEMOIR_PROOF");
  if (folder == nullptr) return;
  char path[1200];
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  snprintf(path, sizeof path, "%s/%d.%lld.%ld", folder, getpid(), static_cast<long long>(time.tv_sec),
           time.tv_nsec);
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  void* mapped = MAP_FAILED;
  if (ftruncate(file, sizeof(Record)) == 0) {
    mapped = mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (mapped == MAP_FAILED) return;
  Record* fresh = static_cast<Record*>(mapped);
  fresh->process = static_cast<uint64_t>(getpid());
  Dl_info info{};
  const Malloc serving = next("malloc", next_malloc);
  if (serving != nullptr && dladdr(reinterpret_cast<void*>(serving), &info) != 0 &&
      info.dli_fname != nullptr) {
    strncpy(fresh->provider, info.dli_fname, sizeof fresh->provider - 1);
  }
  if (readlink("/proc/self/exe", fresh->program, sizeof fresh->program - 1) < 0) fresh->program[0] = '\0';
  memcpy(fresh->magic, "memproof", 8);
  record = fresh;
}

void* forward_new(const char* name, std::atomic<Malloc>& cached, size_t size) {
  const Malloc function = next(name, cached);
  if (function == nullptr) return malloc(size);
  count(size);
  counted = true;
  // one that throws leaves `counted` set: the program is then out of memory anyway
  void* pointer = function(size);
  counted = false;
  return pointer;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void* malloc(size_t size) {
  const Malloc function = next("malloc", next_malloc);
  count(size);
  return function == nullptr ? nullptr : function(size);
}

[[gnu::visibility("default")]] void* calloc(size_t number, size_t size) {
  const Calloc function = next("calloc", next_calloc);
  count(number * size);
  return function == nullptr ? nullptr : function(number, size);
}

[[gnu::visibility("default")]] void* realloc(void* pointer, size_t size) {
  const Realloc function = next("realloc", next_realloc);
  count(size);
  return function == nullptr ? nullptr : function(pointer, size);
}

// operator new and new[] on 64-bit machines: allocators bring their own, which would otherwise pass
// uncounted.
[[gnu::visibility("default")]] void* _Znwm(size_t size) { return forward_new("_Znwm", next_new, size); }

[[gnu::visibility("default")]] void* _Znam(size_t size) { return forward_new("_Znam", next_new_array, size); }
}

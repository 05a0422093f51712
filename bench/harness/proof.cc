// SPDX-License-Identifier: Apache-2.0
// libmemoir_proof.so: preloaded in front of an allocator, in a run of its own that is never measured, it says
// who serves malloc in each process, how often the program asks, and where the blocks are. It forwards every
// call to the next object in line.
//
// $MEMOIR_PROOF names a folder; each process image maps a Record in a file of its own there, so what it
// counted survives _exit, exec and SIGKILL alike. Next to it is a map (.map): a bit for each 64 KiB of the
// address space, set where a block was ever handed out. It is a sparse file of 256 MiB, of which a few pages
// are ever touched. Who looks at the process from outside (witness.cc) compares it with the memory that the
// process holds. Does nothing when the variable is absent.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
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

struct Record {   // read by memoir/bench/process/proof.py
  char magic[8];  // "memproof"
  uint64_t process;
  std::atomic<uint64_t> calls;  // malloc, calloc, realloc, operator new: since main's object was initialised
  std::atomic<uint64_t> bytes;
  char provider[1024];  // the object whose malloc serves, as the dynamic loader names it
  char program[1024];   // /proc/self/exe
  char shadow[1024];    // the object whose malloc the program itself calls, if not the probe's; else empty
};

Record* record = nullptr;

constexpr uint64_t kGranuleBits = 16, kAddressBits = 47;
constexpr size_t kMapBytes = size_t{1} << (kAddressBits - kGranuleBits - 3);
std::atomic<uint8_t>* map = nullptr;

// Sets the bits of a block's granules; the inner ones of a large block a whole byte at a time.
void mark(const void* block, size_t size) {
  if (map == nullptr || block == nullptr) return;
  const uint64_t begin = reinterpret_cast<uint64_t>(block);
  if ((begin + size) >> kAddressBits != 0 || begin + size < begin) return;
  uint64_t first = begin >> kGranuleBits;
  const uint64_t last = (begin + (size == 0 ? 0 : size - 1)) >> kGranuleBits;
  while (first <= last) {
    const uint64_t whole = first % 8 == 0 && last - first >= 7;
    const auto bits = static_cast<uint8_t>(whole ? 0xff : 1u << (first % 8));
    std::atomic<uint8_t>& byte = map[first / 8];
    if ((byte.load(std::memory_order_relaxed) & bits) != bits) byte.fetch_or(bits, std::memory_order_relaxed);
    first += whole ? 8 : 1;
  }
}

using Malloc = void* (*)(size_t);
using Calloc = void* (*)(size_t, size_t);
using Realloc = void* (*)(void*, size_t);
using Align = void* (*)(size_t, size_t);
using PosixAlign = int (*)(void**, size_t, size_t);

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

std::atomic<Malloc> next_malloc, next_new, next_new_array, next_valloc;
std::atomic<Align> next_memalign, next_aligned, next_new_aligned, next_new_array_aligned, next_new_quiet,
    next_new_array_quiet;
std::atomic<PosixAlign> next_posix;
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
  strncat(path, ".map", sizeof path - strlen(path) - 1);
  if (const int bits = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); bits >= 0) {
    void* fresh = MAP_FAILED;
    if (ftruncate(bits, kMapBytes) == 0) {
      fresh = mmap(nullptr, kMapBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, bits, 0);
    }
    close(bits);
    if (fresh != MAP_FAILED) map = static_cast<std::atomic<uint8_t>*>(fresh);
  }
  Record* fresh = static_cast<Record*>(mapped);
  fresh->process = static_cast<uint64_t>(getpid());
  Dl_info info{};
  const Malloc serving = next("malloc", next_malloc);
  if (serving != nullptr && dladdr(reinterpret_cast<void*>(serving), &info) != 0 &&
      info.dli_fname != nullptr) {
    strncpy(fresh->provider, info.dli_fname, sizeof fresh->provider - 1);
  }
  // A program that brings a malloc of its own is searched before whatever is preloaded. One that only takes
  // malloc's address has an entry for it too, which defines nothing.
  void* called = dlsym(RTLD_DEFAULT, "malloc");
  Dl_info self{}, other{};
  const ElfW(Sym)* symbol = nullptr;
  if (dladdr(reinterpret_cast<void*>(&start), &self) != 0 &&
      dladdr1(called, &other, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)), RTLD_DL_SYMENT) !=
          0 &&
      other.dli_fbase != self.dli_fbase && other.dli_fname != nullptr && symbol != nullptr &&
      symbol->st_shndx != 0) {
    strncpy(fresh->shadow, other.dli_fname, sizeof fresh->shadow - 1);
  }
  if (readlink("/proc/self/exe", fresh->program, sizeof fresh->program - 1) < 0) fresh->program[0] = '\0';
  memcpy(fresh->magic, "memproof", 8);
  record = fresh;
}

// Calls the next object's function, or `plain` where there is none, and notes what came of it.
template <class Function, class Plain, class... Arguments>
void* forward(const char* name, std::atomic<Function>& cached, size_t size, Plain plain,
              Arguments... arguments) {
  const Function function = next(name, cached);
  if (function == nullptr) return plain();
  count(size);
  const bool outer = !counted;
  counted = true;  // operator new calls malloc, which has then been counted already
  // one that throws leaves `counted` set: the program is then out of memory anyway
  void* block = function(arguments...);
  if (outer) counted = false;
  mark(block, size);
  return block;
}

void* nothing() { return nullptr; }

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void* malloc(size_t size) {
  return forward("malloc", next_malloc, size, nothing, size);
}

[[gnu::visibility("default")]] void* calloc(size_t number, size_t size) {
  return forward("calloc", next_calloc, number * size, nothing, number, size);
}

[[gnu::visibility("default")]] void* realloc(void* pointer, size_t size) {
  return forward("realloc", next_realloc, size, nothing, pointer, size);
}

[[gnu::visibility("default")]] void* memalign(size_t alignment, size_t size) {
  return forward("memalign", next_memalign, size, nothing, alignment, size);
}

[[gnu::visibility("default")]] void* aligned_alloc(size_t alignment, size_t size) {
  return forward("aligned_alloc", next_aligned, size, nothing, alignment, size);
}

[[gnu::visibility("default")]] void* valloc(size_t size) {
  return forward("valloc", next_valloc, size, nothing, size);
}

[[gnu::visibility("default")]] int posix_memalign(void** out, size_t alignment, size_t size) {
  const PosixAlign function = next("posix_memalign", next_posix);
  if (function == nullptr) return 12;  // ENOMEM
  count(size);
  const int result = function(out, alignment, size);
  if (result == 0) mark(*out, size);
  return result;
}

// operator new and new[] on 64-bit machines: allocators bring their own, which would otherwise pass
// uncounted.
[[gnu::visibility("default")]] void* _Znwm(size_t size) {
  return forward(
      "_Znwm", next_new, size, [size] { return malloc(size); }, size);
}

[[gnu::visibility("default")]] void* _Znam(size_t size) {
  return forward(
      "_Znam", next_new_array, size, [size] { return malloc(size); }, size);
}

[[gnu::visibility("default")]] void* _ZnwmRKSt9nothrow_t(size_t size, size_t quiet) {
  return forward(
      "_ZnwmRKSt9nothrow_t", next_new_quiet, size, [size] { return malloc(size); }, size, quiet);
}

[[gnu::visibility("default")]] void* _ZnamRKSt9nothrow_t(size_t size, size_t quiet) {
  return forward(
      "_ZnamRKSt9nothrow_t", next_new_array_quiet, size, [size] { return malloc(size); }, size, quiet);
}

[[gnu::visibility("default")]] void* _ZnwmSt11align_val_t(size_t size, size_t alignment) {
  return forward(
      "_ZnwmSt11align_val_t", next_new_aligned, size, [=] { return memalign(alignment, size); }, size,
      alignment);
}

[[gnu::visibility("default")]] void* _ZnamSt11align_val_t(size_t size, size_t alignment) {
  return forward(
      "_ZnamSt11align_val_t", next_new_array_aligned, size, [=] { return memalign(alignment, size); }, size,
      alignment);
}
}

// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/control/exported_names.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace memoir::host_control {

namespace {

#if defined(RTLD_DEEPBIND)

using Address = ElfW(Addr);
using Symbol = ElfW(Sym);

constexpr const char* kLibrary = "libc.so.6";

/// A loaded library's symbols, and how the loader finds them by name (DT_GNU_HASH).
struct Exports {
  Address base = 0;
  size_t size = 0;     // of what is loaded
  int protection = 0;  // of the memory with the symbols
  Symbol* symbols = nullptr;
  const char* names = nullptr;
  const char* soname = nullptr;
  const uint32_t* hash = nullptr;

  explicit Exports(const dl_phdr_info& library) noexcept : base(library.dlpi_addr) {
    const ElfW(Dyn)* entry = nullptr;
    for (size_t i = 0; i < library.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = library.dlpi_phdr[i];
      if (part.p_type == PT_DYNAMIC) entry = reinterpret_cast<const ElfW(Dyn)*>(base + part.p_vaddr);
      if (part.p_type == PT_LOAD && part.p_vaddr + part.p_memsz > size) size = part.p_vaddr + part.p_memsz;
    }
    if (entry == nullptr) return;
    Address soname_at = 0;
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) symbols = static_cast<Symbol*>(at(entry->d_un.d_ptr));
      if (entry->d_tag == DT_STRTAB) names = static_cast<const char*>(at(entry->d_un.d_ptr));
      if (entry->d_tag == DT_GNU_HASH) hash = static_cast<const uint32_t*>(at(entry->d_un.d_ptr));
      if (entry->d_tag == DT_SONAME) soname_at = entry->d_un.d_val;
    }
    if (names != nullptr && soname_at != 0) soname = names + soname_at;
    const Address table = reinterpret_cast<Address>(symbols) - base;
    for (size_t i = 0; i < library.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = library.dlpi_phdr[i];
      if (part.p_type == PT_LOAD && table - part.p_vaddr < part.p_memsz)
        protection = ((part.p_flags & PF_R) != 0 ? PROT_READ : 0) |
                     ((part.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
                     ((part.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
    }
  }

  /// The loader has added the base to the entries already, on most machines.
  void* at(Address pointer) const noexcept {
    return reinterpret_cast<void*>(pointer < base ? base + pointer : pointer);
  }

  /// Calls `found` with each symbol of a name (a name may have versions). False at the first that says false.
  template <class Found>
  bool each(const char* name, const Found& found) const noexcept {
    uint32_t wanted = 5381;
    for (const char* letter = name; *letter != 0; ++letter)
      wanted = wanted * 33 + static_cast<unsigned char>(*letter);
    const uint32_t bucket_count = hash[0], first = hash[1], filter_words = hash[2];
    const uint32_t* const buckets = hash + 4 + filter_words * (sizeof(Address) / sizeof(uint32_t));
    const uint32_t* const chains = buckets + bucket_count;
    if (bucket_count == 0) return true;
    for (uint32_t i = buckets[wanted % bucket_count]; i >= first && i != 0; ++i) {
      const uint32_t link = chains[i - first];
      if (((link ^ wanted) >> 1) == 0 && strcmp(names + symbols[i].st_name, name) == 0 && !found(symbols[i]))
        return false;
      if ((link & 1) != 0) break;
    }
    return true;
  }
};

bool point_to(const Exports& library, Symbol& symbol, void* function) noexcept {
  const bool its_own = symbol.st_value < library.size;
  if (symbol.st_shndx == SHN_UNDEF || (symbol.st_info & 0xf) != STT_FUNC || !its_own) return true;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto value = reinterpret_cast<uintptr_t>(&symbol.st_value);
  auto* const from = reinterpret_cast<void*>(value & ~(page - 1));
  if (mprotect(from, page, library.protection | PROT_WRITE) != 0) return false;
  __atomic_store_n(&symbol.st_value, reinterpret_cast<Address>(function) - library.base, __ATOMIC_RELEASE);
  mprotect(from, page, library.protection);
  return true;
}

struct Task {
  const ExportedName* names;
  size_t count;
  bool done = false;
};

std::atomic<bool> answered{false};

/// Runs under the loader's lock, which keeps threads apart and is in order after fork.
int answer(dl_phdr_info* library, size_t, void* data) noexcept {
  Task& task = *static_cast<Task*>(data);
  if (answered.load(std::memory_order_relaxed)) return task.done = true;
  const Exports exports(*library);
  if (exports.soname == nullptr || strcmp(exports.soname, kLibrary) != 0) return 0;
  if (exports.symbols == nullptr || exports.hash == nullptr || exports.protection == 0) return 1;
  task.done = true;
  for (size_t i = 0; i < task.count; ++i)
    task.done &= exports.each(task.names[i].name, [&](Symbol& symbol) noexcept {
      return point_to(exports, symbol, task.names[i].function);
    });
  answered.store(task.done, std::memory_order_release);
  return 1;
}

bool names_the_library(const char* file) noexcept {
  if (file == nullptr) return false;
  const char* const slash = strrchr(file, '/');
  return strcmp(slash == nullptr ? file : slash + 1, kLibrary) == 0;
}

#endif

}  // namespace

int before_dlopen([[maybe_unused]] const char* file, int flags, [[maybe_unused]] const ExportedName* names,
                  [[maybe_unused]] size_t count) noexcept {
#if defined(RTLD_DEEPBIND)
  const bool deep = (flags & RTLD_DEEPBIND) != 0;
  if ((!deep && !names_the_library(file)) || answered.load(std::memory_order_acquire)) return flags;
  const int kept = errno;
  Task task{names, count};
  dl_iterate_phdr(answer, &task);
  errno = kept;
  if (!task.done) return flags & ~RTLD_DEEPBIND;
#endif
  return flags;
}

}  // namespace memoir::host_control

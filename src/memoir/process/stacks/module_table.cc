// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/module_table.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "memoir/base/metadata.h"
#include "memoir/base/pause.h"
#include "memoir/process/stacks/thread_stack.h"

// glibc 2.35's, which takes no lock. Absent elsewhere.
#ifdef DLFO_STRUCT_HAS_EH_DBASE
#pragma weak _dl_find_object
#endif

namespace memoir::stacks {

namespace {

/// What the loader says of the module that holds an address.
struct Loaded {
  Address bias = 0;
  const void* link_map = nullptr;
  const char* path = "";
  const ElfW(Phdr) * headers = nullptr;
  unsigned header_count = 0;
};

struct Question {
  Address pc;
  Loaded loaded;
};

int look_at(struct dl_phdr_info* info, size_t, void* data) {
  auto& question = *static_cast<Question*>(data);
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || question.pc - info->dlpi_addr - header.p_vaddr >= header.p_memsz)
      continue;
    question.loaded = {.bias = info->dlpi_addr,
                       .link_map = info->dlpi_phdr,  // as good a mark
                       .path = info->dlpi_name == nullptr ? "" : info->dlpi_name,
                       .headers = info->dlpi_phdr,
                       .header_count = info->dlpi_phnum};
    return 1;
  }
  return 0;
}

bool ask_with_lock(Address pc, Loaded& loaded) noexcept {
  Question question{pc, {}};
  if (dl_iterate_phdr(look_at, &question) == 0) return false;
  loaded = question.loaded;
  return true;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE
const void* link_map_of(Address at) noexcept {
  struct dl_find_object found;
  return _dl_find_object(reinterpret_cast<void*>(at), &found) == 0 ? found.dlfo_link_map : nullptr;
}

/// The program headers of a link map, which has no public word for them: those that the kernel told of the
/// program, or behind the ELF header, which lies where a library's own addresses count from. Where segments
/// are far apart, the loader tells of each by itself, so that it is asked whose those places are.
void find_headers(Loaded& loaded) noexcept {
  const Address told = ::getauxval(AT_PHDR);
  if (told != 0 && ::getauxval(AT_PHENT) == sizeof(ElfW(Phdr)) && link_map_of(told) == loaded.link_map) {
    loaded.headers = reinterpret_cast<const ElfW(Phdr)*>(told);
    loaded.header_count = static_cast<unsigned>(::getauxval(AT_PHNUM));
    return;
  }
  if (loaded.bias == 0 || link_map_of(loaded.bias) != loaded.link_map) return;
  const auto* const elf = reinterpret_cast<const ElfW(Ehdr)*>(loaded.bias);
  if (memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 || elf->e_phentsize != sizeof(ElfW(Phdr)) ||
      elf->e_phoff + elf->e_phnum * sizeof(ElfW(Phdr)) > 4096)
    return;
  loaded.headers = reinterpret_cast<const ElfW(Phdr)*>(loaded.bias + elf->e_phoff);
  loaded.header_count = elf->e_phnum;
}

bool ask_lock_free(Address pc, Loaded& loaded) noexcept {
  struct dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(pc), &found) != 0) return false;
  loaded.link_map = found.dlfo_link_map;
  loaded.bias = found.dlfo_link_map->l_addr;
  loaded.path = found.dlfo_link_map->l_name == nullptr ? "" : found.dlfo_link_map->l_name;
  return true;
}
#endif

bool ask(Address pc, Loaded& loaded) noexcept {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
  if (_dl_find_object != nullptr) return ask_lock_free(pc, loaded);
#endif
  return ask_with_lock(pc, loaded);
}

void read_build_id(LoadedModule& module, Address at, Address end) noexcept {
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    const auto* const note = reinterpret_cast<const ElfW(Nhdr)*>(at);
    const Address name = at + sizeof *note, text = name + ((note->n_namesz + 3u) & ~3u);
    const Address next = text + ((note->n_descsz + 3u) & ~3u);
    if (next > end || next < at) return;
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
        memcmp(reinterpret_cast<const void*>(name), "GNU", 4) == 0) {
      module.build_id_size =
          note->n_descsz < sizeof module.build_id ? note->n_descsz : sizeof module.build_id;
      memcpy(module.build_id, reinterpret_cast<const void*>(text), module.build_id_size);
      return;
    }
    at = next;
  }
}

/// Its path, absolute: as the kernel has it where the program named it by a relative one.
void set_path(LoadedModule& module, const char* path, Address code) noexcept {
  constexpr char kDeleted[] = " (deleted)";
  module.path[0] = '\0';
  if (path[0] != '/' && strchr(path, '/') != nullptr) {
    find_mapping(code, true, module.path, sizeof module.path);
    char* const end = module.path + strlen(module.path);
    constexpr std::size_t kLength = sizeof kDeleted - 1;
    if (end - module.path > static_cast<long>(kLength) && strcmp(end - kLength, kDeleted) == 0)
      end[-static_cast<long>(kLength)] = '\0';
  }
  if (module.path[0] != '/') {
    strncpy(module.path, path, sizeof module.path - 1);
    module.path[sizeof module.path - 1] = '\0';
  }
}

/// False when nobody knows its segments.
bool fill(LoadedModule& module, Loaded loaded, Address pc) noexcept {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
  if (loaded.headers == nullptr) find_headers(loaded);
#endif
  if (loaded.headers == nullptr) {
    Loaded known;
    if (!ask_with_lock(pc, known)) return false;
    loaded.headers = known.headers;
    loaded.header_count = known.header_count;
  }
  const auto visit = [&](std::uint32_t type, auto take) {
    for (unsigned i = 0; i < loaded.header_count; ++i) {
      const ElfW(Phdr)& header = loaded.headers[i];
      const Address at = loaded.bias + header.p_vaddr;
      if (header.p_type == type) take(header, at, at + header.p_memsz);
    }
  };
  module.begin = ~Address{0};
  module.end = module.code_count = module.build_id_size = 0;
  module.table_begin = module.table_end = module.eh_frame_header = 0;
  module.bias = loaded.bias;
  module.link_map = loaded.link_map;
  visit(PT_GNU_EH_FRAME, [&](auto&, Address at, Address) { module.eh_frame_header = at; });
  visit(PT_LOAD, [&](const ElfW(Phdr) & header, Address at, Address end) {
    if (at < module.begin) module.begin = at;
    if (end > module.end) module.end = end;
    if (module.eh_frame_header >= at && module.eh_frame_header < end) {
      module.table_begin = at;
      module.table_end = end;
    }
    if ((header.p_flags & PF_X) == 0) return;
    if (module.code_count < LoadedModule::kMostCode) module.code[module.code_count++] = {at, end};
    else module.code[LoadedModule::kMostCode - 1].end = end;
  });
  visit(PT_NOTE, [&](auto&, Address at, Address end) {
    if (module.build_id_size != 0) return;
    visit(PT_LOAD, [&](auto&, Address from, Address to) {
      if (at >= from && end <= to) read_build_id(module, at, end);
    });
  });
  set_path(module, loaded.path, pc);
  return module.begin < module.end;
}

/// Whether two are the same file at the same place.
bool are_same(const LoadedModule& one, const LoadedModule& other) noexcept {
  return one.begin == other.begin && one.end == other.end && one.bias == other.bias &&
         one.build_id_size == other.build_id_size &&
         memcmp(one.build_id, other.build_id, one.build_id_size) == 0 && strcmp(one.path, other.path) == 0;
}

}  // namespace

bool ModuleTable::start() noexcept {
  if (modules_ == nullptr) modules_ = static_cast<LoadedModule*>(map_metadata(sizeof(LoadedModule) * kMost));
  return modules_ != nullptr;
}

const LoadedModule* ModuleTable::find(Address pc, bool code) noexcept {
  const auto holds = [&](const LoadedModule& module) {
    return code ? module.has_code(pc) : pc >= module.begin && pc < module.end;
  };
  const auto known = [&]() -> const LoadedModule* {
    for (unsigned i = count(); i-- > 0;) {
      const LoadedModule& module = modules_[i];
      if (holds(module) && !module.gone.load(std::memory_order_acquire)) return &module;
    }
    return nullptr;
  };
  if (const LoadedModule* module = known()) return module;
  Loaded loaded;
  if (!ask(pc, loaded)) return nullptr;
  for (unsigned tries = 0; locked_.exchange(true, std::memory_order_acquire);) {
    if (++tries > 100'000) return nullptr;  // who holds it was stopped inside; the frame stays unknown
    pause_processor();
  }
  const LoadedModule* module = known();  // another thread may have been faster
  const unsigned index = count();
  if (module == nullptr && index < kMost && fill(modules_[index], loaded, pc) && holds(modules_[index])) {
    module = &modules_[index];
    // A plugin that is loaded again and again is one module.
    for (unsigned i = 0; i < index && module == &modules_[index]; ++i)
      if (are_same(modules_[i], modules_[index])) module = &modules_[i];
    if (module == &modules_[index]) {
      count_.store(index + 1, std::memory_order_release);
    } else {
      modules_[module - modules_].link_map = loaded.link_map;
      modules_[module - modules_].gone.store(false, std::memory_order_release);
    }
  }
  locked_.store(false, std::memory_order_release);
  return module;
}

bool ModuleTable::find_unloaded() noexcept {
  bool any = false;
  for (unsigned i = count(); i-- > 0;) {
    LoadedModule& module = modules_[i];
    if (module.gone.load(std::memory_order_relaxed)) continue;
    Loaded loaded;
    // By its name only where that is the one that it has here.
    const bool same =
        ask(module.code_count == 0 ? module.begin : module.code[0].begin, loaded) &&
        loaded.bias == module.bias && loaded.link_map == module.link_map &&
        (loaded.path[0] != '/' || strncmp(loaded.path, module.path, sizeof module.path - 1) == 0);
    if (same) continue;
    module.gone.store(true, std::memory_order_release);
    any = true;
  }
  return any;
}

}  // namespace memoir::stacks

// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/module_table.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "memoir/base/metadata.h"
#include "memoir/base/pause.h"

// glibc 2.35's, which takes no lock. Absent elsewhere.
#ifdef DLFO_STRUCT_HAS_EH_DBASE
#pragma weak _dl_find_object
#endif

namespace memoir::stacks {

namespace {

/// What the loader says of the module that holds an address.
struct Loaded {
  Address begin = 0, end = 0, bias = 0, eh_frame_header = 0;
  const void* link_map = nullptr;
  const char* path = "";
  const ElfW(Phdr) * headers = nullptr;
  unsigned header_count = 0;
};

#ifdef DLFO_STRUCT_HAS_EH_DBASE
bool ask_lock_free(Address pc, Loaded& loaded) noexcept {
  struct dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(pc), &found) != 0) return false;
  loaded.begin = reinterpret_cast<Address>(found.dlfo_map_start);
  loaded.end = reinterpret_cast<Address>(found.dlfo_map_end);
  loaded.eh_frame_header = reinterpret_cast<Address>(found.dlfo_eh_frame);
  loaded.link_map = found.dlfo_link_map;
  loaded.bias = found.dlfo_link_map->l_addr;
  loaded.path = found.dlfo_link_map->l_name == nullptr ? "" : found.dlfo_link_map->l_name;
  const auto* const elf = reinterpret_cast<const ElfW(Ehdr)*>(loaded.begin);
  // The first segment of every usual file holds its header; a link map of the loader's always has program
  // headers there.
  if (memcmp(elf->e_ident, ELFMAG, SELFMAG) == 0 && elf->e_phentsize == sizeof(ElfW(Phdr)) &&
      elf->e_phoff < 4096) {
    loaded.headers = reinterpret_cast<const ElfW(Phdr)*>(loaded.begin + elf->e_phoff);
    loaded.header_count = elf->e_phnum < 64 ? elf->e_phnum : 64;
  }
  return true;
}
#endif

struct Question {
  Address pc;
  Loaded loaded;
};

int look_at(struct dl_phdr_info* info, size_t, void* data) {
  auto& question = *static_cast<Question*>(data);
  Loaded loaded;
  loaded.begin = ~Address{0};
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const Address at = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD) {
      if (at < loaded.begin) loaded.begin = at;
      if (at + header.p_memsz > loaded.end) loaded.end = at + header.p_memsz;
    } else if (header.p_type == PT_GNU_EH_FRAME) {
      loaded.eh_frame_header = at;
    }
  }
  if (question.pc < loaded.begin || question.pc >= loaded.end) return 0;
  loaded.bias = info->dlpi_addr;
  loaded.path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  loaded.headers = info->dlpi_phdr;
  loaded.header_count = info->dlpi_phnum;
  loaded.link_map = info->dlpi_phdr;  // as good a mark
  question.loaded = loaded;
  return 1;
}

bool ask(Address pc, Loaded& loaded) noexcept {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
  if (_dl_find_object != nullptr) return ask_lock_free(pc, loaded);
#endif
  Question question{pc, {}};
  if (dl_iterate_phdr(look_at, &question) == 0) return false;
  loaded = question.loaded;
  return true;
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

void fill(LoadedModule& module, const Loaded& loaded) noexcept {
  module.begin = loaded.begin;
  module.end = loaded.end;
  module.bias = loaded.bias;
  module.eh_frame_header = loaded.eh_frame_header;
  module.link_map = loaded.link_map;
  strncpy(module.path, loaded.path, sizeof module.path - 1);
  for (unsigned i = 0; i < loaded.header_count; ++i) {
    const ElfW(Phdr)& header = loaded.headers[i];
    const Address at = loaded.bias + header.p_vaddr, end = at + header.p_memsz;
    if (at < loaded.begin || end > loaded.end || end < at) continue;
    if (header.p_type == PT_LOAD && loaded.eh_frame_header >= at && loaded.eh_frame_header < end) {
      module.table_begin = at;
      module.table_end = end;
    } else if (header.p_type == PT_NOTE && module.build_id_size == 0) {
      read_build_id(module, at, end);
    }
  }
}

}  // namespace

bool ModuleTable::start() noexcept {
  if (modules_ == nullptr) modules_ = static_cast<LoadedModule*>(map_metadata(sizeof(LoadedModule) * kMost));
  return modules_ != nullptr;
}

const LoadedModule* ModuleTable::find(Address pc) noexcept {
  const auto known = [&]() -> const LoadedModule* {
    for (unsigned i = count(); i-- > 0;) {
      const LoadedModule& module = modules_[i];
      if (pc >= module.begin && pc < module.end && !module.gone.load(std::memory_order_acquire))
        return &module;
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
  if (module == nullptr && index < kMost) {
    fill(modules_[index], loaded);
    module = &modules_[index];
    count_.store(index + 1, std::memory_order_release);
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
    const bool same = ask(module.begin, loaded) && loaded.begin == module.begin && loaded.end == module.end &&
                      loaded.link_map == module.link_map &&
                      strncmp(loaded.path, module.path, sizeof module.path - 1) == 0;
    if (same) continue;
    module.gone.store(true, std::memory_order_release);
    any = true;
  }
  return any;
}

}  // namespace memoir::stacks

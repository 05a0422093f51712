// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/model/symbol_names.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace memoir::malloc_ {

namespace {

/// A 64-bit ELF file in memory.
class ElfFile {
 public:
  ElfFile(const char* bytes, size_t size) noexcept : bytes_(bytes), size_(size) {}

  bool ok() const noexcept {
    Elf64_Ehdr header;
    return read(0, header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
           header.e_shentsize == sizeof(Elf64_Shdr);
  }
  bool has_build_id(const unsigned char* id, size_t size) const noexcept {
    bool found = false;
    for_each_section([&](const Elf64_Shdr& section) {
      if (section.sh_type != SHT_NOTE) return;
      for (std::uint64_t at = 0; at < section.sh_size;) {
        Elf64_Nhdr note;
        if (!read(section.sh_offset + at, note)) return;
        const std::uint64_t name = at + sizeof note, text = name + ((note.n_namesz + 3ull) & ~3ull);
        const std::uint64_t begin = section.sh_offset + text;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz == size && begin <= size_ &&
            size <= size_ - begin)
          found = found || std::memcmp(bytes_ + begin, id, size) == 0;
        at = text + ((note.n_descsz + 3ull) & ~3ull);
      }
    });
    return found;
  }
  template <class Visit>
  void for_each_function(Visit visit) const noexcept {
    for_each_section([&](const Elf64_Shdr& section) {
      if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) return;
      Elf64_Shdr names;
      if (!section_at(section.sh_link, names) || names.sh_offset > size_ ||
          names.sh_size > size_ - names.sh_offset)
        return;
      const std::uint64_t count = std::min<std::uint64_t>(section.sh_size, size_) / sizeof(Elf64_Sym);
      for (std::uint64_t i = 0; i < count; ++i) {
        Elf64_Sym symbol;
        if (!read(section.sh_offset + i * sizeof symbol, symbol)) return;
        const unsigned kind = ELF64_ST_TYPE(symbol.st_info);
        if ((kind != STT_FUNC && kind != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF ||
            symbol.st_value == 0 || symbol.st_name >= names.sh_size)
          continue;
        visit(symbol, names.sh_offset + symbol.st_name);
      }
    });
  }

 private:
  template <class T>
  bool read(std::uint64_t at, T& value) const noexcept {
    if (at > size_ || sizeof value > size_ - at) return false;
    std::memcpy(&value, bytes_ + at, sizeof value);
    return true;
  }
  bool section_at(std::uint32_t number, Elf64_Shdr& section) const noexcept {
    Elf64_Ehdr header;
    return read(0, header) && number < header.e_shnum && header.e_shoff <= size_ &&
           read(header.e_shoff + std::uint64_t{number} * sizeof section, section);
  }
  template <class Visit>
  void for_each_section(Visit visit) const noexcept {
    Elf64_Ehdr header;
    if (!read(0, header)) return;
    for (std::uint32_t i = 0; i < header.e_shnum; ++i) {
      Elf64_Shdr section;
      if (!section_at(i, section)) return;
      visit(section);
    }
  }

  const char* bytes_;
  size_t size_;
};

}  // namespace

void SymbolNames::open(Table& table) noexcept {
  const stacks::LoadedModule& module = *table.module;
  const int file =
      ::open(module.path[0] == '\0' ? "/proc/self/exe" : module.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return;
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
      status.st_size < std::int64_t{1} << 32) {
    const auto size = static_cast<size_t>(status.st_size);
    void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped != MAP_FAILED) {
      table.file = static_cast<const char*>(mapped);
      table.size = size;
    }
  }
  ::close(file);
  if (table.file == nullptr) return;
  const ElfFile elf(table.file, table.size);
  const bool same =
      elf.ok() && (module.build_id_size == 0 || elf.has_build_id(module.build_id, module.build_id_size));
  if (same) {
    elf.for_each_function([&](const Elf64_Sym& symbol, std::uint64_t name) {
      if (symbol.st_value >> 32 == 0 && table.symbols.size() < kMostSymbols)
        table.symbols.push_back(
            {static_cast<std::uint32_t>(symbol.st_value),
             static_cast<std::uint32_t>(std::min<std::uint64_t>(symbol.st_size, ~std::uint32_t{0})),
             static_cast<std::uint32_t>(name)});
    });
  }
  std::sort(table.symbols.begin(), table.symbols.end(), [](const Symbol& a, const Symbol& b) {
    return a.begin != b.begin ? a.begin < b.begin
                              : a.name > b.name;  // the full table stands behind the dynamic one
  });
}

SymbolNames::Table* SymbolNames::table_of(const stacks::LoadedModule& module) noexcept {
  for (size_t i = 0; i < count_; ++i)
    if (tables_[i].module == &module) return &tables_[i];
  if (count_ == kMostModules) return nullptr;
  Table& fresh = tables_[count_++];
  fresh.module = &module;
  open(fresh);
  return &fresh;
}

std::string_view SymbolNames::find(const stacks::LoadedModule& module,
                                   std::uintptr_t return_address) noexcept {
  const std::uintptr_t place = return_address - 1 - module.bias;  // inside of the call
  Table* const table = table_of(module);
  if (table == nullptr || table->symbols.empty() || place >> 32 != 0) return {};
  const auto wanted = static_cast<std::uint32_t>(place);
  const Symbol* after = std::upper_bound(table->symbols.begin(), table->symbols.end(), wanted,
                                         [](std::uint32_t at, const Symbol& one) { return at < one.begin; });
  if (after == table->symbols.begin()) return {};
  const std::uint32_t begin = after[-1].begin;
  while (after != table->symbols.begin() && after[-1].begin == begin) --after;
  if (wanted - after->begin >= std::max(after->size, 1u)) return {};
  const char* const text = table->file + after->name;
  const size_t room = std::min<size_t>(table->size - after->name, 4096);
  const void* const end = std::memchr(text, '\0', room);
  return {text, end == nullptr ? room : static_cast<size_t>(static_cast<const char*>(end) - text)};
}

void SymbolNames::forget_pages() noexcept {
  for (size_t i = 0; i < count_; ++i) {
    if (tables_[i].file != nullptr)
      ::madvise(const_cast<char*>(tables_[i].file), tables_[i].size, MADV_DONTNEED);
  }
}

}  // namespace memoir::malloc_

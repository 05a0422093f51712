// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/control/modules.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "memoir/process/control/quiet_calls.h"

namespace memoir::host_control {

namespace {

class File {
 public:
  explicit File(const char* path) noexcept : file_(quiet::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (file_ >= 0) quiet::close(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const noexcept { return file_; }

 private:
  int file_;
};

/// A line of /proc/self/maps.
struct Line {
  std::uint64_t begin = 0, end = 0, offset = 0;
  bool readable = false, code = false;
  std::string_view path;
};

std::uint64_t hex_number(std::string_view& text) noexcept {
  std::uint64_t value = 0;
  while (!text.empty()) {
    const char c = text[0];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value << 4 | static_cast<std::uint64_t>(digit);
    text.remove_prefix(1);
  }
  return value;
}

/// "begin-end rwxp offset device inode   path"
Line parse(std::string_view text) noexcept {
  Line line;
  line.begin = hex_number(text);
  if (text.empty()) return line;
  text.remove_prefix(1);
  line.end = hex_number(text);
  if (text.size() < 6) return line;
  line.readable = text[1] == 'r';
  line.code = text[3] == 'x';
  text.remove_prefix(6);
  line.offset = hex_number(text);
  for (int field = 0; field < 2; ++field) {  // device, inode
    const size_t blank = text.find(' ', 1);
    if (blank == text.npos) return line;
    text.remove_prefix(blank);
  }
  const size_t path = text.find_first_not_of(' ');
  if (path != text.npos) line.path = {text.data() + path, text.size() - path};
  return line;
}

/// Reads this process's memory without faulting where there is none.
template <class T>
bool read_memory(int memory, std::uint64_t address, T* to, size_t count = 1) noexcept {
  return quiet::read_at(memory, to, count * sizeof(T), static_cast<off_t>(address)) ==
         static_cast<ssize_t>(count * sizeof(T));
}

void read_build_id(int memory, std::uint64_t address, std::uint64_t size, CodeMapping& mapping) noexcept {
  for (std::uint64_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) note;
    if (!read_memory(memory, address + at, &note)) return;
    const std::uint64_t name = at + sizeof note, data = name + ((note.n_namesz + 3ull) & ~3ull);
    char owner[4];
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz > 0 &&
        note.n_descsz <= sizeof mapping.id && read_memory(memory, address + name, owner, 4) &&
        std::memcmp(owner, "GNU", 4) == 0) {
      if (read_memory(memory, address + data, mapping.id, note.n_descsz)) mapping.id_size = note.n_descsz;
      return;
    }
    at = data + ((note.n_descsz + 3ull) & ~3ull);
  }
}

/// From the header of the file that is mapped at `first`: the bias, and the build id.
void read_elf(int memory, std::uint64_t first, CodeMapping& mapping) noexcept {
  ElfW(Ehdr) header;
  mapping.bias = first;
  if (memory < 0 || !read_memory(memory, first, &header)) return;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) return;
  bool loaded = false;
  for (int pass = 0; pass < 2; ++pass) {  // notes lie relative to the bias, which the first load tells
    for (unsigned i = 0; i < header.e_phnum && i < 64; ++i) {
      ElfW(Phdr) part;
      if (!read_memory(memory, first + header.e_phoff + i * sizeof part, &part)) return;
      if (pass == 0 && part.p_type == PT_LOAD && !loaded) {
        mapping.bias = first - (part.p_vaddr - part.p_offset);
        loaded = true;
      }
      if (pass == 1 && part.p_type == PT_NOTE && mapping.id_size == 0)
        read_build_id(memory, mapping.bias + part.p_vaddr, part.p_memsz, mapping);
    }
  }
}

}  // namespace

bool visit_code(bool (*visit)(void*, const CodeMapping&) noexcept, void* context) noexcept {
  const File maps("/proc/self/maps"), memory("/proc/self/mem");
  if (maps.get() < 0) return false;
  char buffer[8192];
  size_t held = 0;
  std::uint64_t first = 0;  // where the file of the last lines begins
  char file[512] = {};
  size_t file_size = 0;
  for (;;) {
    const ssize_t more = quiet::read(maps.get(), buffer + held, sizeof buffer - held);
    if (more < 0) return false;
    if (more == 0) return true;
    held += static_cast<size_t>(more);
    size_t done = 0;
    for (;;) {
      const std::string_view rest(buffer + done, held - done);
      const size_t end = rest.find('\n');
      if (end == rest.npos) break;
      const Line line = parse({rest.data(), end});
      done += end + 1;
      if (line.path.empty() || (line.path[0] != '/' && line.path != "[vdso]")) continue;
      const std::string_view known(file, file_size);
      if (line.offset == 0 && line.readable) {
        first = line.begin;
        file_size = line.path.size() < sizeof file ? line.path.size() : sizeof file;
        std::memcpy(file, line.path.data(), file_size);
      } else if (known != std::string_view(line.path.data(),
                                           line.path.size() < sizeof file ? line.path.size() : sizeof file)) {
        first = line.begin - line.offset;  // its start is not mapped
        file_size = 0;
      }
      if (!line.code) continue;
      CodeMapping mapping;
      mapping.begin = line.begin;
      mapping.end = line.end;
      mapping.path = line.path;
      read_elf(memory.get(), first, mapping);
      if (!visit(context, mapping)) return true;
    }
    std::memmove(buffer, buffer + done, held - done);
    held -= done;
    if (held == sizeof buffer) held = 0;  // a line that is longer than any path
  }
}

}  // namespace memoir::host_control

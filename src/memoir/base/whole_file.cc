// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/whole_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memoir/base/error.h"
#include "memoir/base/files.h"

namespace memoir {

namespace {

[[noreturn]] void refuse(const std::string& path, const char* why) {
  throw Error(path + ": cannot be read: " + why);
}

}  // namespace

std::unique_ptr<std::FILE, CloseFile> open_file(const std::string& path) {
  const int file = open_to_read(path.c_str());
  if (file < 0) refuse(path, errno == EINVAL ? "not a regular file" : std::strerror(errno));
  std::unique_ptr<std::FILE, CloseFile> opened(::fdopen(file, "rb"));
  if (opened == nullptr) {
    close_file(file);
    refuse(path, std::strerror(errno));
  }
  return opened;
}

std::string read_whole_file(const std::string& path) {
  const auto file = open_file(path);
  // What is read must be on the disk: a file of holes would take what memory there is.
  struct stat status {};
  if (::fstat(::fileno(file.get()), &status) != 0) refuse(path, std::strerror(errno));
  constexpr off_t kMost = off_t{1} << 28;  // that may be packed by its file system, however well
  if (status.st_size > std::max<off_t>(64 * 512 * status.st_blocks, kMost))
    refuse(path, "it is full of holes");
  std::string bytes;
  char part[1 << 16];
  while (const size_t got = std::fread(part, 1, sizeof part, file.get())) bytes.append(part, got);
  if (std::ferror(file.get())) refuse(path, std::strerror(errno));
  return bytes;
}

}  // namespace memoir

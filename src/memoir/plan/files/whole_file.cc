// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "memoir/base/error.h"

namespace memoir {

std::string read_whole_file(const std::string& path) {
  const auto refuse = [&] { throw Error(path + ": cannot be read: " + std::strerror(errno)); };
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) refuse();
  std::string bytes;
  char part[1 << 16];
  while (const size_t got = std::fread(part, 1, sizeof part, file.get())) bytes.append(part, got);
  if (std::ferror(file.get())) refuse();
  return bytes;
}

}  // namespace memoir

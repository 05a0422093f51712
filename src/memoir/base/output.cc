// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "memoir/base/error.h"
#include "memoir/base/files.h"

namespace memoir {

Output::Output(const std::string& path) : path_(path), file_(create_file(path.c_str())) {
  if (file_ < 0) throw Error(path + ": cannot be written: " + std::strerror(errno));
}

Output::~Output() {
  if (file_ >= 0) ::close(file_);
}

void Output::flush() {
  if (file_ < 0) return;
  for (std::string_view rest = buffer_; !rest.empty();) {
    const ssize_t done = ::write(file_, rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw Error(path_ + ": cannot be written: " + std::strerror(errno));
    rest.remove_prefix(static_cast<size_t>(done));
  }
  buffer_.clear();
}

}  // namespace memoir

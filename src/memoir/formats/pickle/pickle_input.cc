// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/pickle/pickle_input.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memoir/base/error.h"
#include "memoir/base/files.h"

namespace memoir {

namespace {

constexpr Size kStretch = kMiB;

}  // namespace

PickleInput::PickleInput(std::span<const std::byte> bytes) noexcept
    : begin_(reinterpret_cast<const std::uint8_t*>(bytes.data())),
      next_(begin_),
      end_(begin_ + bytes.size()) {}

PickleInput::PickleInput(const std::string& path) : path_(path) {
  file_ = open_to_read(path.c_str());
  if (file_ >= 0) return;
  const int why = errno;
  if (why != EINVAL) throw Error(path + ": cannot open: " + std::strerror(why));
  struct stat status {};
  const bool is_folder = ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  throw Error(path + (is_folder ? ": a folder; name the snapshot in it" : ": not a regular file"));
}

PickleInput::~PickleInput() {
  if (file_ >= 0) ::close(file_);
}

bool PickleInput::fill(Size size) {
  while (file_ >= 0 && static_cast<Size>(end_ - next_) < size) {
    const auto kept = static_cast<Size>(end_ - next_);
    const auto dropped = static_cast<Size>(next_ - begin_);
    if (buffer_.empty() || kept > buffer_.size() / 2) {
      std::vector<std::uint8_t> larger(std::max(kStretch, buffer_.size() * 2));
      std::copy(next_, end_, larger.begin());
      buffer_.swap(larger);
    } else {
      std::copy(next_, end_, buffer_.begin());
    }
    before_ += dropped;
    begin_ = next_ = buffer_.data();
    ssize_t got;
    do {
      got = ::read(file_, buffer_.data() + kept, buffer_.size() - kept);
    } while (got < 0 && errno == EINTR);
    if (got < 0) throw Error(path_ + ": cannot read: " + std::strerror(errno));
    end_ = begin_ + kept + static_cast<Size>(got);
    if (got == 0) {
      ::close(file_);
      file_ = -1;
    }
  }
  return static_cast<Size>(end_ - next_) >= size;
}

Size PickleInput::left(Size most) {
  fill(most);
  return std::min(most, static_cast<Size>(end_ - next_));
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/file/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "memoir/base/error.h"

namespace memoir {

ByteSource ByteSource::open(const std::string& path) {
  ByteSource source;
  source.name_ = path;
  source.file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not hold us
  if (source.file_ < 0) throw Error(path + ": cannot open: " + std::strerror(errno));
  struct stat status;
  if (::fstat(source.file_, &status) != 0) throw Error(path + ": cannot read: " + std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw Error(path + ": a folder; name the trace file in it");
  if (!S_ISREG(status.st_mode)) throw Error(path + ": not a regular file");
  source.size_ = static_cast<Size>(status.st_size);
  return source;
}

ByteSource ByteSource::copy(std::span<const std::byte> bytes, const std::string& name) {
  ByteSource source;
  source.name_ = name;
  source.bytes_.assign(bytes.begin(), bytes.end());
  source.size_ = bytes.size();
  return source;
}

ByteSource::ByteSource(ByteSource&& other) noexcept
    : name_(std::move(other.name_)),
      size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)),
      bytes_(std::move(other.bytes_)) {}

ByteSource& ByteSource::operator=(ByteSource&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ByteSource::~ByteSource() {
  if (file_ >= 0) ::close(file_);
}

void ByteSource::look_again() {
  if (file_ < 0) return;
  struct stat status;
  if (::fstat(file_, &status) != 0) throw Error(name_ + ": cannot read: " + std::strerror(errno));
  size_ = static_cast<Size>(status.st_size);
}

unsigned ByteSource::rights() const {
  struct stat status;
  if (::fstat(file_, &status) != 0) throw Error(name_ + ": cannot read: " + std::strerror(errno));
  return status.st_uid == ::geteuid() ? status.st_mode & 0777u : 0600u;
}

bool ByteSource::is_of(int file) const noexcept {
  struct stat opened, other;
  return ::fstat(file_, &opened) == 0 && ::fstat(file, &other) == 0 && opened.st_dev == other.st_dev &&
         opened.st_ino == other.st_ino;
}

bool ByteSource::is_replaced() const noexcept {
  if (file_ < 0) return false;
  struct stat opened, named;
  if (::fstat(file_, &opened) != 0 || ::stat(name_.c_str(), &named) != 0) return true;
  return opened.st_dev != named.st_dev || opened.st_ino != named.st_ino;
}

Size ByteSource::read(Size from, std::span<std::byte> to) const {
  if (file_ < 0) {
    if (to.empty() || from >= bytes_.size()) return 0;
    const Size count = std::min<Size>(to.size(), bytes_.size() - from);
    std::memcpy(to.data(), bytes_.data() + from, count);
    return count;
  }
  Size count = 0;
  while (count < to.size()) {
    const ssize_t got =
        ::pread(file_, to.data() + count, to.size() - count, static_cast<off_t>(from + count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(name_ + ": cannot read: " + std::strerror(errno));
    if (got == 0) break;
    count += static_cast<Size>(got);
  }
  return count;
}

Size ByteSource::end_of_data(Size from) const {
  if (from >= size_) return from;
  std::vector<std::byte> part(std::min<Size>(256 * kKiB, size_ - from));
  Size end = from;
  for (Size at = from; at < size_;) {
    if (file_ >= 0) {
      const off_t data = ::lseek(file_, static_cast<off_t>(at), SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;  // a hole up to the end
      if (data > 0) at = std::max(at, static_cast<Size>(data));
    }
    const Size got = read(at, part);
    if (got == 0) break;
    Size used = got;
    while (used > 0 && part[used - 1] == std::byte{0}) --used;
    if (used > 0) end = at + used;
    at += got;
  }
  return end;
}

}  // namespace memoir

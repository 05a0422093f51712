// SPDX-License-Identifier: Apache-2.0
//
// Files that memoir makes, and files that it opens because of their names beside others. Whoever may write to
// the folder may have put links, pipes and devices there. So a folder is opened once and names are looked up
// in it, new files never take what is there already, and what is opened must be a regular file, never through
// a link. New files are for their user alone: traces hold command lines.
//
// For preloaded libraries too: no malloc, no exceptions, no cancellation points (a thread that is cancelled
// must not end in here), and nothing that waits: neither a pipe nor a device is ever waited for.
// tests/test_files_layer.py holds that nothing else in the core opens a file for writing.
#pragma once

#include <fcntl.h>

#include <cstddef>

namespace memoir {

/// The folder that a path is in, opened. Functions give -1 or false, and errno says why. Thread-safe.
class Folder {
 public:
  /// `path` must live as long as this.
  explicit Folder(const char* path) noexcept;
  ~Folder();
  Folder(const Folder&) = delete;

  bool is_open() const noexcept { return folder_ >= 0; }
  /// What the path is called in its folder.
  const char* name() const noexcept { return name_; }

  /// A new file of mode 0600, to be read and written. EEXIST where anything has the name, also a link that
  /// leads nowhere. The descriptor is the caller's, here and below; exec closes it.
  int create(const char* name) const noexcept;
  /// The same without a name, for give_name(); -1 also where the file system has no such files.
  int create_nameless() const noexcept;
  /// A regular file that is there. ELOOP for a link, EINVAL for what is not a file. `flags` with O_CREAT: it
  /// is made where it is missing, of mode 0600.
  int open(const char* name, int flags) const noexcept;

  bool give_name(int nameless, const char* name) const noexcept;
  /// In the place of what is called `to`, which is not followed where it is a link.
  bool rename(const char* name, const char* to) const noexcept;
  void remove(const char* name) const noexcept;

 private:
  int folder_;
  const char* name_;
};

/// As Folder's for the file of a path.
int create_file(const char* path) noexcept;
int open_beside(const char* path, int flags) noexcept;

/// A file that somebody named, to be read: links may lead to it, but it must be a regular file. -1 and errno.
int open_to_read(const char* path) noexcept;

void close_file(int file) noexcept;

/// A name that nobody can have guessed, ".memoir-" and 16 digits.
inline constexpr std::size_t kFreshName = 8 + 16 + 1;
void fresh_name(char (&name)[kFreshName]) noexcept;

}  // namespace memoir

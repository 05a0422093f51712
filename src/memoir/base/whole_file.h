// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace memoir {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// A file that somebody named, to be read: links may lead to it, but it must be a regular file, so that no
/// pipe or device holds us. Throws Error, naming the path, when it cannot be opened.
std::unique_ptr<std::FILE, CloseFile> open_file(const std::string& path);

/// The bytes of such a file, whose holes are few. Throws Error, naming the path, when it cannot be read.
std::string read_whole_file(const std::string& path);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace memoir {

/// The bytes of a file or pipe. Throws Error, naming the path, when it cannot be read.
std::string read_whole_file(const std::string& path);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// The one exception of memoir: a bad file or a bad argument. It says what is wrong, where (file, line or
// record) and what to do. Nothing in base, arena, heap, process, malloc, record, device or the trace writer
// that is called inside malloc throws it; what sets a heap up from a person's words, or simulates one, does,
// and says so.
#pragma once

#include <stdexcept>
#include <string>

namespace memoir {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace memoir

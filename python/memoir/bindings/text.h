// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace memoir {

/// Names in a stranger's file need not be UTF-8: what is not becomes U+FFFD.
inline nanobind::str to_str(std::string_view text) {
  return nanobind::steal<nanobind::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

}  // namespace memoir

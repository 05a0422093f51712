// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace memoir {

/// Names in a stranger's file need not be UTF-8: what is not becomes U+FFFD.
inline nanobind::str to_str(std::string_view text) {
  return nanobind::steal<nanobind::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

/// A path, or the name of a file for errors, as Python has it (str, bytes or os.PathLike): the bytes that the
/// file system has, which need not be UTF-8.
struct FileName {
  std::string bytes;
  operator const std::string&() const noexcept { return bytes; }
};

}  // namespace memoir

namespace nanobind::detail {

template <>
struct type_caster<memoir::FileName> {
  NB_TYPE_CASTER(memoir::FileName, const_name("str"))
  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    PyObject* encoded = nullptr;
    if (!PyUnicode_FSConverter(source.ptr(), &encoded)) {
      PyErr_Clear();
      return false;
    }
    value.bytes.assign(PyBytes_AS_STRING(encoded), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded)));
    Py_DECREF(encoded);
    return true;
  }
  static handle from_cpp(const memoir::FileName& name, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeFSDefaultAndSize(name.bytes.data(), static_cast<Py_ssize_t>(name.bytes.size()));
  }
};

}  // namespace nanobind::detail

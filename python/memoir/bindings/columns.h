// SPDX-License-Identifier: Apache-2.0
//
// One-dimensional NumPy arrays: In is an argument's view of one, Column a new one that owns its elements.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace memoir {

using In =
    nanobind::ndarray<const std::uint64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <class T>
using Column = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;

/// A new array of get(element) for each element.
template <class Elements, class Get>
nanobind::object column(const Elements& elements, Get get) {
  auto values = std::make_unique<std::uint64_t[]>(elements.size());
  std::transform(elements.begin(), elements.end(), values.get(), get);
  std::uint64_t* data = values.release();
  const nanobind::capsule owner(data, [](void* p) noexcept { delete[] static_cast<std::uint64_t*>(p); });
  return nanobind::cast(Column<std::uint64_t>(data, {elements.size()}, owner));
}

inline nanobind::object array(const std::vector<std::uint64_t>& values) {
  return column(values, std::identity{});
}

/// An array that takes over what is in `values`.
template <class T>
Column<T> to_array(std::vector<T>&& values) {
  auto* const kept = new std::vector<T>(std::move(values));
  const nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Column<T>(kept->data(), {kept->size()}, owner);
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "torch_call_shape.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <array>
#include <cstring>

// ATen/autocast_mode.h declares them too, and takes half a minute to compile.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
}  // namespace at::autocast

namespace memoir {

namespace {

constexpr size_t kParts = 256;      // of all arguments, looked at level by level; the rest are not looked at
constexpr size_t kDimensions = 64;  // of one tensor

PyTypeObject* g_tensor_type = nullptr;
Py_ssize_t g_impl_offset = 0;  // where a tensor's object has its TensorImpl*

template <class T>
std::uint64_t bits_of(T* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

class Taker {
 public:
  explicit Taker(CallShape& shape) : shape_(shape) {}

  /// Of a level: looked at once all that was added before was. Borrowed; nothing here runs Python code.
  void add(PyObject* object) noexcept {
    if (parts_ < kParts) all_[parts_++] = object;
  }
  bool take_all() {
    for (size_t i = 0; i < parts_; ++i) {
      if (!take(all_[i])) return false;
    }
    return true;
  }
  void take_name(PyObject* name) { shape_.add_to_form(static_cast<std::uint64_t>(hash_of(name))); }

 private:
  bool take(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    if (PyType_IsSubtype(type, g_tensor_type)) return take_tensor(object, type);
    if (object == Py_None || object == Py_True || object == Py_False) {
      shape_.add_to_form(bits_of(object));
      return true;
    }
    shape_.add_to_form(bits_of(type));
    if (PyLong_Check(object)) {
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
      shape_.values.push_back({overflow != 0 ? overflow : value, overflow == 0});
    } else if (PyUnicode_Check(object)) {
      shape_.values.push_back({hash_of(object), false});
    } else if (PyFloat_Check(object) || PyBytes_Check(object)) {
      return true;
    } else if (PyTuple_Check(object)) {
      const Py_ssize_t size = PyTuple_GET_SIZE(object);
      shape_.add_to_form(static_cast<std::uint64_t>(size));
      for (Py_ssize_t i = 0; i < size && parts_ < kParts; ++i) add(PyTuple_GET_ITEM(object, i));
    } else if (PyList_Check(object)) {
      const Py_ssize_t size = PyList_GET_SIZE(object);
      shape_.add_to_form(static_cast<std::uint64_t>(size));
      for (Py_ssize_t i = 0; i < size && parts_ < kParts; ++i) add(PyList_GET_ITEM(object, i));
    } else if (PyDict_Check(object)) {
      take_dict(object);
    } else if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && !PyCallable_Check(object) &&
               !PyType_Check(object)) {
      take_attributes(object);
    }
    return true;
  }

  void take_dict(PyObject* dict) {
    shape_.add_to_form(static_cast<std::uint64_t>(PyDict_GET_SIZE(dict)));
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; parts_ < kParts && PyDict_Next(dict, &at, &key, &value);) {
      if (PyUnicode_Check(key)) take_name(key);
      else shape_.add_to_form(bits_of(Py_TYPE(key)));
      add(value);
    }
  }

  /// Caches of keys and values, outputs of other models: what they hold decides sizes as arguments do.
  void take_attributes(PyObject* object) {
    PyObject* const attributes = PyObject_GenericGetDict(object, nullptr);
    if (attributes == nullptr) {
      PyErr_Clear();
      return;
    }
    // The object keeps its attributes, but for those that are made when they are asked for.
    if (PyDict_CheckExact(attributes) && Py_REFCNT(attributes) > 1) take_dict(attributes);
    Py_DECREF(attributes);
  }

  bool take_tensor(PyObject* object, PyTypeObject* type) {
    c10::TensorImpl* impl = nullptr;
    std::memcpy(&impl, reinterpret_cast<const char*>(object) + g_impl_offset, sizeof(impl));
    if (impl == nullptr) return false;
    const c10::DispatchKeySet keys = impl->key_set();
    if (impl->has_symbolic_sizes_strides() || keys.has(c10::DispatchKey::Python) ||
        keys.has(c10::DispatchKey::NestedTensor)) {
      return false;
    }
    const c10::IntArrayRef sizes = impl->sizes();
    if (sizes.size() > kDimensions) return false;
    const c10::Layout layout = impl->layout();
    const c10::Device device = impl->device();
    shape_.add_to_form(bits_of(type));
    shape_.add_to_form(static_cast<std::uint64_t>(c10::typeMetaToScalarType(impl->dtype())) << 32 |
                       static_cast<std::uint64_t>(device.type()) << 24 |
                       static_cast<std::uint64_t>(static_cast<std::uint8_t>(device.index())) << 16 |
                       static_cast<std::uint64_t>(layout) << 8 |
                       static_cast<std::uint64_t>(impl->requires_grad()));
    shape_.add_to_form(sizes.size());
    shape_.numbers.insert(shape_.numbers.end(), sizes.begin(), sizes.end());
    if (layout != c10::kStrided) return true;
    if (impl->is_contiguous()) {
      shape_.add_to_form(1);
    } else if (sizes.size() == 4 && impl->is_contiguous(c10::MemoryFormat::ChannelsLast)) {
      shape_.add_to_form(2);
    } else {
      const c10::IntArrayRef strides = impl->strides();
      shape_.add_to_form(3);
      shape_.numbers.insert(shape_.numbers.end(), strides.begin(), strides.end());
    }
    return true;
  }

  /// Of a str, whose subclasses may have a __hash__ that raises or allocates.
  static std::int64_t hash_of(PyObject* text) noexcept {
    return PyUnicode_CheckExact(text) ? static_cast<std::int64_t>(PyObject_Hash(text))
                                      : PyUnicode_GET_LENGTH(text);
  }

  CallShape& shape_;
  std::array<PyObject*, kParts> all_;
  size_t parts_ = 0;
};

}  // namespace

bool prepare_call_shapes() {
  PyObject* const torch = PyImport_ImportModule("torch");
  PyObject* const core = torch == nullptr ? nullptr : PyObject_GetAttrString(torch, "_C");
  PyObject* const type = core == nullptr ? nullptr : PyObject_GetAttrString(core, "TensorBase");
  PyObject* const tensor = type == nullptr ? nullptr : PyObject_CallMethod(torch, "empty", "i", 0);
  PyObject* const address = tensor == nullptr ? nullptr : PyObject_GetAttrString(tensor, "_cdata");
  bool found = false;
  if (address != nullptr) {
    // Where the object keeps what it is the object of: that moved between versions.
    const void* const impl = PyLong_AsVoidPtr(address);
    for (Py_ssize_t at = sizeof(PyObject); !found && at + Py_ssize_t{8} <= Py_TYPE(tensor)->tp_basicsize;
         at += 8) {
      found = std::memcmp(reinterpret_cast<const char*>(tensor) + at, &impl, sizeof(impl)) == 0;
      if (found) g_impl_offset = at;
    }
    if (found) g_tensor_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
    else PyErr_SetString(PyExc_ImportError, "memoir.torch does not know the tensors of this torch");
  }
  Py_XDECREF(address);
  Py_XDECREF(tensor);
  Py_XDECREF(type);
  Py_XDECREF(core);
  Py_XDECREF(torch);
  return found;
}

bool take_call_shape(PyObject* const* args, std::size_t count, PyObject* names, CallShape& shape) noexcept
    try {
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) return false;
  shape.clear();
  Taker taker(shape);
  shape.add_to_form(count);
  const size_t named = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  for (size_t i = 0; i < named; ++i) taker.take_name(PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)));
  for (size_t i = 0; i < count + named; ++i) taker.add(args[i]);
  if (!taker.take_all()) return false;
  std::uint64_t state = static_cast<std::uint64_t>(at::get_num_threads()) << 16;
  state |= static_cast<std::uint64_t>(c10::GradMode::is_enabled()) << 1;
  state |= static_cast<std::uint64_t>(c10::InferenceMode::is_enabled());
  if (at::autocast::is_autocast_enabled(c10::DeviceType::CPU))
    state |= (static_cast<std::uint64_t>(at::autocast::get_autocast_dtype(c10::DeviceType::CPU)) + 1) << 2;
  shape.add_to_form(state);
  return true;
} catch (...) {  // a tensor that refuses to tell, or no memory
  return false;
}

}  // namespace memoir

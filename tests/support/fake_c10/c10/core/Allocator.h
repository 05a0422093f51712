// SPDX-License-Identifier: Apache-2.0
//
// The part of PyTorch's header of this name that memoir's door to PyTorch uses, with PyTorch's names and
// promises, so that the unchanged door compiles without PyTorch. See fake_c10.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace c10 {

enum class DeviceType : std::int8_t { CPU = 0 };

struct Device {
  explicit Device(DeviceType type) : type_(type) {}
  DeviceType type() const noexcept { return type_; }

 private:
  DeviceType type_;
};

using DeleterFnPtr = void (*)(void*);

namespace detail {
inline void deleteNothing(void*) {}
}  // namespace detail

/// Owns a context; its deleter runs when the context is not null.
class DataPtr {
 public:
  DataPtr() : DataPtr(nullptr, nullptr, &detail::deleteNothing, Device(DeviceType::CPU)) {}
  DataPtr(void* data, void* context, DeleterFnPtr deleter, Device device)
      : data_(data), context_(context, deleter ? deleter : &detail::deleteNothing), device_(device) {}

  void* get() const noexcept { return data_; }
  void* get_context() const noexcept { return context_.get(); }
  void* release_context() noexcept { return context_.release(); }
  DeleterFnPtr get_deleter() const noexcept { return context_.get_deleter(); }
  Device device() const noexcept { return device_; }
  void clear() {
    context_ = nullptr;
    data_ = nullptr;
  }
  [[nodiscard]] bool compare_exchange_deleter(DeleterFnPtr expected, DeleterFnPtr replacement) {
    if (get_deleter() != expected) return false;
    context_ = std::unique_ptr<void, DeleterFnPtr>(context_.release(), replacement);
    return true;
  }
  explicit operator bool() const noexcept { return data_ != nullptr || context_ != nullptr; }

 private:
  void* data_;
  std::unique_ptr<void, DeleterFnPtr> context_;
  Device device_;
};

struct Allocator {
  virtual ~Allocator() = default;
  virtual DataPtr allocate(std::size_t size) = 0;
  virtual DeleterFnPtr raw_deleter() const { return nullptr; }
  virtual void copy_data(void* destination, const void* source, std::size_t count) const = 0;

  DataPtr clone(const void* data, std::size_t size) {
    DataPtr copy = allocate(size);
    copy_data(copy.get(), data, size);
    return copy;
  }
  void* raw_allocate(std::size_t size) { return allocate(size).release_context(); }
  void raw_deallocate(void* pointer) { raw_deleter()(pointer); }

 protected:
  void default_copy_data(void* destination, const void* source, std::size_t count) const {
    if (count != 0) std::memcpy(destination, source, count);
  }
};

/// Of the calling thread.
bool memoryProfilingEnabled();

}  // namespace c10

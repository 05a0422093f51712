// SPDX-License-Identifier: Apache-2.0
//
// How a caller that knows more than malloc tells the recorder of whole programs (record/preload): which
// blocks are tensors, which operator a thread is in, where a pass begins. Without the preload, there is no
// recorder.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memoir/base/units.h"

namespace memoir {

/// All functions are for the calling thread, and may be called by any; they never throw, and do nothing while
/// nothing is recorded.
class ProgramRecording {
 public:
  /// nullptr where no recorder is preloaded.
  static const ProgramRecording* find() noexcept {
    static const ProgramRecording recording;
    return recording.is_whole() ? &recording : nullptr;
  }
  bool is_on() const noexcept { return is_on_() != 0; }

  /// After malloc served it, and before it is freed there: both are one object.
  void tensor_begins(const void* address, Size size, unsigned alignment_log2) const noexcept {
    tensor_begins_(address, size, alignment_log2);
  }
  void tensor_ends(const void* address) const noexcept { tensor_ends_(address); }
  /// `place`: an object on the stack, of the function that runs the operator.
  void operator_begins(std::string_view name, const void* place) const noexcept {
    operator_begins_(name.data(), name.size(), place);
  }
  void operator_ends() const noexcept { operator_ends_(); }
  /// The call of an nn.Module, by its path in the model; it ends before what was begun outside of it.
  void module_begins(std::string_view path, const void* place) const noexcept {
    module_begins_(path.data(), path.size(), place);
  }
  void module_ends() const noexcept { module_ends_(); }
  /// Passes are numbered by the caller, each once.
  void pass(std::uint64_t number, bool begins) const noexcept { pass_(number, begins ? 1 : 0); }
  void meta(std::string_view key, std::string_view value) const noexcept {
    meta_(key.data(), key.size(), value.data(), value.size());
  }

 private:
  ProgramRecording() noexcept {
    look_up(is_on_, "memoir_record_is_on");
    look_up(tensor_begins_, "memoir_record_tensor_begins");
    look_up(tensor_ends_, "memoir_record_tensor_ends");
    look_up(operator_begins_, "memoir_record_operator_begins");
    look_up(operator_ends_, "memoir_record_operator_ends");
    look_up(module_begins_, "memoir_record_module_begins");
    look_up(module_ends_, "memoir_record_module_ends");
    look_up(pass_, "memoir_record_pass");
    look_up(meta_, "memoir_record_meta");
  }
  template <class Function>
  static void look_up(Function& function, const char* name) noexcept {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }
  bool is_whole() const noexcept {
    return is_on_ != nullptr && tensor_begins_ != nullptr && tensor_ends_ != nullptr &&
           operator_begins_ != nullptr && operator_ends_ != nullptr && module_begins_ != nullptr &&
           module_ends_ != nullptr && pass_ != nullptr && meta_ != nullptr;
  }

  int (*is_on_)() = nullptr;
  void (*tensor_begins_)(const void*, std::size_t, unsigned) = nullptr;
  void (*tensor_ends_)(const void*) = nullptr;
  void (*operator_begins_)(const char*, std::size_t, const void*) = nullptr;
  void (*operator_ends_)() = nullptr;
  void (*module_begins_)(const char*, std::size_t, const void*) = nullptr;
  void (*module_ends_)() = nullptr;
  void (*pass_)(std::uint64_t, int) = nullptr;
  void (*meta_)(const char*, std::size_t, const char*, std::size_t) = nullptr;
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// See c10/core/Allocator.h here.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace at {

enum class RecordScope : std::uint8_t { FUNCTION = 0, BACKWARD_FUNCTION, TORCHSCRIPT_FUNCTION, USER_SCOPE };

struct ObserverContext {
  virtual ~ObserverContext() = default;
};

class RecordFunction;

class RecordFunctionCallback {
 public:
  using StartCallback = std::unique_ptr<ObserverContext> (*)(const RecordFunction&);
  using EndCallback = void (*)(const RecordFunction&, ObserverContext*);

  explicit RecordFunctionCallback(StartCallback start, EndCallback end = nullptr) : start_(start), end_(end) {
    scopes_.fill(true);
  }
  RecordFunctionCallback& scopes(std::initializer_list<RecordScope> listened) {
    scopes_.fill(false);
    for (const RecordScope scope : listened) scopes_[static_cast<std::size_t>(scope)] = true;
    return *this;
  }
  bool listens_to(RecordScope scope) const { return scopes_[static_cast<std::size_t>(scope)]; }
  StartCallback start() const { return start_; }
  EndCallback end() const { return end_; }

 private:
  StartCallback start_;
  EndCallback end_;
  std::array<bool, 4> scopes_{};
};

using CallbackHandle = std::uint64_t;
constexpr CallbackHandle INVALID_CALLBACK_HANDLE{0};

CallbackHandle addThreadLocalCallback(RecordFunctionCallback callback);
/// Of all threads.
CallbackHandle addGlobalCallback(RecordFunctionCallback callback);
/// Of the calling thread, or of all; nothing when it has no such callback.
void removeCallback(CallbackHandle handle);

/// An operator that the calling thread is in, from construction to destruction. As PyTorch's, it calls the
/// ends of those callbacks that it began, even of one that was removed meanwhile.
class RecordFunction {
 public:
  explicit RecordFunction(std::string name, RecordScope scope = RecordScope::FUNCTION);
  ~RecordFunction();
  RecordFunction(const RecordFunction&) = delete;
  RecordFunction& operator=(const RecordFunction&) = delete;

  const char* name() const { return name_.c_str(); }

 private:
  struct Begun {
    RecordFunctionCallback::EndCallback end;
    std::unique_ptr<ObserverContext> context;
  };
  const std::string name_;
  std::vector<Begun> begun_;
};

}  // namespace at

// SPDX-License-Identifier: Apache-2.0
//
// One call of a remembered callable: its arguments, where it runs, what it needs until it ends, how long it
// took.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "memoir/remember/memory.h"
#include "memoir/remember/torch/allocator.h"
#include "torch_call_shape.h"

namespace memoir {

namespace nb = nanobind;

inline Ledger::Nanoseconds now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return Ledger::Nanoseconds{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// What a call needs until it ends. On the heap: a greenlet that is switched away from in the midst of a call
/// takes its stack along, and other threads tell the recorder of frees meanwhile.
struct CallState {
  CallShape shape;
  RequestLog log;
  FollowedPass pass;
  std::optional<Recorder> recorder;
};

/// One of them, kept by the thread for its next call.
class HeldState {
 public:
  HeldState() : state_(spare_ != nullptr ? std::move(spare_) : std::make_unique<CallState>()) {}
  ~HeldState() {
    state_->log.clear();
    state_->pass.kept.clear();
    state_->recorder.reset();
    spare_ = std::move(state_);
  }
  HeldState(const HeldState&) = delete;
  HeldState& operator=(const HeldState&) = delete;
  CallState* operator->() noexcept { return state_.get(); }

 private:
  static inline thread_local std::unique_ptr<CallState> spare_;
  std::unique_ptr<CallState> state_;
};

/// The time that a call takes, for the ledger: its pass, what was learned next to that, and the rest.
class CallTimes {
 public:
  explicit CallTimes(Ledger* ledger) noexcept : ledger_(ledger), begin_(ledger == nullptr ? 0 : now()) {}
  ~CallTimes() {
    if (ledger_ == nullptr) return;
    const auto listened = static_cast<Ledger::Nanoseconds>(operators_) * kOperator;
    const auto pass = std::max<Ledger::Nanoseconds>(pass_ - listened, 0);
    ledger_->called(
        std::max<Ledger::Nanoseconds>(now() - begin_ - pass_ - learning_, 0) + (records_ ? 0 : listened),
        pass);
    if (records_) ledger_->learned(listened);
  }
  CallTimes(const CallTimes&) = delete;
  CallTimes& operator=(const CallTimes&) = delete;

  template <class Run>
  auto time_pass(Run run) {
    const Ledger::Nanoseconds begin = ledger_ == nullptr ? 0 : now();
    auto result = run();
    if (ledger_ != nullptr) pass_ += now() - begin;
    return result;
  }
  /// Does what takes its time, without Python's lock. The memory tells the ledger of it.
  template <class Learn>
  void learn(Learn learn) {
    const Ledger::Nanoseconds begin = ledger_ == nullptr ? 0 : now();
    {
      const nb::gil_scoped_release release;
      learn();
    }
    if (ledger_ != nullptr) learning_ += now() - begin;
  }
  /// Does what happens once, and is nobody's cost.
  template <class Say>
  void say(Say say) {
    const Ledger::Nanoseconds begin = ledger_ == nullptr ? 0 : now();
    say();
    if (ledger_ != nullptr) learning_ += now() - begin;
  }
  void listened(unsigned operators, bool records) noexcept {
    operators_ += operators;
    records_ = records_ || records;
  }

 private:
  // Nanoseconds that a pass takes longer for each operator that is listened to.
  static constexpr Ledger::Nanoseconds kOperator = 300;

  Ledger* const ledger_;
  const Ledger::Nanoseconds begin_;
  Ledger::Nanoseconds pass_ = 0, learning_ = 0;
  unsigned operators_ = 0;
  bool records_ = false;
};

/// Where the calling thread is: see torch_door::Whereabouts. Nullopt where no pass begins.
inline std::optional<torch_door::Whereabouts> whereabouts(const void* frame) noexcept {
#if PY_VERSION_HEX >= 0x030b0000
  // Frames of Python's lie in a list of pieces, and greenlets have one each.
  static_assert(offsetof(_PyStackChunk, previous) == 0);
  return torch_door::Whereabouts::of(
      frame, reinterpret_cast<const void* const*>(&PyThreadState_Get()->datastack_chunk));
#else
  // Nothing in the thread's state tells greenlets apart: where there may be some, no pass begins.
  static PyObject* const name = PyUnicode_InternFromString("greenlet");
  if (PyDict_Contains(PyImport_GetModuleDict(), name) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  return torch_door::Whereabouts::of(frame);
#endif
}

/// A call from Python, as vectorcall has it.
struct Arguments {
  PyObject* function;
  PyObject* const* all;
  size_t nargsf;
  PyObject* names;
  size_t own;  // the first that is the caller's: self is none

  /// Null, with a Python error set, when it raised.
  nb::object run() const noexcept { return nb::steal(PyObject_Vectorcall(function, all, nargsf, names)); }
  /// (*args, **kwargs)
  std::pair<nb::tuple, nb::dict> in_python() const {
    nb::list args;
    nb::dict kwargs;
    const auto count = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
    for (size_t i = own; i < count; ++i) args.append(nb::handle(all[i]));
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < named; ++i)
      kwargs[nb::handle(PyTuple_GET_ITEM(names, i))] = nb::handle(all[count + static_cast<size_t>(i)]);
    return {nb::tuple(args), std::move(kwargs)};
  }
  bool shape(CallShape& shape) const noexcept {
    return take_call_shape(all + own, static_cast<size_t>(PyVectorcall_NARGS(nargsf)) - own, names, shape);
  }
};

}  // namespace memoir

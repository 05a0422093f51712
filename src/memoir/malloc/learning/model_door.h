// SPDX-License-Identifier: Apache-2.0
//
// What the malloc and the library of models know of each other. What only a model needs (its file, networks,
// stacks, names of symbols) lies in a library of its own, libmemoir_model.so, which the malloc's background
// loads when `model=` is set: other processes do not carry it.
#pragma once

#include <cstdint>

#include "memoir/base/units.h"
#include "memoir/predict/context_table.h"

namespace memoir::malloc_ {

/// What a model has said so far.
struct Foreseen {
  static constexpr size_t kStages = 5;
  Size known = 0;               // contexts told at the start, by address
  Size asked = 0;               // contexts whose stack was looked at
  Size by_stage[kStages] = {};  // that the model answered, by stage
  Size long_lived = 0;          // of all of them, called long
  Size all() const noexcept {   // contexts that the model answered for
    Size sum = known;
    for (const Size one : by_stage) sum += one;
    return sum;
  }
};

/// What the malloc lends to the library, for as long as the process lives.
struct ModelHost {
  /// LifetimeLearner::expect(), under its lock. Frames of the module that has it are not the program's.
  bool (*expect)(ContextKey key, LifetimeClass predicted, double share, unsigned samples) noexcept;
  bool (*may_call_all)() noexcept;  // process/control/sandbox.h
  bool (*may_open_files)() noexcept;
};

/// What the library gives, under the name of kModelDoorName. Its functions call no malloc.
struct ModelDoor {
  std::uint32_t version;
  /// The background, once: reads the model's file and tells the learner what it knows by address. False:
  /// there is no model, and what is wrong with the file was said in one line. Nothing else is called then.
  bool (*begin)(const ModelHost& host, const char* path) noexcept;
  /// A sample of that context was taken. Any thread, without locks. True when there is work for answer().
  bool (*sampled)(ContextKey key, Size size, std::uintptr_t stack_base) noexcept;
  /// The background: answers what was left there. True when there was something.
  bool (*answer)() noexcept;
  /// Any thread.
  void (*figures)(Foreseen& now) noexcept;
  /// Around a fork.
  void (*lock)() noexcept;
  void (*unlock)() noexcept;
  /// In the child, after unlock(). False: there is no model from now on.
  bool (*after_fork)() noexcept;
};

inline constexpr std::uint32_t kModelDoorVersion = 1;  // of both structures
inline constexpr char kModelLibrary[] = "libmemoir_model.so";
inline constexpr char kModelDoorName[] = "memoir_model_door";

}  // namespace memoir::malloc_

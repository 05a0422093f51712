// SPDX-License-Identifier: Apache-2.0
//
// The allocation policies by name: the one list from which simulations, devices, the command line, the
// bindings, the docs and the tests take them. A new policy is a heap (two files) and a row in policies.cc.
//
//   "split,large=16MiB"            ->  choose_policy()  ->  .make(parts): a SplitHeap with these options
//   "pytorch:max_split_size_mb:128"    the same for a text of PYTORCH_CUDA_ALLOC_CONF
//
// Everything here throws Error for what a person got wrong; nothing is called inside malloc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/policy/parts.h"
#include "memoir/policy/settings.h"

namespace memoir {

/// What a policy runs on.
enum class Substrate : std::uint8_t {
  kSimulation = 1,  // simulate/: a device that only counts
  kHost = 2,        // host/
  kDevice = 4       // device/: a GPU
};
/// "simulation", "host", "device".
std::string_view substrate_name(Substrate substrate) noexcept;

/// What a policy measures lifetimes by, when its requests carry classes of them.
enum class LifetimeScale : std::uint8_t {
  kNone,       // they carry none
  kTime,       // nanoseconds, in the classes of predict/wall_classes.h
  kAllocation  // what the program allocates meanwhile (predict/lifetime_class.h)
};

struct PolicyTraits {
  bool mapped = false;        // over mapped memory: has the settings of MappedOptions
  bool plain = false;         // every request is for plain memory
  bool sees_streams = false;  // else every stream has a heap of its own: nothing goes from one to another
  bool pytorch = false;       // its settings are PyTorch's, and so is what it does when the device is full
  bool finalizers = false;    // made for a language with a collector: has the settings of FinalizerSettings
  Size page = 0;              // of a host's malloc: the page in which it has memory; 0: it is none
  LifetimeScale lifetimes = LifetimeScale::kNone;  // kNone: else it has the settings of LifetimeSettings
  bool peer = false;     // only compared with, by name: in no list that nobody asked for
  bool tensors = false;  // tried on a trace of tensors when nobody names a policy
  bool mallocs = false;  // the same of a host's mallocs
};

struct PolicyInfo {
  std::string name;
  std::string what;  // one line for people
  std::vector<Substrate> substrates;
  PolicyTraits traits;
  std::vector<SettingInfo> settings;

  bool is_on(Substrate substrate) const noexcept;
};

/// Every policy: ours, PyTorch's, peers.
std::vector<PolicyInfo> policies();
/// Those that this substrate has.
std::vector<PolicyInfo> policies(Substrate substrate);

/// What a trace is of.
enum class TracedMemory : std::uint8_t { kTensors, kMallocs };
/// The names that such a trace is tried with when nobody names one, ours first. No peers.
std::vector<std::string> default_policies(TracedMemory memory);

/// A policy that was chosen by name, with settings.
struct Policy {
  std::string text;  // as it was asked for
  PolicyTraits traits;
  MappedOptions mapped;
  FinalizerSettings finalizers;
  LifetimeSettings lifetimes;
  double lifetime_unit = 0;  // kTime: nanoseconds below which the shortest class lives; kAllocation: how many
                             // times the heap is allocated while a long-lived object lives
  /// Its heap over these parts, which outlive it. Throws Error as they do, and for options that cannot be.
  std::function<PolicyHeap(Parts& parts)> make;
};

/// Throws Error, with near spellings, when `text` ("name" or "name,key=value,...") names no policy, setting
/// or value that there is, or a policy that the substrate does not have. Reads the files that settings name.
Policy choose_policy(std::string_view text, Substrate substrate);

/// Of the policies of PyTorch, the text for PYTORCH_CUDA_ALLOC_CONF that gives torch these settings ("" for
/// its defaults, and for every other policy). Throws Error as choose_policy() does.
std::string torch_settings(std::string_view text);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// A policy as people write it, parsed for the list of policies (policies.h).
//
//   "split,large=16MiB"            name, and settings of the heap's own options
//   "pytorch:max_split_size_mb:64" name, and a text of PYTORCH_CUDA_ALLOC_CONF; the same as
//   "pytorch,conf=[...]"
//
// Everything here throws Error for what a person got wrong.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/heap/peers/pytorch/pytorch_options.h"
#include "memoir/policy/settings.h"

namespace memoir {

struct PolicyText {
  std::string name;
  std::vector<Setting> settings;  // "name:text" has one, conf
  bool has_colon = false;
};

/// Parses the text. Refuses a setting that is set twice; whether the policy and its settings exist, the
/// owner of the list says.
PolicyText read_policy_text(std::string_view text);

/// There is no policy of that name.
[[noreturn]] void refuse_policy(std::string_view name, std::span<const std::string> known);

/// After a policy took what it knows out of `text.settings`: refuses what is left.
void refuse_unknown_settings(const PolicyText& text, std::span<const SettingInfo> known);

/// Takes the settings of PyTorch's allocator out of `text`: its own text, over which memoir's names of them
/// count. The policy named "expandable" has expandable segments whatever else is set.
PyTorchOptions take_pytorch_settings(PolicyText& text);
std::vector<SettingInfo> pytorch_settings();

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/policy_text.h"

#include <algorithm>

#include "memoir/base/error.h"

namespace memoir {

namespace {

std::string listed(std::span<const std::string> names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

PolicyText read_policy_text(std::string_view text) {
  // An error's text would end there, before it says what is wrong.
  if (text.find('\0') != text.npos) throw Error("a policy is text, and this one has a zero byte in it");
  const size_t end = text.find_first_of(",:");
  PolicyText parsed{std::string(text.substr(0, end)), {}, end != text.npos && text[end] == ':'};
  if (end == text.npos) return parsed;
  const std::string_view rest = text.substr(end + 1);
  if (parsed.has_colon) {
    parsed.settings = {{"conf", std::string(rest)}};
    return parsed;
  }
  parsed.settings = split_settings(rest);
  for (size_t i = 0; i < parsed.settings.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (parsed.settings[i].key == parsed.settings[j].key)
        throw Error("policy '" + parsed.name + "': " + parsed.settings[i].key + " is set twice");
    }
  }
  return parsed;
}

void refuse_policy(std::string_view name, std::span<const std::string> known) {
  throw Error("there is no policy '" + std::string(name) + "'" + near_spelling(name, known) +
              " (policies: " + listed(known) + ")");
}

void refuse_unknown_settings(const PolicyText& text, std::span<const SettingInfo> known) {
  if (text.settings.empty()) return;
  const std::string& key = text.settings.front().key;
  if (text.has_colon) {
    throw Error("policy '" + text.name + "' has no text form; write its settings as " + text.name +
                ",key=value");
  }
  std::vector<std::string> names;
  for (const SettingInfo& info : known) names.push_back(info.name);
  throw Error("policy '" + text.name + "' has no setting '" + key + "'" + near_spelling(key, names) +
              (names.empty() ? " (it has none)" : " (settings: " + listed(names) + ")"));
}

PyTorchOptions take_pytorch_settings(PolicyText& text) {
  PyTorchOptions options;
  std::erase_if(text.settings, [&](const Setting& setting) {
    if (setting.key != "conf") return false;
    options = PyTorchOptions::parse(without_brackets(setting.value));
    return true;
  });
  options.expandable_segments |= text.name == "expandable";
  take_settings(options, text.settings, text.name);
  if (options.max_split_size < options.large_segment_size) {
    throw Error("policy '" + text.name + "', max_split_size=" + bytes_setting(options.max_split_size) +
                ": it must be at least " + bytes_setting(options.large_segment_size) +
                ", the size of a large segment");
  }
  return options;
}

std::vector<SettingInfo> pytorch_settings() {
  std::vector<SettingInfo> settings = settings_of<PyTorchOptions>();
  settings.insert(settings.begin(), {"conf", std::string(unit_name(Unit::kText)), "[]",
                                     "PYTORCH_CUDA_ALLOC_CONF, in brackets; the others count over it"});
  return settings;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/policy/policies.h"

namespace memoir {

namespace {

std::string refusal(std::string_view text, Substrate substrate) {
  try {
    choose_policy(text, substrate);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a row says what the policy is and where it is to be had") {
  std::set<std::string> names;
  for (const PolicyInfo& info : policies()) {
    CAPTURE(info.name);
    CHECK(names.insert(info.name).second);
    CHECK_FALSE(info.what.empty());
    CHECK_FALSE(info.substrates.empty());
    std::set<std::string> settings;
    for (const SettingInfo& setting : info.settings) {
      CAPTURE(setting.name);
      CHECK(settings.insert(setting.name).second);
      CHECK_FALSE(setting.help.empty());
      CHECK_FALSE(setting.unit.empty());
    }
    CHECK(settings.contains("granule") == info.traits.mapped);
    CHECK(settings.contains("finalizer_delay") == info.traits.finalizers);
  }
  for (const Substrate substrate : {Substrate::kSimulation, Substrate::kHost, Substrate::kDevice}) {
    CHECK_FALSE(policies(substrate).empty());
    for (const PolicyInfo& info : policies(substrate)) CHECK(info.is_on(substrate));
  }
}

TEST_CASE("a text is read alike for every substrate, defaults and all") {
  for (const PolicyInfo& info : policies()) {
    for (const SettingInfo& setting : info.settings) {
      if (setting.initial.empty()) continue;
      const std::string text = info.name + "," + setting.name + "=" + setting.initial;
      CAPTURE(text);
      for (const Substrate substrate : info.substrates) CHECK(refusal(text, substrate) == "");
    }
    for (const char* const wrong : {",graunle=1", ",granule=big,piece=1,piece=2", ":x:1"}) {
      const std::string text = info.name + wrong;
      CAPTURE(text);
      const std::string first = refusal(text, info.substrates.front());
      CHECK(first != "");
      for (const Substrate substrate : info.substrates) CHECK(refusal(text, substrate) == first);
    }
  }
  for (const Substrate substrate : {Substrate::kSimulation, Substrate::kDevice}) {
    CHECK(refusal("mermoir", substrate).find("there is no policy 'mermoir'; did you mean 'memoir'?") == 0);
    CHECK(refusal("guided,plan=/none/x.plan", substrate).find("/none/x.plan") != std::string::npos);
  }
}

TEST_CASE("a substrate that does not have a policy says who has it") {
  for (const PolicyInfo& info : policies()) {
    for (const Substrate substrate : {Substrate::kSimulation, Substrate::kHost, Substrate::kDevice}) {
      if (info.is_on(substrate)) continue;
      CAPTURE(info.name);
      const std::string said = refusal(info.name, substrate);
      CHECK(said.find("policy '" + info.name + "' is one of a ") == 0);
      CHECK(said.find("not of a " + std::string(substrate_name(substrate))) != std::string::npos);
      for (const Substrate other : info.substrates)
        CHECK(said.find("a " + std::string(substrate_name(other))) != std::string::npos);
    }
  }
}

TEST_CASE("the text for PyTorch itself is that of its policies alone") {
  CHECK(torch_settings("memoir,slack=0.1") == "");
  CHECK(torch_settings("pytorch") == "");
  CHECK(torch_settings("expandable,piece=4MiB") == "expandable_segments:True");
  CHECK(torch_settings("pytorch:max_split_size_mb:64") == "max_split_size_mb:64");
}

}  // namespace memoir

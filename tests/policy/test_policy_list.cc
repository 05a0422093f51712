// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <string_view>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/base/units.h"
#include "memoir/policy/option_limits.h"
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

TEST_CASE("a default list is of ours, and has no peer") {
  for (const TracedMemory memory : {TracedMemory::kTensors, TracedMemory::kMallocs}) {
    const std::vector<std::string> names = default_policies(memory);
    REQUIRE_FALSE(names.empty());
    for (const PolicyInfo& info : policies(Substrate::kSimulation)) {
      CAPTURE(info.name);
      const bool in = std::find(names.begin(), names.end(), info.name) != names.end();
      CHECK(in == (memory == TracedMemory::kTensors ? info.traits.tensors : info.traits.mallocs));
      if (info.traits.peer) CHECK_FALSE(in);
    }
  }
  bool peers = false;  // they come last
  for (const PolicyInfo& info : policies()) {
    CHECK_FALSE((peers && !info.traits.peer));
    peers = info.traits.peer;
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

TEST_CASE("a setting that its heap refuses is named, with what it may be") {
  const auto said = [](std::string_view text) { return refusal(text, Substrate::kSimulation); };
  CHECK(said("binned,largest=1GiB") == "policy 'binned', largest=1GiB: must be at most 512MiB");
  CHECK(said("binned,least_delay=0") == "policy 'binned', least_delay=0: must be above 0");
  CHECK(said("binned,least_delay=9") == "policy 'binned', most_delay=5: must be at least least_delay, 9");
  CHECK(said("split,small=100KiB") == "policy 'split', small=100KiB: must be a multiple of 128KiB, above 0");
  CHECK(said("split,small=64MiB").find("policy 'split', large=32MiB: must be at least small, 64MiB") == 0);
  CHECK(said("split,large=1664KiB") == "policy 'split', large=1664KiB: must be a multiple of 1MiB");
  CHECK(said("rmm,initial=2MiB,maximum=1MiB") == "policy 'rmm', initial=2MiB: must be at most maximum, 1MiB");
  CHECK(said("rmm_arena,size=1KiB") == "policy 'rmm_arena', size=1KiB: must be 0, or at least 1MiB");
  CHECK(said("rmm_arena,part=1.5") == "policy 'rmm_arena', part=1.5: must be from 0 to 1");
  for (const char* const fine : {"binned,largest=512MiB", "split,small=2MiB,large=2MiB", "rmm,initial=1MiB",
                                 "rmm_arena,size=1MiB,part=1"})
    CHECK(said(fine) == "");
  CHECK_NOTHROW(check_pool_alignment(2 * kMiB, 2 * kMiB));
  CHECK_THROWS_WITH_AS(check_pool_alignment(768, 2 * kMiB),
                       "alignment=768: must be a power of two, at most the granule of 2MiB", Error);
  CHECK_THROWS_AS(check_pool_alignment(4 * kMiB, 2 * kMiB), Error);
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

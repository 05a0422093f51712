// SPDX-License-Identifier: Apache-2.0
//
// A writer of small models, made from docs/reference/formats-model.md alone but for hashes and header: what
// tests and the fuzzer begin with.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/predict/model/lifetime_model.h"
#include "memoir/predict/model/write_model.h"

namespace memoir {

/// Bytes where a model may lie.
struct AlignedBytes {
  std::vector<std::uint64_t> words;
  size_t size;

  explicit AlignedBytes(std::string_view bytes) : words((bytes.size() + 7) / 8), size(bytes.size()) {
    std::memcpy(words.data(), bytes.data(), bytes.size());
  }
  std::string_view view() const { return {reinterpret_cast<const char*>(words.data()), size}; }
};

struct SmallModel {
  using Stack = std::vector<std::string>;

  model_format::Settings settings;
  std::uint64_t key = 0;
  std::map<Stack, model_format::Answer> stacks;  // plain names, innermost first
  std::vector<model_format::Address> addresses;  // of the one module
  std::string build_id = "0123456789abcdefghij";
  std::vector<std::string> outer;     // of the names
  std::vector<std::string> programs;  // as program_name() has them
  std::vector<std::string> passed_over;
  struct Call {
    std::string callee, caller, next;
  };
  std::vector<Call> calls;  // of the names
  bool has_words = false;
  float long_bias = 0;
  std::uint32_t network = 0;  // 0: none

  SmallModel() {
    settings.stages = LifetimeModel::kAllStages;
    settings.least_tokens = 1;
    settings.least_coverage = 0.5f;
  }

  static model_format::Answer answer(unsigned wall, double share, std::uint16_t samples = 20) {
    model_format::Answer one;
    one.wall[wall] = 255;
    one.long_lived = static_cast<std::uint16_t>(share * 65535);
    one.samples = samples;
    return one;
  }

  std::map<std::string, std::string> sections() const {
    std::vector<std::uint64_t> names;
    std::vector<std::string> plain;
    for (const auto& [stack, ignored] : stacks)
      for (const std::string& name : stack) plain.push_back(name);
    std::sort(plain.begin(), plain.end());
    plain.erase(std::unique(plain.begin(), plain.end()), plain.end());
    for (const std::string& name : plain) names.push_back(model_hash(name, key));
    std::sort(names.begin(), names.end());
    const auto number = [&](const std::string& name) {
      return static_cast<std::uint16_t>(std::lower_bound(names.begin(), names.end(), model_hash(name, key)) -
                                        names.begin());
    };

    // A trie with one label an edge, numbered breadth first.
    struct Branch {
      std::vector<std::pair<std::vector<std::uint16_t>, model_format::Answer>>
          below;  // what is left of each stack
      size_t depth = 0;
      std::uint16_t label = 0;
    };
    std::vector<Branch> branches(1);
    for (const auto& [stack, one] : stacks) {
      std::vector<std::uint16_t> numbers;
      for (const std::string& name : stack) numbers.push_back(number(name));
      branches[0].below.emplace_back(numbers, one);
    }
    std::vector<model_format::Answer> answers;
    std::vector<model_format::Node> nodes;
    std::vector<std::uint16_t> labels;
    for (const model_format::Address& one : addresses)
      answers.resize(std::max<size_t>(answers.size(), one.answer + 1u), answer(7, 1));
    for (size_t i = 0; i < branches.size(); ++i) {
      const Branch here = branches[i];
      const size_t first = branches.size();
      bool ends = false;
      std::map<std::uint16_t, Branch> children;
      model_format::Answer mean = answer(0, 0, 0);
      unsigned shares = 0;
      for (const auto& [left, one] : here.below) {
        mean = one;
        shares += one.long_lived;
        if (left.size() == here.depth) {
          ends = true;
          continue;
        }
        Branch& child = children[left[here.depth]];
        child.below.emplace_back(left, one);
        child.depth = here.depth + 1;
        child.label = left[here.depth];
      }
      mean.long_lived = static_cast<std::uint16_t>(shares / std::max<size_t>(here.below.size(), 1));
      for (const auto& [label, child] : children) branches.push_back(child);
      model_format::Node node;
      node.words[0] = (children.empty() ? 0 : static_cast<std::uint32_t>(first)) | (i == 0 ? 0u : 1u << 24);
      node.words[1] = static_cast<std::uint32_t>(labels.size()) | (ends && i > 0 ? 1u << 24 : 0u);
      node.words[2] =
          static_cast<std::uint32_t>(answers.size()) | static_cast<std::uint32_t>(children.size() << 16);
      if (i > 0) labels.push_back(here.label);
      answers.push_back(mean);
      nodes.push_back(node);
    }

    std::map<std::string, std::string> all;
    const auto put = [&](const char* name, const auto& records) {
      all[name] =
          std::string(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(records[0]));
    };
    put("settings", std::vector{settings});
    std::vector<model_format::Module> modules(1);
    modules[0].id_size = static_cast<std::uint32_t>(build_id.size());
    std::memcpy(modules[0].id, build_id.data(), build_id.size());
    put("modules", modules);
    put("addresses", addresses);
    put("names", names);
    put("nodes", nodes);
    put("labels", labels);
    std::vector<std::uint16_t> outer_numbers;
    for (const std::string& name : outer) outer_numbers.push_back(number(name));
    std::sort(outer_numbers.begin(), outer_numbers.end());
    if (!outer.empty()) put("outer", outer_numbers);
    std::vector<std::uint64_t> program_hashes;
    for (const std::string& name : programs) program_hashes.push_back(model_hash(name, key));
    std::sort(program_hashes.begin(), program_hashes.end());
    if (!programs.empty()) put("programs", program_hashes);
    std::vector<std::uint32_t> passed;
    for (const std::string& name : passed_over)
      passed.push_back(static_cast<std::uint32_t>(model_hash(name, key) >> 32));
    std::sort(passed.begin(), passed.end());
    if (!passed.empty()) put("passed_over", passed);
    std::vector<model_format::Call> call_rows;
    for (const Call& call : calls)
      call_rows.push_back({number(call.callee), number(call.caller), number(call.next)});
    std::sort(call_rows.begin(), call_rows.end(), [](const auto& a, const auto& b) {
      return a.callee != b.callee ? a.callee < b.callee : a.caller < b.caller;
    });
    if (!calls.empty()) put("calls", call_rows);
    put("answers", answers);
    std::vector<model_format::Calibration> calibration(1);
    std::memset(calibration.data(), 0, sizeof calibration[0]);
    for (auto& stage : calibration[0].stages) {
      stage.temperature = 1;
      for (auto& band : stage.knots)
        for (size_t i = 0; i < model_format::kKnots; ++i) band[i] = static_cast<float>(i) / 16;
    }
    put("calibration", calibration);
    std::vector<std::uint32_t> words;
    for (const std::string& name : plain)
      for_each_word(name, [&](std::string_view word) { words.push_back(word_hash(word, key)); });
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    if (has_words || network != 0) {
      std::vector<model_format::Token> tokens;
      for (const std::uint32_t word : words) tokens.push_back({word, 30000, 0});
      put("tokens", tokens);
    }
    if (has_words) {
      model_format::WeightsHead head{};
      std::fill(std::begin(head.scale), std::end(head.scale), 0.1f);
      head.bias[8] = long_bias;
      std::string weights(reinterpret_cast<const char*>(&head), sizeof head);
      for (unsigned i = 0; i < 256 * 9; ++i) weights.push_back(static_cast<char>(i * 37 % 41) - 20);
      all["weights"] = weights;
    }
    if (network != 0) {
      model_format::NetworkHead head;
      head.kind = network;
      head.split = 1;
      head.tokens = static_cast<std::uint32_t>(3 + words.size());
      head.embedding = 3;
      head.hidden = 5;
      head.most_tokens = 64;
      std::string text(reinterpret_cast<const char*>(&head), sizeof head);
      text.append(reinterpret_cast<const char*>(words.data()), words.size() * 4);
      text.resize((text.size() + 7) / 8 * 8);
      const size_t e = 3, h = 5;
      const size_t middle = network == 1 ? 4 * h * (e + h + 2) : 2 * h * (e + 1);
      for (size_t i = 0; i < head.tokens * e + middle + 9 * (h + 1); ++i) {
        const float value = static_cast<float>(i * 7919 % 1000) / 1000 - 0.5f;
        text.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
      all["network"] = text;
    }
    return all;
  }

  std::string bytes() const { return bytes(sections()); }
  std::string bytes(const std::map<std::string, std::string>& from) const {
    ModelSections views;
    for (std::uint32_t kind = 0; kind < model_format::kKinds; ++kind) {
      const auto found = from.find(std::string(model_format::kSectionRows[kind].name));
      if (found != from.end()) views[kind] = found->second;
    }
    return write_model(views, key);
  }
};

}  // namespace memoir

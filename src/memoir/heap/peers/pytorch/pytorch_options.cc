// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/pytorch/pytorch_options.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/base/near_spelling.h"

namespace memoir {

namespace {

constexpr size_t kFirstRange = 20;  // the base-2 logarithm of the first range's sizes
constexpr Size kMostMib = ~Size{0} / kMiB;

size_t range_of(Size size) {
  const size_t log = static_cast<size_t>(std::bit_width(size)) - 1;
  return std::min(log < kFirstRange ? 0 : log - kFirstRange, PyTorchOptions::kSizeRanges - 1);
}

// What these set has no part in where an object of the device goes.
constexpr std::string_view kOtherFlags[] = {
    "release_lock_on_cudamalloc",   "release_lock_on_hipmalloc",     "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register", "pinned_use_background_threads", "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
};
constexpr std::string_view kOtherKeys[] = {
    "pinned_num_register_threads", "pinned_reserve_segment_size_mb", "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",   "pinned_free_catch_all",
};
constexpr std::string_view kDeviceKeys[] = {
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "roundup_power2_divisions",
};

/// One setting: "key:value" or "key:[value,value]".
struct ConfSetting {
  std::string key;
  std::vector<std::string> tokens;  // of the value; "[" first when it is a list
};

class ConfReader {
 public:
  explicit ConfReader(std::string_view text) : text_(text) {
    std::string token;
    const auto end_token = [&] {
      if (!token.empty()) tokens_.push_back(std::move(token));
      token.clear();
    };
    for (const char c : text) {
      if (c == ',' || c == ':' || c == '[' || c == ']') {
        end_token();
        tokens_.emplace_back(1, c);
      } else if (c != ' ' && (c < '\t' || c > '\r')) {
        token += c;
      }
    }
    end_token();
  }

  std::vector<ConfSetting> settings() {
    std::vector<ConfSetting> settings;
    while (at_ < tokens_.size()) {
      ConfSetting setting{next("the name of a setting"), {}};
      check_key(setting.key);
      if (at_ == tokens_.size() || tokens_[at_] != ":")
        fail("expected ':' after " + setting.key, setting.key);
      ++at_;
      setting.tokens.push_back(next("the value of " + setting.key));
      while (setting.tokens.front() == "[" && setting.tokens.back() != "]") {
        if (at_ == tokens_.size()) fail("the list has no ']'", setting.key);
        setting.tokens.push_back(tokens_[at_++]);
      }
      if (at_ < tokens_.size() && tokens_[at_++] != ",") {
        fail("expected ',' before '" + tokens_[at_ - 1] + "' or the end", setting.key);
      }
      settings.push_back(std::move(setting));
    }
    return settings;
  }

  [[noreturn]] void fail(const std::string& what, std::string_view key) const {
    throw Error("PYTORCH_CUDA_ALLOC_CONF '" + std::string(text_) + "', " + std::string(key) + ": " + what);
  }

 private:
  std::string next(const std::string& what) {
    if (at_ == tokens_.size()) fail("it ends before " + what, what);
    return tokens_[at_++];
  }

  void check_key(const std::string& key) const {
    std::vector<std::string_view> known(std::begin(kDeviceKeys), std::end(kDeviceKeys));
    known.insert(known.end(), std::begin(kOtherFlags), std::end(kOtherFlags));
    known.insert(known.end(), std::begin(kOtherKeys), std::end(kOtherKeys));
    if (std::find(known.begin(), known.end(), key) != known.end()) return;
    const std::string_view near = nearest_spelling(key.substr(0, key.find('=')), known);
    fail(near.empty() ? "PyTorch has no such setting"
                      : "PyTorch has no such setting; did you mean '" + std::string(near) + ":...'?",
         key);
  }

  std::string_view text_;
  std::vector<std::string> tokens_;
  size_t at_ = 0;
};

class ConfValue {
 public:
  ConfValue(const ConfReader& reader, const ConfSetting& setting) : reader_(&reader), setting_(&setting) {}

  [[noreturn]] void fail(const std::string& what) const { reader_->fail(what, setting_->key); }
  const std::string& token() const { return setting_->tokens.front(); }

  Size number(const std::string& text) const {  // the leading number, as std::stoull reads it for torch
    char* end = nullptr;
    errno = 0;
    const Size value = std::strtoull(text.c_str(), &end, 10);
    if (end == text.c_str()) fail("'" + text + "' is not a whole number");
    if (errno == ERANGE) fail("'" + text + "' is above 2^64");
    return value;
  }
  Size mib(Size least, const char* why) const {
    const Size value = number(token());
    if (value < least) fail("must be at least " + std::to_string(least) + why);
    return std::min(value, kMostMib) * kMiB;
  }
  double fraction() const {
    char* end = nullptr;
    const double value = std::strtod(token().c_str(), &end);
    if (end == token().c_str()) fail("'" + token() + "' is not a number");
    return value;
  }
  bool flag() const {
    if (token() != "True" && token() != "False") fail("'" + token() + "' is neither True nor False");
    return token() == "True";
  }

  void divisions(PyTorchOptions& options) const {
    if (token() != "[") {
      const Size value = number(token());
      if (!is_power_of_two(value)) fail("'" + token() + "' is not a power of two");
      options.roundup_power2_divisions = value;
      options.roundup_of_range = PyTorchOptions{}.roundup_of_range;
      return;
    }
    auto& ranges = options.roundup_of_range;
    if (ranges.front() == PyTorchOptions::kAsForAll) ranges.fill(options.roundup_power2_divisions);
    options.roundup_power2_divisions = 0;
    const auto& tokens = setting_->tokens;
    size_t last = 0;
    bool first = true;
    for (size_t i = 1; tokens[i] != "]"; ++i) {
      if (i + 3 >= tokens.size() || tokens[i + 1] != ":") fail("the list holds size:divisions,...");
      const Size value = number(tokens[i + 2]);
      if (value != 0 && !is_power_of_two(value))
        fail("'" + tokens[i + 2] + "' is neither a power of two nor 0");
      if (tokens[i] == ">") {
        std::fill(ranges.begin() + std::min(last + 1, ranges.size()), ranges.end(), value);
      } else {
        const Size size = number(tokens[i]);
        if (!is_power_of_two(size)) fail("size '" + tokens[i] + "' (of MiB) is not a power of two");
        last = range_of(std::min(size, Size{1} << 20) * kMiB);
        if (first) std::fill(ranges.begin(), ranges.begin() + last, value);
        first = false;
        ranges[last] = value;
      }
      i += 3;
      if (tokens[i] == "]") break;
      if (tokens[i] != ",") fail("expected ',' or ']' before '" + tokens[i] + "'");
    }
  }

 private:
  const ConfReader* reader_;
  const ConfSetting* setting_;
};

void apply(const ConfValue& value, const std::string& key, PyTorchOptions& options) {
  const Size segment_mib = options.large_segment_size / kMiB;
  if (key == "max_split_size_mb") {
    options.max_split_size = value.mib(segment_mib, ", the size of a large segment in MiB");
  } else if (key == "max_non_split_rounding_mb") {
    options.max_non_split_rounding = value.mib(segment_mib, ", the size of a large segment in MiB");
  } else if (key == "garbage_collection_threshold") {
    options.garbage_collection_threshold = value.fraction();
    if (!(options.garbage_collection_threshold > 0 && options.garbage_collection_threshold < 1)) {
      value.fail("must lie between 0 and 1, both excluded");
    }
  } else if (key == "per_process_memory_fraction") {
    options.per_process_memory_fraction = value.fraction();
    if (!(options.per_process_memory_fraction >= 0 && options.per_process_memory_fraction <= 1)) {
      value.fail("must lie between 0 and 1");
    }
  } else if (key == "roundup_power2_divisions") {
    value.divisions(options);
  } else if (key == "expandable_segments") {
    options.expandable_segments = value.flag();
  } else if (key == "backend") {
    if (value.token() == "cudaMallocAsync")
      value.fail("that is the driver's pool, not PyTorch's; use native");
    if (value.token() != "native") value.fail("'" + value.token() + "' is not a backend; use native");
  } else if (std::find(std::begin(kOtherFlags), std::end(kOtherFlags), key) != std::end(kOtherFlags)) {
    value.flag();
  }
}

}  // namespace

PyTorchOptions PyTorchOptions::parse(std::string_view text) {
  ConfReader reader(text);
  const std::vector<ConfSetting> settings = reader.settings();
  PyTorchOptions options;
  for (const ConfSetting& setting : settings) {  // first, since others must not be less
    if (setting.key != "large_segment_size_mb") continue;
    options.large_segment_size = ConfValue(reader, setting).mib(11, ", for requests of up to 10 MiB");
  }
  options.max_non_split_rounding = options.large_segment_size;
  for (const ConfSetting& setting : settings) apply(ConfValue(reader, setting), setting.key, options);
  return options;
}

std::string PyTorchOptions::text() const {
  const PyTorchOptions initial;
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value) {
    if (!text.empty()) text += ',';
    text += key + ':' + value;
  };
  const auto add_mib = [&](const char* key, Size value) { add(key, std::to_string(value / kMiB)); };
  const auto add_share = [&](const char* key, double value) {
    std::string digits = std::to_string(value);
    while (digits.back() == '0') digits.pop_back();
    add(key, digits.back() == '.' ? digits + '0' : digits);
  };
  if (expandable_segments) add("expandable_segments", "True");
  if (large_segment_size != initial.large_segment_size) add_mib("large_segment_size_mb", large_segment_size);
  if (max_split_size != kNoLimit) add_mib("max_split_size_mb", max_split_size);
  if (max_non_split_rounding > large_segment_size)
    add_mib("max_non_split_rounding_mb", max_non_split_rounding);
  if (garbage_collection_threshold > 0)
    add_share("garbage_collection_threshold", garbage_collection_threshold);
  if (per_process_memory_fraction < 1) add_share("per_process_memory_fraction", per_process_memory_fraction);
  const bool alike = std::all_of(roundup_of_range.begin(), roundup_of_range.end(),
                                 [](Size divisions) { return divisions == kAsForAll; });
  if (alike && roundup_power2_divisions > 1) {
    add("roundup_power2_divisions", std::to_string(roundup_power2_divisions));
  } else if (!alike) {
    std::string list;
    for (size_t i = 0; i < kSizeRanges; ++i) {
      const Size divisions = divisions_for(kMiB << i);
      list += i == 0 ? '[' : ',';
      list += std::to_string(Size{1} << i) + ':' + std::to_string(divisions);
    }
    add("roundup_power2_divisions", list + ']');
  }
  return text;
}

Size PyTorchOptions::divisions_for(Size size) const noexcept {
  const Size divisions = roundup_of_range[range_of(size)];
  return divisions == kAsForAll ? roundup_power2_divisions : divisions;
}

}  // namespace memoir

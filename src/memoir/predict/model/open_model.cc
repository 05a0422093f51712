// SPDX-License-Identifier: Apache-2.0
//
// Everything that a file must hold, checked once: afterwards no index of it needs a check.
#include <algorithm>
#include <bit>
#include <cstring>

#include "memoir/predict/model/lifetime_model.h"
#include "memoir/predict/model/plain_math.h"

namespace memoir {

namespace {

using namespace model_format;

constexpr std::uint64_t kMost16 = 65535, kMost24 = (1u << 24) - 1;

bool in_unit(float value) noexcept { return value >= 0 && value <= 1; }

/// `first_byte`: of the value at an index; values ascend.
template <class FirstByte>
void index_by_byte(size_t count, FirstByte first_byte, std::uint16_t (&begin)[257]) noexcept {
  size_t next = 0;
  for (size_t i = 0; i < count; ++i)
    while (next <= first_byte(i)) begin[next++] = static_cast<std::uint16_t>(i);
  while (next < 257) begin[next++] = static_cast<std::uint16_t>(count);
}

template <class T>
bool all_zero(const T& values) noexcept {
  for (const auto& value : values)
    if (value != 0) return false;
  return true;
}

}  // namespace

const char* LifetimeModel::open(std::string_view bytes) noexcept {
  *this = LifetimeModel{};
  if (const char* const why = check_table(bytes)) return why;
  for (const auto step : {&LifetimeModel::check_settings, &LifetimeModel::check_addresses,
                          &LifetimeModel::check_names_and_answers, &LifetimeModel::check_trie,
                          &LifetimeModel::check_words, &LifetimeModel::check_texts}) {
    if (const char* const why = (this->*step)()) return why;
  }
  return network_.open(section(model_format::kNetwork));
}

const char* LifetimeModel::check_table(std::string_view bytes) noexcept {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 != 0) return "its bytes are not aligned in memory";
  Header header;
  if (bytes.size() < sizeof header) return "it is not a model: too short";
  std::memcpy(&header, bytes.data(), sizeof header);
  // The files of memoir differ in the last letter of their first eight.
  if (header.magic << 8 == kMagic << 8 && header.magic != kMagic)
    return "it is not a model, but another file of memoir's";
  if (header.magic != kMagic) return "it is not a model";
  if (header.version != kVersion || header.byte_order != kByteOrder || header.header_size != sizeof header)
    return "it is a model of another version; this memoir reads version 1";
  if (header.file_size != bytes.size()) return "it is cut off, or has bytes behind its end";
  if (bytes.size() > kMostFile) return "it is larger than a model may be (64 MiB)";
  if (!all_zero(header.reserved)) return "its header has bytes where zeros belong";
  if (header.checksum != checksum(bytes)) return "its checksum does not match: it is damaged";
  if (header.sections > kMostSections) return "it has more sections than a model may have";
  bool have[kKinds] = {};
  SectionReader table(bytes, sizeof header, header.sections);
  while (table.next()) {
    const Section& section = table.section();
    if (section.kind > kKinds) {
      if ((section.flags & kOptionalSection) == 0) return "it has a section that this memoir does not know";
      continue;
    }
    const SectionRow& row = kSectionRows[section.kind - 1];
    const bool weights = section.kind == kWeights;
    if (section.flags != (row.optional ? kOptionalSection : 0)) return "the flags of a section are wrong";
    if (section.count > bytes.size() ||
        section.size != (weights ? sizeof(WeightsHead) : 0) + section.count * row.record)
      return "the size of a section is not that of its records";
    have[section.kind - 1] = true;
    sections_[section.kind - 1] = table.content();
    counts_[section.kind - 1] = section.count;
  }
  if (table.fault() != nullptr) return table.fault();
  for (std::uint32_t i = 0; i < kKinds; ++i)
    if (kSectionRows[i].needed && !have[i]) return "a section is missing";
  key_ = header.key;
  return nullptr;
}

const char* LifetimeModel::check_settings() noexcept {
  if (count(kSettings) != 1 || count(kCalibration) != 1)
    return "it does not have exactly one record of settings";
  settings_ = records<Settings>(kSettings).data();
  calibration_ = records<Calibration>(kCalibration).data();
  const Settings& all = *settings_;
  if ((all.flags & ~std::uint32_t{kOneClass | kPrivate | kSizes | kOtherBuild}) != 0 ||
      (all.stages & ~kAllStages) != 0 || !all_zero(all.reserved))
    return "its settings have bits that this memoir does not know";
  if (all.least_frames == 0 || all.prior_worth == 0 || all.prior_worth > 4 ||
      !(all.tau > 0 && all.tau < 1e6f))
    return "its settings are out of range";
  for (const float share : {all.least_coverage, all.words_in_near, all.network_in_words, all.least_long,
                            all.words_in_names, all.least_share, all.least_long_hot})
    if (!in_unit(share)) return "a share in its settings is not between 0 and 1";
  const bool is_private = (all.flags & kPrivate) != 0;
  if (is_private != (key_ != 0)) return "its key does not fit its settings";
  if (is_private &&
      (!section(kText).empty() || !section(kNameTexts).empty() || !section(kTokenTexts).empty()))
    return "it is private, and has names";
  for (const Calibration::Stage& stage : calibration_->stages) {
    if (!(stage.temperature > 1e-3f && stage.temperature < 1e3f)) return "a temperature is out of range";
    for (const auto& band : stage.knots)
      for (const float knot : band)
        if (!in_unit(knot)) return "its calibration is not between 0 and 1";
  }
  if (!all_zero(calibration_->reserved)) return "its calibration has numbers where zeros belong";
  return nullptr;
}

const char* LifetimeModel::check_addresses() noexcept {
  modules_ = records<Module>(kModules);
  addresses_ = records<Address>(kAddresses);
  if (modules_.size() > kMost16) return "it has more modules than a model may have";
  for (const Module& module : modules_) {
    if (module.id_size == 0 || module.id_size > sizeof module.id || module.reserved != 0)
      return "a module has no build id";
    for (size_t i = module.id_size; i < sizeof module.id; ++i)
      if (module.id[i] != 0) return "a build id is not filled up with zeros";
  }
  const Address* before = nullptr;
  for (const Address& one : addresses_) {
    if (one.module >= modules_.size() || one.answer >= count(kAnswers)) return "an address leads nowhere";
    if (before != nullptr) {
      const bool rises = before->module != one.module   ? before->module < one.module
                         : before->offset != one.offset ? before->offset < one.offset
                                                        : before->height < one.height;
      if (!rises) return "its addresses are not in order";
    }
    before = &one;
  }
  return nullptr;
}

const char* LifetimeModel::check_names_and_answers() noexcept {
  names_ = records<std::uint64_t>(kNames);
  answers_ = records<Answer>(kAnswers);
  if (names_.size() > kMost16 || answers_.size() > kMost16) return "it has more names or answers than it may";
  for (size_t i = 1; i < names_.size(); ++i)
    if (names_[i - 1] >= names_[i]) return "its names are not in order";
  index_by_byte(
      names_.size(), [&](size_t i) { return names_[i] >> 56; }, names_by_byte_.begin);
  outer_ = records<std::uint16_t>(kOuter);
  for (size_t i = 0; i < outer_.size(); ++i)
    if (outer_[i] >= names_.size() || (i > 0 && outer_[i - 1] >= outer_[i]))
      return "its outer names are not in order";
  passed_over_ = records<std::uint32_t>(kPassedOver);
  for (size_t i = 1; i < passed_over_.size(); ++i)
    if (passed_over_[i - 1] >= passed_over_[i]) return "the names that it passes over are not in order";
  calls_ = records<Call>(kCalls);
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    if (call.callee >= names_.size() || call.caller >= names_.size() || call.next >= names_.size())
      return "a call leads to no name";
    if (i > 0 && (calls_[i - 1].callee != call.callee ? calls_[i - 1].callee > call.callee
                                                      : calls_[i - 1].caller >= call.caller))
      return "its calls are not in order";
  }
  programs_ = records<std::uint64_t>(kPrograms);
  if (programs_.size() > kMost16) return "it has more programs than a model may have";
  for (size_t i = 1; i < programs_.size(); ++i)
    if (programs_[i - 1] >= programs_[i]) return "its programs are not in order";
  for (const Answer& answer : answers_)
    if (all_zero(answer.wall)) return "an answer has no class";
  return nullptr;
}

const char* LifetimeModel::check_trie() noexcept {
  nodes_ = records<Node>(kNodes);
  labels_ = records<std::uint16_t>(kLabels);
  if (nodes_.size() > kMost24 || labels_.size() > kMost24) return "its trie is larger than it may be";
  for (const std::uint16_t label : labels_)
    if (label >= names_.size()) return "a label is not a name";
  if (nodes_.empty()) return nullptr;
  if (nodes_[0].labels() != 0 || nodes_[0].flags() != 0) return "the root of its trie is not a root";
  std::uint64_t next = 1;  // whose parent is still to come
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (i >= next) return "a node of its trie has no parent";
    if (node.answer() >= answers_.size()) return "a node of its trie has no answer";
    if (i > 0 && (node.labels() == 0 || node.first_label() + std::uint64_t{node.labels()} > labels_.size()))
      return "an edge of its trie has no labels";
    if (node.flags() > 1) return "a node of its trie has bits that this memoir does not know";
    if (node.first_child() != (node.children() == 0 ? 0 : next)) return "its trie is not numbered by breadth";
    next += node.children();
    if (next > nodes_.size()) return "its trie has fewer nodes than it needs";
  }
  if (next != nodes_.size()) return "a node of its trie has no parent";
  for (const Node& node : nodes_) {
    for (std::uint32_t i = 1; i < node.children(); ++i) {
      const Node* const child = &nodes_[node.first_child() + i];
      if (labels_[child[-1].first_label()] >= labels_[child->first_label()])
        return "the children of a node are not in order";
    }
  }
  return nullptr;
}

const char* LifetimeModel::check_words() noexcept {
  tokens_ = records<Token>(kTokens);
  if (tokens_.size() > kMost16) return "it has more tokens than it may";
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if ((tokens_[i].flags & ~kOuterToken) != 0) return "a token has flags that this memoir does not know";
    if (i > 0 && tokens_[i - 1].hash >= tokens_[i].hash) return "its tokens are not in order";
  }
  index_by_byte(
      tokens_.size(), [&](size_t i) { return tokens_[i].hash >> 24; }, tokens_by_byte_.begin);
  const std::string_view bytes = section(kWeights);
  if (bytes.empty()) return nullptr;
  const std::uint64_t rows = count(kWeights);
  if (!std::has_single_bit(rows) || rows < 256 || rows > (1u << 20))
    return "its weights are not 2^8 to 2^20 rows";
  weights_head_ = reinterpret_cast<const WeightsHead*>(bytes.data());
  weights_ = reinterpret_cast<const std::int8_t*>(bytes.data() + sizeof(WeightsHead));
  log2_rows_ = static_cast<unsigned>(std::countr_zero(rows));
  for (size_t i = 0; i < kOutputs; ++i) {
    if (!plain_math::is_below(weights_head_->scale[i], 1e6f) ||
        !plain_math::is_below(weights_head_->bias[i], 1e6f))
      return "a scale of its weights is not finite, or very large";
  }
  return nullptr;
}

const char* LifetimeModel::check_texts() noexcept {
  const std::string_view text = section(kText);
  const auto check = [&](std::uint32_t kind, size_t wanted) {
    const auto places = records<TextPlace>(kind);
    if (!places.empty() && places.size() != wanted) return false;
    for (const TextPlace& place : places)
      if (place.begin > text.size() || place.size > text.size() - place.begin) return false;
    return true;
  };
  if (!check(kNameTexts, names_.size()) || !check(kTokenTexts, tokens_.size())) return "a text lies outside";
  return nullptr;
}

}  // namespace memoir

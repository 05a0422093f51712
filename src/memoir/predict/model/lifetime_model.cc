// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/lifetime_model.h"

#include <algorithm>
#include <cstring>

#include "memoir/predict/model/plain_math.h"
#include "memoir/predict/model/plain_name.h"

namespace memoir {

namespace {

using namespace model_format;

// Coverage at which words answer for a program of the same name.
constexpr float kLeastOfSame = 0.3f;
// Share of the frames that must match in a program of another name.
constexpr float kLeastOfOther = 0.6f;
// How surely objects are long-lived, or are not, where no word tells of a program.
constexpr float kLeastSure = 0.75f;
constexpr size_t kOuterFrames = 8;  // at a stack's outer end, or a third of it

std::uint32_t band_of_samples(std::uint16_t samples) noexcept {
  return samples < 4 ? 0 : samples < 16 ? 1 : samples < 64 ? 2 : 3;
}
std::uint32_t band_of_match(const LifetimeModel::Prediction& prediction, bool by_other_build) noexcept {
  if (by_other_build) return (prediction.other_build ? 2 : 0) + (prediction.whole ? 1 : 0);
  const std::uint32_t matched = prediction.matched, known = prediction.known;
  return prediction.whole ? 3 : 2 * matched < known ? 0 : 5 * matched < 4 * known ? 1 : 2;
}
std::uint32_t band_of_coverage(float coverage) noexcept {
  return coverage < 0.5f ? 0 : coverage < 0.75f ? 1 : coverage < 0.9f ? 2 : 3;
}

/// Probabilities of the classes and of long, from the nine outputs of a model.
template <class Raw>
void from_outputs(const float* outputs, Raw& raw) noexcept {
  float most = outputs[0], sum = 0;
  for (size_t i = 1; i < LifetimeModel::kClasses; ++i) most = std::max(most, outputs[i]);
  for (size_t i = 0; i < LifetimeModel::kClasses; ++i)
    sum += raw.wall[i] = static_cast<float>(plain_math::exp(outputs[i] - most));
  for (float& share : raw.wall) share /= sum;
  raw.long_lived = plain_math::sigmoid(outputs[LifetimeModel::kClasses]);
}

template <class Raw>
void blend(Raw& raw, const Raw& other, float weight) noexcept {
  for (size_t i = 0; i < LifetimeModel::kClasses; ++i) raw.wall[i] += weight * (other.wall[i] - raw.wall[i]);
  raw.long_lived += weight * (other.long_lived - raw.long_lived);
}

}  // namespace

// ----------------------------------------------------------------------------------------------------------
// The trie

/// The walk through the trie with the most frames that match.
class LifetimeModel::NearWalk {
 public:
  struct Passed {
    unsigned of_stack = 0, of_trie = 0;
    unsigned all() const noexcept { return of_stack + of_trie; }
  };
  struct Best {
    const Node* node = nullptr;
    unsigned matched = 0;
    Passed passed;
    bool whole =
        false;  // a stack of the trie, but for frames that only one of the two has, as after inlining
  };

  NearWalk(const LifetimeModel& model, const Reduced& stack) noexcept : model_(model), stack_(stack) {
    if (!model.nodes_.empty()) from(&model.nodes_[0], 0, 0, 0, {});
  }
  const Best& best() const noexcept { return best_; }

 private:
  static constexpr unsigned kMostPassed = 2, kMostSteps = 1024;

  /// `edge`: labels of the node's edge that are behind; `at`: frames of the stack that are.
  void from(const Node* node, unsigned edge, unsigned at, unsigned matched, Passed passed) noexcept {
    const auto left = static_cast<unsigned>(stack_.count) - at;
    if (matched > best_.matched ||
        (matched == best_.matched && passed.all() < best_.passed.all() && matched > 0)) {
      // A writer may cut edges whose stacks all have one answer.
      const bool ends = edge == node->labels() && ((node->ends() && left == 0) || node->children() == 0);
      best_ = {node, matched, passed, ends && (passed.of_stack == 0 || passed.of_trie == 0)};
    }
    if (left == 0 || ++steps_ > kMostSteps) return;
    if (matched + left < best_.matched ||
        (matched + left == best_.matched && passed.all() >= best_.passed.all()))
      return;
    const std::uint16_t wanted = stack_.names[at];
    const bool inside = edge < node->labels();
    if (inside) {
      if (model_.labels_[node->first_label() + edge] == wanted)
        from(node, edge + 1, at + 1, matched + 1, passed);
    } else if (const Node* const child = model_.find_child(*node, wanted)) {
      from(child, 1, at + 1, matched + 1, passed);
    }
    if (passed.all() == kMostPassed) return;
    from(node, edge, at + 1, matched, {passed.of_stack + 1, passed.of_trie});
    const Passed one_more{passed.of_stack, passed.of_trie + 1};
    if (inside) return from(node, edge + 1, at, matched, one_more);
    for (std::uint32_t i = 0; i < node->children() && steps_ <= kMostSteps; ++i)
      from(&model_.nodes_[node->first_child() + i], 1, at, matched, one_more);
  }

  const LifetimeModel& model_;
  const Reduced& stack_;
  Best best_;
  unsigned steps_ = 0;
};

LifetimeModel::Reduced LifetimeModel::reduce(const ModelStack& stack) const noexcept {
  Reduced reduced;
  reduced.is_own = outer_.empty();
  // Where the frames begin of which one has to be an outer name.
  const size_t count = stack.names().size(), outer = std::max(kOuterFrames, count / 3);
  const size_t outer_from = count > outer ? count - outer : 0;
  for (size_t i = 0; i < count && (reduced.count < Reduced::kMost || !reduced.is_own); ++i) {
    const std::uint64_t hash = stack.names()[i];
    const std::uint64_t* const begin = names_.data() + names_by_byte_.begin[hash >> 56];
    const std::uint64_t* const end = names_.data() + names_by_byte_.begin[(hash >> 56) + 1];
    const std::uint64_t* const found = std::lower_bound(begin, end, hash);
    if (found == end || *found != hash) {
      reduced.new_names = reduced.new_names || !std::binary_search(passed_over_.begin(), passed_over_.end(),
                                                                   static_cast<std::uint32_t>(hash >> 32));
      continue;
    }
    const auto name = static_cast<std::uint16_t>(found - names_.data());
    reduced.is_own = reduced.is_own || (i >= outer_from && is_outer(name));
    if (reduced.count > 0 && reduced.names[reduced.count - 1] == name) continue;
    if (reduced.count == Reduced::kMost) continue;
    reduced.names[reduced.count++] = name;
  }
  return reduced;
}

LifetimeModel::Near LifetimeModel::find_near(const Reduced& stack, bool may_be_there) const noexcept {
  if (const Node* const node = may_be_there ? find_stack(stack) : nullptr) return {node, stack.count, true};
  const NearWalk walk(*this, stack);
  return {walk.best().node, walk.best().matched, walk.best().whole};
}

const Node* LifetimeModel::find_child(const Node& parent, std::uint16_t name) const noexcept {
  const Node* const begin = nodes_.data() + parent.first_child();
  const Node* const end = begin + parent.children();
  const Node* const found = std::lower_bound(begin, end, name, [&](const Node& node, std::uint16_t wanted) {
    return labels_[node.first_label()] < wanted;
  });
  return found != end && labels_[found->first_label()] == name ? found : nullptr;
}

const Node* LifetimeModel::find_stack(const Reduced& stack) const noexcept {
  if (nodes_.empty()) return nullptr;
  const Node* node = &nodes_[0];
  for (size_t at = 0; at < stack.count;) {
    node = find_child(*node, stack.names[at]);
    if (node == nullptr || node->labels() > stack.count - at) return nullptr;
    for (std::uint32_t i = 0; i < node->labels(); ++i)
      if (labels_[node->first_label() + i] != stack.names[at + i]) return nullptr;
    at += node->labels();
  }
  return node->ends() ? node : nullptr;
}

/// Of a node where a stack ends: what is known of its objects of that size, if anything is.
const Node* LifetimeModel::of_size(const Node* stack, Size size) const noexcept {
  if ((settings_->flags & kSizes) == 0 || size == 0) return stack;
  const std::uint64_t hash = SizeName(size).hash(key_);
  const auto name = std::lower_bound(names_.begin(), names_.end(), hash);
  if (name == names_.end() || *name != hash) return stack;
  const Node* const child = find_child(*stack, static_cast<std::uint16_t>(name - names_.begin()));
  return child != nullptr && child->labels() == 1 && child->ends() ? child : stack;
}

LifetimeModel::Program LifetimeModel::program(std::string_view path) const noexcept {
  const std::string_view name = program_name(path);
  if (name.empty() || programs_.empty()) return Program::kUnknown;
  const bool known = std::binary_search(programs_.begin(), programs_.end(), model_hash(name, key_));
  return known ? Program::kSame : Program::kOther;
}

bool LifetimeModel::is_outer(std::uint16_t name) const noexcept {
  return std::binary_search(outer_.begin(), outer_.end(), name);
}

bool LifetimeModel::has_outer_word(const ModelStack& stack) const noexcept {
  for (size_t i = 0; i < stack.outer_frames(); ++i) {
    for (const std::uint32_t word : stack.outer_words(i)) {
      const Token* const token = find_token(word);
      if (token != nullptr && (token->flags & kOuterToken) != 0) return true;
    }
  }
  return false;
}

bool LifetimeModel::enough(size_t matched, const ModelStack& stack, Program program) const noexcept {
  const float share =
      program == Program::kOther ? std::max(kLeastOfOther, settings_->least_share) : settings_->least_share;
  return matched >= settings_->least_frames &&
         static_cast<float>(matched) >= share * static_cast<float>(stack.names().size());
}

// ----------------------------------------------------------------------------------------------------------
// Addresses and words

std::uint32_t LifetimeModel::module_of(std::span<const unsigned char> build_id) const noexcept {
  for (size_t i = 0; i < modules_.size(); ++i) {
    if (modules_[i].id_size == build_id.size() &&
        std::memcmp(modules_[i].id, build_id.data(), build_id.size()) == 0)
      return static_cast<std::uint32_t>(i);
  }
  return kNoModule;
}

const Address* LifetimeModel::find_address(const Query& query) const noexcept {
  if (query.module >= modules_.size() || query.offset > ~std::uint32_t{0}) return nullptr;
  const auto find = [&](std::uint32_t height) -> const Address* {
    const Address wanted{static_cast<std::uint32_t>(query.offset), height,
                         static_cast<std::uint16_t>(query.module), 0};
    const auto found = std::lower_bound(addresses_.begin(), addresses_.end(), wanted,
                                        [](const Address& a, const Address& b) {
                                          return a.module != b.module   ? a.module < b.module
                                                 : a.offset != b.offset ? a.offset < b.offset
                                                                        : a.height < b.height;
                                        });
    const bool is_it = found != addresses_.end() && found->module == wanted.module &&
                       found->offset == wanted.offset && found->height == wanted.height;
    return is_it ? &*found : nullptr;
  };
  if (query.height != 0 && query.height <= ~std::uint32_t{0}) {
    if (const Address* const found = find(static_cast<std::uint32_t>(query.height))) return found;
  }
  return find(0);
}

const Token* LifetimeModel::find_token(std::uint32_t hash) const noexcept {
  const Token* const begin = tokens_.data() + tokens_by_byte_.begin[hash >> 24];
  const Token* const end = tokens_.data() + tokens_by_byte_.begin[(hash >> 24) + 1];
  const Token* const found = std::lower_bound(
      begin, end, hash, [](const Token& token, std::uint32_t wanted) { return token.hash < wanted; });
  return found != end && found->hash == hash ? found : nullptr;
}

LifetimeModel::Coverage LifetimeModel::coverage(const ModelStack& stack) const noexcept {
  constexpr size_t kPlaces = 2 * ModelStack::kMostWordFrames * kMostNameWords;
  std::uint32_t seen[kPlaces] = {};  // words, at or behind the place that their lower bits name; 0: none
  bool zero = false;
  std::uint64_t all = 0, found = 0;
  std::uint32_t known = 0;
  for (size_t i = 0; i < stack.word_frames(); ++i) {
    for (const std::uint32_t word : stack.words(i)) {
      size_t place = word % kPlaces;
      while (seen[place] != 0 && seen[place] != word) place = (place + 1) % kPlaces;
      if (word == 0 ? zero : seen[place] == word) continue;
      if (word == 0) zero = true;
      seen[place] = word;
      const Token* const token = find_token(word);
      all += token == nullptr ? 65535 : token->rarity;
      if (token == nullptr) continue;
      found += token->rarity;
      known += token->rarity > 0;
    }
  }
  return {all == 0 ? 0 : static_cast<float>(found) / static_cast<float>(all), known, all > 0};
}

void LifetimeModel::raw_answer(std::uint32_t number, Raw& raw) const noexcept {
  const Answer& answer = answers_[number];
  unsigned sum = 0;
  for (const std::uint8_t part : answer.wall) sum += part;
  for (size_t i = 0; i < kClasses; ++i)
    raw.wall[i] = static_cast<float>(answer.wall[i]) / static_cast<float>(sum);
  raw.long_lived = static_cast<float>(answer.long_lived) / 65535;
}

void LifetimeModel::raw_words(const ModelStack& stack, Size size, Raw& raw) const noexcept {
  std::int32_t sums[kOutputs] = {};
  std::uint32_t rows = 0;
  const bool sizes = (settings_->flags & kSizes) != 0;
  for_each_feature(stack, size, log2_rows_, sizes, [&](std::uint32_t row) {
    const std::int8_t* const weights = weights_ + size_t{row} * kOutputs;
    for (size_t i = 0; i < kOutputs; ++i) sums[i] += weights[i];
    ++rows;
  });
  float outputs[kOutputs];
  const float scale = rows == 0 ? 0 : static_cast<float>(1 / plain_math::sqrt(rows));
  for (size_t i = 0; i < kOutputs; ++i)
    outputs[i] = weights_head_->bias[i] + weights_head_->scale[i] * static_cast<float>(sums[i]) * scale;
  from_outputs(outputs, raw);
}

// ----------------------------------------------------------------------------------------------------------
// Stages

void LifetimeModel::finish(const Raw& raw, bool calibrated, Prediction& prediction) const noexcept {
  std::copy(std::begin(raw.wall), std::end(raw.wall), prediction.wall);
  prediction.long_lived = raw.long_lived;
  if (!calibrated) return;
  const Calibration::Stage& stage = calibration_->stages[prediction.stage];
  const std::uint32_t band = prediction.stage < kByNear ? band_of_samples(prediction.samples)
                             : prediction.stage == kByNear
                                 ? band_of_match(prediction, (settings_->flags & kOtherBuild) != 0)
                                 : band_of_coverage(prediction.coverage);
  const float place = std::clamp(raw.long_lived, 0.0f, 1.0f) * static_cast<float>(kKnots - 1);
  const auto knot = std::min(static_cast<size_t>(place), kKnots - 2);
  const float* const knots = stage.knots[band];
  prediction.long_lived = knots[knot] + (place - static_cast<float>(knot)) * (knots[knot + 1] - knots[knot]);
  if (stage.temperature == 1) return;
  float most = 0, sum = 0;
  for (const float share : raw.wall) most = std::max(most, share);
  for (float& share : prediction.wall) {
    // Of the largest, so that the sum is at least one.
    share = share > 0 ? static_cast<float>(plain_math::exp(plain_math::log(share / most) / stage.temperature))
                      : 0;
    sum += share;
  }
  for (float& share : prediction.wall) share /= sum;
}

LifetimeModel::Prediction LifetimeModel::predict(const Address& address) const noexcept {
  Prediction prediction;
  prediction.stage = kByAddress;
  prediction.samples = answers_[address.answer].samples;
  Raw raw;
  raw_answer(address.answer, raw);
  finish(raw, true, prediction);
  return prediction;
}

LifetimeModel::Prediction LifetimeModel::predict(const ModelStack& stack, const Query& query) const noexcept {
  Prediction prediction;
  const std::uint32_t stages = settings_->stages & query.stages;
  const auto uses = [&](Stage stage) { return (stages >> stage & 1) != 0; };
  Raw raw;
  if (uses(kByAddress)) {
    if (const Address* const address = find_address(query)) {
      prediction.stage = kByAddress;
      prediction.samples = answers_[address->answer].samples;
      raw_answer(address->answer, raw);
      finish(raw, query.calibrated, prediction);
      return prediction;
    }
  }

  const Node* node = nullptr;
  const Reduced reduced = reduce(stack);
  prediction.known = static_cast<std::uint16_t>(reduced.count);
  prediction.other_build = reduced.new_names;
  const bool same_program = query.program == Program::kSame;
  const bool is_own = reduced.is_own || same_program;
  if (is_own && enough(reduced.count, stack, query.program)) {
    node = uses(kByNames) ? find_stack(reduced) : nullptr;
    Reduced repaired;
    if (node != nullptr) {
      prediction.stage = kByNames;
      prediction.whole = true;
      prediction.matched = static_cast<std::uint16_t>(reduced.count);
    } else if (uses(kByNear)) {
      const bool is_repaired = as_profiled(reduced, repaired);
      prediction.other_build = prediction.other_build || is_repaired;
      const Near near = find_near(is_repaired ? repaired : reduced, is_repaired);
      const size_t matched = std::min(near.matched, reduced.count);
      if (enough(matched, stack, query.program)) {
        node = near.node;
        prediction.stage = kByNear;
        prediction.matched = static_cast<std::uint16_t>(matched);
        prediction.whole = near.whole;
      }
    }
    if (node != nullptr && prediction.whole) node = of_size(node, query.size);
  }
  // Where all names are known, but not as this stack, it is of the same build and was not seen: words know
  // better.
  const bool by_other_build = (settings_->flags & kOtherBuild) != 0;
  const bool seen =
      prediction.stage == kByNames || (by_other_build ? prediction.other_build : prediction.whole);
  const float words_in = node == nullptr ? 1 : seen ? settings_->words_in_names : settings_->words_in_near;
  const bool wants_words = weights_ != nullptr && uses(kByWords) && words_in > 0;
  const bool wants_network = static_cast<bool>(network_) && uses(kByNetwork) && node == nullptr;
  bool covered = false, only_passed_over = false;
  if ((wants_words || wants_network) && (node != nullptr || query.program != Program::kOther)) {
    // A stack that has an outer name is of the program, as one of a program of that name is: then one word
    // says enough.
    const bool surely_own = same_program || (reduced.is_own && !outer_.empty());
    const float least_coverage =
        same_program ? std::min(kLeastOfSame, settings_->least_coverage) : settings_->least_coverage;
    const std::uint32_t least_tokens = surely_own ? 1 : settings_->least_tokens;
    const Coverage found = coverage(stack);
    prediction.coverage = found.share;
    covered =
        found.share >= least_coverage && found.known >= least_tokens && (is_own || has_outer_word(stack));
    // Of the program itself also what only names functions that all programs have, as before main().
    only_passed_over = same_program && !found.tells && node == nullptr;
    covered = (covered || only_passed_over) && stack.word_frames() > 0;
  }
  Raw by_words, by_network;
  if (wants_words && covered) raw_words(stack, query.size, by_words);
  const bool asks_network = wants_network && covered && (!wants_words || settings_->network_in_words > 0);
  if (asks_network) {
    std::uint32_t tokens[SequenceNetwork::kMostTokens];
    float outputs[kOutputs];
    const size_t count = network_.tokenize(stack.given(), key_, tokens);
    network_.run({tokens, count}, outputs);
    from_outputs(outputs, by_network);
  }

  if (node != nullptr) {
    prediction.samples = answers_[node->answer()].samples;
    raw_answer(node->answer(), raw);
    if (wants_words && covered) blend(raw, by_words, words_in);
  } else if (wants_words && covered) {
    prediction.stage = kByWords;
    raw = by_words;
    if (asks_network) blend(raw, by_network, settings_->network_in_words);
  } else if (asks_network) {
    prediction.stage = kByNetwork;
    raw = by_network;
  } else {
    prediction.stage = kAbstains;
    return prediction;
  }
  finish(raw, query.calibrated, prediction);
  // What says so little is of use only when it is sure.
  const float sure = std::max(prediction.long_lived, 1 - prediction.long_lived);
  if (only_passed_over && sure < kLeastSure) prediction.stage = kAbstains;
  return prediction;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Predicts how long the objects of an allocation context will live, from a model that was trained elsewhere.
// Stages are tried one after the other (docs/reference/formats-model.md says how each answers):
//
//   address -> names -> near -> words -> network -> nothing: the model abstains
//
// The bytes of the file are used where they lie. They are checked once, by open(); then a query takes no
// memory, no lock, calls nothing and does not throw. Any number of threads may ask.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "memoir/base/units.h"
#include "memoir/predict/model/model_format.h"
#include "memoir/predict/model/model_stack.h"
#include "memoir/predict/model/sequence_network.h"

namespace memoir {

class LifetimeModel {
 public:
  enum Stage : std::int8_t { kAbstains = -1, kByAddress, kByNames, kByNear, kByWords, kByNetwork };
  static constexpr std::uint32_t kAllStages = 31;
  static constexpr std::uint32_t kNoModule = ~std::uint32_t{0};
  static constexpr size_t kClasses = 8;

  /// Whether the program was profiled, by the name of its file and in whatever version. Of one that was, less
  /// of a stack has to be known; of another one, more.
  enum class Program : std::uint8_t { kUnknown, kSame, kOther };

  struct Prediction {
    Stage stage = kAbstains;
    std::uint16_t samples = 0;  // that it stands on; 0 for words and network
    std::uint16_t matched = 0;  // frames
    std::uint16_t known = 0;    // frames that could match: those with names that the model has
    bool whole = false;         // they are all, but for frames that the stack alone or the model alone has
    bool other_build = false;   // it has names of no stack that the model saw, or lacks frames as_profiled()
    float coverage = 0;         // of the stack's words; for words and network
    float long_lived = 0;       // probability
    float wall[kClasses] = {};  // probabilities of the classes of wall_classes.h; their sum is 1
  };
  struct Query {
    Size size = 0;                      // of the object; 0: not known
    std::uint32_t module = kNoModule;   // of module_of(); of the return address behind stack.skipped() frames
    std::uint64_t offset = 0;           // in its module
    std::uint64_t height = 0;           // bytes of stack in use; 0: not known
    std::uint32_t stages = kAllStages;  // tried at most
    bool calibrated = true;
    Program program = Program::kUnknown;
  };

  /// nullptr, or what is wrong with the file; then nothing may be asked. `bytes` begin at a multiple of 8 and
  /// stay as they are while the model is used.
  const char* open(std::string_view bytes) noexcept;

  Prediction predict(const ModelStack& stack, const Query& query) const noexcept;
  /// `path`: of its executable; empty: not known.
  Program program(std::string_view path) const noexcept;
  /// What is known of a context by its address.
  Prediction predict(const model_format::Address& address) const noexcept;
  /// Whether a malloc should keep such objects with the long-lived ones.
  bool calls_long(const Prediction& prediction) const noexcept {
    const bool hot = settings_->hot_samples != 0 && prediction.samples >= settings_->hot_samples;
    return prediction.stage != kAbstains &&
           prediction.long_lived >= (hot ? settings_->least_long_hot : settings_->least_long);
  }

  std::uint64_t key() const noexcept { return key_; }
  const model_format::Settings& settings() const noexcept { return *settings_; }
  bool one_class() const noexcept { return (settings_->flags & model_format::kOneClass) != 0; }
  std::span<const model_format::Address> addresses() const noexcept { return addresses_; }
  std::span<const model_format::Module> modules() const noexcept { return modules_; }
  std::uint32_t module_of(std::span<const unsigned char> build_id) const noexcept;
  const SequenceNetwork& network() const noexcept { return network_; }
  /// The bytes of a section; empty when it is left out. `kind`: model_format::SectionKind.
  std::string_view section(std::uint32_t kind) const noexcept { return sections_[kind - 1]; }
  std::uint64_t count(std::uint32_t kind) const noexcept { return counts_[kind - 1]; }

 private:
  class NearWalk;
  /// Names of the model by their numbers, as the trie has them.
  struct Reduced {
    static constexpr size_t kMost = 64;
    std::uint16_t names[kMost];
    size_t count = 0;
    bool new_names = false;
    bool is_own = false;  // its outer end is of a program that the model saw
  };
  /// Where the hashes with each first byte begin, in an ascending array of at most 65,535.
  struct FirstBytes {
    std::uint16_t begin[257] = {};
  };
  struct Raw {
    float wall[kClasses];
    float long_lived;
  };

  const char* check_table(std::string_view bytes) noexcept;
  const char* check_settings() noexcept;
  const char* check_addresses() noexcept;
  const char* check_names_and_answers() noexcept;
  const char* check_trie() noexcept;
  const char* check_words() noexcept;
  const char* check_texts() noexcept;
  template <class T>
  std::span<const T> records(std::uint32_t kind) const noexcept {
    const std::string_view bytes = section(kind);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  const model_format::Address* find_address(const Query& query) const noexcept;
  Reduced reduce(const ModelStack& stack) const noexcept;
  /// The stack as the profiled build would have it: with the frames that this build inlined, without those
  /// that only this build has. False: it is such a stack already, or has calls that were never seen.
  bool as_profiled(const Reduced& stack, Reduced& repaired) const noexcept;
  const model_format::Call* find_call(std::uint16_t callee, std::uint16_t caller) const noexcept;
  const model_format::Node* find_child(const model_format::Node& parent, std::uint16_t name) const noexcept;
  const model_format::Node* find_stack(const Reduced& stack) const noexcept;
  struct Near {
    const model_format::Node* node;
    size_t matched;
    bool whole;
  };
  Near find_near(const Reduced& stack, bool may_be_there) const noexcept;
  const model_format::Node* of_size(const model_format::Node* stack, Size size) const noexcept;
  bool enough(size_t matched, const ModelStack& stack, Program program) const noexcept;
  bool is_outer(std::uint16_t name) const noexcept;
  bool has_outer_word(const ModelStack& stack) const noexcept;
  const model_format::Token* find_token(std::uint32_t hash) const noexcept;
  struct Coverage {
    float share;
    std::uint32_t known;  // words that tell of which program a stack is
    bool tells;           // whether any of its words does, known or not
  };
  Coverage coverage(const ModelStack& stack) const noexcept;
  void raw_answer(std::uint32_t answer, Raw& raw) const noexcept;
  void raw_words(const ModelStack& stack, Size size, Raw& raw) const noexcept;
  void finish(const Raw& raw, bool calibrated, Prediction& prediction) const noexcept;

  std::string_view sections_[model_format::kKinds];
  std::uint64_t counts_[model_format::kKinds] = {};
  std::uint64_t key_ = 0;
  const model_format::Settings* settings_ = nullptr;
  const model_format::Calibration* calibration_ = nullptr;
  std::span<const model_format::Module> modules_;
  std::span<const model_format::Address> addresses_;
  std::span<const std::uint64_t> names_;
  std::span<const std::uint16_t> outer_;        // names
  std::span<const std::uint32_t> passed_over_;  // upper halves of hashes
  std::span<const model_format::Call> calls_;
  std::span<const std::uint64_t> programs_;  // hashes
  std::span<const model_format::Node> nodes_;
  std::span<const std::uint16_t> labels_;
  std::span<const model_format::Answer> answers_;
  std::span<const model_format::Token> tokens_;
  FirstBytes names_by_byte_, tokens_by_byte_;
  const model_format::WeightsHead* weights_head_ = nullptr;
  const std::int8_t* weights_ = nullptr;
  unsigned log2_rows_ = 0;
  SequenceNetwork network_;
};

}  // namespace memoir

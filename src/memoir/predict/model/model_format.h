// SPDX-License-Identifier: Apache-2.0
//
// The records of .model files. docs/reference/formats-model.md specifies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memoir/base/section_table.h"

namespace memoir::model_format {

inline constexpr std::uint64_t kMagic = 0x4d72696f6d656d89;  // 0x89, "memoirM"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kByteOrder = 0x01020304;
inline constexpr std::uint64_t kMostFile = std::uint64_t{1} << 26;
inline constexpr std::uint32_t kMostSections = 64;

struct Header {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t byte_order = kByteOrder;
  std::uint32_t header_size = 64;
  std::uint32_t sections = 0;
  std::uint64_t file_size = 0;
  std::uint64_t key = 0;
  std::uint64_t reserved[2] = {};
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 64);

enum SectionKind : std::uint32_t {
  kSettings = 1,
  kModules,
  kAddresses,
  kNames,
  kNodes,
  kLabels,
  kAnswers,
  kTokens,
  kWeights,
  kCalibration,
  kNetwork,
  kText,
  kNameTexts,
  kTokenTexts,
  kFacts,
  kOuter,
  kPrograms,
  kPassedOver,
  kCalls
};
inline constexpr std::uint32_t kKinds = 19;

/// What the sections are called, by kind - 1; and the bytes of a record.
struct SectionRow {
  std::string_view name;
  std::uint32_t record;
  bool needed, optional;
};
inline constexpr SectionRow kSectionRows[kKinds] = {
    {"settings", 64, true, false},      {"modules", 40, true, false},    {"addresses", 12, true, false},
    {"names", 8, true, false},          {"nodes", 12, true, false},      {"labels", 2, true, false},
    {"answers", 12, true, false},       {"tokens", 8, false, false},     {"weights", 9, false, false},
    {"calibration", 1440, true, false}, {"network", 1, false, true},     {"text", 1, false, true},
    {"name_texts", 8, false, true},     {"token_texts", 8, false, true}, {"facts", 1, false, true},
    {"outer", 2, false, false},         {"programs", 8, false, true},    {"passed_over", 4, false, true},
    {"calls", 6, false, true},
};

enum SettingsFlags : std::uint32_t { kOneClass = 1, kPrivate = 2, kSizes = 4, kOtherBuild = 8 };
struct Settings {
  std::uint32_t flags = 0;
  std::uint32_t stages = 0;
  std::uint16_t least_frames = 3;
  std::uint16_t prior_worth = 1;
  float least_coverage = 0;
  float words_in_near = 0;
  float network_in_words = 0;
  float least_long = 0.5f;
  float tau = 2;
  std::uint32_t least_tokens = 0;
  float words_in_names = 0;
  float least_share = 0;
  std::uint32_t hot_samples = 0;  // 0: no context is hot
  float least_long_hot = 0;
  std::uint32_t reserved[3] = {};
};
static_assert(sizeof(Settings) == 64);

struct Module {
  std::uint32_t id_size = 0;
  std::uint32_t reserved = 0;
  unsigned char id[32] = {};
};
static_assert(sizeof(Module) == 40);

struct Address {
  std::uint32_t offset = 0;
  std::uint32_t height = 0;  // 0: any
  std::uint16_t module = 0;
  std::uint16_t answer = 0;
};
static_assert(sizeof(Address) == 12);

struct Node {
  std::uint32_t words[3] = {};

  constexpr std::uint32_t first_child() const noexcept { return words[0] & 0xffffff; }
  constexpr std::uint32_t labels() const noexcept { return words[0] >> 24; }
  constexpr std::uint32_t first_label() const noexcept { return words[1] & 0xffffff; }
  constexpr std::uint32_t flags() const noexcept { return words[1] >> 24; }
  constexpr bool ends() const noexcept { return (flags() & 1) != 0; }
  constexpr std::uint32_t answer() const noexcept { return words[2] & 0xffff; }
  constexpr std::uint32_t children() const noexcept { return words[2] >> 16; }
};
static_assert(sizeof(Node) == 12);

struct Answer {
  std::uint8_t wall[8] = {};
  std::uint16_t long_lived = 0;  // in 1/65535
  std::uint16_t samples = 0;
};
static_assert(sizeof(Answer) == 12);

/// A caller outside a callee on a stack that the training saw, and the frame next to the callee on the way:
/// the caller itself, or one of at most kMostBetween frames.
struct Call {
  std::uint16_t callee = 0;
  std::uint16_t caller = 0;
  std::uint16_t next = 0;
};
static_assert(sizeof(Call) == 6);
inline constexpr unsigned kMostBetween = 4;

enum TokenFlags : std::uint16_t { kOuterToken = 1 };
struct Token {
  std::uint32_t hash = 0;
  std::uint16_t rarity = 0;
  std::uint16_t flags = 0;  // TokenFlags
};
static_assert(sizeof(Token) == 8);

inline constexpr size_t kOutputs = 9;  // eight classes, then long
struct WeightsHead {
  float scale[kOutputs];
  float bias[kOutputs];
};
static_assert(sizeof(WeightsHead) == 72);

inline constexpr size_t kStages = 5, kBands = 4, kKnots = 17;
struct Calibration {
  struct Stage {
    float temperature;
    float knots[kBands][kKnots];
  };
  Stage stages[kStages];
  float reserved[15];
};
static_assert(sizeof(Calibration) == 1440);

struct NetworkHead {
  std::uint32_t kind = 0;  // 1: LSTM, 2: minGRU
  std::uint32_t split = 0;
  std::uint32_t tokens = 0;
  std::uint32_t embedding = 0;
  std::uint32_t hidden = 0;
  std::uint32_t most_tokens = 0;
  std::uint64_t reserved = 0;
};
static_assert(sizeof(NetworkHead) == 32);

struct TextPlace {
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
};

/// Of a whole file.
inline std::uint64_t checksum(std::string_view file) noexcept {
  return file_checksum(file, offsetof(Header, checksum));
}

}  // namespace memoir::model_format

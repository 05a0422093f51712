// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/pickle/pickle_values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "memoir/base/site.h"

namespace memoir {

namespace {

constexpr auto kWords = std::to_array<std::string_view>({"",
                                                         "action",
                                                         "addr",
                                                         "size",
                                                         "stream",
                                                         "time_us",
                                                         "frames",
                                                         "device_free",
                                                         "pool_id",
                                                         "user_metadata",
                                                         "compile_context",
                                                         "name",
                                                         "filename",
                                                         "line",
                                                         "address",
                                                         "state",
                                                         "requested_size",
                                                         "history",
                                                         "real_size",
                                                         "device",
                                                         "total_size",
                                                         "blocks",
                                                         "is_expandable",
                                                         "segment_pool_id",
                                                         "segments",
                                                         "device_traces",
                                                         "allocator_settings",
                                                         "external_annotations",
                                                         "stage",
                                                         "alloc",
                                                         "free_requested",
                                                         "free_completed",
                                                         "segment_alloc",
                                                         "segment_free",
                                                         "segment_map",
                                                         "segment_unmap",
                                                         "snapshot",
                                                         "oom",
                                                         "active_allocated",
                                                         "active_pending_free",
                                                         "active_awaiting_free",
                                                         "inactive",
                                                         "START",
                                                         "END",
                                                         "N/A"});
static_assert(kWords.size() == static_cast<size_t>(Word::kCount));

constexpr Size kTextPiece = 64 * kKiB;
constexpr Size kHeapBlock = 16;        // bytes that malloc takes besides
constexpr size_t kTuplePiece = 8'192;  // values

/// FNV over eight bytes at a time; strings are short.
std::uint64_t hash_text(std::string_view text) noexcept {
  const char* bytes = text.data();
  size_t size = text.size();
  std::uint64_t hash = size;
  for (; size >= 8; bytes += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, bytes, size);
  return detail::mix(hash ^ rest);
}

std::uint64_t hash_values(std::span<const Value> values) noexcept {
  std::uint64_t hash = values.size();
  for (const Value value : values) {
    hash = (hash ^ value.bits) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return detail::mix(hash);
}

}  // namespace

std::string_view word_text(Word word) noexcept { return kWords[static_cast<size_t>(word)]; }

PickleValues::PickleValues() {
  for (const std::string_view word : kWords) string(word);
  stack_begins_.push_back(0);
  intern_stack({});
}

Value PickleValues::integer(std::int64_t value) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 59;
  if (value >= -kLimit && value < kLimit)
    return Value::of(Value::Kind::kInt, static_cast<std::uint64_t>(value));
  const auto bits = static_cast<std::uint64_t>(value);
  memory_ += sizeof(BigInt);
  big_ints_.push_back({value < 0 ? 0 - bits : bits, value < 0, false});
  return Value::of(Value::Kind::kBigInt, big_ints_.size() - 1);
}

Value PickleValues::integer(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return integer(std::int64_t{0});
  const bool negative = (bytes.back() & 0x80) != 0;
  const std::uint8_t sign = negative ? 0xff : 0;
  while (bytes.size() > 1 && bytes.back() == sign && ((bytes[bytes.size() - 2] ^ sign) & 0x80) == 0)
    bytes = bytes.first(bytes.size() - 1);
  std::uint64_t word = negative ? ~std::uint64_t{0} : 0;
  std::memcpy(&word, bytes.data(), std::min<size_t>(bytes.size(), 8));
  if (bytes.size() <= 8) return integer(static_cast<std::int64_t>(word));
  const bool beyond = negative || bytes.size() > 9 || bytes[8] != 0;
  memory_ += sizeof(BigInt);
  big_ints_.push_back({word, negative, beyond});
  return Value::of(Value::Kind::kBigInt, big_ints_.size() - 1);
}

Value PickleValues::number(double value) {
  memory_ += sizeof(double);
  floats_.push_back(value);
  return Value::of(Value::Kind::kFloat, floats_.size() - 1);
}

Value PickleValues::string(std::string_view text) {
  const auto next = static_cast<std::uint32_t>(strings_.size());
  const std::uint32_t number = string_table_.find_or_add(
      hash_text(text), next, [&](std::uint32_t known) { return strings_[known] == text; },
      [&](std::uint32_t known) { return hash_text(strings_[known]); });
  if (number == next) strings_.push_back(keep(text));
  return Value::of(Value::Kind::kString, number);
}

std::string_view PickleValues::keep(std::string_view text) {
  memory_ += sizeof text + 2 * sizeof(std::uint32_t) + text.size();
  if (text.empty()) return {};
  char* to;
  if (text.size() > kTextPiece / 4) {  // a piece of its own, before the one that is being filled
    const auto place = text_.end() - (text_left_ == 0 ? 0 : 1);
    to = text_.insert(place, std::make_unique_for_overwrite<char[]>(text.size()))->get();
  } else {
    if (text_left_ < text.size()) {
      text_.push_back(std::make_unique_for_overwrite<char[]>(kTextPiece));
      text_left_ = kTextPiece;
    }
    to = text_.back().get() + (kTextPiece - text_left_);
    text_left_ -= text.size();
  }
  std::copy(text.begin(), text.end(), to);
  return {to, text.size()};
}

const char* PickleValues::tuple(std::span<const Value> items, Value& made) {
  std::uint32_t depth = 1;
  for (const Value item : items) {
    if (item.kind() == Value::Kind::kTuple) depth = std::max(depth, tuples_[item.content()].depth + 1);
  }
  if (depth > kDeepest) return "tuples are nested more than 64 levels deep";
  const auto next = static_cast<std::uint32_t>(tuples_.size());
  const std::uint32_t number = tuple_table_.find_or_add(
      hash_values(items), next,
      [&](std::uint32_t known) { return std::ranges::equal(tuples_[known].items, items); },
      [&](std::uint32_t known) { return hash_values(tuples_[known].items); });
  if (number == next) tuples_.push_back({keep(items), depth});
  made = Value::of(Value::Kind::kTuple, number);
  return nullptr;
}

std::span<const Value> PickleValues::keep(std::span<const Value> items) {
  memory_ += sizeof(Tuple) + 2 * sizeof(std::uint32_t) + items.size_bytes();
  if (items.empty()) return {};
  Value* to;
  if (items.size() > kTuplePiece / 4) {  // a piece of its own, before the one that is being filled
    const auto place = tuple_pieces_.end() - (tuple_left_ == 0 ? 0 : 1);
    to = tuple_pieces_.insert(place, std::make_unique_for_overwrite<Value[]>(items.size()))->get();
  } else {
    if (tuple_left_ < items.size()) {
      tuple_pieces_.push_back(std::make_unique_for_overwrite<Value[]>(kTuplePiece));
      tuple_left_ = kTuplePiece;
    }
    to = tuple_pieces_.back().get() + (kTuplePiece - tuple_left_);
    tuple_left_ -= items.size();
  }
  std::copy(items.begin(), items.end(), to);
  return {to, items.size()};
}

Value PickleValues::new_slot(SlotKind kind) {
  memory_ += sizeof(Slot);
  slots_.push_back(Slot::of(kind));
  return Value::of(Value::Kind::kSlot, slots_.size() - 1);
}

Value PickleValues::list() { return new_slot(SlotKind::kEmptyList); }
Value PickleValues::dict() { return new_slot(SlotKind::kEmptyDict); }

const char* PickleValues::append(Value list, std::span<const Value> items) {
  if (list.kind() != Value::Kind::kSlot) return "items are added to what is not a list";
  Slot& slot = slots_[list.content()];
  switch (slot.kind()) {
    case SlotKind::kEmptyList: {
      if (items.empty()) return nullptr;
      if (is_frame(items[0])) {
        slot = Slot::of(SlotKind::kStack, intern_stack(items));
        return nullptr;
      }
      memory_ += sizeof(std::vector<Value>) + kHeapBlock + items.size_bytes();
      lists_.emplace_back(items.begin(), items.end());
      slot = Slot::of(SlotKind::kList, lists_.size() - 1);
      return nullptr;
    }
    case SlotKind::kStack: {  // a second helping of frames, before anybody used the first
      const auto stack = static_cast<std::uint32_t>(slot.index());
      std::vector<Value>& frames = lists_.emplace_back();
      memory_ += sizeof frames + kHeapBlock + (stack_size(stack) + items.size()) * 2 * sizeof(Value);
      for (std::uint32_t i = 0; i < stack_size(stack); ++i) {
        slots_.push_back(Slot::of(SlotKind::kFrame, stack_frame(stack, i)));
        frames.push_back(Value::of(Value::Kind::kSlot, slots_.size() - 1));
      }
      frames.insert(frames.end(), items.begin(), items.end());
      slots_[list.content()] = Slot::of(SlotKind::kList, lists_.size() - 1);
      return nullptr;
    }
    case SlotKind::kList: {
      std::vector<Value>& values = lists_[slot.index()];
      memory_ += 2 * items.size_bytes();  // vectors double
      values.insert(values.end(), items.begin(), items.end());
      return nullptr;
    }
    case SlotKind::kUsedStack:
      return "a list of frames is added to after it was used";
    default:
      return "items are added to what is not a list";
  }
}

const char* PickleValues::set_items(Value dict, std::span<const Value> items, Offset byte) {
  if (dict.kind() != Value::Kind::kSlot) return "items are set in what is not a dict";
  if (items.size() % 2 != 0) return "a key has no value";
  Slot& slot = slots_[dict.content()];
  if (slot.kind() == SlotKind::kEmptyDict) {
    bool has_action = false, has_state = false, has_line = false;
    for (size_t i = 0; i < items.size(); i += 2) {
      const Word key = word_of(items[i]);
      has_action |= key == Word::kAction;
      has_state |= key == Word::kState;
      has_line |= key == Word::kLine;
    }
    memory_ += has_action  ? sizeof(TraceEntry)
               : has_state ? sizeof(SnapshotBlock)
               : has_line  ? sizeof(Frame)
                           : 0;
    if (has_action) slot = entry(items, byte);
    else if (has_state) slot = block(items, byte);
    else if (!has_line || !frame(items, slot)) {
      memory_ += sizeof(Dict) + kHeapBlock;
      dicts_.emplace_back();
      slot = Slot::of(SlotKind::kDict, dicts_.size() - 1);
    }
  } else if (slot.kind() != SlotKind::kDict) {
    return "items are set in what is not a dict, or a dict that was complete";
  }
  if (slot.kind() == SlotKind::kDict) {
    Dict& target = dicts_[slot.index()];
    memory_ += 2 * items.size_bytes();
    for (size_t i = 0; i < items.size(); i += 2) target.items.emplace_back(items[i], items[i + 1]);
    target.byte = byte;
  }
  return nullptr;
}

/// The word that this string is; kCount for every other value.
Word PickleValues::word_of(Value value) const noexcept {
  if (value.kind() != Value::Kind::kString || value.content() >= static_cast<std::uint64_t>(Word::kCount))
    return Word::kCount;
  return static_cast<Word>(value.content());
}

PickleValues::Type PickleValues::type(Value value) const noexcept {
  if (value.kind() != Value::Kind::kSlot) return Type::kOther;
  switch (slots_[value.content()].kind()) {
    case SlotKind::kEmptyList:
    case SlotKind::kList:
      return Type::kList;
    case SlotKind::kEmptyDict:
    case SlotKind::kDict:
      return Type::kDict;
    case SlotKind::kEntry:
      return Type::kEntry;
    case SlotKind::kBlock:
      return Type::kBlock;
    case SlotKind::kFrame:
      return Type::kFrame;
    default:
      return Type::kOther;
  }
}

std::span<const Value> PickleValues::items_of(Value list) const noexcept {
  const Slot slot = slots_[list.content()];
  if (slot.kind() != SlotKind::kList) return {};
  return lists_[slot.index()];
}

const PickleValues::Dict& PickleValues::dict_of(Value dict) const noexcept {
  static const Dict kEmpty;
  const Slot slot = slots_[dict.content()];
  return slot.kind() == SlotKind::kDict ? dicts_[slot.index()] : kEmpty;
}

const Value* PickleValues::find(const Dict& dict, Word key) const noexcept {
  const auto wanted = Value::of(Value::Kind::kString, static_cast<std::uint64_t>(key));
  for (auto item = dict.items.rbegin(); item != dict.items.rend(); ++item) {
    if (item->first == wanted) return &item->second;
  }
  return nullptr;
}

Fault PickleValues::natural(Value value, std::uint64_t& result) const noexcept {
  if (value.kind() == Value::Kind::kInt) {
    result = static_cast<std::uint64_t>(value.integer());
    return value.integer() < 0 ? Fault::kNegative : Fault::kNone;
  }
  if (value.kind() != Value::Kind::kBigInt) return Fault::kNotANumber;
  const BigInt& big = big_ints_[value.content()];
  result = big.magnitude;
  return big.negative ? Fault::kNegative : big.beyond ? Fault::kTooLarge : Fault::kNone;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/exchange/pickle_values.h"

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

}  // namespace

std::string_view word_text(Word word) noexcept { return kWords[static_cast<size_t>(word)]; }

PickleValues::PickleValues() {
  for (const std::string_view word : kWords) string(word);
  stack_begins_.push_back(0);
  std::uint32_t empty;
  intern_stack({}, empty);
}

Value PickleValues::integer(std::int64_t value) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 59;
  if (value >= -kLimit && value < kLimit)
    return Value::of(Value::Kind::kInt, static_cast<std::uint64_t>(value));
  const auto bits = static_cast<std::uint64_t>(value);
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
  big_ints_.push_back({word, negative, beyond});
  return Value::of(Value::Kind::kBigInt, big_ints_.size() - 1);
}

Value PickleValues::number(double value) {
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

Value PickleValues::tuple(std::span<const Value> items) {
  std::vector<std::uint64_t> key;
  key.reserve(items.size());
  for (const Value item : items) key.push_back(item.bits);
  const auto [found, fresh] = tuple_numbers_.emplace(std::move(key), tuples_.size());
  if (fresh) tuples_.emplace_back(items.begin(), items.end());
  return Value::of(Value::Kind::kTuple, found->second);
}

Value PickleValues::new_slot(SlotKind kind) {
  slots_.push_back(Slot::of(kind));
  return Value::of(Value::Kind::kSlot, slots_.size() - 1);
}

Value PickleValues::list() { return new_slot(SlotKind::kEmptyList); }
Value PickleValues::dict() { return new_slot(SlotKind::kEmptyDict); }

const char* PickleValues::append(Value list, std::span<const Value> items) {
  if (list.kind() != Value::Kind::kSlot) return "items are added to what is no list";
  Slot& slot = slots_[list.content()];
  switch (slot.kind()) {
    case SlotKind::kEmptyList: {
      if (items.empty()) return nullptr;
      std::uint32_t stack;
      if (is_frame(items[0]) && intern_stack(items, stack)) {
        slot = Slot::of(SlotKind::kStack, stack);
        return nullptr;
      }
      lists_.emplace_back(items.begin(), items.end());
      slot = Slot::of(SlotKind::kList, lists_.size() - 1);
      return nullptr;
    }
    case SlotKind::kStack: {  // a second helping of frames, before anybody used the first
      const auto stack = static_cast<std::uint32_t>(slot.index());
      std::vector<Value>& frames = lists_.emplace_back();
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
      values.insert(values.end(), items.begin(), items.end());
      return nullptr;
    }
    case SlotKind::kUsedStack:
      return "a list of frames is added to after it was used";
    default:
      return "items are added to what is no list";
  }
}

const char* PickleValues::set_items(Value dict, std::span<const Value> items, Offset byte) {
  if (dict.kind() != Value::Kind::kSlot) return "items are set in what is no dict";
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
    if (has_action) slot = entry(items, byte);
    else if (has_state) slot = block(items, byte);
    else if (!has_line || !frame(items, slot)) {
      dicts_.emplace_back();
      slot = Slot::of(SlotKind::kDict, dicts_.size() - 1);
    }
  } else if (slot.kind() != SlotKind::kDict) {
    return "items are set in what is no dict, or a dict that was complete";
  }
  if (slot.kind() == SlotKind::kDict) {
    Dict& target = dicts_[slot.index()];
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

PickleValues::Slot PickleValues::entry(std::span<const Value> items, Offset byte) {
  TraceEntry entry;
  entry.origin.byte = byte & ((Offset{1} << 44) - 1);
  entry.time_us = TraceEntry::kNoTime;
  std::uint64_t device_free = 0, other_action = 0;
  bool has_address = false, has_size = false;
  for (size_t i = 0; i < items.size(); i += 2) {
    const Word key = word_of(items[i]);
    const Value value = items[i + 1];
    Fault fault = Fault::kNone;
    switch (key) {
      case Word::kAction: {
        const Word word = word_of(value);
        if (value.kind() != Value::Kind::kString) fault = Fault::kNotAString;
        else if (word >= Word::kAlloc && word <= Word::kOom)
          entry.origin.word = static_cast<std::uint64_t>(word) & 0xff;
        else other_action = value.content();
        break;
      }
      case Word::kAddr:
        fault = natural(value, entry.address);
        has_address = true;
        break;
      case Word::kSize:
        fault = natural(value, entry.size);
        has_size = true;
        break;
      case Word::kDeviceFree:
        fault = natural(value, device_free);
        break;
      case Word::kTimeUs:
        fault = natural(value, entry.time_us);
        break;
      case Word::kStream:
        if (!stream_of(value, entry.stream)) fault = Fault::kNotANumber;
        break;
      case Word::kFrames:
        if (!stack_of(value, entry.stack)) fault = Fault::kNotFrames;
        break;
      case Word::kPoolId:
        if (value.kind() == Value::Kind::kTuple) {
          for (const Value part : tuple_items(value)) {
            if (part == Value::of(Value::Kind::kInt, 0)) continue;
            ++private_pool_entries;
            break;
          }
        }
        break;
      case Word::kUserMetadata:
        user_metadata_entries += value.kind() == Value::Kind::kString && word_of(value) != Word::kEmpty;
        break;
      case Word::kCompileContext:
        compile_context_entries += value.kind() == Value::Kind::kString && word_of(value) != Word::kEmpty &&
                                   word_of(value) != Word::kNotAvailable;
        break;
      default:
        break;
    }
    entry.origin.fail(key, fault);
  }
  const Word action = entry.origin.kind();
  if (action == Word::kEmpty) entry.address = other_action;
  else if (action == Word::kOom) entry.address = device_free;
  else if (action != Word::kSnapshot && !has_address) entry.origin.fail(Word::kAddr, Fault::kMissing);
  if (action != Word::kEmpty && action != Word::kSnapshot && !has_size)
    entry.origin.fail(Word::kSize, Fault::kMissing);
  entries_.push_back(entry);
  return Slot::of(SlotKind::kEntry, entries_.size() - 1);
}

PickleValues::Slot PickleValues::block(std::span<const Value> items, Offset byte) {
  SnapshotBlock block;
  block.origin.byte = byte & ((Offset{1} << 44) - 1);
  block.address = SnapshotBlock::kNoAddress;
  bool has_size = false, has_requested = false, has_frames = false;
  const Dict* history = nullptr;
  for (size_t i = 0; i < items.size(); i += 2) {
    const Word key = word_of(items[i]);
    const Value value = items[i + 1];
    Fault fault = Fault::kNone;
    switch (key) {
      case Word::kAddress:
        fault = natural(value, block.address);
        break;
      case Word::kSize:
        fault = natural(value, block.size);
        has_size = true;
        break;
      case Word::kRequestedSize:
        fault = natural(value, block.requested);
        has_requested = true;
        break;
      case Word::kState: {
        const Word word = word_of(value);
        if (value.kind() != Value::Kind::kString) fault = Fault::kNotAString;
        else if (word >= Word::kActiveAllocated && word <= Word::kInactive)
          block.origin.word = static_cast<std::uint64_t>(word) & 0xff;
        break;
      }
      case Word::kFrames:
        if (!stack_of(value, block.stack)) fault = Fault::kNotFrames;
        has_frames = true;
        break;
      case Word::kHistory:  // torch 2.0: who asked for it, and the bytes as asked, were in here
        if (type(value) == Type::kList && !items_of(value).empty() && type(items_of(value)[0]) == Type::kDict)
          history = &dict_of(items_of(value)[0]);
        break;
      default:
        break;
    }
    block.origin.fail(key, fault);
  }
  if (!has_size) block.origin.fail(Word::kSize, Fault::kMissing);
  if (history != nullptr) {
    const Value* const size = find(*history, Word::kRealSize);
    if (!has_requested && size != nullptr) {
      block.origin.fail(Word::kRealSize, natural(*size, block.requested));
      has_requested = true;
    }
    const Value* const frames = find(*history, Word::kFrames);
    if (!has_frames && frames != nullptr && !stack_of(*frames, block.stack))
      block.origin.fail(Word::kFrames, Fault::kNotFrames);
  }
  if (!has_requested) block.requested = block.size;
  blocks_.push_back(block);
  return Slot::of(SlotKind::kBlock, blocks_.size() - 1);
}

/// False: it has a line, but is no frame.
bool PickleValues::frame(std::span<const Value> items, Slot& slot) {
  Frame frame;
  bool has_file = false;
  for (size_t i = 0; i < items.size(); i += 2) {
    const Word key = word_of(items[i]);
    const Value value = items[i + 1];
    if (key == Word::kLine) {
      std::uint64_t line;
      if (natural(value, line) != Fault::kNone || line > ~std::uint32_t{0}) return false;
      frame.line = static_cast<std::uint32_t>(line);
    } else if (key == Word::kName || key == Word::kFilename) {
      if (value.kind() != Value::Kind::kString) return false;
      (key == Word::kName ? frame.name : frame.filename) = static_cast<std::uint32_t>(value.content());
      has_file |= key == Word::kFilename;
    }
  }
  if (!has_file) return false;
  const auto hash_of = [](const Frame& of) {
    return detail::mix((std::uint64_t{of.name} << 32 | of.filename) * 0x9e3779b97f4a7c15ull + of.line);
  };
  const auto next = static_cast<std::uint32_t>(frames_.size());
  const std::uint32_t number = frame_table_.find_or_add(
      hash_of(frame), next, [&](std::uint32_t known) { return frames_[known] == frame; },
      [&](std::uint32_t known) { return hash_of(frames_[known]); });
  if (number == next) frames_.push_back(frame);
  slot = Slot::of(SlotKind::kFrame, number);
  return true;
}

/// False when one of them is no frame.
bool PickleValues::intern_stack(std::span<const Value> frames, std::uint32_t& stack) {
  const auto mixed = [](std::uint64_t hash, std::uint64_t frame) {
    return (hash ^ frame) * 0x9e3779b97f4a7c15ull ^ hash >> 29;
  };
  std::uint64_t hash = frames.size();
  for (const Value value : frames) {
    if (!is_frame(value)) return false;
    hash = mixed(hash, row(value));
  }
  const auto same = [&](std::uint32_t known) {
    if (stack_size(known) != frames.size()) return false;
    for (std::uint32_t i = 0; i < frames.size(); ++i) {
      if (stack_frame(known, i) != row(frames[i])) return false;
    }
    return true;
  };
  const auto hash_of = [&](std::uint32_t known) {
    std::uint64_t result = stack_size(known);
    for (std::uint32_t i = 0; i < stack_size(known); ++i) result = mixed(result, stack_frame(known, i));
    return detail::mix(result);
  };
  const auto next = static_cast<std::uint32_t>(stacks());
  stack = stack_table_.find_or_add(detail::mix(hash), next, same, hash_of);
  if (stack != next) return true;
  for (const Value value : frames) stack_frames_.push_back(static_cast<std::uint32_t>(row(value)));
  stack_begins_.push_back(stack_frames_.size());
  return true;
}

bool PickleValues::stack_of(Value frames, std::uint32_t& stack) {
  stack = 0;
  if (frames.kind() == Value::Kind::kNone) return true;
  if (frames.kind() != Value::Kind::kSlot) return false;
  Slot& slot = slots_[frames.content()];
  switch (slot.kind()) {
    case SlotKind::kEmptyList:
      return true;
    case SlotKind::kStack:
    case SlotKind::kUsedStack:
      stack = static_cast<std::uint32_t>(slot.index());
      break;
    case SlotKind::kList: {
      std::vector<Value>& values = lists_[slot.index()];
      if (!intern_stack(values, stack)) return false;
      std::vector<Value>().swap(values);
      break;
    }
    default:
      return false;
  }
  slot = Slot::of(SlotKind::kUsedStack, stack);
  return true;
}

bool PickleValues::stream_of(Value handle, std::uint32_t& stream) {
  std::uint64_t bits = 0;
  if (handle.kind() == Value::Kind::kInt) {
    bits = static_cast<std::uint64_t>(handle.integer());
  } else if (handle.kind() == Value::Kind::kBigInt && !big_ints_[handle.content()].beyond) {
    const BigInt& big = big_ints_[handle.content()];
    bits = big.negative ? 0 - big.magnitude : big.magnitude;
  } else {
    return false;
  }
  if (bits == 0) {
    stream = 0;
    return true;
  }
  const auto [found, fresh] = stream_numbers_.emplace(bits, static_cast<std::uint32_t>(streams_.size()));
  if (fresh) streams_.push_back(bits);
  stream = found->second;
  return true;
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

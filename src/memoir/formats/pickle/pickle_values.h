// SPDX-License-Identifier: Apache-2.0
//
// What a memory snapshot is made of, in as few bytes as it takes: a value is a word, strings and tuples are
// kept once, and the dicts of which a snapshot has millions become rows of fixed size when they are complete.
//
//   {"action": "alloc", "addr": ..., "frames": [...]}   ->  TraceEntry, 40 bytes
//   {"address": ..., "size": ..., "state": ...}         ->  SnapshotBlock
//   {"name": ..., "filename": ..., "line": ...}         ->  Frame
//   [frame, frame, ...]                                 ->  the number of a stack; equal stacks are one
//
// Whatever a file says, this builds data and calls nothing. A field that is wrong makes a bad row: where it
// lies in the snapshot is known only later, and so is whether anybody looks at it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memoir/base/units.h"
#include "memoir/formats/pickle/chunked_array.h"
#include "memoir/formats/pickle/number_table.h"

namespace memoir {

/// One Python value: four bits of kind, sixty of content. Valid as long as its PickleValues.
struct Value {
  enum class Kind : std::uint8_t { kNone, kFalse, kTrue, kInt, kBigInt, kFloat, kString, kTuple, kSlot };

  std::uint64_t bits = 0;

  static Value of(Kind kind, std::uint64_t content = 0) noexcept {
    return {static_cast<std::uint64_t>(kind) << 60 | (content & kContent)};
  }
  Kind kind() const noexcept { return static_cast<Kind>(bits >> 60); }
  std::uint64_t content() const noexcept { return bits & kContent; }
  std::int64_t integer() const noexcept { return static_cast<std::int64_t>(bits << 4) >> 4; }  // kInt
  bool operator==(const Value&) const = default;

  static constexpr std::uint64_t kContent = (std::uint64_t{1} << 60) - 1;
};

/// The keys and words that a snapshot is read by; their strings have these numbers.
enum class Word : std::uint32_t {
  kEmpty,
  // keys of a trace entry
  kAction,
  kAddr,
  kSize,
  kStream,
  kTimeUs,
  kFrames,
  kDeviceFree,
  kPoolId,
  kUserMetadata,
  kCompileContext,
  // keys of frames, blocks and segments
  kName,
  kFilename,
  kLine,
  kAddress,
  kState,
  kRequestedSize,
  kHistory,
  kRealSize,
  kDevice,
  kTotalSize,
  kBlocks,
  kIsExpandable,
  kSegmentPoolId,
  // keys of the whole, and of annotations
  kSegments,
  kDeviceTraces,
  kAllocatorSettings,
  kExternalAnnotations,
  kStage,
  // actions
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kSnapshot,
  kOom,
  // states of blocks
  kActiveAllocated,
  kActivePendingFree,
  kActiveAwaitingFree,
  kInactive,
  // stages
  kStart,
  kEnd,
  kNotAvailable,  // "N/A"
  kCount,
};

/// How it is spelled in a snapshot.
std::string_view word_text(Word word) noexcept;

/// Why a field cannot be used.
enum class Fault : std::uint8_t {
  kNone,
  kMissing,
  kNotANumber,
  kNegative,
  kTooLarge,
  kNotAString,
  kNotAPool,
  kTooMany
};

/// What a row is (a Word: an action or a state; kEmpty: another), where it was complete in the file, and its
/// first fault, if any.
struct RowOrigin {
  std::uint64_t byte : 44 = 0;
  std::uint64_t word : 8 = 0;
  std::uint64_t field : 8 = 0;  // the Word of the faulty field
  std::uint64_t fault : 4 = 0;

  Word kind() const noexcept { return static_cast<Word>(word); }
  void fail(Word of_field, Fault why) noexcept {
    if (why == Fault::kNone || fault != 0) return;
    field = static_cast<std::uint64_t>(of_field) & 0xff;
    fault = static_cast<std::uint64_t>(why) & 0xf;
  }
};

struct TraceEntry {
  std::uint64_t address = 0;  // bytes free on the device for kOom; of another action, its string
  Size size = 0;
  std::uint64_t time_us = 0;          // kNoTime: not said
  std::uint32_t stream : 20 = 0;      // of streams()
  std::uint32_t pool : 12 = kNoPool;  // of pools(); kNoPool: not said, as by older torch
  std::uint32_t stack = 0;
  RowOrigin origin;

  static constexpr std::uint64_t kNoTime = ~std::uint64_t{0};
  static constexpr std::uint64_t kMostTimeUs = (std::uint64_t{1} << 62) / 1'000 - 2;
  static constexpr std::uint32_t kMostStreams = 1 << 20;
  static constexpr std::uint32_t kNoPool = (1 << 12) - 1;
};
static_assert(sizeof(TraceEntry) == 40);

struct SnapshotBlock {
  std::uint64_t address = 0;  // kNoAddress: behind the block before it
  Size size = 0;
  Size requested = 0;
  std::uint32_t stack = 0;
  RowOrigin origin;

  static constexpr std::uint64_t kNoAddress = ~std::uint64_t{0};
};

struct Frame {
  std::uint32_t name = 0, filename = 0;  // strings
  std::uint32_t line = 0;

  bool operator==(const Frame&) const = default;
};

class PickleValues {
 public:
  using Pair = std::pair<Value, Value>;
  struct Dict {
    std::vector<Pair> items;
    Offset byte = 0;  // where it was last added to
  };
  enum class Type { kOther, kList, kDict, kEntry, kBlock, kFrame };

  PickleValues();

  // --- making values; those that return a text say what is wrong with the file, nullptr when nothing is ---
  Value integer(std::int64_t value);
  /// Little-endian two's complement, as LONG1 has it.
  Value integer(std::span<const std::uint8_t> bytes);
  Value number(double value);
  Value string(std::string_view text);
  /// Tuples nest up to kDeepest levels; nothing is made of one that would be deeper.
  const char* tuple(std::span<const Value> items, Value& made);
  Value list();
  Value dict();
  const char* append(Value list, std::span<const Value> items);
  /// Keys and values in turn. `byte` is where in the file.
  const char* set_items(Value dict, std::span<const Value> items, Offset byte);

  // --- looking at them ---
  Type type(Value value) const noexcept;
  std::span<const Value> items_of(Value list) const noexcept;    // kList
  const Dict& dict_of(Value dict) const noexcept;                // kDict
  const Value* find(const Dict& dict, Word key) const noexcept;  // the last of that key, or nullptr
  const TraceEntry& entry_of(Value value) const noexcept { return entries_[row(value)]; }
  const SnapshotBlock& block_of(Value value) const noexcept { return blocks_[row(value)]; }
  std::string_view text(std::uint64_t string) const noexcept { return strings_[string]; }
  std::span<const Value> tuple_items(Value tuple) const noexcept { return tuples_[tuple.content()].items; }
  double float_of(Value value) const noexcept { return floats_[value.content()]; }
  /// A number from 0 to 2^64 - 1.
  Fault natural(Value value, std::uint64_t& result) const noexcept;
  /// The number of the stack that this list of frames is; 0 (no stack) for what is none.
  std::uint32_t stack_of(Value frames);
  /// The number of the stream whose handle this is. False when it is not an integer of 64 bits.
  bool stream_of(Value handle, std::uint32_t& stream);
  /// The number of the pool whose id this is, a pair of numbers.
  Fault pool_of(Value id, std::uint32_t& pool);

  std::size_t entries() const noexcept { return entries_.size(); }
  std::size_t blocks() const noexcept { return blocks_.size(); }
  std::size_t frames() const noexcept { return frames_.size(); }
  const Frame& frame(std::uint32_t number) const noexcept { return frames_[number]; }
  std::size_t stacks() const noexcept { return stack_begins_.size() - 1; }
  /// Frames, innermost first; stack 0 is empty.
  std::uint32_t stack_size(std::uint32_t stack) const noexcept {
    return static_cast<std::uint32_t>(stack_begins_[stack + 1] - stack_begins_[stack]);
  }
  std::uint32_t stack_frame(std::uint32_t stack, std::uint32_t index) const noexcept {
    return stack_frames_[stack_begins_[stack] + index];
  }
  /// The handles behind the numbers of streams; the default stream is 0.
  std::span<const std::uint64_t> streams() const noexcept { return streams_; }
  /// The ids behind the numbers of pools; the default pool is 0.
  using PoolPair = std::pair<std::uint64_t, std::uint64_t>;
  std::span<const PoolPair> pools() const noexcept { return pools_; }

  /// Bytes that all of it takes, about: what the machine holds against the bytes that it read.
  Size memory() const noexcept { return memory_; }

  static constexpr std::uint32_t kDeepest = 64;

  // What entries had that a trace does not keep.
  std::uint64_t user_metadata_entries = 0;
  std::uint64_t compile_context_entries = 0;
  // Times, frames and their parts that cannot be read: left out, since no answer depends on them.
  std::uint64_t unreadable = 0;

 private:
  enum class SlotKind : std::uint8_t {
    kEmptyList,
    kEmptyDict,
    kList,
    kDict,
    kEntry,
    kBlock,
    kFrame,
    kStack,
    kUsedStack
  };
  struct Slot {
    std::uint64_t bits = 0;
    static Slot of(SlotKind kind, std::uint64_t index = 0) noexcept {
      return {static_cast<std::uint64_t>(kind) << 60 | index};
    }
    SlotKind kind() const noexcept { return static_cast<SlotKind>(bits >> 60); }
    std::uint64_t index() const noexcept { return bits & Value::kContent; }
  };
  struct BigInt {
    std::uint64_t magnitude = 0;
    bool negative = false;
    bool beyond = false;  // 64 bits do not hold it
  };

  struct Tuple {
    std::span<const Value> items;
    std::uint32_t depth = 1;
  };

  std::size_t row(Value value) const noexcept { return slots_[value.content()].index(); }
  bool is_frame(Value value) const noexcept {
    return value.kind() == Value::Kind::kSlot && slots_[value.content()].kind() == SlotKind::kFrame;
  }
  Value new_slot(SlotKind kind);
  std::string_view keep(std::string_view text);
  std::span<const Value> keep(std::span<const Value> items);
  std::uint32_t intern_stack(std::span<const Value> values);
  Word word_of(Value value) const noexcept;
  Slot entry(std::span<const Value> items, Offset byte);
  Slot block(std::span<const Value> items, Offset byte);
  bool frame(std::span<const Value> items, Slot& slot);

  Size memory_ = 0;
  std::vector<std::unique_ptr<char[]>> text_;  // owns what strings_ shows
  Size text_left_ = 0;                         // bytes of the last of them
  std::vector<std::string_view> strings_;
  NumberTable string_table_;
  std::vector<BigInt> big_ints_;
  std::vector<double> floats_;
  std::vector<std::unique_ptr<Value[]>> tuple_pieces_;  // own what tuples_ shows
  size_t tuple_left_ = 0;                               // values of the last of them
  ChunkedArray<Tuple> tuples_;
  NumberTable tuple_table_;
  ChunkedArray<Slot> slots_;
  std::deque<std::vector<Value>> lists_;
  std::deque<Dict> dicts_;
  ChunkedArray<TraceEntry> entries_;
  ChunkedArray<SnapshotBlock> blocks_;
  ChunkedArray<Frame> frames_;
  NumberTable frame_table_;
  ChunkedArray<std::uint32_t> stack_frames_;
  ChunkedArray<std::uint64_t> stack_begins_;  // stack n is [begins[n], begins[n + 1]) of stack_frames_
  NumberTable stack_table_;
  std::vector<std::uint64_t> streams_{0};
  std::unordered_map<std::uint64_t, std::uint32_t> stream_numbers_{{0, 0}};
  std::vector<PoolPair> pools_{{0, 0}};
  std::map<PoolPair, std::uint32_t> pool_numbers_{{{0, 0}, 0}};
};

}  // namespace memoir

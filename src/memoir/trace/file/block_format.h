// SPDX-License-Identifier: Apache-2.0
//
// Blocks, which a trace of version 1 is made of; docs/reference/formats.md is the specification, this is its
// C++ side.
//
//   | file header 64 | ... | block header 48 | operations          | block header 48 | ...
//                           `room` bytes ------------------------->
//
// A block belongs to one lane (one writer, as a rule one thread) and is read without any other: all that its
// operations refer back to begins empty in it. Encoder and decoder share the tables below, so that both sides
// of a reference are the same code.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "memoir/trace/event.h"

namespace memoir::trace_format {

inline constexpr std::uint32_t kBlockMagic = 0x4b4c426d;  // "mBLK"
inline constexpr std::uint8_t kRaw = 0;                   // encoding
inline constexpr std::uint8_t kDeflate = 1;               // zlib's stream
/// Operations compress by about 2; more than this is what somebody made up to fill a reader's memory.
inline constexpr Size kMostCompression = 16;
inline constexpr std::uint8_t kSealed = 1;                          // flags: `check` holds, nothing is added
inline constexpr std::uint8_t kDefines = 2;                         // flags: it holds definitions
inline constexpr std::uint32_t kMostRoom = std::uint32_t{4} << 20;  // bytes of one block's operations
inline constexpr Size kBlockAlignment = 8;                          // bytes: where a block begins
inline constexpr Size kProbe = 4096;  // bytes: where a reader looks for a block after room that nobody used

struct BlockHeader {
  std::uint32_t magic;     // stored last
  std::uint8_t encoding;   // of the payload
  std::uint8_t flags;      //
  std::uint16_t reserved;  // 0
  std::uint32_t room;      // bytes from the end of this header to where the next block may begin
  std::uint32_t used;      // bytes of payload; kept up to date while the block is open
  std::uint32_t raw;       // bytes of payload when not compressed; sealed blocks only
  std::uint32_t events;    // in it; a hint for readers, 0: not counted
  std::uint32_t lane;      //
  std::uint32_t sequence;  // of the lane's blocks, from 0
  std::uint64_t tick;      // at its first operation
  std::uint32_t thread;    // of its events, until an operation says otherwise
  std::uint32_t check;     // over header and payload; sealed blocks only
};
static_assert(sizeof(BlockHeader) == 48);

/// An operation's first byte. 0 is none, so that what was never written is not taken for one.
enum class Operation : std::uint8_t {
  kTick = 0x40,    // time goes on
  kRecord = 0x40,  // + EventKind: a record with all its fields, by object id
  kString = 0x50,  // definitions
  kModule = 0x51,
  kModuleGone = 0x52,
  kNativeFrame = 0x53,
  kPythonFrame = 0x54,
  kNamedFrame = 0x55,
  kStack = 0x56,
  kThread = 0x57,
  kThreadEnd = 0x58,
  kLost = 0x59,
  kCounter = 0x5a,
  kMappings = 0x5b,
  kSymbol = 0x5c,
  kMap = 0x5d,
  kUnmap = 0x5e,
  kProgramEnd = 0x5f,
  kAllocate = 0x80,  // to 0xbf, with flags
  kFree = 0xc0,      // to 0xff, with flags
};

/// Whether it is none that becomes an event.
inline constexpr bool is_definition(Operation operation) noexcept {
  return (operation >= Operation::kString && operation < Operation::kMap) ||
         operation == Operation::kProgramEnd;
}

// Flags of kAllocate and kFree, by address.
inline constexpr std::uint8_t kByDelta = 0x10;   // the address by its distance, not by its slot
inline constexpr std::uint8_t kOdd = 0x08;       // with kByDelta: the low 4 bits of the address follow
inline constexpr std::uint8_t kMoved = 0x04;     // half of a realloc
inline constexpr std::uint8_t kExplicit = 0x20;  // kAllocate: stack and size follow, not their slot
inline constexpr std::uint8_t kSameClass =
    0x02;  // kAllocate, kExplicit: family and alignment as the last explicit one
inline constexpr std::uint8_t kAtStack = 0x20;   // kFree: a stack follows
inline constexpr std::uint8_t kUndone = 0x02;    // kFree: it did not happen
inline constexpr std::uint8_t kOfTensor = 0x01;  // kFree: the tensor ends; the malloc that served it goes on

// What a record (kRecord + kind) says beyond the record of its kind before it: a byte of these, then fields.
inline constexpr std::uint8_t kHasTime = 0x01;
inline constexpr std::uint8_t kHasObject = 0x02;
inline constexpr std::uint8_t kHasSiteSlot = 0x04;
inline constexpr std::uint8_t kHasSite = 0x08;
inline constexpr std::uint8_t kHasSize = 0x10;
inline constexpr std::uint8_t kHasThread = 0x20;
inline constexpr std::uint8_t kHasDevice = 0x40;  // device and stream
inline constexpr std::uint8_t kHasClass = 0x80;   // family and alignment

/// Why events or frames are missing.
enum class Loss : std::uint8_t {
  kNoRoom = 1,       // no memory or disk for a block
  kInterrupted = 2,  // a signal handler allocated inside the recorder
  kTooDeep = 3,      // frames, not events: stacks beyond the limit
  kUnreadable = 4,   // frames, not events: no unwind information
  kOther = 5,
};

/// Small numbers for small distances of either sign: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
inline constexpr std::uint64_t zigzag(std::uint64_t difference) noexcept {
  return (difference << 1) ^ (0 - (difference >> 63));
}
inline constexpr std::uint64_t unzigzag(std::uint64_t value) noexcept {
  return (value >> 1) ^ (0 - (value & 1));
}

/// LEB128: seven bits a byte, the lowest first; the top bit says that more follow. At most 10 bytes.
inline std::byte* put_varint(std::byte* to, std::uint64_t value) noexcept {
  while (value >= 0x80) {
    *to++ = static_cast<std::byte>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<std::byte>(value);
  return to;
}

/// The addresses seen last, by a hash of each: one byte names one that is there.
struct RecentAddresses {
  std::uint64_t at[256];

  static std::uint8_t slot(std::uint64_t address) noexcept {
    return static_cast<std::uint8_t>((address >> 4) * 0x9e3779b97f4a7c15ull >> 56);
  }
};

/// What was allocated last, by a hash of stack, size, family and alignment.
struct RecentRequests {
  struct Request {
    std::uint64_t place;  // stack | class << 32
    std::uint64_t size;
    bool operator==(const Request&) const = default;
  };
  Request at[256];

  static std::uint8_t slot(const Request& request) noexcept {
    const std::uint64_t mixed = request.place * 0x9e3779b97f4a7c15ull + request.size;
    return static_cast<std::uint8_t>(mixed * 0xbf58476d1ce4e5b9ull >> 56);
  }
};

/// The sites seen last, by their low bits: site ids are hashes already.
struct RecentSites {
  SiteId at[256];
  static std::uint8_t slot(SiteId site) noexcept { return static_cast<std::uint8_t>(site); }
};

/// The record of each kind that came last.
struct LastRecords {
  Event of[16];
};

/// The object that a record of this kind names when it does not say which.
inline ObjectId next_object(const LastRecords& last, EventKind kind) noexcept {
  const ObjectId allocated = last.of[static_cast<std::size_t>(EventKind::kAllocate)].object;
  return kind == EventKind::kAddress ? allocated : last.of[static_cast<std::size_t>(kind)].object + 1;
}

inline constexpr std::byte class_byte(Family family, unsigned alignment_log2) noexcept {
  return static_cast<std::byte>(static_cast<unsigned>(family) << 6 | alignment_log2);
}

/// The same of a record; of a site, what its frame is.
inline constexpr std::byte class_byte(const Event& event) noexcept {
  return event.kind == EventKind::kSite ? static_cast<std::byte>(event.frame)
                                        : class_byte(event.family, event.alignment_log2);
}

/// `text` cut to at most `size` bytes, not inside a UTF-8 sequence.
inline std::string_view cut_text(std::string_view text, Size size) noexcept {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

/// What operations refer back to. All zero at the start of a block.
struct BlockState {
  std::uint64_t allocated;  // the address allocated last, >> 4
  std::uint64_t freed;      // the address freed last, >> 4
  std::byte last_class;     // family and alignment of the explicit allocation before
  RecentAddresses addresses;
  RecentRequests requests;
  RecentSites sites;
  LastRecords records;
};

/// Over the payload, in words of 8 bytes, the last one filled up with zeros, after the header (whose `check`
/// counts as 0).
inline std::uint32_t block_checksum(BlockHeader header, const std::byte* payload) noexcept {
  header.check = 0;
  std::uint64_t hash = 0;
  const auto add = [&](const void* data, Size size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    while (size > 0) {
      std::uint64_t word = 0;
      const Size take = size < 8 ? size : 8;
      std::memcpy(&word, bytes, take);
      hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
      hash ^= hash >> 32;
      bytes += take;
      size -= take;
    }
  };
  add(&header, sizeof header);
  add(payload, header.used);
  return static_cast<std::uint32_t>(hash);
}

}  // namespace memoir::trace_format

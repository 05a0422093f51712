// SPDX-License-Identifier: Apache-2.0
//
// Turns events into the bytes of one block, in memory of the caller. Header only; never throws, allocates or
// locks. One encoder belongs to one lane: a thread, or whoever holds a lock. Not thread-safe, and no call may
// interrupt another one (a signal handler that allocates counts its event as lost).
//
//   BlockEncoder encoder;                            // 9 KiB, all zero is a valid state
//   encoder.begin(room, 64 * kKiB, {.lane = 3, .sequence = 0, .tick = now, .thread = 3});
//   if (!encoder.allocate(now, address, size, 4, Family::kMalloc, stack)) { seal(), begin the next, again }
//
// Every call that returns false changed nothing: the block has no room for it. A block of kLeastBlock bytes
// has room for any event and any definition but the longest texts (see each).
//
// The memory may be that of a mapped file: the block header's `used` is stored after what it counts, so a
// reader of an open block sees whole operations only, also after the process was killed.
#pragma once

#include <span>
#include <string_view>

#include "memoir/trace/file/block_format.h"
#include "memoir/trace/process_record.h"

namespace memoir {

class BlockEncoder {
 public:
  static constexpr Size kLeastBlock = 16 * kKiB;     // bytes, header included
  static constexpr Size kMostEventBytes = 48;        // of one event by address, its tick included
  static constexpr Size kMostString = 4 * kKiB;      // longer ones are cut
  static constexpr std::uint32_t kMostFrames = 512;  // of one define_stack()

  struct Place {
    std::uint32_t lane = 0;
    std::uint32_t sequence = 0;
    std::uint64_t tick = 0;
    std::uint32_t thread = 0;
  };

  /// Begins a block in `size` bytes at `block` (8-aligned, at most kMostRoom + 48), which hold zeros or old
  /// bytes. They stay the caller's, and are written to until seal().
  void begin(std::byte* block, Size size, const Place& place) noexcept {
    std::memset(static_cast<void*>(&state_), 0, sizeof state_);  // zero is the default of all of it
    header_ = reinterpret_cast<trace_format::BlockHeader*>(block);
    payload_ = at_ = block + sizeof(trace_format::BlockHeader);
    end_ = block + (size & ~Size{7});
    tick_ = place.tick;
    events_ = 0;
    place_ = place;
    trace_format::BlockHeader fresh{};
    fresh.room = static_cast<std::uint32_t>(end_ - payload_);
    fresh.lane = place.lane;
    fresh.sequence = place.sequence;
    fresh.tick = place.tick;
    fresh.thread = place.thread;
    std::memcpy(block + 4, reinterpret_cast<const std::byte*>(&fresh) + 4, sizeof fresh - 4);
    __atomic_store_n(&header_->magic, trace_format::kBlockMagic, __ATOMIC_RELEASE);
  }

  bool is_open() const noexcept { return header_ != nullptr; }
  bool is_empty() const noexcept { return at_ == payload_; }
  const Place& place() const noexcept { return place_; }
  std::uint32_t events() const noexcept { return events_; }
  /// Bytes from the start of the block to the end of what is written.
  Size bytes() const noexcept {
    return static_cast<Size>(at_ - payload_) + sizeof(trace_format::BlockHeader);
  }

  /// Ends the block: its checksum is set. Returns bytes(), rounded up to 8 with zeros behind. With `shrink`
  /// the next block may begin there; else it begins where this one's memory ends.
  Size seal(bool shrink = false) noexcept {
    using namespace trace_format;
    Size size = bytes();
    while (size % kBlockAlignment != 0 && at_ < end_) {
      *at_++ = std::byte{0};
      ++size;
    }
    BlockHeader sealed = *header_;
    sealed.raw = sealed.used;
    sealed.events = events_;
    if (shrink) sealed.room = static_cast<std::uint32_t>(size - sizeof(BlockHeader));
    sealed.flags |= kSealed;
    header_->raw = sealed.raw;
    header_->events = sealed.events;
    header_->room = sealed.room;
    header_->check = block_checksum(sealed, payload_);
    __atomic_store_n(&header_->flags, sealed.flags,
                     __ATOMIC_RELEASE);  // last: then a reader looks at the checksum
    header_ = nullptr;
    return size;
  }
  /// The block's memory was moved there, bytes and all.
  void move(std::byte* block) noexcept {
    const std::ptrdiff_t by = block - reinterpret_cast<std::byte*>(header_);
    header_ = reinterpret_cast<trace_format::BlockHeader*>(block);
    payload_ += by;
    at_ += by;
    end_ += by;
  }
  /// Forgets the block without touching it (a forked child's copy of its parent's).
  void abandon() noexcept { header_ = nullptr; }

  // ---- Events by address, for recorders of running programs. `tick` does not go back within a lane. ----

  /// After the real call. `stack`: a node of define_stack(), 0: unknown. `moved`: the second half of a
  /// realloc.
  bool allocate(std::uint64_t tick, std::uint64_t address, Size size, unsigned alignment_log2, Family family,
                std::uint32_t stack, bool moved = false) noexcept {
    using namespace trace_format;
    if (!has_room(kMostEventBytes)) [[unlikely]]
      return false;
    std::byte* to = put_tick(at_, tick);
    std::byte* const operation = to++;
    auto flags =
        static_cast<std::uint8_t>(static_cast<std::uint8_t>(Operation::kAllocate) | (moved ? kMoved : 0));
    to = put_address(to, address, state_.allocated, flags);
    const std::byte kind = class_byte(family, alignment_log2);
    const RecentRequests::Request request{stack | static_cast<std::uint64_t>(kind) << 32, size};
    const std::uint8_t slot = RecentRequests::slot(request);
    if (state_.requests.at[slot] == request) {
      *to++ = std::byte{slot};
    } else {
      state_.requests.at[slot] = request;
      flags |= kExplicit;
      to = put_varint(to, stack);
      to = put_varint(to, size);
      if (kind == state_.last_class) {
        flags |= kSameClass;
      } else {
        *to++ = state_.last_class = kind;
      }
    }
    *operation = std::byte{flags};
    ++events_;
    publish(to);
    return true;
  }

  /// Where the free of a realloc stands, to be taken back.
  struct Freed {
    std::uint32_t sequence = 0;
    std::uint32_t at = 0;
  };

  /// Before the real call. `stack`: where it is freed, 0: not said. `moved`: the first half of a realloc,
  /// which is written before the real call; when that fails, undo() takes it back. `tensor`: a tensor ends
  /// whose memory is still malloc's.
  bool free(std::uint64_t tick, std::uint64_t address, std::uint32_t stack = 0, bool moved = false,
            bool tensor = false, Freed* freed = nullptr) noexcept {
    using namespace trace_format;
    if (!has_room(kMostEventBytes)) [[unlikely]]
      return false;
    std::byte* to = put_tick(at_, tick);
    std::byte* const operation = to++;
    auto flags =
        static_cast<std::uint8_t>(static_cast<std::uint8_t>(Operation::kFree) | (moved ? kMoved : 0) |
                                  (tensor ? kOfTensor : 0) | (stack != 0 ? kAtStack : 0));
    to = put_address(to, address, state_.freed, flags);
    if (stack != 0) to = put_varint(to, stack);
    *operation = std::byte{flags};
    if (freed != nullptr) *freed = {place_.sequence, static_cast<std::uint32_t>(operation - payload_)};
    ++events_;
    publish(to);
    return true;
  }

  /// Takes a free back: the realloc failed, the object lives on. False when its block is sealed already: then
  /// write allocate() of the same address and size, a new object to readers.
  bool undo(const Freed& freed) noexcept {
    if (header_ == nullptr || freed.sequence != place_.sequence) return false;
    payload_[freed.at] |= std::byte{trace_format::kUndone};
    return true;
  }

  /// The program itself maps (or unmaps) memory: mmap, munmap, mremap, brk. Not what malloc does inside.
  bool map(std::uint64_t tick, std::uint64_t address, Size size, std::uint32_t stack = 0) noexcept {
    return segment(trace_format::Operation::kMap, tick, address, size, stack);
  }
  bool unmap(std::uint64_t tick, std::uint64_t address, Size size, std::uint32_t stack = 0) noexcept {
    return segment(trace_format::Operation::kUnmap, tick, address, size, stack);
  }

  // ---- Records by object id, for recorders that know objects. ----

  /// Any kind of event (event.h) with its fields; of kSite and kMeta the text too, `event.object` bytes in
  /// `parts`. Needs room for 64 bytes and the text.
  bool record(const Event& event, std::span<const std::string_view> parts = {}) noexcept;

  // ---- Definitions. Ids are numbers from 1 on, dense over the whole file: who defines has one lock. They
  // may stand in any lane's blocks, before or after their use. ----

  bool define_string(std::uint32_t id, std::string_view text) noexcept;
  struct MappedRange {
    std::uint64_t begin, size;  // addresses
    std::uint64_t file_offset;  // bytes
    std::uint8_t protection;    // PROT_READ | PROT_WRITE | PROT_EXEC
  };
  /// An object that is loaded. `base` is what its own addresses are counted from (dl_phdr_info.dlpi_addr). At
  /// most 64 ranges, 64 bytes of build id.
  bool define_module(std::uint64_t tick, std::uint32_t id, std::uint32_t path,
                     std::span<const std::byte> build_id, std::uint64_t base,
                     std::span<const MappedRange> ranges) noexcept;
  bool module_gone(std::uint64_t tick, std::uint32_t id) noexcept;
  /// A return address, as its distance from the module's base; `module` 0: the address itself (JIT code).
  bool define_native_frame(std::uint32_t id, std::uint32_t module, std::uint64_t offset) noexcept;
  bool define_python_frame(std::uint32_t id, std::uint32_t function, std::uint32_t file,
                           std::uint32_t line) noexcept;
  /// Of an operator, module path, cut or other frame. An operator's name alone makes its site id.
  using Named = FrameKind;
  bool define_named_frame(std::uint32_t id, Named kind, std::uint32_t name) noexcept;
  /// Nodes `first`, `first` + 1, ...: the stack of `parent` (0: the bottom) with frames[0] above it, that
  /// with frames[1] above it, and so on inwards. parent < first.
  bool define_stack(std::uint32_t first, std::uint32_t parent,
                    std::span<const std::uint32_t> frames) noexcept;
  /// One line of a function at a module's offset; the innermost of inlined functions first.
  struct Line {
    std::uint32_t function, file, line;  // strings; 0: unknown
  };
  bool define_symbol(std::uint32_t module, std::uint64_t offset, std::span<const Line> lines) noexcept;

  // ---- About the process. ----

  bool thread_begins(std::uint64_t tick, std::uint32_t thread, std::uint64_t system_id,
                     std::uint32_t name) noexcept;
  bool thread_ends(std::uint64_t tick, std::uint32_t thread) noexcept;
  using Loss = trace_format::Loss;
  /// `count` events (or frames) since the lane's last such record.
  bool lost(std::uint64_t tick, Loss why, std::uint64_t count) noexcept;
  /// A number that a recorder knows, by its name: "malloc.arena", "malloc.free", "resident", ...
  bool counter(std::uint64_t tick, std::uint32_t name, std::uint64_t value) noexcept;

  using Moment = ProcessRecord::Moment;
  using Region = ProcessRecord::Region;
  struct Mappings {
    Region region;
    std::uint32_t name;  // a string, 0: none
    std::uint64_t count;
    Size mapped, resident, dirty, swapped;  // bytes
  };
  /// The process's mappings in groups; `resident` is the process's own figure. At most 256 groups.
  bool mappings(std::uint64_t tick, Moment moment, Size resident, std::span<const Mappings> groups) noexcept;
  /// How the program ended: an exit status (or of a signal: 128 + its number), or that it became another one.
  bool program_ends(std::uint64_t tick, bool by_exec, std::uint32_t status) noexcept;

 private:
  bool has_room(Size bytes) const noexcept { return static_cast<Size>(end_ - at_) >= bytes; }

  void publish(std::byte* to) noexcept {
    at_ = to;
    __atomic_store_n(&header_->used, static_cast<std::uint32_t>(to - payload_), __ATOMIC_RELEASE);
  }

  std::byte* put_tick(std::byte* to, std::uint64_t tick) noexcept {
    if (tick <= tick_) [[likely]]
      return to;
    *to++ = std::byte{static_cast<std::uint8_t>(trace_format::Operation::kTick)};
    to = trace_format::put_varint(to, tick - tick_);
    tick_ = tick;
    return to;
  }

  std::byte* put_address(std::byte* to, std::uint64_t address, std::uint64_t& last,
                         std::uint8_t& flags) noexcept {
    using namespace trace_format;
    const std::uint8_t slot = RecentAddresses::slot(address);
    std::uint64_t& recent = state_.addresses.at[slot];
    const std::uint64_t high = address >> 4;
    if (recent == address) {
      *to++ = std::byte{slot};
    } else {
      recent = address;
      flags |= kByDelta;
      to = put_varint(to, zigzag(high - last));
      if ((address & 15) != 0) {
        flags |= kOdd;
        *to++ = static_cast<std::byte>(address & 15);
      }
    }
    last = high;
    return to;
  }

  bool segment(trace_format::Operation operation, std::uint64_t tick, std::uint64_t address, Size size,
               std::uint32_t stack) noexcept {
    using namespace trace_format;
    if (!has_room(kMostEventBytes)) return false;
    std::byte* to = put_operation(put_tick(at_, tick), operation);
    to = put_varint(to, address);
    to = put_varint(to, size);
    to = put_varint(to, stack);
    ++events_;
    publish(to);
    return true;
  }

  static std::byte* put_operation(std::byte* to, trace_format::Operation operation) noexcept {
    *to++ = std::byte{static_cast<std::uint8_t>(operation)};
    return to;
  }

  /// Of definitions: readers look for them first, in the blocks that say so.
  void defines() noexcept { header_->flags |= trace_format::kDefines; }

  trace_format::BlockHeader* header_ = nullptr;
  std::byte* payload_ = nullptr;
  std::byte* at_ = nullptr;
  std::byte* end_ = nullptr;
  std::uint64_t tick_ = 0;
  std::uint32_t events_ = 0;
  Place place_;
  trace_format::BlockState state_{};
};

}  // namespace memoir

#include "memoir/trace/file/block_encoder_inl.h"

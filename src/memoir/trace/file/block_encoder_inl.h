// SPDX-License-Identifier: Apache-2.0
//
// The rarer operations of BlockEncoder: records by object id, definitions, what is said of the process.
// Included by block_encoder.h alone.
#pragma once

#include <algorithm>
#include <bit>

#include "memoir/trace/file/block_encoder.h"

namespace memoir {

inline bool BlockEncoder::record(const Event& event, std::span<const std::string_view> parts) noexcept {
  using namespace trace_format;
  if (!has_room(64 + (has_text(event) ? event.object : 0))) return false;
  const auto kind = static_cast<std::uint8_t>(event.kind);
  Event& last = state_.records.of[kind];
  std::byte* to = at_;
  *to++ = std::byte{static_cast<std::uint8_t>(static_cast<std::uint8_t>(Operation::kRecord) + kind)};
  std::byte* const fields = to++;
  std::uint8_t has = 0;
  if (event.time > tick_) {
    has |= kHasTime;
    to = put_varint(to, event.time - tick_);
    tick_ = event.time;
  }
  const ObjectId expected = next_object(state_.records, event.kind);
  if (event.object != expected) {
    has |= kHasObject;
    to = put_varint(to, zigzag(event.object - expected));
  }
  if (event.site != last.site) {
    const std::uint8_t slot = RecentSites::slot(event.site);
    if (state_.sites.at[slot] == event.site) {
      has |= kHasSiteSlot;
      *to++ = std::byte{slot};
    } else {
      has |= kHasSite;
      state_.sites.at[slot] = event.site;
      std::memcpy(to, &event.site, sizeof event.site);
      to += sizeof event.site;
    }
  }
  if (event.size != last.size) {
    has |= kHasSize;
    to = put_varint(to, event.kind == EventKind::kAllocate ? event.size : zigzag(event.size - last.size));
  }
  if (event.thread != last.thread) {
    has |= kHasThread;
    to = put_varint(to, event.thread);
  }
  if (event.device != last.device || event.stream != last.stream) {
    has |= kHasDevice;
    to = put_varint(to, event.device);
    to = put_varint(to, event.stream);
  }
  if (class_byte(event) != class_byte(last)) {
    has |= kHasClass;
    *to++ = class_byte(event);
  }
  *fields = std::byte{has};
  last = event;
  for (const std::string_view part : parts)
    to = std::copy_n(reinterpret_cast<const std::byte*>(part.data()), part.size(), to);
  ++events_;
  publish(to);
  return true;
}

namespace detail {
/// Operations with plain numbers: as long as there is room for the longest.
class Numbers {
 public:
  explicit Numbers(std::byte* to, trace_format::Operation operation) noexcept : to_(to) {
    *to_++ = std::byte{static_cast<std::uint8_t>(operation)};
  }
  Numbers& number(std::uint64_t value) noexcept {
    to_ = trace_format::put_varint(to_, value);
    return *this;
  }
  Numbers& bytes(const void* data, Size size) noexcept {
    number(size);
    if (size != 0) std::memcpy(to_, data, size);
    to_ += size;
    return *this;
  }
  std::byte* end() const noexcept { return to_; }

 private:
  std::byte* to_;
};
}  // namespace detail

inline bool BlockEncoder::define_string(std::uint32_t id, std::string_view text) noexcept {
  const std::string_view kept = trace_format::cut_text(text, kMostString);
  if (!has_room(32 + kept.size())) return false;
  defines();
  publish(detail::Numbers(at_, trace_format::Operation::kString)
              .number(id)
              .bytes(kept.data(), kept.size())
              .end());
  return true;
}

inline bool BlockEncoder::define_module(std::uint64_t tick, std::uint32_t id, std::uint32_t path,
                                        std::span<const std::byte> build_id, std::uint64_t base,
                                        std::span<const MappedRange> ranges) noexcept {
  ranges = ranges.first(std::min<size_t>(ranges.size(), 64));
  build_id = build_id.first(std::min<size_t>(build_id.size(), 64));
  if (!has_room(160 + 32 * ranges.size())) return false;
  defines();
  detail::Numbers numbers(put_tick(at_, tick), trace_format::Operation::kModule);
  numbers.number(id).number(path).bytes(build_id.data(), build_id.size()).number(base).number(ranges.size());
  for (const MappedRange& range : ranges) {
    numbers.number(range.begin).number(range.size).number(range.file_offset).number(range.protection);
  }
  publish(numbers.end());
  return true;
}

inline bool BlockEncoder::module_gone(std::uint64_t tick, std::uint32_t id) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(put_tick(at_, tick), trace_format::Operation::kModuleGone).number(id).end());
  return true;
}

inline bool BlockEncoder::define_native_frame(std::uint32_t id, std::uint32_t module,
                                              std::uint64_t offset) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(at_, trace_format::Operation::kNativeFrame)
              .number(id)
              .number(module)
              .number(offset)
              .end());
  return true;
}

inline bool BlockEncoder::define_python_frame(std::uint32_t id, std::uint32_t function, std::uint32_t file,
                                              std::uint32_t line) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(at_, trace_format::Operation::kPythonFrame)
              .number(id)
              .number(function)
              .number(file)
              .number(line)
              .end());
  return true;
}

inline bool BlockEncoder::define_named_frame(std::uint32_t id, Named kind, std::uint32_t name) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(at_, trace_format::Operation::kNamedFrame)
              .number(id)
              .number(static_cast<std::uint8_t>(kind))
              .number(name)
              .end());
  return true;
}

inline bool BlockEncoder::define_stack(std::uint32_t first, std::uint32_t parent,
                                       std::span<const std::uint32_t> frames) noexcept {
  frames = frames.first(std::min<size_t>(frames.size(), kMostFrames));
  if (!has_room(32 + 5 * frames.size())) return false;
  defines();
  detail::Numbers numbers(at_, trace_format::Operation::kStack);
  numbers.number(first).number(parent).number(frames.size());
  for (const std::uint32_t frame : frames) numbers.number(frame);
  publish(numbers.end());
  return true;
}

inline bool BlockEncoder::define_symbol(std::uint32_t module, std::uint64_t offset,
                                        std::span<const Line> lines) noexcept {
  lines = lines.first(std::min<size_t>(lines.size(), 64));
  if (!has_room(32 + 15 * lines.size())) return false;
  defines();
  detail::Numbers numbers(at_, trace_format::Operation::kSymbol);
  numbers.number(module).number(offset).number(lines.size());
  for (const Line& line : lines) numbers.number(line.function).number(line.file).number(line.line);
  publish(numbers.end());
  return true;
}

inline bool BlockEncoder::thread_begins(std::uint64_t tick, std::uint32_t thread, std::uint64_t system_id,
                                        std::uint32_t name) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(put_tick(at_, tick), trace_format::Operation::kThread)
              .number(thread)
              .number(system_id)
              .number(name)
              .end());
  return true;
}

inline bool BlockEncoder::thread_ends(std::uint64_t tick, std::uint32_t thread) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(put_tick(at_, tick), trace_format::Operation::kThreadEnd).number(thread).end());
  return true;
}

inline bool BlockEncoder::lost(std::uint64_t tick, Loss why, std::uint64_t count) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(put_tick(at_, tick), trace_format::Operation::kLost)
              .number(static_cast<std::uint8_t>(why))
              .number(count)
              .end());
  return true;
}

inline bool BlockEncoder::counter(std::uint64_t tick, std::uint32_t name, std::uint64_t value) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(put_tick(at_, tick), trace_format::Operation::kCounter)
              .number(name)
              .number(value)
              .end());
  return true;
}

inline bool BlockEncoder::mappings(std::uint64_t tick, Moment moment, Size resident,
                                   std::span<const Mappings> groups) noexcept {
  groups = groups.first(std::min<size_t>(groups.size(), 256));
  if (!has_room(64 + 60 * groups.size())) return false;
  defines();
  detail::Numbers numbers(put_tick(at_, tick), trace_format::Operation::kMappings);
  numbers.number(static_cast<std::uint8_t>(moment)).number(resident).number(groups.size());
  for (const Mappings& group : groups) {
    numbers.number(static_cast<std::uint8_t>(group.region)).number(group.name).number(group.count);
    numbers.number(group.mapped).number(group.resident).number(group.dirty).number(group.swapped);
  }
  publish(numbers.end());
  return true;
}

inline bool BlockEncoder::program_ends(std::uint64_t tick, bool by_exec, std::uint32_t status) noexcept {
  if (!has_room(kMostEventBytes)) return false;
  defines();
  publish(detail::Numbers(put_tick(at_, tick), trace_format::Operation::kProgramEnd)
              .number(by_exec ? 1 : 0)
              .number(status)
              .end());
  return true;
}

}  // namespace memoir

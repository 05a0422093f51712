// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/trace.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "memoir/base/hex.h"
#include "memoir/trace/file/byte_source.h"
#include "memoir/trace/format.h"
#include "memoir/trace/read/read_blocks.h"
#include "memoir/trace/read/stack_cut.h"
#include "memoir/trace/read/trace_data.h"

namespace memoir {

using namespace trace_format;

namespace {

/// What all versions have in common at the start of their headers.
struct Begin {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endianness;
};

/// Why a file is no trace, from its first bytes.
std::string describe_magic(std::span<const std::byte> first) {
  if (first.size() == sizeof kMagic && std::memcmp(first.data(), kMagic, sizeof kMagic - 1) == 0) {
    switch (static_cast<char>(first.back())) {  // the files of memoir differ in this letter
      case 'P':
        return "it is a plan";
      case 'L':
        return "it is a lifetime profile";
      case 'M':
        return "it is a model of lifetimes";
      default:
        return "it is a file of memoir of another kind";
    }
  }
  const auto printable = [](std::byte byte) {
    const auto c = std::to_integer<unsigned char>(byte);
    return (c >= 0x20 && c < 0x7f) || c == '\t' || c == '\n' || c == '\r';
  };
  if (std::all_of(first.begin(), first.end(), printable)) return "it is a text file";
  std::string text = "it begins with the bytes";
  for (const std::byte byte : first) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += ' ';
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace

struct Trace::Impl {
  ByteSource source;
  TraceData data;
  std::unique_ptr<BlockReader> reader;  // of a file that is followed
  std::size_t forgotten = 0;            // events

  enum class As : std::uint8_t { kIs, kPlannable, kWithoutTensors };

  Impl(ByteSource from, Only only, bool follow, As as = As::kIs) : source(std::move(from)) {
    data.name = source.name();
    if (as == As::kPlannable) data.stacks.keep_operators();
    data.stops_at_tensors = as == As::kWithoutTensors;
    read(only, follow);
    if (!follow) release();
  }
  void read(Only only, bool follow);
  /// Those of one site: its own, and what is inlined into it.
  void append_frames(const SiteTable::Site& site, std::vector<StackFrame>& to) const {
    if (site.frame != 0) {
      data.stacks.append_frames(site.frame, to);
      return;
    }
    StackFrame frame;
    frame.kind = site.kind;
    frame.function = site.name;
    to.push_back(frame);
  }
  void release() {
    reader.reset();
    source = ByteSource();
  }
};

void Trace::Impl::read(Only only, bool follow) {
  Begin begin{};
  const Size got = source.read(0, std::as_writable_bytes(std::span(&begin, 1)));
  if (got == 0) data.fail("the file is empty: nothing was recorded; record again");
  if (got < sizeof begin.magic || std::memcmp(begin.magic, kMagic, sizeof kMagic) != 0) {
    data.fail("not a memoir trace: " +
              describe_magic(std::as_bytes(std::span(begin.magic)).first(std::min<Size>(got, 8))));
  }
  if (source.size() < sizeof(Header)) {
    data.fail("the file ends after " + std::to_string(source.size()) +
              " bytes, inside its header of 64; record again");
  }
  if (begin.endianness != kEndianness) {
    data.fail(begin.endianness == __builtin_bswap32(kEndianness)
                  ? "written on a big-endian machine; this one is little-endian: read it there"
                  : "the header is damaged (byte 12: endianness mark " + hex(begin.endianness) + ")");
  }
  if (begin.version != kVersion) {
    data.fail("trace format version " + std::to_string(begin.version) + ", but this memoir reads version " +
              std::to_string(kVersion) + "; record again, or use the memoir that wrote it");
  }
  reader = std::make_unique<BlockReader>(source, data, only);
  reader->read(follow);
}

Trace Trace::open(const std::string& path, Only only) {
  return Trace(std::make_unique<Impl>(ByteSource::open(path), only, false));
}

Trace Trace::open_plannable(const std::string& path) {
  return Trace(std::make_unique<Impl>(ByteSource::open(path), Only::kTensors, false, Impl::As::kPlannable));
}

Trace Trace::open_chosen(const std::string& path, bool plannable, bool& has_tensors) {
  try {
    Trace trace(
        std::make_unique<Impl>(ByteSource::open(path), Only::kBoth, false, Impl::As::kWithoutTensors));
    // Older files have nothing but tensors, and their reader does not stop.
    has_tensors = std::any_of(trace.events().begin(), trace.events().end(), [](const Event& event) {
      return event.kind == EventKind::kAllocate && event.family == Family::kTensor;
    });
    return trace;
  } catch (const FoundTensor&) {
    has_tensors = true;
  }
  return plannable ? open_plannable(path) : open(path, Only::kTensors);
}

Trace Trace::from_bytes(std::span<const std::byte> bytes, const std::string& name, Only only) {
  return Trace(std::make_unique<Impl>(ByteSource::copy(bytes, name), only, false));
}

Trace Trace::follow(const std::string& path, Only only) {
  return Trace(std::make_unique<Impl>(ByteSource::open(path), only, true));
}

std::size_t Trace::poll() {
  const std::size_t before = impl_->data.events.size();
  if (impl_->reader == nullptr) return 0;
  if (!impl_->source.is_replaced()) {
    impl_->reader->read(true);
  } else {  // the recording ended, and was rewritten: what was not read yet is in the old file
    impl_->reader->read(false);
    impl_->reader.reset();
    Header header{};
    if (ByteSource::open(impl_->data.name).read(0, std::as_writable_bytes(std::span(&header, 1))) ==
        sizeof header) {
      impl_->data.complete = (header.flags & kComplete) != 0;
    }
  }
  return impl_->data.events.size() - before;
}

std::span<const Event> Trace::events() const noexcept {
  return {impl_->data.events.data(), impl_->data.events.size()};
}
void Trace::forget_events(std::size_t count) noexcept {
  MetadataArray<Event>& events = impl_->data.events;
  const std::size_t end = std::min(count, events.size());
  if (end > impl_->forgotten) events.forget(impl_->forgotten, end);
  impl_->forgotten = end;
  if (end == events.size()) events.clear();
}
std::uint32_t Trace::version() const noexcept { return impl_->data.version; }
bool Trace::complete() const noexcept { return impl_->data.complete; }
Size Trace::lost_bytes() const noexcept { return impl_->data.losses.bytes + impl_->data.losses.cut_bytes; }
std::uint64_t Trace::dropped() const noexcept { return impl_->data.dropped; }
const Losses& Trace::losses() const noexcept { return impl_->data.losses; }
std::uint64_t Trace::start() const noexcept { return impl_->data.start; }
const ProcessRecord& Trace::process() const noexcept { return impl_->data.process; }

std::string_view Trace::site_name(SiteId site) const noexcept {
  const auto* const found = impl_->data.sites.find(site);
  return found == nullptr ? std::string_view{} : found->name;
}

FrameKind Trace::site_kind(SiteId site) const noexcept {
  const auto* const found = impl_->data.sites.find(site);
  return found == nullptr ? FrameKind::kNone : found->kind;
}

std::optional<SiteId> Trace::site_parent(SiteId site) const noexcept {
  const auto* const found = impl_->data.sites.find(site);
  if (found == nullptr) return std::nullopt;
  return found->parent;
}

std::string Trace::site_chain(SiteId site) const {
  std::vector<std::string_view> frames;
  for (auto* at = impl_->data.sites.find(site); at != nullptr; at = impl_->data.sites.find(at->parent)) {
    frames.push_back(at->name);
  }
  std::reverse(frames.begin(), frames.end());
  const StackCut cut(frames.size(), [&](std::size_t i) { return frames[i].size() + 3; });
  std::string chain;
  const auto add = [&](std::string_view frame) {
    if (!chain.empty()) chain += " > ";
    chain += frame;
  };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (cut.left_out != 0 && i == cut.outer) {
      add(cut.text());
      i += cut.left_out;
    }
    add(frames[i]);
  }
  return chain;
}

std::vector<StackFrame> Trace::site_frames(SiteId site) const {
  std::vector<const SiteTable::Site*> chain;
  for (auto* at = impl_->data.sites.find(site); at != nullptr; at = impl_->data.sites.find(at->parent)) {
    chain.push_back(at);
  }
  std::vector<StackFrame> frames;
  for (auto each = chain.rbegin(); each != chain.rend(); ++each) impl_->append_frames(**each, frames);
  return frames;
}

std::vector<StackFrame> Trace::own_frames(SiteId site) const {
  std::vector<StackFrame> frames;
  if (const auto* const found = impl_->data.sites.find(site)) impl_->append_frames(*found, frames);
  return frames;
}

bool Trace::has_symbols() const noexcept { return impl_->data.stacks.has_symbols(); }

SiteForest Trace::forest(std::span<const SiteId> sites) const {
  return {impl_->data.sites, impl_->data.stacks, sites};
}

SiteId Trace::innermost(SiteId site, FrameKind kind) const noexcept {
  for (auto* at = impl_->data.sites.find(site); at != nullptr; at = impl_->data.sites.find(at->parent)) {
    if (at->kind == kind) return at->id;
  }
  return kNoSite;
}

std::string_view Trace::site_module(SiteId site) const noexcept {
  const auto* const found = impl_->data.sites.find(site);
  return found == nullptr ? std::string_view{} : impl_->data.stacks.module_of(found->frame);
}

std::vector<NativeAddress> Trace::native_addresses() const { return impl_->data.stacks.native_addresses(); }

std::string_view Trace::meta(std::string_view key) const noexcept {
  const auto found = impl_->data.metas.find(key);
  return found == impl_->data.metas.end() ? std::string_view{} : found->second;
}

std::vector<std::string_view> Trace::meta_keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : impl_->data.metas) keys.push_back(key);
  return keys;
}

Trace::Trace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trace::~Trace() = default;
Trace::Trace(Trace&&) noexcept = default;
Trace& Trace::operator=(Trace&&) noexcept = default;

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/trace/event_checker.h"
#include "memoir/trace/format.h"

namespace memoir {

using namespace trace_format;

namespace {

constexpr size_t kMaxFrames = 4096;  // of one chain: Python's own limit is 1,000

struct Site {
  SiteId parent = kNoSite;
  std::string name;
  size_t frames = 0;  // length of the chain, 0 while unknown
  std::uint64_t record = 0;

  bool same(const Site& other) const { return parent == other.parent && name == other.name; }
};

std::string hex(std::uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

/// Bytes up to the end of the last record that is not all zero.
Size used_bytes(std::span<const std::byte> bytes) {
  Size size = bytes.size();
  while (size > 0 && bytes[size - 1] == std::byte{0}) --size;
  return std::min((size + kRecordSize - 1) / kRecordSize * kRecordSize, Size{bytes.size()});
}

/// Why a file is none of ours, from its first bytes.
std::string describe_magic(std::span<const std::byte> bytes) {
  const auto printable = [](std::byte byte) {
    const auto c = std::to_integer<unsigned char>(byte);
    return (c >= 0x20 && c < 0x7f) || c == '\t' || c == '\n' || c == '\r';
  };
  const auto first = bytes.first(std::min<size_t>(bytes.size(), sizeof kMagic));
  if (std::all_of(first.begin(), first.end(), printable)) return "it is a text file";
  std::string text = "it begins with the bytes";
  for (const std::byte byte : first) text.append(1, ' ').append(hex(std::to_integer<unsigned>(byte)), 14);
  return text;
}

}  // namespace

struct Trace::Impl {
  std::string name;
  std::unique_ptr<std::byte[]> data;  // as read; then the events are moved together at its front
  Size size = 0;
  std::span<const Event> events;
  Header header{};
  bool complete = false;
  Size lost_bytes = 0;
  std::unordered_map<SiteId, Site> sites;
  std::map<std::string, std::string, std::less<>> metas;

  void read();
  void read_header();
  Event understand(const Event& record, std::uint64_t number) const;
  void take_text(const Event& event, std::string_view text, std::uint64_t record);
  void check_sites();

  std::span<const std::byte> rest(std::uint64_t record) const {
    const Size from = std::min(size, sizeof(Header) + record * kRecordSize);
    return {data.get() + from, size - from};
  }
  [[noreturn]] void fail(const std::string& what) const { throw Error(name + ": " + what); }
  [[noreturn]] void fail(std::uint64_t record, const std::string& what) const {
    fail("record " + std::to_string(record) + " (byte " +
         std::to_string(sizeof(Header) + record * kRecordSize) + "): " + what);
  }
};

void Trace::Impl::read_header() {
  if (size == 0) fail("the file is empty: nothing was recorded; record again");
  if (size < sizeof kMagic || std::memcmp(data.get(), kMagic, sizeof kMagic) != 0) {
    fail("not a memoir trace: " + describe_magic({data.get(), size}));
  }
  if (size < sizeof(Header)) {
    fail("the file ends after " + std::to_string(size) + " bytes, inside its header of 64; record again");
  }
  std::memcpy(&header, data.get(), sizeof header);
  if (header.endianness != kEndianness) {
    fail(header.endianness == __builtin_bswap32(kEndianness)
             ? "written on a big-endian machine; this one is little-endian: read it there"
             : "the header is damaged (byte 12: endianness mark " + hex(header.endianness).substr(8) + ")");
  }
  if (header.version < kOldestVersion || header.version > kVersion) {
    fail("trace format version " + std::to_string(header.version) + ", but this memoir reads versions " +
         std::to_string(kOldestVersion) + " to " + std::to_string(kVersion) +
         "; record again, or use the memoir that wrote it");
  }
  const std::uint32_t last_clock = header.version == 1 ? kClockMonotonic : kClockImported;
  if (header.header_size != sizeof(Header) || header.record_size != kRecordSize || header.flags > kComplete ||
      header.clock < kClockMonotonic || header.clock > last_clock || header.reserved != 0 ||
      header.records > kMaxSize / kRecordSize) {
    fail("the header is damaged: a field in bytes 16 to 63 has a value that version " +
         std::to_string(header.version) + " does not have");
  }
}

void Trace::Impl::read() {
  read_header();
  const bool closed = (header.flags & kComplete) != 0;
  const std::uint64_t whole = (size - sizeof(Header)) / kRecordSize;
  const std::uint64_t count = closed ? std::min(whole, header.records) : whole;
  complete = closed && count == header.records;
  if (complete && !all_zero(rest(count))) {
    fail(count, "the file goes on after the last of the records that its header counts");
  }
  auto* const records = reinterpret_cast<Event*>(data.get() + sizeof(Header));
  auto* to = reinterpret_cast<Event*>(data.get());  // behind what is read: the header was copied
  EventChecker checker;
  std::uint64_t at = 0;
  while (at < count) {
    const Event record = records[at];
    if (record.kind == EventKind::kNone) {
      if (closed) fail(at, "the record is empty, though the file was closed; the file is damaged");
      break;
    }
    const std::uint64_t texts = header.version == 1 ? record.device : text_records(record);
    if (texts >= count - at) {  // its text is not there
      if (complete) fail(at, "its text of " + std::to_string(texts) + " records goes past the end");
      break;
    }
    const std::uint64_t next = at + 1 + texts;
    const auto* const text = reinterpret_cast<const char*>(records + at + 1);
    if (record.check != checksum(record, text, texts)) {
      if (!closed && all_zero(rest(next))) break;  // torn: the last thing that was written
      fail(at, "the checksum does not match; the file is damaged");
    }
    const Event event = header.version == 1 ? understand(record, at) : record;
    if (const std::string why = checker.refusal(event); !why.empty()) fail(at, why);
    if (has_text(event)) take_text(event, {text, event.object}, at);
    *to++ = event;
    at = next;
  }
  lost_bytes = closed ? (header.records - at) * kRecordSize : used_bytes(rest(at));
  const auto* const first = reinterpret_cast<const Event*>(data.get());
  events = {first, static_cast<size_t>(to - first)};
  check_sites();
}

/// A record of version 1 as one of today.
Event Trace::Impl::understand(const Event& record, std::uint64_t number) const {
  if (record.kind > EventKind::kMeta) {
    fail(number, "unknown kind " + std::to_string(static_cast<unsigned>(record.kind)) +
                     "; version 1 knows 1 to 6: the file is damaged");
  }
  const Event event = from_version_1(record);
  if (record.device != text_records(event) || (!has_text(event) && record.stream != 0)) {
    fail(number, std::to_string(record.stream) + " bytes of text in " + std::to_string(record.device) +
                     " records cannot be");
  }
  return event;
}

void Trace::Impl::take_text(const Event& event, std::string_view text, std::uint64_t record) {
  if (event.kind == EventKind::kMeta) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0 || text.size() > kMaxMetaText) {
      fail(record,
           "a meta record of " + std::to_string(text.size()) + " bytes that is not key=value, up to 1 MiB");
    }
    metas.insert_or_assign(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
    return;
  }
  if (event.site == kNoSite) fail(record, "defines site 0, which stands for no site");
  if (text.size() > kMaxSiteText) {
    fail(record, "the name of a site has " + std::to_string(text.size()) + " bytes, over 4,096");
  }
  Site site{event.size, std::string(text), 0, record};
  const auto [known, fresh] = sites.emplace(event.site, site);
  if (!fresh && !known->second.same(site)) {
    fail(record, "site " + hex(event.site) + " is defined twice, as \"" + known->second.name +
                     "\" in record " + std::to_string(known->second.record) + " and as \"" + site.name +
                     "\"");
  }
}

/// No chain runs in a circle or without end, so that site_chain() ends. Each site is walked once.
void Trace::Impl::check_sites() {
  std::vector<Site*> chain;
  for (auto& [id, site] : sites) {
    chain.clear();
    size_t frames = 0;
    for (auto next = &site; next != nullptr;) {
      if (next->frames != 0) {
        frames = next->frames;
        break;
      }
      chain.push_back(next);
      if (chain.size() > kMaxFrames) break;
      const auto parent = sites.find(next->parent);
      next = parent == sites.end() ? nullptr : &parent->second;
    }
    if (frames + chain.size() > kMaxFrames) {
      fail(site.record, "the chain of site " + hex(id) + " runs in a circle, or has more than 4,096 frames");
    }
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) (*link)->frames = ++frames;
  }
}

Trace Trace::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not hold us
  const auto fail = [&](const std::string& what) {
    if (file >= 0) ::close(file);
    throw Error(path + ": " + what);
  };
  if (file < 0) fail(std::string("cannot open: ") + std::strerror(errno));
  struct stat status;
  if (::fstat(file, &status) != 0) fail(std::string("cannot read: ") + std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail("a folder; name the trace file in it");
  if (!S_ISREG(status.st_mode)) fail("not a regular file");
  auto impl = std::make_unique<Impl>();
  impl->name = path;
  const auto size = static_cast<Size>(status.st_size);
  try {
    impl->data = std::make_unique_for_overwrite<std::byte[]>(size);
  } catch (const std::bad_alloc&) {
    fail(std::to_string(size) + " bytes do not fit into this machine's memory");
  }
  while (impl->size < size) {
    const ssize_t got = ::read(file, impl->data.get() + impl->size, size - impl->size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(std::string("cannot read: ") + std::strerror(errno));
    if (got == 0) break;  // it was cut meanwhile: a recording that ended
    impl->size += static_cast<Size>(got);
  }
  ::close(file);
  impl->read();
  return Trace(std::move(impl));
}

Trace Trace::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->data = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), impl->data.get());
  impl->size = bytes.size();
  impl->read();
  return Trace(std::move(impl));
}

std::span<const Event> Trace::events() const noexcept { return impl_->events; }
std::uint32_t Trace::version() const noexcept { return impl_->header.version; }
bool Trace::complete() const noexcept { return impl_->complete; }
Size Trace::lost_bytes() const noexcept { return impl_->lost_bytes; }
std::uint64_t Trace::dropped() const noexcept { return impl_->header.dropped; }
std::uint64_t Trace::start() const noexcept { return impl_->header.start; }

std::string_view Trace::site_name(SiteId site) const noexcept {
  const auto found = impl_->sites.find(site);
  return found == impl_->sites.end() ? std::string_view{} : found->second.name;
}

std::optional<SiteId> Trace::site_parent(SiteId site) const noexcept {
  const auto found = impl_->sites.find(site);
  if (found == impl_->sites.end()) return std::nullopt;
  return found->second.parent;
}

std::string Trace::site_chain(SiteId site) const {
  std::vector<std::string_view> frames;
  for (auto at = impl_->sites.find(site); at != impl_->sites.end();
       at = impl_->sites.find(at->second.parent)) {
    frames.push_back(at->second.name);
  }
  std::string chain;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (!chain.empty()) chain += " > ";
    chain += *frame;
  }
  return chain;
}

std::string_view Trace::meta(std::string_view key) const noexcept {
  const auto found = impl_->metas.find(key);
  return found == impl_->metas.end() ? std::string_view{} : found->second;
}

std::vector<std::string_view> Trace::meta_keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : impl_->metas) keys.push_back(key);
  return keys;
}

Trace::Trace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trace::~Trace() = default;
Trace::Trace(Trace&&) noexcept = default;
Trace& Trace::operator=(Trace&&) noexcept = default;

}  // namespace memoir

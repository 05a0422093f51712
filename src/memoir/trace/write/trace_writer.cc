// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/write/trace_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <initializer_list>

#include "memoir/base/files.h"
#include "memoir/base/metadata.h"
#include "memoir/trace/file/block_encoder.h"
#include "memoir/trace/format.h"

namespace memoir {

using namespace trace_format;

namespace {

constexpr Size kFirstStep = kMiB;
constexpr Size kLargestStep = 64 * kMiB;
constexpr Size kSmallestStep = 4 * kKiB;
constexpr Size kBlock = 64 * kKiB;  // of one block, where there is so much room
constexpr Size kMostFields = 64;    // bytes of a record without its text

std::uint64_t clock_now(clockid_t clock) noexcept {
  timespec time;
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

/// Whether a file may grow to `size`: going past the limit sends SIGXFSZ, whose default is to end the
/// program.
bool may_grow_to(Size size) noexcept {
  rlimit limit;
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

/// Makes the file's blocks up to `size` real. 0 or an errno.
int allocate_blocks(int file, Size from, Size size) noexcept {
  if (!may_grow_to(size)) return EFBIG;
  int result;
  do {
    result = ::posix_fallocate(file, static_cast<off_t>(from), static_cast<off_t>(size - from));
  } while (result == EINTR);
  return result;
}

/// Writes the header where none is. 0 or an errno.
int write_header(int file, const Header& header) noexcept {
  if (!may_grow_to(sizeof header)) return EFBIG;
  const ssize_t written = ::pwrite(file, &header, sizeof header, 0);
  return written == sizeof header ? 0 : written < 0 ? errno : ENOSPC;
}

Header fresh_header() noexcept {
  Header fresh{};
  std::memcpy(fresh.magic, kMagic, sizeof kMagic);
  fresh.version = kVersion;
  fresh.endianness = kEndianness;
  fresh.header_size = sizeof(Header);
  fresh.tick = kNanosecondTick;
  fresh.clock = kClockMonotonic;
  fresh.start = clock_now(CLOCK_REALTIME);
  return fresh;
}

}  // namespace

// In pages of its own. For a file they are wiped in a forked child, so that there `open` is false and nothing
// is written: zero is the state of a writer that has ended. Where the system refuses that,
// the child wipes them.
struct TraceWriter::Impl {
  bool open;  // records are taken
  bool in_memory;
  int file;
  int error;
  std::byte* base;        // header, then blocks; nullptr when there is no mapping
  Size mapped;            // bytes at base
  Size block;             // where the open block begins
  std::uint32_t blocks;   // begun
  std::uint64_t records;  // complete
  std::uint64_t dropped;
  std::uint64_t start;  // CLOCK_MONOTONIC at time 0
  pid_t owner;          // where the system does not wipe them in a forked child: whose they are; else 0
  bool imported;        // records bear `time`, not the clock's
  Tick time;            // of the last record
  BlockEncoder encoder;

  Size used() const noexcept { return encoder.is_open() ? align_up(block + encoder.bytes(), 8) : block; }
  Header& header() noexcept { return *reinterpret_cast<Header*>(base); }
  void begin(int to_file) noexcept;
  void leave_to_parent() noexcept {
    if (owner != 0 && owner != ::getpid()) [[unlikely]]
      std::memset(static_cast<void*>(this), 0, sizeof *this);
  }
  bool begin_nameless(const char* path) noexcept;
  bool grow(Size least) noexcept;
  bool begin_block(Size room) noexcept;
  Tick now() noexcept { return imported ? time : time = clock_now(CLOCK_MONOTONIC) - start; }
  bool drop() noexcept;
  bool write(Event& event, std::initializer_list<std::string_view> parts = {}) noexcept;
};

void TraceWriter::Impl::begin(int to_file) noexcept {
  file = to_file;
  if (!grow(sizeof(Header) + BlockEncoder::kLeastBlock)) return;
  header() = fresh_header();
  block = sizeof(Header);
  start = clock_now(CLOCK_MONOTONIC);
  open = begin_block(0);
}

/// Begins in a file that gets its name when its header is there: whoever is killed, at any moment, leaves no
/// file or one that can be read. False, with nothing changed, where there are no such files; true otherwise,
/// `open` or with `error` set.
bool TraceWriter::Impl::begin_nameless(const char* path) noexcept {
  const Folder folder(path);
  const int nameless = folder.create_nameless();
  if (nameless < 0) return false;
  begin(nameless);
  const int named = !open || folder.give_name(nameless, folder.name()) ? 0 : errno;
  if (open && named == 0) return true;
  open = false;
  ::close(nameless);
  if (base != nullptr) ::munmap(base, mapped);
  base = nullptr;
  mapped = 0;
  if (named == EEXIST) error = EEXIST;
  return error != 0;  // any other failure is of the way to give names (there is no /proc)
}

/// Makes room for `least` bytes in all. The steps double, so that a short recording takes little disk and a
/// long one few steps; on a nearly full disk they halve, so that it takes what there is. False, with `error`
/// set, at the end.
bool TraceWriter::Impl::grow(Size least) noexcept {
  least = align_up(least, kSmallestStep);
  Size step = std::clamp(mapped, kFirstStep, kLargestStep);
  Size size = std::max(mapped + step, least);
  while (!in_memory && (error = allocate_blocks(file, mapped, size)) != 0) {
    if (size == least) return false;
    step = align_down(step / 2, kSmallestStep);
    size = std::max(mapped + step, least);
  }
  void* mapping = base != nullptr ? ::mremap(base, mapped, size, MREMAP_MAYMOVE)
                                  : ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                           in_memory ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
  if (mapping == MAP_FAILED) {
    error = errno;
    return false;
  }
  base = static_cast<std::byte*>(mapping);
  mapped = size;
  if (encoder.is_open()) encoder.move(base + block);
  return true;
}

/// Ends the open block and begins one with at least so much room for operations. False, with nothing changed,
/// when there is none.
bool TraceWriter::Impl::begin_block(Size room) noexcept {
  const Size next = used();
  const Size least = std::max(align_up(sizeof(BlockHeader) + room, 8), BlockEncoder::kLeastBlock);
  if (mapped - next < least && !grow(next + least)) return false;
  if (encoder.is_open()) encoder.seal(true);
  block = next;
  encoder.begin(base + block, std::min(std::max(kBlock, least), mapped - block),
                {.sequence = blocks++, .tick = time});
  return true;
}

bool TraceWriter::Impl::drop() noexcept {
  ++dropped;
  if (base != nullptr) header().dropped = dropped;
  return false;
}

inline bool TraceWriter::Impl::write(Event& event, std::initializer_list<std::string_view> parts) noexcept {
  leave_to_parent();
  if (!open) [[unlikely]]
    return drop();
  if (parts.size() != 0) {
    event.object = 0;
    for (const std::string_view part : parts) event.object += part.size();
  }
  event.time = now();
  const std::span<const std::string_view> texts(parts.begin(), parts.size());
  while (!encoder.record(event, texts)) [[unlikely]] {
      if (!begin_block(kMostFields + (has_text(event) ? event.object : 0))) {
        open = false;
        return drop();
      }
    }
  ++records;
  return true;
}

TraceWriter::TraceWriter() noexcept : impl_(static_cast<Impl*>(map_metadata(sizeof(Impl)))) {
  if (impl_ == nullptr) return;
  impl_->in_memory = true;
  impl_->begin(-1);
}

TraceWriter::TraceWriter(const char* path) noexcept : impl_(static_cast<Impl*>(map_metadata(sizeof(Impl)))) {
  if (impl_ == nullptr) return;
  if (::madvise(impl_, align_up(sizeof(Impl), 4 * kKiB), MADV_WIPEONFORK) != 0) impl_->owner = ::getpid();
  if (impl_->begin_nameless(path)) return;
  // Here files need a name from the start: the header follows at once.
  const Folder folder(path);
  const int file = folder.create(folder.name());
  if (file < 0) {
    impl_->error = errno;
    return;
  }
  impl_->error = write_header(file, fresh_header());
  if (impl_->error == 0) impl_->begin(file);
  if (impl_->open) return;
  ::close(file);
  folder.remove(folder.name());
}

TraceWriter::~TraceWriter() {
  if (impl_ == nullptr) return;
  close();
  if (impl_->base != nullptr) ::munmap(impl_->base, impl_->mapped);
  unmap_metadata(impl_, sizeof(Impl));
}

bool TraceWriter::ok() const noexcept { return impl_ != nullptr && impl_->open; }
int TraceWriter::error() const noexcept { return impl_ == nullptr ? ENOMEM : impl_->error; }
std::uint64_t TraceWriter::records() const noexcept { return impl_ == nullptr ? 0 : impl_->records; }
std::uint64_t TraceWriter::dropped() const noexcept { return impl_ == nullptr ? 0 : impl_->dropped; }

std::span<const std::byte> TraceWriter::bytes() const noexcept {
  if (impl_ == nullptr || impl_->base == nullptr) return {};
  return {impl_->base, impl_->used()};
}

bool TraceWriter::allocate(ObjectId object, SiteId site, Size size, Size alignment, std::uint32_t thread,
                           std::uint16_t device, StreamId stream) noexcept {
  if (impl_ == nullptr) return false;
  if (size > kMaxSize || !is_power_of_two(alignment) || alignment > kMaxSize) [[unlikely]]
    return impl_->drop();
  Event event{.kind = EventKind::kAllocate,
              .device = device,
              .thread = thread,
              .object = object,
              .site = site,
              .size = size,
              .stream = stream};
  event.alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(alignment));
  return impl_->write(event);
}

bool TraceWriter::free(ObjectId object, std::uint32_t thread, std::uint16_t device, StreamId stream,
                       SiteId site) noexcept {
  return end(EventKind::kFree, object, thread, device, stream, site);
}

bool TraceWriter::free_requested(ObjectId object, std::uint32_t thread, std::uint16_t device, StreamId stream,
                                 SiteId site) noexcept {
  return end(EventKind::kFreeRequested, object, thread, device, stream, site);
}

bool TraceWriter::end(EventKind kind, ObjectId object, std::uint32_t thread, std::uint16_t device,
                      StreamId stream, SiteId site) noexcept {
  if (impl_ == nullptr) return false;
  Event event{
      .kind = kind, .device = device, .thread = thread, .object = object, .site = site, .stream = stream};
  return impl_->write(event);
}

bool TraceWriter::address(ObjectId object, Offset address, std::uint16_t device, StreamId stream,
                          std::uint32_t pool) noexcept {
  if (impl_ == nullptr) return false;
  if (address > kMaxAddress) return impl_->drop();
  Event event{.kind = EventKind::kAddress,
              .device = device,
              .thread = pool,
              .object = object,
              .size = address,
              .stream = stream};
  return impl_->write(event);
}

bool TraceWriter::segment(EventKind kind, Offset address, Size size, std::uint16_t device, StreamId stream,
                          SiteId site, std::uint32_t pool) noexcept {
  if (impl_ == nullptr) return false;
  if (!is_segment(kind) || size == 0 || size > kMaxSize || address > kMaxAddress - size) return impl_->drop();
  Event event{.kind = kind,
              .device = device,
              .thread = pool,
              .object = address,
              .site = site,
              .size = size,
              .stream = stream};
  return impl_->write(event);
}

bool TraceWriter::out_of_memory(Size asked, Size free, std::uint16_t device, StreamId stream, SiteId site,
                                std::uint32_t pool) noexcept {
  if (impl_ == nullptr) return false;
  if (asked > kMaxAddress || free > kMaxSize) return impl_->drop();
  Event event{.kind = EventKind::kOutOfMemory,
              .device = device,
              .thread = pool,
              .object = free,
              .site = site,
              .size = asked,
              .stream = stream};
  return impl_->write(event);
}

bool TraceWriter::define_pool(std::uint32_t pool, std::uint64_t first, std::uint64_t second) noexcept {
  if (impl_ == nullptr) return false;
  if (pool == 0 || (first == 0 && second == 0)) return impl_->drop();
  Event event{.kind = EventKind::kPool, .thread = pool, .object = first, .size = second};
  return impl_->write(event);
}

void TraceWriter::set_start(std::uint64_t nanoseconds) noexcept {
  if (impl_ == nullptr) return;
  impl_->leave_to_parent();
  if (impl_->base != nullptr) impl_->header().start = nanoseconds;
}

bool TraceWriter::set_time(Tick time) noexcept {
  if (impl_ == nullptr) return false;
  impl_->leave_to_parent();
  if (impl_->base == nullptr || time < impl_->time || time > kMaxTime) return false;
  impl_->imported = true;
  impl_->time = time;
  impl_->header().clock = kClockImported;
  return true;
}

bool TraceWriter::pass_begin(std::uint64_t pass, std::uint32_t thread) noexcept {
  if (impl_ == nullptr) return false;
  Event event{.kind = EventKind::kPassBegin, .thread = thread, .object = pass};
  return impl_->write(event);
}

bool TraceWriter::pass_end(std::uint64_t pass, std::uint32_t thread) noexcept {
  if (impl_ == nullptr) return false;
  Event event{.kind = EventKind::kPassEnd, .thread = thread, .object = pass};
  return impl_->write(event);
}

bool TraceWriter::define_site(SiteId site, SiteId parent, std::string_view name, FrameKind kind) noexcept {
  if (impl_ == nullptr) return false;
  if (site == kNoSite || site == parent || kind == FrameKind::kNone) return impl_->drop();
  Event event{.kind = EventKind::kSite, .site = site, .size = parent, .frame = kind};
  return impl_->write(event, {cut_text(name, kMaxSiteText)});
}

bool TraceWriter::meta(std::string_view key, std::string_view value) noexcept {
  if (impl_ == nullptr) return false;
  const bool possible = !key.empty() && key.find('=') == key.npos && key.size() < kMaxMetaText &&
                        value.size() < kMaxMetaText - key.size();
  if (!possible) return impl_->drop();
  Event event{.kind = EventKind::kMeta};
  return impl_->write(event, {key, "=", value});
}

void TraceWriter::close() noexcept {
  if (impl_ == nullptr) return;
  Impl& w = *impl_;
  w.leave_to_parent();
  w.open = false;
  if (w.base == nullptr) return;
  if (w.encoder.is_open()) {
    const Size end = w.used();
    w.encoder.seal(true);
    w.block = end;
  }
  w.header().end = w.used();
  __atomic_store_n(&w.header().flags, kComplete, __ATOMIC_RELEASE);
  if (w.in_memory) return;
  ::munmap(w.base, w.mapped);
  w.base = nullptr;
  [[maybe_unused]] const int cut_result = ::ftruncate(w.file, static_cast<off_t>(w.used()));
  ::close(w.file);
}

}  // namespace memoir

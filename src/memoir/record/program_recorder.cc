// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/program_recorder.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memoir/base/metadata.h"
#include "memoir/base/pause.h"
#include "memoir/base/system_calls.h"
#include "memoir/process/stacks/thread_stack.h"

namespace memoir::record {

using stacks::Frame;
using stacks::FrameKind;
using stacks::kind_of;
using stacks::payload_of;
using stacks::StackWalker;

namespace {

constexpr unsigned kFramesLog2 = 16;         // 1 MiB
constexpr std::uint32_t kCheckEvery = 1024;  // events
// at the same time; one that leaks at each raw exit of a thread must end somewhere
constexpr unsigned kMostThreadsRecords = 1u << 16;

/// For what happens once per block, or more rarely. Yields: the holder may have been stopped.
class SpinGuard {
 public:
  explicit SpinGuard(std::atomic<bool>& lock) noexcept : lock_(lock) {
    for (unsigned tries = 1; lock_.exchange(true, std::memory_order_acquire); ++tries)
      if (tries % 64 == 0 && may_call_system()) ::sched_yield();
      else pause_processor();
  }
  ~SpinGuard() { lock_.store(false, std::memory_order_release); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  std::atomic<bool>& lock_;
};

/// Inside the recorder by another way than an event's. False when it is there already.
class Busy {
 public:
  explicit Busy(ThreadRecord& thread) noexcept : thread_(thread), was_(thread.busy), errno_(errno) {
    thread.busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Busy() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    thread_.busy = was_;
    errno = errno_;
  }
  bool entered() const noexcept { return !was_; }

 private:
  ThreadRecord& thread_;
  bool was_;
  int errno_;
};

std::string_view text_of(stacks::Cut why) noexcept {
  switch (why) {
    case stacks::Cut::kNoTable:
      return "no unwind table";
    case stacks::Cut::kOddTable:
      return "an unwind table that memoir does not follow";
    case stacks::Cut::kBroken:
      return "an unwind table that leads nowhere";
    case stacks::Cut::kTooDeep:
      return "frames between the two ends of a deep stack";
    case stacks::Cut::kOtherStack:
      return "beyond another stack than the thread's own";
    case stacks::Cut::kInHandler:
      return "a signal handler inside the recorder";
    case stacks::Cut::kTableFull:
      return "no room";
    case stacks::Cut::kMadeCode:
      return "code made at run time, without frame pointers";
    case stacks::Cut::kTooManyPython:
      return "Python frames beyond the innermost ones";
  }
  return "unknown";
}

}  // namespace

static_assert(sizeof(ThreadRecord) + ProgramRecorder::kBlock <= 256 * kKiB, "what a thread may take");

bool ProgramRecorder::start(const char* path, const TickClock& clock, bool may_be_python) noexcept {
  const bool mixes = may_be_python && !tables_.nodes().ready() && stacks::has_python();
  if (!tables_.start(mixes) || !frames_.start(kFramesLog2)) {
    errno = ENOMEM;
    return false;
  }
  if (mixes && mixed_.start()) {
    mixing_ = true;
    mixed_.python.layout = stacks::find_python();
    if (mixed_.python.is_on()) stacks::watch_codes(mixed_.python);
  }
  clock_ = clock;
  return file_.create(path, clock.start_of_day(), TickClock::kTick);
}

template <class Write>
bool ProgramRecorder::put(ThreadRecord& thread, Write write) noexcept {
  if (thread.encoder.is_open() && write(thread.encoder)) return true;
  return next_block(thread, thread.tick) && write(thread.encoder);
}

void ProgramRecorder::meta(ThreadRecord& thread, std::string_view key, std::string_view value) noexcept {
  const Busy busy(thread);
  value = value.substr(0, 8 * kKiB);
  const Event event{.kind = EventKind::kMeta, .object = key.size() + 1 + value.size()};
  const std::string_view parts[] = {key, "=", value};
  put(thread, [&](BlockEncoder& encoder) { return encoder.record(event, parts); });
}

ThreadRecord* ProgramRecorder::attach() noexcept {
  if (!may_call_system()) return nullptr;
  ThreadRecord* thread = nullptr;
  {
    const SpinGuard guard(list_locked_);
    if (free_ != nullptr) {
      thread = free_;
      free_ = thread->next_free;
    }
  }
  if (thread == nullptr) {
    if (next_lane_.load(std::memory_order_relaxed) >= kMostThreadsRecords) return nullptr;
    thread = static_cast<ThreadRecord*>(map_metadata(sizeof(ThreadRecord)));
    if (thread == nullptr) return nullptr;
    thread->lane = next_lane_.fetch_add(1, std::memory_order_relaxed);
    const SpinGuard guard(list_locked_);
    thread->next = all_;
    all_ = thread;
  }
  const stacks::ThreadStack own = stacks::find_thread_stack();
  thread->walker.start(tables_, own.begin, own.end);
  if (mixing_) thread->mixed.start();
  thread->thread = next_thread_.fetch_add(1, std::memory_order_relaxed);
  thread->until_check = kCheckEvery;
  thread->busy = true;
  thread->system_id = 0;
  begin_thread(*thread);
  thread->busy = false;
  return thread;
}

void ProgramRecorder::begin_thread(ThreadRecord& thread) noexcept {
  const std::uint64_t tick = now(thread);
  const auto system_id = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  put(thread,
      [&](BlockEncoder& encoder) { return encoder.thread_begins(tick, thread.thread, system_id, 0); });
  thread.system_id = system_id;
  thread.name[0] = '\0';
}

/// Its name, where it has a new one. Of the calling thread: asked at each block and at its end, since most
/// threads get their names after they began.
void ProgramRecorder::name_thread(ThreadRecord& thread) noexcept {
  char name[sizeof thread.name] = {};
  if (!may_call_system() || ::prctl(PR_GET_NAME, name) != 0 || strncmp(name, thread.name, sizeof name) == 0)
    return;
  memcpy(thread.name, name, sizeof name);
  const std::uint32_t text = define_string(thread, {name, strnlen(name, sizeof name)});
  put(thread, [&](BlockEncoder& encoder) {
    return encoder.thread_begins(thread.tick, thread.thread, thread.system_id, text);
  });
}

void ProgramRecorder::detach(ThreadRecord& thread) noexcept {
  {
    const Busy busy(thread);
    const std::uint64_t tick = now(thread);
    name_thread(thread);
    tell_losses(thread, tick);
    put(thread, [&](BlockEncoder& encoder) { return encoder.thread_ends(tick, thread.thread); });
  }
  const SpinGuard guard(list_locked_);
  thread.next_free = free_;
  free_ = &thread;
}

void ProgramRecorder::check_clock(ThreadRecord& thread, std::uint64_t tick) noexcept {
  thread.until_check = kCheckEvery;
  clock_.check();
  file_.set_flushed(tick);
}

bool ProgramRecorder::next_block(ThreadRecord& thread, std::uint64_t tick) noexcept {
  if (tick < thread.retry) return false;
  const int kept = errno;
  std::byte* const block = file_.claim(kBlock);
  if (block == nullptr) {
    errno = kept;
    thread.retry = tick + kRetry;
    return false;
  }
  if (thread.encoder.is_open()) thread.encoder.abandon();  // it stays as it is: readers go by its `used`
  if (may_call_system()) TraceFile::unmap(thread.block, kBlock);
  errno = kept;
  thread.block = block;
  thread.encoder.begin(
      block, kBlock,
      {.lane = thread.lane, .sequence = thread.sequence++, .tick = tick, .thread = thread.thread});
  file_.set_flushed(tick);
  tell_losses(thread, tick);
  if (lost_definitions_.exchange(false, std::memory_order_relaxed)) {
    // Stacks that were defined while there was no room are defined again.
    frames_.forget();
    tables_.forget_nodes();
    if (mixing_) {
      mixed_.python.codes.forget_strings();
      mixed_.forget();
    }
  }
  if (thread.system_id != 0) name_thread(thread);
  return true;
}

void ProgramRecorder::tell_losses(ThreadRecord& thread, std::uint64_t tick) noexcept {
  if (!thread.encoder.is_open()) return;
  if (thread.dropped != 0 && thread.encoder.lost(tick, BlockEncoder::Loss::kNoRoom, thread.dropped)) {
    file_.count_dropped(0 - thread.dropped);  // the header counts those that no block tells of
    thread.dropped = 0;
  }
  if (thread.interrupted != 0 &&
      thread.encoder.lost(tick, BlockEncoder::Loss::kInterrupted, thread.interrupted))
    thread.interrupted = 0;
}

void ProgramRecorder::drop(ThreadRecord& thread) noexcept {
  ++thread.dropped;
  file_.count_dropped(1);
}

std::uint32_t ProgramRecorder::define_string(ThreadRecord& thread, std::string_view text) noexcept {
  const std::uint32_t id = next_string_.fetch_add(1, std::memory_order_relaxed);
  if (!put(thread, [&](BlockEncoder& encoder) { return encoder.define_string(id, text); }))
    lost_definitions_.store(true, std::memory_order_relaxed);
  return id;
}

void ProgramRecorder::define_modules(ThreadRecord& thread) noexcept {
  stacks::ModuleTable& modules = tables_.modules();
  if (modules_defined_.load(std::memory_order_acquire) >= modules.count()) return;
  const SpinGuard guard(defining_modules_);
  for (std::uint32_t i = modules_defined_.load(std::memory_order_relaxed); i < modules.count(); ++i) {
    const stacks::LoadedModule& module = modules[i];
    char own[256];
    std::string_view path(module.path, strnlen(module.path, sizeof module.path));
    if (path.empty() && may_call_system()) {
      const ssize_t length = ::readlink("/proc/self/exe", own, sizeof own);
      path = {own, length > 0 ? static_cast<std::size_t>(length) : 0};
    }
    const std::uint32_t name = define_string(thread, path);
    const BlockEncoder::MappedRange range{module.begin, module.end - module.begin, 0, 5};
    put(thread, [&](BlockEncoder& encoder) {
      return encoder.define_module(
          thread.tick, i + 1, name,
          {reinterpret_cast<const std::byte*>(module.build_id), module.build_id_size}, module.bias,
          {&range, 1});
    });
    modules_defined_.store(i + 1, std::memory_order_release);
  }
}

std::uint32_t ProgramRecorder::define_frame(ThreadRecord& thread, Frame frame) noexcept {
  stacks::Node known;
  if (!frames_.intern(known, frame)) return known.id;
  bool done = false;
  if (kind_of(frame) == FrameKind::kNative) {
    stacks::ModuleTable& modules = tables_.modules();
    const stacks::LoadedModule* const module = modules.find(frame - 1);
    define_modules(thread);
    const auto number = module == nullptr ? 0 : static_cast<std::uint32_t>(module - &modules[0]) + 1;
    const std::uint64_t offset = module == nullptr ? frame : frame - module->bias;
    done = put(thread,
               [&](BlockEncoder& encoder) { return encoder.define_native_frame(known.id, number, offset); });
  } else if (kind_of(frame) == FrameKind::kPython) {
    done = define_python_frame(thread, known.id, frame);
  } else if (kind_of(frame) == FrameKind::kOperator || kind_of(frame) == FrameKind::kModulePath) {
    const auto named = kind_of(frame) == FrameKind::kOperator ? BlockEncoder::Named::kOperator
                                                              : BlockEncoder::Named::kModulePath;
    const std::string_view text = mixed_.names[static_cast<std::uint32_t>(payload_of(frame))];
    const std::uint32_t name = define_string(thread, text);
    done =
        put(thread, [&](BlockEncoder& encoder) { return encoder.define_named_frame(known.id, named, name); });
  } else {
    const bool cut = kind_of(frame) == FrameKind::kCut;
    const std::string_view text =
        cut ? text_of(static_cast<stacks::Cut>(payload_of(frame))) : std::string_view("signal handler");
    const std::uint32_t name = define_string(thread, text);
    done = put(thread, [&](BlockEncoder& encoder) {
      return encoder.define_named_frame(known.id,
                                        cut ? BlockEncoder::Named::kCut : BlockEncoder::Named::kOther, name);
    });
  }
  if (!done) lost_definitions_.store(true, std::memory_order_relaxed);
  return known.id;
}

std::uint32_t ProgramRecorder::define_python_text(ThreadRecord& thread, std::atomic<std::uint32_t>& string,
                                                  stacks::Address text) noexcept {
  char copied[512];
  std::uint32_t id = string.load(std::memory_order_relaxed);
  if (id != 0) return id;
  const std::size_t size = stacks::copy_python_text(mixed_.python.layout, text, copied, sizeof copied);
  id = define_string(thread, {copied, size});
  string.store(id, std::memory_order_relaxed);
  return id;
}

/// Of a frame that the thread is in.
bool ProgramRecorder::define_python_frame(ThreadRecord& thread, std::uint32_t number, Frame frame) noexcept {
  const stacks::PythonLayout& layout = mixed_.python.layout;
  const stacks::Address code = thread.mixed.code_of(frame);
  stacks::CodeTable::Code* const known = code == 0 ? nullptr : mixed_.python.codes.find(code);
  if (known == nullptr) return false;
  const auto text = [&](std::uint16_t offset) {
    return *reinterpret_cast<const volatile stacks::Address*>(code + offset);
  };
  const std::uint32_t function = define_python_text(thread, known->function, text(layout.code_name));
  const std::uint32_t file = define_python_text(thread, known->file, text(layout.code_file));
  const std::uint32_t line = stacks::CodeTable::line(layout, code, frame);
  return put(thread, [&](BlockEncoder& encoder) {
    return encoder.define_python_frame(number, function, file, line);
  });
}

stacks::NodeId ProgramRecorder::mixed_stack(ThreadRecord& thread, const StackWalker::Entry& entry,
                                            stacks::NodeId native) noexcept {
  if (oracle_ != nullptr) [[unlikely]]
    compare(thread, entry, native);
  return thread.mixed.capture(
      mixed_, tables_.nodes(), thread.walker, entry, native,
      [&](const StackWalker::Fresh* fresh, unsigned count) { define(thread, fresh, count); });
}

/// Writes down the nodes that the last capture made, outermost first as they were made; a chain of them at
/// once.
void ProgramRecorder::define(ThreadRecord& thread) noexcept {
  define(thread, thread.walker.fresh(), thread.walker.fresh_count());
}

void ProgramRecorder::define(ThreadRecord& thread, const StackWalker::Fresh* fresh, unsigned count) noexcept {
  const int kept = errno;
  std::uint32_t frames[StackWalker::kMost + 2];
  for (unsigned i = 0; i < count;) {
    unsigned chain = 0;
    do frames[chain] = define_frame(thread, fresh[i + chain].frame), ++chain;
    while (i + chain < count && fresh[i + chain].caller == fresh[i + chain - 1].node &&
           fresh[i + chain].node == fresh[i + chain - 1].node + 1);
    const bool done = put(thread, [&](BlockEncoder& encoder) {
      return encoder.define_stack(fresh[i].node, fresh[i].caller, {frames, chain});
    });
    if (!done) lost_definitions_.store(true, std::memory_order_relaxed);
    i += chain;
  }
  errno = kept;
}

void ProgramRecorder::undo(ThreadRecord& thread, const BlockEncoder::Freed& freed, const void* address,
                           Size size, const StackWalker::Entry& entry) noexcept {
  if (thread.encoder.undo(freed)) return;
  allocated(thread, address, size, 4, Family::kMalloc, entry);  // its block is gone: a new object to readers
}

void ProgramRecorder::tensor_begins(ThreadRecord& thread, const void* address, Size size,
                                    unsigned alignment_log2, const StackWalker::Entry& entry) noexcept {
  const Busy busy(thread);
  if (!busy.entered() || address == nullptr) return;  // tensors without elements have no memory
  const auto at = reinterpret_cast<std::uint64_t>(address);
  // It has the stack of the malloc before it, unless something else served it.
  const stacks::NodeId node = thread.served == at ? 0 : stack(thread, entry);
  const std::uint64_t tick = now(thread);
  const bool done = put(thread, [&](BlockEncoder& encoder) {
    return encoder.allocate(tick, at, size, alignment_log2, Family::kTensor, node);
  });
  if (!done) drop(thread);
}

void ProgramRecorder::tensor_ends(ThreadRecord& thread, const void* address) noexcept {
  const Busy busy(thread);
  if (!busy.entered() || address == nullptr) return;
  const std::uint64_t tick = now(thread);
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const bool done =
      put(thread, [&](BlockEncoder& encoder) { return encoder.free(tick, at, 0, false, true); });
  if (!done) drop(thread);
}

void ProgramRecorder::scope_begins(ThreadRecord& thread, stacks::FrameKind kind, std::string_view name,
                                   const void* place) noexcept {
  const Busy busy(thread);
  if (!busy.entered() || !mixing_) return;
  thread.mixed.enter(mixed_, tables_.nodes(), kind, name, reinterpret_cast<stacks::Address>(place),
                     thread.walker.stack_end());
}

void ProgramRecorder::scope_ends(ThreadRecord& thread) noexcept {
  const Busy busy(thread);
  if (busy.entered() && mixing_) thread.mixed.leave();
}

void ProgramRecorder::pass(ThreadRecord& thread, std::uint64_t number, bool begins) noexcept {
  const Busy busy(thread);
  if (!busy.entered()) return;
  const Event event{.kind = begins ? EventKind::kPassBegin : EventKind::kPassEnd,
                    .thread = thread.thread,
                    .object = number,
                    .time = now(thread)};
  if (!put(thread, [&](BlockEncoder& encoder) { return encoder.record(event, {}); })) drop(thread);
}

template <class Write>
void ProgramRecorder::put_mapping(ThreadRecord& thread, const StackWalker::Entry& entry,
                                  Write write) noexcept {
  const Busy busy(thread);
  if (!busy.entered()) return;
  const stacks::NodeId node = stack(thread, entry);
  const std::uint64_t tick = now(thread);
  if (!put(thread, [&](BlockEncoder& encoder) { return write(encoder, tick, node); })) drop(thread);
}

void ProgramRecorder::mapped(ThreadRecord& thread, const void* address, Size size,
                             const StackWalker::Entry& entry) noexcept {
  put_mapping(thread, entry, [&](BlockEncoder& encoder, std::uint64_t tick, stacks::NodeId node) {
    return encoder.map(tick, reinterpret_cast<std::uint64_t>(address), size, node);
  });
}

void ProgramRecorder::unmapped(ThreadRecord& thread, const void* address, Size size,
                               const StackWalker::Entry& entry) noexcept {
  put_mapping(thread, entry, [&](BlockEncoder& encoder, std::uint64_t tick, stacks::NodeId node) {
    return encoder.unmap(tick, reinterpret_cast<std::uint64_t>(address), size, node);
  });
}

void ProgramRecorder::program_ends(ThreadRecord& thread, bool by_exec, unsigned status) noexcept {
  const Busy busy(thread);
  const std::uint64_t tick = now(thread);
  name_thread(thread);
  tell_losses(thread, tick);
  put(thread, [&](BlockEncoder& encoder) { return encoder.program_ends(tick, by_exec, status); });
  if (may_call_system()) file_.trim();
}

void ProgramRecorder::modules_changed(ThreadRecord* thread) noexcept {
  const int kept = errno;
  const unsigned before = tables_.modules().count();
  std::uint64_t gone[stacks::ModuleTable::kMost / 64] = {};
  for (unsigned i = 0; i < before; ++i)
    if (tables_.modules()[i].gone.load(std::memory_order_relaxed)) gone[i / 64] |= std::uint64_t{1} << i % 64;
  if (tables_.look_for_unloaded()) {
    frames_.forget();
    if (mixing_) mixed_.forget();
    if (thread != nullptr) {
      const Busy busy(*thread);
      const std::uint64_t tick = now(*thread);
      for (unsigned i = 0; i < before; ++i)
        if (tables_.modules()[i].gone.load(std::memory_order_relaxed) && (gone[i / 64] >> i % 64 & 1) == 0)
          put(*thread, [&](BlockEncoder& encoder) { return encoder.module_gone(tick, i + 1); });
    }
  }
  errno = kept;
}

void ProgramRecorder::after_fork() noexcept {
  file_.abandon();
  tables_.after_fork();
  frames_.clear();
  if (mixing_) mixed_.after_fork();
  next_string_.store(1, std::memory_order_relaxed);
  next_thread_.store(0, std::memory_order_relaxed);
  modules_defined_.store(0, std::memory_order_relaxed);
  defining_modules_.store(false, std::memory_order_relaxed);
  list_locked_.store(false, std::memory_order_relaxed);
  lost_definitions_.store(false, std::memory_order_relaxed);
  checked_.store(0, std::memory_order_relaxed);
  different_.store(0, std::memory_order_relaxed);
  cut_.store(0, std::memory_order_relaxed);
  ends_in_made_code_.store(0, std::memory_order_relaxed);
  ends_at_fibre_.store(0, std::memory_order_relaxed);
  free_ = nullptr;
  for (ThreadRecord* thread = all_; thread != nullptr; thread = thread->next) {
    thread->encoder.abandon();
    TraceFile::unmap(thread->block, kBlock);
    thread->block = nullptr;
    thread->sequence = 0;
    thread->tick = thread->dropped = thread->interrupted = thread->retry = 0;
    thread->busy = false;
    thread->next_free = free_;
    free_ = thread;
  }
}

void ProgramRecorder::compare(ThreadRecord& thread, const StackWalker::Entry& entry,
                              stacks::NodeId node) noexcept {
  constexpr unsigned kMostWanted = 4096;
  const int kept = errno;
  static thread_local Frame* wanted = nullptr;
  if (wanted == nullptr) wanted = static_cast<Frame*>(map_metadata(kMostWanted * sizeof(Frame)));
  if (wanted == nullptr) return;
  Frame got[StackWalker::kMost + 2];
  bool cached_wrongly = false;
  if (thread.walker.was_cached()) {
    // Nodes are unique as long as none was forgotten, and then this one is fresh.
    const bool differs = thread.walker.recapture(entry) != node;
    cached_wrongly = differs && thread.walker.fresh_count() == 0;
    if (thread.walker.fresh_count() != 0 && !mixing_) define(thread);
  }
  unsigned count = 0;
  const unsigned all = thread.walker.last_frames(got);
  const Frame outermost = all == 0 ? 0 : got[all - 1];
  unsigned gap = all;
  for (unsigned i = 0; i < all; ++i) {
    if (kind_of(got[i]) == FrameKind::kCut) gap = count;
    if (kind_of(got[i]) == FrameKind::kNative) got[count++] = got[i];
  }
  const unsigned found = oracle_(*reinterpret_cast<const Frame*>(entry.slot), wanted, kMostWanted);
  bool same = gap == all ? count == found : count <= found;
  if (same && gap != all) {
    same = memcmp(got, wanted, gap * sizeof(Frame)) == 0;
    if (found < kMostWanted)
      same = same && memcmp(got + gap, wanted + found - (count - gap), (count - gap) * sizeof(Frame)) == 0;
  } else if (same) {
    same = memcmp(got, wanted, count * sizeof(Frame)) == 0;
  } else if (found != 0 && found < count && gap >= found) {
    // It knows tables alone: where they end, so does it.
    same = memcmp(got, wanted, found * sizeof(Frame)) == 0 &&
           tables_.rule(got[found - 1] - 1).cfa == stacks::CfaKind::kUncovered;
  }
  if (kind_of(outermost) == FrameKind::kCut) {
    const auto why = static_cast<stacks::Cut>(payload_of(outermost));
    auto& ends = found > count                     ? cut_
                 : why == stacks::Cut::kMadeCode   ? ends_in_made_code_
                 : why == stacks::Cut::kOtherStack ? ends_at_fibre_
                                                   : cut_;
    ends.fetch_add(1, std::memory_order_relaxed);
  }
  checked_.fetch_add(1, std::memory_order_relaxed);
  if ((!same || cached_wrongly) && different_.fetch_add(1, std::memory_order_relaxed) == 0) {
    thread.walker.last_frames(got);
    first_different_[0] = count, first_different_[1] = found;
    for (unsigned i = 0; i < count && i < found; ++i)
      if (got[i] != wanted[i]) {
        first_different_[2] = got[i], first_different_[3] = wanted[i];
        break;
      }
  }
  errno = kept;
}

}  // namespace memoir::record

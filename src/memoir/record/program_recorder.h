// SPDX-License-Identifier: Apache-2.0
//
// Records what a program asks of malloc, as the threads ask: each thread has a walker for its stacks and an
// encoder over a block of the trace file. Called inside malloc and free: no exception, no allocation, no lock
// but for the claim of the next block, no I/O but the growth of the file. What cannot be written is counted,
// and the program goes on.
//
//   thread ---- ThreadRecord: walker, encoder ----> block ---- TraceFile
//                    |                                              (shared mapping)
//                    v shared, without locks
//               StackTables: modules, rules, nodes
//
// In a process that runs Python a stack is one of native frames, Python's and operators (mixed_stack.h).
#pragma once

#include <atomic>

#include "memoir/process/stacks/mixed_stack.h"
#include "memoir/process/stacks/stack_walker.h"
#include "memoir/record/tick_clock.h"
#include "memoir/record/trace_file.h"
#include "memoir/trace/file/block_encoder.h"

namespace memoir::record {

/// One thread's part. A thread that ends leaves it, with its half-filled block, to the next that begins.
struct ThreadRecord {
  stacks::StackWalker walker;
  stacks::MixedStack mixed;  // where stacks are mixed
  BlockEncoder encoder;
  std::byte* block;
  std::uint32_t lane, sequence, thread;
  std::uint32_t until_check;  // events until the clock is checked
  std::uint64_t tick;         // of the last event
  std::uint64_t served;       // the address that malloc gave last
  std::uint64_t dropped;      // events that found no room, not yet told
  std::uint64_t interrupted;  // events of signal handlers that interrupted this recorder, not yet told
  std::uint64_t retry;        // tick before which no other block is tried
  std::uint64_t system_id;    // the kernel's number
  char name[16];              // as it was told last
  bool busy;                  // inside the recorder: what a signal handler allocates now is only counted
  ThreadRecord* next_free;
  ThreadRecord* next;  // of all
};

/// Finds stacks another way, for `--check-stacks`: up to `most` return addresses, outwards from `first`.
using StackOracle = unsigned (*)(stacks::Frame first, stacks::Frame* frames, unsigned most);

class ProgramRecorder {
 public:
  static constexpr Size kBlock = 64 * kKiB;
  static constexpr Size kConfined = 2 * kMiB;   // the trace of a process that confined itself
  static constexpr std::uint64_t kRetry = 250;  // ticks

  /// Creates the trace of this process. False, with errno, when it cannot be created. Not thread-safe.
  /// `may_be_python`: whether to look for Python, which calls malloc where there is none.
  bool start(const char* path, const TickClock& clock, bool may_be_python = true) noexcept;
  bool is_open() const noexcept { return file_.is_open(); }
  const char* path() const noexcept { return file_.path(); }
  /// "key=value" about the recording. For the thread that starts it.
  void meta(ThreadRecord& thread, std::string_view key, std::string_view value) noexcept;

  /// The calling thread's part from now on; nullptr without memory.
  ThreadRecord* attach() noexcept;
  void detach(ThreadRecord& thread) noexcept;
  /// An event of a thread that could not be attached.
  void count_lost() noexcept { file_.count_dropped(1); }
  /// Before the process forbids itself system calls: sets room aside for what comes.
  void confine() noexcept { file_.set_aside(kConfined); }

  /// After the real call. `moved`: the second half of a realloc.
  void allocated(ThreadRecord& thread, const void* address, Size size, unsigned alignment_log2, Family family,
                 const stacks::StackWalker::Entry& entry, bool moved = false) noexcept {
    if (thread.busy) [[unlikely]] {
      ++thread.interrupted;
      return;
    }
    thread.busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const stacks::NodeId node = stack(thread, entry);
    const std::uint64_t tick = now(thread);
    const auto at = reinterpret_cast<std::uint64_t>(address);
    thread.served = at;
    if (!thread.encoder.is_open() ||
        !thread.encoder.allocate(tick, at, size, alignment_log2, family, node, moved)) [[unlikely]] {
      const bool done = next_block(thread, tick) &&
                        thread.encoder.allocate(tick, at, size, alignment_log2, family, node, moved);
      if (!done) drop(thread);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    thread.busy = false;
  }

  /// Before the real call. With `moved` it is the first half of a realloc, which undo() takes back. False
  /// when it was not written.
  bool freed(ThreadRecord& thread, const void* address, bool moved = false,
             BlockEncoder::Freed* freed = nullptr) noexcept {
    if (thread.busy) [[unlikely]] {
      ++thread.interrupted;
      return false;
    }
    thread.busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::uint64_t tick = now(thread);
    const auto at = reinterpret_cast<std::uint64_t>(address);
    bool done = true;
    if (!thread.encoder.is_open() || !thread.encoder.free(tick, at, 0, moved, false, freed)) [[unlikely]] {
      done = next_block(thread, tick) && thread.encoder.free(tick, at, 0, moved, false, freed);
      if (!done) drop(thread);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    thread.busy = false;
    return done;
  }
  /// The realloc failed. `size` is what the block still has.
  void undo(ThreadRecord& thread, const BlockEncoder::Freed& freed, const void* address, Size size,
            const stacks::StackWalker::Entry& entry) noexcept;

  /// A tensor, after malloc served it and before it is freed there: one object with that malloc.
  void tensor_begins(ThreadRecord& thread, const void* address, Size size, unsigned alignment_log2,
                     const stacks::StackWalker::Entry& entry) noexcept;
  void tensor_ends(ThreadRecord& thread, const void* address) noexcept;
  /// The thread begins an operator or the call of a module, from a function in whose frame `place` lies, or
  /// ends it.
  void scope_begins(ThreadRecord& thread, stacks::FrameKind kind, std::string_view name,
                    const void* place) noexcept;
  void scope_ends(ThreadRecord& thread) noexcept;
  /// A repetition of the program's unit of work.
  void pass(ThreadRecord& thread, std::uint64_t number, bool begins) noexcept;

  /// The program's own mmap (after the call) and munmap (before it).
  void mapped(ThreadRecord& thread, const void* address, Size size,
              const stacks::StackWalker::Entry& entry) noexcept;
  void unmapped(ThreadRecord& thread, const void* address, Size size,
                const stacks::StackWalker::Entry& entry) noexcept;

  /// Before exec, or when the program is about to end. More may follow.
  void program_ends(ThreadRecord& thread, bool by_exec, unsigned status) noexcept;
  /// A library may have been unloaded.
  void modules_changed(ThreadRecord* thread) noexcept;

  /// In a child of fork(), in its only thread: the parent's trace is left alone, its threads' parts are free.
  /// start() then begins the child's own.
  void after_fork() noexcept;

  void check_stacks(StackOracle oracle) noexcept { oracle_ = oracle; }
  struct Checked {
    std::uint64_t stacks, different;
    std::uint64_t cut;           // that end where a stack does not end by nature
    std::uint64_t in_made_code;  // that end in code made at run time
    std::uint64_t at_fibre;      // that end where the stack of a fibre does
    const std::uint64_t* first;  // of the first difference: frames, frames wanted, address, address wanted
  };
  Checked checked() const noexcept {
    return {
        checked_.load(std::memory_order_relaxed),       different_.load(std::memory_order_relaxed),
        cut_.load(std::memory_order_relaxed),           ends_in_made_code_.load(std::memory_order_relaxed),
        ends_at_fibre_.load(std::memory_order_relaxed), first_different_};
  }
  std::uint64_t threads() const noexcept { return next_thread_.load(std::memory_order_relaxed); }

 private:
  stacks::NodeId stack(ThreadRecord& thread, const stacks::StackWalker::Entry& entry) noexcept {
    const stacks::NodeId node = thread.walker.capture(entry);
    if (mixing_) return mixed_stack(thread, entry, node);
    if (thread.walker.fresh_count() != 0) [[unlikely]]
      define(thread);
    if (oracle_ != nullptr) [[unlikely]]
      compare(thread, entry, node);
    return node;
  }
  std::uint64_t now(ThreadRecord& thread) noexcept {
    const std::uint64_t tick = clock_.now();
    if (--thread.until_check == 0) [[unlikely]]
      check_clock(thread, tick);
    return thread.tick = tick < thread.tick ? thread.tick : tick;
  }
  void check_clock(ThreadRecord& thread, std::uint64_t tick) noexcept;
  bool next_block(ThreadRecord& thread, std::uint64_t tick) noexcept;
  void tell_losses(ThreadRecord& thread, std::uint64_t tick) noexcept;
  void drop(ThreadRecord& thread) noexcept;
  stacks::NodeId mixed_stack(ThreadRecord& thread, const stacks::StackWalker::Entry& entry,
                             stacks::NodeId native) noexcept;
  void define(ThreadRecord& thread) noexcept;
  void define(ThreadRecord& thread, const stacks::StackWalker::Fresh* fresh, unsigned count) noexcept;
  std::uint32_t define_frame(ThreadRecord& thread, stacks::Frame frame) noexcept;
  void define_modules(ThreadRecord& thread) noexcept;
  bool define_python_frame(ThreadRecord& thread, std::uint32_t number, stacks::Frame frame) noexcept;
  std::uint32_t define_python_text(ThreadRecord& thread, std::atomic<std::uint32_t>& string,
                                   stacks::Address text) noexcept;
  std::uint32_t define_string(ThreadRecord& thread, std::string_view text) noexcept;
  void begin_thread(ThreadRecord& thread) noexcept;
  void name_thread(ThreadRecord& thread) noexcept;
  void compare(ThreadRecord& thread, const stacks::StackWalker::Entry& entry, stacks::NodeId node) noexcept;
  template <class Write>
  bool put(ThreadRecord& thread, Write write) noexcept;
  /// A mapping that begins or ends: `write(encoder, tick, node)`.
  template <class Write>
  void put_mapping(ThreadRecord& thread, const stacks::StackWalker::Entry& entry, Write write) noexcept;

  TickClock clock_;
  TraceFile file_;
  stacks::StackTables tables_;
  stacks::MixedTables mixed_;
  bool mixing_ = false;
  stacks::NodeTable frames_;  // frame -> its number in the trace
  std::atomic<std::uint32_t> next_string_{1}, next_thread_{0}, next_lane_{0};
  std::atomic<std::uint32_t> modules_defined_{0};
  std::atomic<bool> defining_modules_{false}, list_locked_{false};
  std::atomic<bool> lost_definitions_{false};
  ThreadRecord* all_ = nullptr;
  ThreadRecord* free_ = nullptr;
  StackOracle oracle_ = nullptr;
  std::atomic<std::uint64_t> checked_{0}, different_{0}, cut_{0}, ends_in_made_code_{0}, ends_at_fibre_{0};
  std::uint64_t first_different_[4] = {};
};

}  // namespace memoir::record

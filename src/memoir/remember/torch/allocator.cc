// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/torch/allocator.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <pthread.h>

#include <bit>
#include <mutex>
#include <vector>

#include "memoir/base/fork_mutex.h"
#include "memoir/base/scope_stack.h"
#include "memoir/remember/slab/address_space.h"
#include "memoir/remember/slab/separate_memory.h"
#include "memoir/remember/slab/slab_set.h"

namespace memoir::torch_door {

namespace {

constexpr Size kAlignment = 64;  // what c10 promises of every CPU allocation (c10::gAlignment)

struct ThreadPass {
  Slab* slab = nullptr;          // follows a plan when set
  Recorder* recorder = nullptr;  // records when set
  bool large_apart = false;      // while recording: see begin_recording()
  bool scoped = false;           // operator scopes are being listened to
  bool profiled = false;         // PyTorch's memory profiler was on when the pass began
  RequestLog* log = nullptr;     // while following: is told every request
  bool logs_sites = false;       // operators were listened to from the start on: the chain of each is whole
  unsigned operators = 0;        // that were listened to
  Whereabouts where;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  ScopeStack scopes;
  ScopeStack everywhere_scopes;  // of a recording of all threads

  bool active() const noexcept { return slab != nullptr || recorder != nullptr; }
  bool is_here() const noexcept { return active() && where.is_here(); }
};
constinit thread_local ThreadPass t_pass;

std::unique_ptr<at::ObserverContext> enter_scope(const at::RecordFunction& function) {
  if (t_pass.is_here()) {
    ++t_pass.operators;
    t_pass.scopes.enter(function.name());
  }
  return nullptr;
}

void leave_scope(const at::RecordFunction&, at::ObserverContext*) {
  if (t_pass.is_here()) t_pass.scopes.leave();
}

void listen_to_scopes(ThreadPass& pass) {
  pass.scopes.clear();
  pass.scoped = true;
  pass.callback =
      at::addThreadLocalCallback(at::RecordFunctionCallback(enter_scope, leave_scope)
                                     .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                              at::RecordScope::TORCHSCRIPT_FUNCTION}));
}

void stop_listening(ThreadPass& pass) noexcept {
  if (!pass.scoped) return;
  at::removeCallback(pass.callback);
  pass.callback = at::INVALID_CALLBACK_HANDLE;
  pass.scoped = false;
}

// The recordings in progress. A thread that frees may be any, so the list is locked; the counter spares the
// lock to every free outside of recordings.
struct Recordings {
  ForkMutex mutex{[](void* recordings) noexcept { static_cast<Recordings*>(recordings)->after_fork(); },
                  this};
  std::vector<Recorder*> passes;   // each of one thread's pass
  Recorder* everywhere = nullptr;  // of all threads, in passes or not

  /// In the child of a fork(): those of other threads never end, and a file is its process's.
  void after_fork() noexcept;
};
std::atomic<int> g_recordings{0};
std::atomic<const ProgramRecording*> g_program{nullptr};  // of malloc and all: told apart from those

bool is_told() noexcept {
  const int recordings = g_recordings.load(std::memory_order_relaxed);
  const ProgramRecording* const program = g_program.load(std::memory_order_relaxed);
  return recordings != 0 || program != nullptr;
}

Recordings& recordings() {
  static Recordings* const all = new Recordings;  // outlives every free
  return *all;
}

void Recordings::after_fork() noexcept {
  std::erase_if(passes, [](const Recorder* recorder) { return recorder != t_pass.recorder; });
  everywhere = nullptr;
  g_recordings.store(static_cast<int>(passes.size()), std::memory_order_relaxed);
}

/// `planned`: a slab serves it, which no recording of another thread's pass takes for its own.
void tell_allocated(const void* pointer, Size size, bool planned) {
  if (const ProgramRecording* const program = g_program.load(std::memory_order_relaxed)) {
    program->tensor_begins(pointer, size, std::countr_zero(kAlignment));
    if (g_recordings.load(std::memory_order_relaxed) == 0) return;
  }
  ThreadPass& pass = t_pass;
  const std::lock_guard lock(recordings().mutex);
  if (recordings().everywhere != nullptr) {
    recordings().everywhere->allocated(pointer, size, kAlignment, &pass.everywhere_scopes);
  }
  if (pass.recorder != nullptr) {
    if (pass.where.is_here()) pass.recorder->allocated(pointer, size, kAlignment, &pass.scopes);
    return;
  }
  if (planned || pass.slab != nullptr) return;  // other threads do not plan what its plan does not serve
  const auto& passes = recordings().passes;
  if (passes.size() == 1) passes[0]->allocated(pointer, size, kAlignment, nullptr);
}

void tell_freed(const void* pointer) {
  if (const ProgramRecording* const program = g_program.load(std::memory_order_relaxed)) {
    program->tensor_ends(pointer);
    if (g_recordings.load(std::memory_order_relaxed) == 0) return;
  }
  const std::lock_guard lock(recordings().mutex);
  if (recordings().everywhere != nullptr) recordings().everywhere->freed(pointer);
  for (Recorder* recorder : recordings().passes) {
    if (recorder->freed(pointer)) return;
  }
}

std::unique_ptr<at::ObserverContext> enter_scope_everywhere(const at::RecordFunction& function) {
  t_pass.everywhere_scopes.enter(function.name());
  return nullptr;
}

void leave_scope_everywhere(const at::RecordFunction&, at::ObserverContext*) {
  t_pass.everywhere_scopes.leave();
}

/// Of a function whose frame holds the RecordFunction.
std::unique_ptr<at::ObserverContext> enter_scope_of_program(const at::RecordFunction& function) {
  g_program.load(std::memory_order_relaxed)->operator_begins(function.name(), &function);
  return nullptr;
}

void leave_scope_of_program(const at::RecordFunction&, at::ObserverContext*) {
  g_program.load(std::memory_order_relaxed)->operator_ends();
}

at::CallbackHandle g_everywhere_callback = at::INVALID_CALLBACK_HANDLE;

// PyTorch's own allocator and its deleter, and the slabs' address space: set once by install().
c10::Allocator* g_forward = nullptr;
c10::DeleterFnPtr g_forward_deleter = nullptr;
const AddressSpace* g_space = nullptr;

void deallocate(void* pointer) {
  if (is_told()) [[unlikely]] {
    tell_freed(pointer);
  }
  if (g_space->contains(pointer)) {
    Slab* const held = t_pass.slab;
    if (held != nullptr && held->contains(pointer)) [[likely]] {
      if (t_pass.profiled) [[unlikely]]
        c10::profiledCPUMemoryReporter().Delete(pointer);
      held->free_held(pointer);
    } else {
      if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().Delete(pointer);
      g_space->owner_of(pointer)->free_from_elsewhere(pointer);
    }
    return;
  }
  g_forward_deleter(pointer);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    ThreadPass& pass = t_pass;
    if (pass.slab != nullptr && pass.where.is_here()) {
      const SiteId site = pass.scoped ? pass.scopes.site() : kNoSite;
      if (pass.log != nullptr && size != 0) [[unlikely]]  // recordings have none of 0 bytes either
        pass.log->push_back({size, pass.logs_sites ? site : kNoSite});
      if (void* const pointer = pass.slab->allocate({size, kAlignment, site})) [[likely]] {
        if (pass.profiled) [[unlikely]]
          c10::profiledCPUMemoryReporter().New(pointer, size);
        if (is_told()) [[unlikely]]
          tell_allocated(pointer, size, true);
        return {pointer, pointer, &deallocate, c10::Device(c10::DeviceType::CPU)};
      }
      if (!pass.scoped && !pass.slab->heap().in_step()) listen_to_scopes(pass);
    }
    return forward(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &deallocate; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    g_forward->copy_data(destination, source, count);
  }

 private:
  // Every tensor carries one and the same deleter, so that PyTorch's raw_deleter() contract holds whoever
  // served it.
  c10::DataPtr forward(size_t size) {
    if (t_pass.large_apart && size >= SeparateMemory::kLeast && t_pass.where.is_here()) [[unlikely]] {
      if (void* const pointer = SeparateMemory::instance().allocate(size)) {
        if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().New(pointer, size);
        tell_allocated(pointer, size, false);
        return {pointer, pointer, &deallocate, c10::Device(c10::DeviceType::CPU)};
      }
    }
    c10::DataPtr data = take_from_pytorch(size);
    if (data.get_context() != data.get() || !data.compare_exchange_deleter(g_forward_deleter, &deallocate))
      return data;
    if (is_told() && data.get() != nullptr) [[unlikely]] {
      tell_allocated(data.get(), size, false);
    }
    return data;
  }
  // What slabs hold idle is memory that the program would have had without them.
  static c10::DataPtr take_from_pytorch(size_t size) {
    try {
      return g_forward->allocate(size);
    } catch (...) {
      if (!SlabSet::retire_idle_of_all()) throw;
    }
    return g_forward->allocate(size);
  }
};

}  // namespace

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    recordings();
    g_space = &AddressSpace::instance();
    g_forward = c10::GetCPUAllocator();
    g_forward_deleter = g_forward->raw_deleter();
    static Allocator* const allocator = new Allocator;  // outlives every tensor
    c10::SetCPUAllocator(allocator, /*priority=*/100);
  });
}

bool in_pass() noexcept { return t_pass.active(); }

namespace {

/// The stack that the thread began with: [low, high).
struct OwnStack {
  std::uintptr_t low = 0, high = ~std::uintptr_t{0};  // where the system does not say: all there is

  OwnStack() noexcept {
    pthread_attr_t attributes;
    if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return;
    void* begin = nullptr;
    size_t size = 0;
    if (::pthread_attr_getstack(&attributes, &begin, &size) == 0 && size != 0) {
      low = reinterpret_cast<std::uintptr_t>(begin);
      high = low + size;
    }
    ::pthread_attr_destroy(&attributes);
  }
};

}  // namespace

std::optional<Whereabouts> Whereabouts::of(const void* frame, const void* const* list) noexcept {
  static thread_local const OwnStack stack;
  Whereabouts where;
  where.lowest = stack.low;
  where.frame = reinterpret_cast<std::uintptr_t>(frame);
  if (where.frame < stack.low || where.frame >= stack.high) return std::nullopt;
  where.list = list;
  if (list != nullptr) {
    where.seen = *list;
    where.last = last_of(*list);
  }
  return where;
}

namespace {

/// Of a thread that listens to operators; it does no more when this throws.
void record_into(Recorder& recorder) {
  const std::lock_guard lock(recordings().mutex);
  try {
    recordings().passes.push_back(&recorder);
  } catch (...) {
    stop_listening(t_pass);
    throw;
  }
  g_recordings.fetch_add(1, std::memory_order_relaxed);
  t_pass.recorder = &recorder;
}

}  // namespace

void begin_recording(Recorder& recorder, bool large_apart, const Whereabouts& where) {
  t_pass.where = where;
  t_pass.operators = 0;
  listen_to_scopes(t_pass);
  record_into(recorder);
  t_pass.large_apart = large_apart;
}

unsigned end_recording() noexcept {
  Recorder* const recorder = std::exchange(t_pass.recorder, nullptr);
  t_pass.large_apart = false;
  stop_listening(t_pass);
  const std::lock_guard lock(recordings().mutex);
  if (std::erase(recordings().passes, recorder) != 0) g_recordings.fetch_sub(1, std::memory_order_relaxed);
  return t_pass.operators;
}

bool begin_recording_everywhere(Recorder& recorder) {
  const std::lock_guard lock(recordings().mutex);
  if (recordings().everywhere != nullptr) return false;
  recordings().everywhere = &recorder;
  g_recordings.fetch_add(1, std::memory_order_relaxed);
  if (g_everywhere_callback ==
      at::INVALID_CALLBACK_HANDLE) {  // else that of the process that this one was forked from
    g_everywhere_callback =
        at::addGlobalCallback(at::RecordFunctionCallback(enter_scope_everywhere, leave_scope_everywhere)
                                  .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                           at::RecordScope::TORCHSCRIPT_FUNCTION}));
  }
  return true;
}

void end_recording_everywhere(const Recorder& recorder) noexcept {
  const std::lock_guard lock(recordings().mutex);
  if (recordings().everywhere != &recorder) return;  // of another process
  recordings().everywhere = nullptr;
  g_recordings.fetch_sub(1, std::memory_order_relaxed);
  at::removeCallback(g_everywhere_callback);
  g_everywhere_callback = at::INVALID_CALLBACK_HANDLE;
}

bool tell_program_recording(const ProgramRecording& recording) {
  const std::lock_guard lock(recordings().mutex);
  if (recordings().everywhere != nullptr) return false;
  if (g_program.exchange(&recording, std::memory_order_relaxed) != nullptr) return true;
  at::addGlobalCallback(at::RecordFunctionCallback(enter_scope_of_program, leave_scope_of_program)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                     at::RecordScope::TORCHSCRIPT_FUNCTION}));
  return true;
}

void begin_planned(Slab& slab, bool scoped, RequestLog* log, Recorder* recorder, const Whereabouts& where) {
  t_pass.where = where;
  t_pass.operators = 0;
  if (scoped || recorder != nullptr) listen_to_scopes(t_pass);
  if (recorder != nullptr) record_into(*recorder);
  t_pass.log = log;
  t_pass.logs_sites = t_pass.scoped;
  t_pass.profiled = c10::memoryProfilingEnabled();
  t_pass.slab = &slab;
}

PassResult end_planned() noexcept {
  Slab* const slab = std::exchange(t_pass.slab, nullptr);
  t_pass.log = nullptr;
  if (t_pass.recorder != nullptr) end_recording();
  stop_listening(t_pass);
  return {slab->heap().counters(), slab->heap().in_step(), slab->heap().at_end(), t_pass.operators};
}

}  // namespace memoir::torch_door

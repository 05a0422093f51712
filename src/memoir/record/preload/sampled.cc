// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/preload/sampled.h"

#include <errno.h>
#include <pthread.h>

#include "memoir/process/control/control_page.h"
#include "memoir/process/stacks/thread_stack.h"

// The C++ library's, where the program has one.
extern "C" {
__attribute__((weak)) void* _Znwm(std::size_t);
__attribute__((weak)) void* _Znam(std::size_t);
__attribute__((weak)) void* _ZnwmRKSt9nothrow_t(std::size_t, const void*);
__attribute__((weak)) void* _ZnamRKSt9nothrow_t(std::size_t, const void*);
__attribute__((weak)) void* _ZnwmSt11align_val_t(std::size_t, std::size_t);
__attribute__((weak)) void* _ZnamSt11align_val_t(std::size_t, std::size_t);
}

namespace memoir::record {

namespace {

void* const kNewFunctions[] = {
    reinterpret_cast<void*>(&_Znwm),
    reinterpret_cast<void*>(&_Znam),
    reinterpret_cast<void*>(&_ZnwmRKSt9nothrow_t),
    reinterpret_cast<void*>(&_ZnamRKSt9nothrow_t),
    reinterpret_cast<void*>(&_ZnwmSt11align_val_t),
    reinterpret_cast<void*>(&_ZnamSt11align_val_t),
};

constinit stacks::StackTables tables;
// Under the sampler's lock. All zero until it starts, as its owners elsewhere map it.
alignas(stacks::StackWalker) constinit char walker_memory[sizeof(stacks::StackWalker)] = {};
pthread_key_t key;
bool have_key = false, have_tables = false;

/// Whether that return address is in one of the C++ library's functions that ask malloc for a program's new.
/// They are short, and stand together.
bool asks_for_new(stacks::Address address) noexcept {
  constexpr stacks::Address kLongest = 256;
  for (const void* const function : kNewFunctions) {
    const auto begin = reinterpret_cast<stacks::Address>(function);
    if (begin != 0 && address - begin < kLongest) return true;
  }
  return false;
}

/// The place of the return address into the code that asks for memory, beyond `operator new`: what the height
/// of a context counts from. A malloc that has a `new` of its own is called from there.
stacks::Address slot_of_call(const stacks::StackWalker& walker, const stacks::StackWalker::Entry& entry,
                             const SampledStack& stack) noexcept {
  unsigned inner = 0;
  while (inner < stack.count && inner < 3 && asks_for_new(stack.frames[inner])) ++inner;
  const stacks::Address slot = inner == 0 ? 0 : walker.last_slot(inner);
  return slot == 0 ? entry.slot : slot;
}

// Under the sampler's lock: of the process's threads but the main one; 0 until a whole stack of one was seen.
constinit stacks::Address above_frames = 0;

/// Bytes of the calling thread's stack in use at `slot`; 0: not known.
Size height_at(stacks::Address slot, const stacks::ThreadStack& own, stacks::Address outermost) noexcept {
  if (slot >= own.end || slot < own.begin) return 0;
  if (own.end != reinterpret_cast<stacks::Address>(__builtin_thread_pointer())) return own.end - slot;
  // A stack that could not be followed to its end is too long, never too short.
  const stacks::Address above = outermost == 0 ? 0 : stacks::pointer_above_frames(outermost);
  if (above != 0 && (above_frames == 0 || above < above_frames)) above_frames = above;
  const stacks::Address height = own.end - slot;
  return above_frames != 0 && height > above_frames ? height - above_frames : 0;
}

/// Where the calling thread's stack is; asked once.
__thread stacks::ThreadStack own_stack __attribute__((tls_model("initial-exec")));

void find_stack(const void* data, SampledStack& stack) noexcept {
  const auto& entry = *static_cast<const stacks::StackWalker::Entry*>(data);
  auto& walker = *reinterpret_cast<stacks::StackWalker*>(walker_memory);
  walker.start(tables, own_stack.begin, own_stack.end);
  walker.capture(entry);
  stacks::Frame frames[stacks::StackWalker::kMost + 2];
  const unsigned count = walker.last_frames(frames);
  for (unsigned i = 0; i < count && stack.count < SampledStack::kMost; ++i) {
    if (stacks::kind_of(frames[i]) == stacks::FrameKind::kNative) stack.frames[stack.count++] = frames[i];
    else stack.cut = stack.cut || stacks::kind_of(frames[i]) == stacks::FrameKind::kCut;
  }
  const stacks::Address slot = slot_of_call(walker, entry, stack);
  const bool is_whole = count > 0 && stacks::kind_of(frames[count - 1]) == stacks::FrameKind::kNative;
  stack.height = height_at(slot, own_stack, is_whole ? walker.last_slot(count - 1) : 0);
}

void thread_ends(void*) {
  if (mode() == Mode::kSampled) sampler.thread_ended(sampler_thread);
}

class Inside {
 public:
  Inside() noexcept : errno_(errno) { ++thread_state.inside; }
  ~Inside() {
    --thread_state.inside;
    errno = errno_;
  }

 private:
  int errno_;
};

}  // namespace

constinit Sampler sampler;
__thread SamplerThread sampler_thread __attribute__((tls_model("initial-exec")));

void Sampled::sample(const void* block, std::size_t size, const Entry& entry) noexcept {
  if (thread_state.inside != 0) return;
  const Inside inside;
  if (sampler_thread.period != sampler.period()) {  // its first one
    if (own_stack.end == 0) own_stack = stacks::find_thread_stack();
    if (have_key && !thread_state.ended) pthread_setspecific(key, &sampler_thread);
  }
  sampler.allocated(sampler_thread, block, size, &entry);
}

void* Sampled::reallocated(void* block, std::size_t size, const Entry& entry) noexcept {
  const bool ask = maybe(block) && thread_state.inside == 0;
  const Sampler::Taken taken = ask ? sampler.take_out(sampler_thread, block) : Sampler::Taken{};
  void* const moved = real.realloc(block, size);
  if (moved == nullptr) {
    sampler.put_back(sampler_thread, block, taken);
    not_allocated(size);
    return nullptr;
  }
  sampler.finish(sampler_thread, taken);
  allocated(moved, size, 4, Family::kMalloc, entry);
  return moved;
}

int start_sampling(Size every) noexcept {
  if (!have_tables) {
    if (!tables.start()) return ENOMEM;
    have_tables = true;
    have_key = pthread_key_create(&key, thread_ends) == 0;
  }
  void* const image = host_control::map_image(sample_image::kSize);
  if (image == nullptr) return ENOMEM;
  sampler.stop();
  return sampler.start(image, &host_control::take_image, nullptr, &find_stack, {.every = every}) ? 0 : ENOSPC;
}

void stop_sampling() noexcept { sampler.stop(); }

void tell_samples(bool last) noexcept {
  sampler.thread_ended(sampler_thread);
  if (last) sampler.stop();
  else sampler.tell_time();
}

void forget_samples() noexcept {
  sampler.forget();
  sampler_thread.period = 0;
  if (have_tables) tables.after_fork();
}

/// A library may have been unloaded.
void Sampled::modules_changed() noexcept {
  if (have_tables) tables.look_for_unloaded();
  sampler.modules_changed();
}

}  // namespace memoir::record

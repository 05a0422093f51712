// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/python_frames.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace memoir::stacks {

namespace {

constexpr unsigned kMostWalked = 100'000;
constexpr std::uint8_t kOfCStack = 3;  // who owns a frame, from 3.12 on

template <class T>
T load(Address at) noexcept {
  return *reinterpret_cast<const volatile T*>(at);
}

/// Where a frame is in its code.
Address instruction_of(const PythonLayout& layout, Address frame) noexcept {
  return layout.minor == 10 ? load<std::uint32_t>(frame + layout.frame_instruction)
                            : load<Address>(frame + layout.frame_instruction);
}

/// The place of the C function that runs the next frames out of those at `place` (before 3.12); 0: none.
Address outer_place(const PythonLayout& layout, Address place) noexcept {
  const Address outer = load<Address>(place + layout.c_frame_previous);
  return outer > place ? outer : 0;  // the thread state's own stands elsewhere
}

/// Where the innermost frame is said to be; 0: nowhere.
Address innermost(const PythonLayout& layout, Address state, Address& c_frame) noexcept {
  c_frame = layout.state_c_frame == 0 ? 0 : load<Address>(state + layout.state_c_frame);
  if (layout.minor == 10 || layout.minor == 13) return load<Address>(state + layout.state_frame);
  return c_frame == 0 ? 0 : load<Address>(c_frame + layout.c_frame_current);
}

/// Reads that cannot fault, for the trials.
class Kernel {
 public:
  template <class T>
  bool read(Address at, T& value) noexcept {
    const iovec here{&value, sizeof value}, there{reinterpret_cast<void*>(at), sizeof value};
    return ::syscall(SYS_process_vm_readv, ::getpid(), &here, 1, &there, 1, 0) == sizeof value;
  }
};

/// Whether a chain is what the layout says: its frames have code objects, and it ends.
bool is_as_told(const PythonLayout& layout, Address state) noexcept {
  Kernel kernel;
  Address c_frame = 0, frame = 0;
  if (layout.state_c_frame != 0 && !kernel.read(state + layout.state_c_frame, c_frame)) return false;
  if (layout.minor == 10 || layout.minor == 13) {
    if (!kernel.read(state + layout.state_frame, frame)) return false;
  } else if (c_frame != 0 && !kernel.read(c_frame + layout.c_frame_current, frame)) {
    return false;
  }
  for (unsigned i = 0; frame != 0; ++i) {
    Address code = 0, type = 0, next = 0;
    std::uint8_t mark = 0;
    if (i == 1000 || frame % 8 != 0) return i == 1000;
    if (!kernel.read(frame + layout.frame_previous, next)) return false;
    if (layout.frame_mark != 0 && (!kernel.read(frame + layout.frame_mark, mark) || mark > kOfCStack))
      return false;
    if (!(layout.minor >= 12 && mark == kOfCStack)) {
      if (!kernel.read(frame + layout.frame_code, code) || !kernel.read(code + 8, type)) return false;
      if (type != layout.code_type) return false;
    }
    frame = next;
  }
  return true;
}

CodeTable* watched = nullptr;
void (*free_code)(void*) = nullptr;

void code_dies(void* code) {
  watched->remove(reinterpret_cast<Address>(code));
  free_code(code);
}

}  // namespace

void watch_codes(Python& python) noexcept {
  if (watched != nullptr) return;
  auto* const deallocator =
      reinterpret_cast<void (**)(void*)>(python.layout.code_type + python.layout.type_dealloc);
  if (*deallocator == nullptr) {  // it does not say what it would call
    python.layout.minor = 0;
    return;
  }
  watched = &python.codes;
  free_code = *deallocator;
  void (*const ours)(void*) = code_dies;
  __atomic_store(deallocator, const_cast<void (**)(void*)>(&ours), __ATOMIC_RELEASE);
}

/// Of the frames seen last the first one, from `index` outwards, that does not stand as it stood; kNone: all
/// do. `frame`, `place`: what is there now.
unsigned PythonFrames::first_changed(const PythonLayout& layout, unsigned index, Address frame,
                                     Address place) const noexcept {
  for (unsigned i = index;; --i) {
    const Seen& seen = seen_[i];
    if (seen.frame != frame) return i;
    Address at = seen.frame;
    asm("" : "+r"(at));  // the loads below need not wait for the one that gave `frame`, which is the same
    if (seen.instruction != instruction_of(layout, at)) return i;
    if (layout.frame_mark != 0 && seen.mark != load<std::uint8_t>(at + layout.frame_mark)) return i;
    if (layout.minor < 12) {
      if (seen.place != place) return i;
      if (layout.minor == 10 || seen.mark != 0) place = outer_place(layout, place);
      if (layout.minor == 10 && seen.code != load<Address>(at + layout.frame_code)) return i;
    }
    frame = load<Address>(at + layout.frame_previous);
    if (i == 0) break;
  }
  return frame == 0 || cut_ ? kNone : 0;  // outside of a cut nothing is said
}

/// Reads the chain into found_, as far as it is not the one seen last. False where it cannot be.
bool PythonFrames::read(const Python& python, Address state, Address from, Address to) noexcept {
  const PythonLayout& layout = python.layout;
  const auto on_stack = [&](Address at) { return at > from && at < to && at % 8 == 0; };
  Address c_frame = 0, place = from;
  Address frame = innermost(layout, state, c_frame);
  constexpr unsigned kNear = 16;  // frames that are given up at a time
  found_count_ = 0;
  standing_ = 0;
  found_cut_ = false;
  if (layout.minor < 12) place = c_frame;
  unsigned may_stand = cut_ ? 0 : depth_;
  for (unsigned i = 0; frame != 0 && i < kMostWalked; ++i) {
    unsigned at = may_stand;
    while (at > 0 && may_stand - at < kNear && seen_[at - 1].frame != frame) --at;
    if (at > 0 && seen_[at - 1].frame == frame && seen_[at - 1].place > from) {
      may_stand = first_changed(layout, at - 1, frame, place);
      if (may_stand == kNone && found_count_ + at <= kMost) {
        standing_ = at;
        if (layout.minor < 12) return true;
        for (unsigned inner = found_count_; inner-- > 0 && found_[inner].code != 0;)
          found_[inner].place = seen_[at - 1].place;
        return true;
      }
      if (may_stand == kNone) may_stand = 0;
    }
    if (found_count_ == kMost) {
      found_cut_ = true;
      if (layout.minor < 12) break;
      // Where the outermost of those kept are run is said further out.
      if (load<std::uint8_t>(frame + layout.frame_mark) == kOfCStack) {
        for (unsigned inner = found_count_; inner-- > 0 && found_[inner].code != 0;)
          found_[inner].place = frame;
        break;
      }
      frame = load<Address>(frame + layout.frame_previous);
      continue;
    }
    Found& found = found_[found_count_];
    found = {frame, 0, load<Address>(frame + layout.frame_code), place, 0};
    found.instruction = instruction_of(layout, frame);
    if (layout.frame_mark != 0) found.mark = load<std::uint8_t>(frame + layout.frame_mark);
    if (layout.minor >= 12 && found.mark == kOfCStack) {
      if (!on_stack(frame)) return false;
      found.code = 0;
      // It lies in the frame of the function that runs those found since the last such.
      for (unsigned inner = found_count_; inner-- > 0 && found_[inner].code != 0;)
        found_[inner].place = frame;
      found.place = frame;
    } else {
      if (load<Address>(found.code + 8) != layout.code_type) return false;
      if (layout.minor < 12) {
        if (!on_stack(place)) return found_count_ > 0;  // the state's own: no C function runs it
        if (layout.minor == 10 || found.mark != 0) {    // the next one is another C function's
          place = outer_place(layout, place);
        }
      }
    }
    ++found_count_;
    frame = load<Address>(frame + layout.frame_previous);
  }
  return true;
}

/// Makes found_ what is remembered.
NodeId PythonFrames::keep(Python& python, NodeTable& keys) noexcept {
  const PythonLayout& layout = python.layout;
  unsigned kept = standing_;  // frames, from the outermost on, that are the same
  if (kept == 0 && found_cut_ == cut_) {
    const unsigned most = found_count_ < depth_ ? found_count_ : depth_;
    for (; kept < most; ++kept) {
      const Found& found = found_[found_count_ - 1 - kept];
      const Seen& seen = seen_[kept];
      if (found.frame != seen.frame || found.instruction != seen.instruction || found.code != seen.code ||
          found.mark != seen.mark || found.place != seen.place)
        break;
    }
  }
  cut_ = found_cut_;
  Node node;
  if (kept != 0) node = seen_[kept - 1].node;
  else if (cut_) keys.intern(node, cut_frame(Cut::kTooManyPython));
  const unsigned count = standing_ + found_count_;
  for (depth_ = kept; depth_ < count; ++depth_) {
    const Found& found = found_[count - 1 - depth_];
    Seen& seen = seen_[depth_];
    seen.frame = found.frame;
    seen.instruction = found.instruction;
    seen.code = found.code;
    seen.place = found.place;
    seen.mark = found.mark;
    if (found.code == 0) {
      seen.shown = special_frame(FrameKind::kPython, 0);
    } else {
      std::int64_t instruction;
      if (layout.minor == 10) {
        instruction = static_cast<std::int32_t>(found.instruction);
      } else {
        const Address first = found.code + layout.code_instructions;
        instruction = (static_cast<std::int64_t>(found.instruction - first)) / 2;
        if (found.instruction < first) instruction = -1;
      }
      seen.shown = python.codes.frame(layout, found.code, instruction);
    }
    keys.intern(node, seen.shown);
    // The start of a C function's frames is part of what is compared.
    if (layout.minor == 11 && seen.mark != 0) keys.intern(node, special_frame(FrameKind::kPython, 0));
    seen.node = node;
  }
  return depth_ == 0 ? 0 : seen_[depth_ - 1].node.id;
}

NodeId PythonFrames::capture(Python& python, Address from, Address to, NodeTable& keys) noexcept {
  const PythonLayout& layout = python.layout;
  const Address state = layout.thread_state();
  if (state == 0 || from == 0) {
    depth_ = 0;
    return 0;
  }
  // Once the interpreter ends, it frees the states of other threads under their feet.
  const Address ends = load<Address>(layout.finalizing);
  if (ends != 0 && ends != state) {
    depth_ = 0;
    return 0;
  }
  int trials = python.trials.load(std::memory_order_relaxed);
  if (trials != 0) [[unlikely]] {
    if (trials < 0) return 0;
    if (!is_as_told(layout, state)) {
      python.trials.store(-1, std::memory_order_relaxed);
      return 0;
    }
    python.trials.compare_exchange_strong(trials, trials - 1, std::memory_order_relaxed);
  }
  Address c_frame = 0;
  const Address first = innermost(layout, state, c_frame);
  if (first == 0) {
    depth_ = 0;
    return 0;
  }
  const std::uint32_t removals = python.codes.removals();
  if (removals != removals_) depth_ = 0;
  removals_ = removals;
  if (depth_ != 0 && seen_[depth_ - 1].frame == first && seen_[depth_ - 1].place > from &&
      first_changed(layout, depth_ - 1, first, c_frame) == kNone)
    return seen_[depth_ - 1].node.id;
  if (!read(python, state, from, to)) {
    depth_ = 0;
    return 0;
  }
  return keep(python, keys);
}

}  // namespace memoir::stacks

// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/stack_walker.h"

#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memoir/base/system_calls.h"

namespace memoir::stacks {

namespace {

// Other functions' frames are read here, which sanitizers take for a mistake.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif
inline Address
load(Address at) noexcept {
  return *reinterpret_cast<const volatile Address*>(at);
}

}  // namespace

unsigned StackWalker::holds(unsigned count) const noexcept {
  unsigned valid = count;  // frames from this one inwards hold
  while (valid >= 4) {
    const Address* const slot = slots_ + valid;
    const Address* const wanted = returns_ + valid;
    const Address differs = (load(slot[-1]) ^ wanted[-1]) | (load(slot[-2]) ^ wanted[-2]) |
                            (load(slot[-3]) ^ wanted[-3]) | (load(slot[-4]) ^ wanted[-4]);
    if (differs != 0) break;
    valid -= 4;
  }
  while (valid > 0 && load(slots_[valid - 1]) == returns_[valid - 1]) --valid;
  for (unsigned i = dependency_count_; i-- > 0;) {
    const Dependency& dependency = dependencies_[i];
    if (dependency.reader >= count) continue;
    if (dependency.valid <= valid) break;
    if (load(dependency.slot) != dependency.value) {
      valid = dependency.valid;
      break;
    }
  }
  return count - valid;
}

inline void StackWalker::intern(Node& node, Frame frame) noexcept {
  const NodeId caller = node.id;
  if (tables_->nodes().intern(node, frame & kFrameMask)) [[unlikely]] {
    if (fresh_count_ < sizeof fresh_ / sizeof fresh_[0])
      fresh_[fresh_count_++] = {node.id, caller, frame & kFrameMask};
  }
}

void StackWalker::depend(const Dependency& dependency) noexcept {
  // One too many is remembered as such, see place().
  if (dependency_count_ < kMostDependencies) dependencies_[dependency_count_] = dependency;
  ++dependency_count_;
}

void StackWalker::root(Frame frame) noexcept {
  root_frame_ = frame;
  root_ = {};
  if (frame != 0) intern(root_, frame);
}

void StackWalker::step(const Info& from, Address slot, Address pc, Step& next) const noexcept {
  const UnwindRule rule = tables_->rule(pc);
  next.result = Step::Result::kCaller;
  next.why = Cut::kBroken;
  next.rbp = from.rbp;
  next.rbp_source = from.rbp_source;
  next.cfa_at = 0;
  next.reads_rbp = next.restores = false;
  const auto inside = [&](Address at) { return at > slot && at <= end_ - 8 && at % 8 == 0; };
  Address cfa = 0;
  switch (rule.cfa) {
    case CfaKind::kFromRsp:
      cfa = slot + 8 + static_cast<Address>(std::int64_t{rule.cfa_offset});
      break;
    case CfaKind::kFromRbp:
      cfa = from.rbp + static_cast<Address>(std::int64_t{rule.cfa_offset});
      next.reads_rbp = true;
      break;
    case CfaKind::kIndirect: {
      const Address at = from.rbp + static_cast<Address>(std::int64_t{rule.cfa_offset});
      next.reads_rbp = true;
      if (!inside(at)) {
        next.result = Step::Result::kCut;
        return;
      }
      next.cfa_at = at;
      cfa = load(at);
      break;
    }
    case CfaKind::kSignal:
      next.result = Step::Result::kElsewhere;
      return;
    case CfaKind::kOutermost:
      next.result = Step::Result::kOutermost;
      return;
    case CfaKind::kUncovered:
      step_by_pointer(slot, pc, next);
      return;
    case CfaKind::kUnknown:
      next.result = Step::Result::kCut;
      next.why = Cut::kOddTable;
      return;
  }
  next.slot = cfa - 8;
  if (!inside(next.slot)) {
    next.result = Step::Result::kCut;
    return;
  }
  if (rule.rbp != RbpKind::kSame) {
    const Address base = rule.rbp == RbpKind::kAtCfa ? cfa : from.rbp;
    next.rbp_source = base + static_cast<Address>(std::int64_t{rule.rbp_offset} * 8);
    next.restores = true;
    next.reads_rbp |= rule.rbp == RbpKind::kAtRbp;
    if (!inside(next.rbp_source)) {
      next.result = Step::Result::kCut;
      return;
    }
    next.rbp = load(next.rbp_source);
  }
}

/// A step from code that no table covers. `next` holds what is known of the frame at `slot`, rbp among it.
__attribute__((noinline, cold)) void StackWalker::step_by_pointer(Address slot, Address pc,
                                                                  Step& next) const noexcept {
  constexpr Address kMostLooked = 64 * 8;  // bytes
  const Address frame = next.rbp;
  next.reads_rbp = true;
  if (frame == 0) {
    next.result = Step::Result::kOutermost;
    return;
  }
  next.result = Step::Result::kCut;
  next.why = tables_->is_made(pc) ? Cut::kMadeCode : Cut::kNoTable;
  if (frame % 8 != 0) return;
  if (frame <= slot || frame > end_ - 16) {
    // A language with stacks of its own: its code runs on one, and calls on the thread's.
    if (frame < begin_ || frame >= end_) next.result = Step::Result::kElsewhere;
    return;
  }
  Address target = 0, function = 0;
  const StackTables::Call call = tables_->call_before(load(frame + 8), target);
  if (call == StackTables::Call::kNone) {
    if (load(frame) == 0) next.result = Step::Result::kOutermost;  // as where a thread or a fibre begins
    return;
  }
  if (call == StackTables::Call::kDirect) function = tables_->function_at(target);
  if (function == 0) {
    next.result = Step::Result::kCaller;
    next.slot = frame + 8;
    next.rbp_source = frame;
    next.rbp = load(frame);
    next.restores = true;
    return;
  }
  // The frame is that of this function, which called code that keeps none: the place of that call is on the
  // stack before it.
  Address found = 0;
  for (Address at = slot + 8; at < frame && at - slot < kMostLooked; at += 8) {
    const Address word = load(at);
    if (tables_->function_at(word - 1) != function) continue;
    if (tables_->call_before(word, target) != StackTables::Call::kIndirect) continue;
    const UnwindRule rule = tables_->rule(word - 1);
    if (rule.cfa != CfaKind::kFromRbp || rule.cfa_offset != 16) continue;
    if (found != 0) return;  // which of the two?
    found = at;
  }
  if (found == 0) return;
  next.result = Step::Result::kCaller;
  next.slot = found;
}

NodeId StackWalker::walk(const Entry& entry) noexcept {
  ++walks_;
  inner_ = careful_ = 0;
  if (const std::uint32_t epoch = tables_->epoch(); epoch != epoch_) {
    epoch_ = epoch;
    depth_ = dependency_count_ = 0;
    deep_ = false;
    cache_.clear();
  }
  if (entry.slot < begin_ || entry.slot >= end_) return walk_carefully(entry);
  unsigned kept = depth_;
  unsigned count = 0;
  Step next{Step::Result::kCaller, {}, entry.slot, entry.rbp, 0, 0, false, false};
  for (;;) {
    const Address slot = next.slot, address = load(slot);
    while (kept > 0 && slots_[kept - 1] < slot) --kept;
    if (address == 0) {
      next.result = Step::Result::kOutermost;
    } else {
      const bool meets = kept > 0 && slots_[kept - 1] == slot && returns_[kept - 1] == address &&
                         !(infos_[kept - 1].needs_rbp && infos_[kept - 1].rbp != next.rbp);
      const unsigned held = meets ? holds(kept) : 0;
      if (count == kMost) return walk_to_the_end(count, next);
      if (deep_ && !meets && count == kEnd && kept == depth_ && holds(kept) == kept) {
        inner_ = count;
        return above_the_gap();
      }
      new_slots_[count] = slot;
      new_returns_[count] = address;
      new_infos_[count] = {next.rbp, next.rbp_source, 0, {}, false, false, false};
      ++count;
      if (meets && held == kept) {
        Info& info = new_infos_[count - 1];
        info = infos_[kept - 1];
        info.rbp = next.rbp;
        info.rbp_source = next.rbp_source;
        return kept - 1 + count > kMost ? keep_ends(kept - 1, count) : keep_whole(kept - 1, count, true);
      }
      // Those that stand as they stood need no rules.
      for (unsigned i = 1; i < held && count < kMost; ++i, ++count) {
        const unsigned index = kept - 1 - i;
        const Info& inner = infos_[index + 1];
        Info& from = new_infos_[count - 1];
        from.reads_rbp = inner.reads_rbp;
        from.restores = inner.restores;
        from.cfa_at = inner.cfa_at;
        new_slots_[count] = slots_[index];
        new_returns_[count] = returns_[index];
        Info& info = new_infos_[count];
        info = {from.rbp, from.rbp_source, 0, {}, false, false, false};
        if (inner.restores) {
          info.rbp_source = infos_[index].rbp_source;
          info.rbp = load(info.rbp_source);
        }
      }
      if (held > 0) kept -= held;
      Info& from = new_infos_[count - 1];
      step(from, new_slots_[count - 1], new_returns_[count - 1] - 1, next);
      from.reads_rbp = next.reads_rbp;
      from.restores = next.restores;
      from.cfa_at = next.cfa_at;
    }
    switch (next.result) {
      case Step::Result::kCaller:
        break;
      case Step::Result::kElsewhere:
        return walk_carefully(entry);
      case Step::Result::kOutermost:
      case Step::Result::kCut:
        root(next.result == Step::Result::kCut ? cut_frame(next.why) : 0);
        if (count == 0) {
          depth_ = dependency_count_ = 0;
          return root_.id;
        }
        new_infos_[count - 1].needs_rbp = new_infos_[count - 1].reads_rbp;
        return keep_whole(0, count, false);
    }
  }
}

/// new_[last..first], from the outermost of them inwards, become the frames from `outer` on. `met`: the
/// outermost has its node already.
void StackWalker::place(unsigned outer, unsigned first, unsigned last, bool met) noexcept {
  deep_ = false;
  for (unsigned i = last; i-- > first;) {
    Info& info = new_infos_[i];
    info.needs_rbp = info.reads_rbp || (!info.restores && new_infos_[i + 1].needs_rbp);
  }
  while (dependency_count_ > 0 && dependencies_[dependency_count_ - 1].valid >= outer) --dependency_count_;
  Node node = outer == 0 ? root_ : infos_[outer - 1].node;
  for (unsigned i = last + 1; i-- > first; ++outer) {
    const Info& from = new_infos_[i];
    Info& info = infos_[outer];
    info = from;  // before its node is there: a word that was just written in parts is slow to copy
    if (met && i == last) node = from.node;
    else intern(node, new_returns_[i]);
    info.node = node;
    slots_[outer] = new_slots_[i];
    returns_[outer] = new_returns_[i];
    if (i > first && new_infos_[i - 1].restores && from.needs_rbp)
      depend({from.rbp_source, from.rbp, outer, outer + 1});
    if (from.cfa_at != 0) depend({from.cfa_at, load(from.cfa_at), outer, outer});
  }
  depth_ = outer;
}

NodeId StackWalker::keep_whole(unsigned outer, unsigned fresh, bool met) noexcept {
  place(outer, 0, fresh - 1, met);
  const NodeId node = infos_[depth_ - 1].node.id;
  if (dependency_count_ > kMostDependencies) depth_ = dependency_count_ = 0;
  else remember(node);
  return node;
}

/// Hands the last stack to the cache: its return addresses, innermost first, and then what else it was found
/// by.
void StackWalker::remember(NodeId node) noexcept {
  if (depth_ + dependency_count_ > StackCache::kMostWords) return;
  unsigned count = 0;
  for (unsigned i = depth_; i-- > 0;) words_[count++] = {slots_[i], returns_[i]};
  for (unsigned i = dependency_count_; i-- > 0;)
    words_[count++] = {dependencies_[i].slot, dependencies_[i].value};
  const Info& top = infos_[depth_ - 1];
  cache_.put(words_, count, top.needs_rbp, top.rbp, node);
}

/// The last stack's `outer` frames and `fresh` new ones are too many: both ends of them.
NodeId StackWalker::keep_ends(unsigned outer, unsigned fresh) noexcept {
  for (; fresh < kEnd; ++fresh) {
    new_returns_[fresh] = returns_[--outer];
    new_slots_[fresh] = slots_[outer];
  }
  depth_ = kEnd;
  while (dependency_count_ > 0 && dependencies_[dependency_count_ - 1].valid >= kEnd) --dependency_count_;
  deep_ = true;
  inner_ = kEnd;
  return above_the_gap();
}

/// `walked` frames stand in new_, and there are more: goes on to the outermost, and keeps both ends.
NodeId StackWalker::walk_to_the_end(unsigned walked, Step next) noexcept {
  static_assert(kMost == 2 * kEnd);
  const auto place_of = [](unsigned index) { return index < kEnd ? index : kEnd + index % kEnd; };
  while (walked < kMostWalked) {
    const Address address = load(next.slot);
    if (address == 0) break;
    const unsigned at = place_of(walked++);
    new_slots_[at] = next.slot;
    new_returns_[at] = address;
    new_infos_[at] = {next.rbp, next.rbp_source, 0, {}, false, false, false};
    step(new_infos_[at], next.slot, address - 1, next);
    new_infos_[at].reads_rbp = next.reads_rbp;
    new_infos_[at].restores = next.restores;
    new_infos_[at].cfa_at = next.cfa_at;
    if (next.result != Step::Result::kCaller) break;
  }
  depth_ = dependency_count_ = 0;
  inner_ = kEnd;
  if (next.result == Step::Result::kCaller && walked == kMostWalked) {
    deep_ = false;
    root(0);
    return above_the_gap();
  }
  const bool cut = next.result == Step::Result::kCut || next.result == Step::Result::kElsewhere;
  root(cut ? cut_frame(next.why) : 0);
  // The ring's frames, outermost first.
  Node node = root_;
  for (unsigned i = 0; i < kEnd; ++i) {
    const unsigned at = place_of(walked - 1 - i);
    slots_[i] = new_slots_[at];
    returns_[i] = new_returns_[at];
    infos_[i] = new_infos_[at];
    Info& info = infos_[i];
    info.needs_rbp = info.reads_rbp || (i > 0 && !info.restores && infos_[i - 1].needs_rbp);
    intern(node, returns_[i]);
    info.node = node;
    if (i > 0 && info.restores && infos_[i - 1].needs_rbp)
      depend({infos_[i - 1].rbp_source, infos_[i - 1].rbp, i - 1, i});
    if (info.cfa_at != 0) depend({info.cfa_at, load(info.cfa_at), i, i});
  }
  depth_ = kEnd;
  deep_ = true;
  return above_the_gap();
}

/// The node of the outer end that is kept, a cut, and new_returns_[0..inner_).
NodeId StackWalker::above_the_gap() noexcept {
  Node node = depth_ == 0 ? Node{} : infos_[depth_ - 1].node;
  intern(node, cut_frame(Cut::kTooDeep));
  for (unsigned i = inner_; i-- > 0;) intern(node, new_returns_[i]);
  return node.id;
}

unsigned StackWalker::last_frames(Frame* frames) const noexcept {
  unsigned count = 0;
  const unsigned apart = careful_ != 0 ? careful_ : inner_;
  for (unsigned i = 0; i < apart; ++i) frames[count++] = new_returns_[i];
  if (inner_ != 0) frames[count++] = cut_frame(Cut::kTooDeep);
  if (careful_ == 0)
    for (unsigned i = depth_; i-- > 0;) frames[count++] = returns_[i];
  if (root_frame_ != 0) frames[count++] = root_frame_;
  return count;
}

const StackCache::Word* StackWalker::last_places(unsigned& count) noexcept {
  static_assert(StackCache::kMostWords >= kMost + 2);
  count = 0;
  const unsigned apart = careful_ != 0 ? careful_ : inner_;
  for (unsigned i = 0; i < apart; ++i) words_[count++] = {careful_ != 0 ? 0 : new_slots_[i], new_returns_[i]};
  if (inner_ != 0) words_[count++] = {0, cut_frame(Cut::kTooDeep)};
  if (careful_ == 0)
    for (unsigned i = depth_; i-- > 0;) words_[count++] = {slots_[i], returns_[i]};
  if (root_frame_ != 0) words_[count++] = {0, root_frame_};
  return words_;
}

/// Reads that cannot fault: the thread's own stack as it is, everything else through the kernel.
class StackWalker::CheckedMemory {
 public:
  explicit CheckedMemory(StackWalker& walker) noexcept : walker_(walker) {}

  /// From here to its end the thread's stack is mapped.
  void allow(Address from) noexcept { from_ = from; }
  bool read(Address at, Address& value) noexcept {
    if (at % 8 != 0) return false;
    if (from_ != 0 && at >= from_ && at + 8 <= walker_.end_) {
      value = load(at);
      return true;
    }
    if (!may_call_system()) return false;
    if (at < copied_from_ || at - copied_from_ + 8 > copied_) {
      constexpr Address kPage = 4096;
      copied_from_ = at & ~(kPage - 1);
      iovec here{walker_.copied_, sizeof walker_.copied_};
      iovec there[2] = {{reinterpret_cast<void*>(copied_from_), kPage},
                        {reinterpret_cast<void*>(copied_from_ + kPage), kPage}};
      // Whole words: of an int, what stands behind it in memory would count too.
      const long read = ::syscall(SYS_process_vm_readv, ::getpid(), &here, 1ul, there, 2ul, 0ul);
      copied_ = read > 0 ? static_cast<Address>(read) : 0;
      if (copied_ < at - copied_from_ + 8) return false;
    }
    memcpy(&value, walker_.copied_ + (at - copied_from_), sizeof value);
    return true;
  }

 private:
  StackWalker& walker_;
  Address from_ = 0, copied_from_ = 0, copied_ = 0;
};

/// As walk(), for a stack that is not the thread's own or that a signal interrupted. Nothing of it is kept:
/// the memory may be gone at the next event.
NodeId StackWalker::walk_carefully(const Entry& entry) noexcept {
  constexpr unsigned kRoom = kMost - 2, kMostSwitches = 8;
  unsigned switches = 0;
  depth_ = dependency_count_ = 0;
  deep_ = false;
  CheckedMemory memory(*this);
  const auto own = [&](Address at) { return at >= begin_ && at < end_; };
  if (own(entry.slot)) memory.allow(entry.slot);
  Address pc = 0, sp = entry.slot + 8, rbp = entry.rbp;
  bool exact = false;  // what a signal interrupted; else the address behind a call
  Frame why = 0;
  unsigned count = 0;
  const auto cut = [&](Cut reason) { why = cut_frame(reason); };
  const Cut unreadable = own(entry.slot) ? Cut::kBroken : Cut::kOtherStack;
  if (!memory.read(entry.slot, pc)) cut(unreadable);
  while (why == 0 && pc != 0) {
    if (count >= kRoom) {
      cut(Cut::kTooDeep);
      break;
    }
    new_returns_[count++] = exact ? pc + 1 : pc;  // readers look one byte before what they find
    const Address here = exact ? pc : pc - 1;
    const UnwindRule rule = tables_->rule(here);
    Address cfa = 0, next_rbp = rbp;
    exact = false;
    if (rule.cfa == CfaKind::kSignal) {
      // The kernel's ucontext stands where the handler returned to: registers from byte 40 on.
      Address next_sp = 0;
      if (!memory.read(sp + 168, pc) || !memory.read(sp + 160, next_sp) || !memory.read(sp + 120, next_rbp)) {
        cut(unreadable);
        break;
      }
      new_returns_[count++] = special_frame(FrameKind::kSignal, 0);
      sp = next_sp;
      rbp = next_rbp;
      exact = true;
      if (own(sp)) memory.allow(sp & ~Address{7});
      continue;
    }
    if (rule.cfa == CfaKind::kOutermost) break;
    if (rule.cfa == CfaKind::kUncovered) {
      // By its frame pointer, which may lead to another stack, as step_by_pointer() says; but a fibre begins
      // in such code, too.
      if (rbp == 0) break;
      Address returns = 0, target = 0;
      const bool goes_on = rbp % 8 == 0 && (rbp > sp || switches++ < kMostSwitches) &&
                           memory.read(rbp, next_rbp) && memory.read(rbp + 8, returns);
      if (goes_on && returns == 0) break;
      const StackTables::Call call =
          goes_on ? tables_->call_before(returns, target) : StackTables::Call::kNone;
      if (goes_on && call == StackTables::Call::kNone && next_rbp == 0) break;
      if (call == StackTables::Call::kNone ||
          (call == StackTables::Call::kDirect && tables_->function_at(target) != 0)) {
        cut(!own(sp) ? Cut::kOtherStack : tables_->is_made(here) ? Cut::kMadeCode : Cut::kNoTable);
        break;
      }
      pc = returns;
      sp = rbp + 16;
      rbp = next_rbp;
      if (own(sp)) memory.allow(sp);
      continue;
    }
    const auto offset = static_cast<Address>(std::int64_t{rule.cfa_offset});
    if (rule.cfa == CfaKind::kFromRsp) {
      cfa = sp + offset;
    } else if (rule.cfa == CfaKind::kFromRbp) {
      cfa = rbp + offset;
    } else if (rule.cfa == CfaKind::kUnknown || !memory.read(rbp + offset, cfa)) {
      cut(rule.cfa == CfaKind::kUnknown ? Cut::kOddTable : unreadable);
      break;
    }
    if (cfa <= sp) {
      // In a leaf that a signal interrupted the return address is where rsp points.
      if (cfa + 8 <= sp || cfa < 16) {
        cut(Cut::kBroken);
        break;
      }
    }
    if (rule.rbp != RbpKind::kSame) {
      const Address base = rule.rbp == RbpKind::kAtCfa ? cfa : rbp;
      if (!memory.read(base + static_cast<Address>(std::int64_t{rule.rbp_offset} * 8), next_rbp)) {
        cut(unreadable);
        break;
      }
    }
    if (!memory.read(cfa - 8, pc)) {
      cut(unreadable);
      break;
    }
    sp = cfa;
    rbp = next_rbp;
  }
  inner_ = 0;
  root(why);
  Node node = root_;
  for (unsigned i = count; i-- > 0;) intern(node, new_returns_[i]);
  careful_ = count;
  return node.id;
}

}  // namespace memoir::stacks

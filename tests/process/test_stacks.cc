// SPDX-License-Identifier: Apache-2.0
//
// Stacks of process/stacks against the compiler's own unwinder, which is another program for the same tables.
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unwind.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/process/stacks/name_table.h"
#include "memoir/process/stacks/stack_walker.h"
#include "memoir/process/stacks/thread_stack.h"

#if defined(__x86_64__)

namespace memoir::stacks {

namespace {

struct Tables {
  StackTables shared;
  Tables() { REQUIRE(shared.start()); }
};
StackTables& tables() {
  static Tables all;
  return all.shared;
}

/// What all nodes stand for, as whoever writes a trace would write it down.
struct Nodes {
  std::mutex mutex;
  std::map<NodeId, StackWalker::Fresh> all;
} nodes;

/// A thread's walker.
struct Watched {
  StackWalker walker;
  std::uint64_t captures = 0, cached = 0;
  bool found_cut = false;

  Watched() {
    const ThreadStack own = find_thread_stack();
    walker.start(tables(), own.begin, own.end);
  }

  std::vector<Frame> frames(NodeId node) const {  // innermost first
    std::vector<Frame> result;
    while (node != 0) {
      const std::lock_guard guard(nodes.mutex);
      const auto found = nodes.all.find(node);
      if (found == nodes.all.end()) continue;  // another thread made it, and has not written it down yet
      result.push_back(found->second.frame);
      node = found->second.caller;
    }
    return result;
  }
};

thread_local Watched* watched = nullptr;

/// What the C library says of the calling thread's stack.
ThreadStack stack_by_library() {
  pthread_attr_t attributes;
  void* begin = nullptr;
  std::size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  pthread_attr_getstack(&attributes, &begin, &size);
  pthread_attr_destroy(&attributes);
  const auto first = reinterpret_cast<Address>(begin);
  return {first, first + size};
}

/// What the compiler's unwinder says from `first` outwards.
struct Oracle {
  Frame first;
  std::vector<Frame> frames;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* data) {
  auto& oracle = *static_cast<Oracle*>(data);
  int before = 0;
  const Frame pc = _Unwind_GetIPInfo(context, &before);
  if (oracle.frames.empty() && pc != oracle.first) return _URC_NO_REASON;
  if (pc != 0) oracle.frames.push_back(before != 0 ? pc + 1 : pc);
  return _URC_NO_REASON;
}

std::vector<Frame> oracle_frames(Frame first) {
  Oracle oracle{first, {}};
  _Unwind_Backtrace(visit, &oracle);
  return oracle.frames;
}

/// An allocation: captures, and compares. `signals`: frames that mark a signal are expected, and taken out.
__attribute__((noinline)) void allocate() {
  auto* const base = static_cast<Address*>(__builtin_frame_address(0));
  Watched& w = *watched;
  ++w.captures;
  const NodeId node = w.walker.capture({reinterpret_cast<Address>(base + 1), base[0]});
  {
    const std::lock_guard guard(nodes.mutex);
    for (unsigned i = 0; i < w.walker.fresh_count(); ++i)
      nodes.all[w.walker.fresh()[i].node] = w.walker.fresh()[i];
  }
  std::vector<Frame> got = w.frames(node);
  std::erase_if(got, [](Frame frame) { return kind_of(frame) == FrameKind::kSignal; });
  std::vector<Frame> wanted = oracle_frames(base[1]);
  Frame direct[StackWalker::kMost + 2];
  const unsigned count = w.walker.last_frames(direct);
  std::vector<Frame> now(direct, direct + count);
  std::erase_if(now, [](Frame frame) { return kind_of(frame) == FrameKind::kSignal; });
  if (w.walker.was_cached()) ++w.cached;
  else REQUIRE(now == got);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (kind_of(got[i]) != FrameKind::kCut) continue;
    w.found_cut = true;
    // What is there before and behind the cut is as the oracle has it.
    REQUIRE(i <= wanted.size());
    const std::size_t behind = got.size() - i - 1;
    REQUIRE(i + behind <= wanted.size());
    wanted.erase(wanted.begin() + static_cast<long>(i), wanted.end() - static_cast<long>(behind));
    got.erase(got.begin() + static_cast<long>(i));
    break;
  }
#ifdef __SANITIZE_ADDRESS__
  // Its code has no tables and leaves the frame pointer of who made a coroutine in place, which is followed.
  if (got.size() > wanted.size()) got.resize(wanted.size());
#endif
  REQUIRE(got == wanted);
}

// Functions of several kinds of frames, which call each other as a random program says.
struct Program {
  std::mt19937_64 random;
  unsigned calls = 0;
  explicit Program(unsigned seed) : random(seed) {}
  std::uint64_t pick(std::uint64_t below) { return random() % below; }
};

void branch(Program& program, unsigned depth);

volatile int sink = 0;

__attribute__((noinline)) void plain(Program& program, unsigned depth) {
  branch(program, depth);
  sink = sink + 1;
}
__attribute__((noinline)) void with_rbp(Program& program, unsigned depth) {
  branch(program, depth);
  sink = sink + (__builtin_frame_address(0) != nullptr);  // which needs the register
}
__attribute__((noinline)) void with_alloca(Program& program, unsigned depth) {
  auto* room = static_cast<volatile char*>(alloca(16 + program.pick(8) * 16));
  room[0] = 1;
  branch(program, depth);
  room[0] = 2;
}
struct alignas(64) Wide {
  volatile char bytes[64];
};
__attribute__((noinline)) void realigned(Program& program, unsigned depth) {
  [[maybe_unused]] Wide wide;
  wide.bytes[3] = 1;
  branch(program, depth);
  wide.bytes[4] = 2;
}
__attribute__((noinline)) void large(Program& program, unsigned depth) {
  [[maybe_unused]] volatile char room[5000];
  room[7] = 1;
  branch(program, depth);
  room[8] = 2;
}
__attribute__((noinline)) void aligned_alloca(Program& program, unsigned depth) {
  [[maybe_unused]] Wide wide;
  auto* room = static_cast<volatile char*>(alloca(1 + program.pick(100)));
  room[0] = 1;
  wide.bytes[1] = 1;
  branch(program, depth);
  wide.bytes[0] = room[0];
}

__attribute__((noinline)) void branch(Program& program, unsigned depth) {
  const unsigned children = depth == 0 ? 0 : 1 + static_cast<unsigned>(program.pick(3));
  if (program.pick(2) == 0 || depth == 0) allocate();
  for (unsigned i = 0; i < children && program.calls < 20000; ++i, ++program.calls) {
    switch (program.pick(6)) {
      case 0:
        plain(program, depth - 1);
        break;
      case 1:
        with_rbp(program, depth - 1);
        break;
      case 2:
        with_alloca(program, depth - 1);
        break;
      case 3:
        realigned(program, depth - 1);
        break;
      case 4:
        large(program, depth - 1);
        break;
      default:
        aligned_alloca(program, depth - 1);
        break;
    }
    if (program.pick(4) == 0) allocate();
  }
  sink = sink + 1;
}

__attribute__((noinline)) void recurse(unsigned depth, unsigned from) {
  if (depth % 7 == 0 && depth <= from) allocate();
  if (depth > 0) recurse(depth - 1, from);
  if (depth % 13 == 0 && depth <= from) allocate();
  sink = sink + 1;
}

struct Started {
  Watched own;
  Started() { watched = &own; }
  ~Started() { watched = nullptr; }
};

}  // namespace

TEST_CASE("random programs: every stack is the compiler's own unwinder's") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    Started started;
    Program program(seed);
    while (program.calls < 3000) branch(program, 3 + seed);
    CHECK(started.own.captures > 1000);
    CHECK(!started.own.found_cut);
  }
}

TEST_CASE("the same stack again is compared, not walked") {
  Started started;
  for (int i = 0; i < 100; ++i) allocate();
  CHECK(started.own.walker.walks() <= 2);
}

TEST_CASE("recursion keeps both ends") {
  for (unsigned depth : {100u, 200u, 245u, 250u, 255u, 260u, 300u, 400u, 1000u, 5000u}) {
    Started started;
    recurse(depth, depth < 1000 ? depth : 60);
    recurse(depth, 20);
    recurse(30, 30);
    // The test's own callers are a few frames more.
    if (depth <= 200 || depth >= 260) CHECK(started.own.found_cut == (depth >= 260));
  }
}

TEST_CASE("where a thread's stack is, without asking the C library") {
  const auto check = [](bool is_main) {
    const ThreadStack own = find_thread_stack(), told = stack_by_library();
    const auto here = reinterpret_cast<Address>(__builtin_frame_address(0));
    CHECK(own.begin <= here);
    CHECK(here < own.end);
    if (is_main) return;
    CHECK(own.begin <=
          told.begin);  // the guard of another stack may be less than a page away, and no mapping
    CHECK(own.begin + 64 * kKiB > told.begin);
    CHECK(own.end <= told.end);
    CHECK(own.end + 64 * kKiB > told.end);  // its thread-local memory lies there
    const ThreadStack asked = find_mapping(here), read = find_mapping(here, false);
    CHECK(asked.begin == read.begin);
    CHECK(asked.end == read.end);
    CHECK(read.begin == own.begin);
  };
  check(true);
  std::thread([&] { check(false); }).join();
  CHECK(find_mapping(1, false).end == 0);
  CHECK(find_mapping(1).end == 0);
}

TEST_CASE("other threads have stacks of their own") {
  std::vector<std::thread> threads;
  for (unsigned seed = 20; seed < 24; ++seed)
    threads.emplace_back([seed] {
      Started started;
      Program program(seed);
      while (program.calls < 1000) branch(program, 6);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("coroutines: stacks that are nobody's are read with care") {
  static ucontext_t back, inside;
  static Program* running = nullptr;
  Started started;
  for (unsigned seed = 30; seed < 34; ++seed) {
    const auto room = std::make_unique<char[]>(std::size_t{1} << 18);
    Program program(seed);
    running = &program;
    REQUIRE(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = room.get();
    inside.uc_stack.ss_size = std::size_t{1} << 18;
    inside.uc_link = &back;
    makecontext(
        &inside,
        +[] {
          while (running->calls < 60) branch(*running, 4);
        },
        0);
    REQUIRE(swapcontext(&back, &inside) == 0);
    allocate();
  }
}

namespace {
unsigned handled = 0;
void handler(int) {
  allocate();
  ++handled;
}
__attribute__((noinline)) void interrupted(unsigned depth) {
  if (depth == 0) raise(SIGUSR1);
  else interrupted(depth - 1);
  sink = sink + 1;
}
}  // namespace

TEST_CASE("signal handlers: through the kernel's frame, on the stack and on another") {
  for (const bool apart : {false, true}) {
    Started started;
    const auto room = std::make_unique<char[]>(std::size_t{1} << 17);
    stack_t other{}, old{};
    other.ss_sp = room.get();
    other.ss_size = std::size_t{1} << 17;
    REQUIRE(sigaltstack(&other, &old) == 0);
    struct sigaction action {
    }, before{};
    action.sa_handler = handler;
    action.sa_flags = apart ? SA_ONSTACK : 0;
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    handled = 0;
    for (unsigned depth = 0; depth < 20; ++depth) interrupted(depth);
    CHECK(handled == 20);
    CHECK(!started.own.found_cut);
    sigaction(SIGUSR1, &before, nullptr);
    sigaltstack(&old, nullptr);
  }
}

struct Answer {
  NodeId node;
  bool fresh;
};
Answer ask_for(NodeTable& table, Node caller, Frame frame) {
  const bool fresh = table.intern(caller, frame);
  return {caller.id, fresh};
}

TEST_CASE("a number means one node, however many threads ask") {
  NodeTable table;
  REQUIRE(table.start(12));
  constexpr unsigned kFrames = 1000;
  const auto ask = [&](unsigned i) { return ask_for(table, {i / 10, i / 10}, 0x400000 + i * 5); };
  std::vector<std::vector<NodeId>> found(4, std::vector<NodeId>(kFrames));
  std::vector<std::vector<NodeId>> written(4);
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (unsigned i = 0; i < kFrames; ++i) {
        const auto one = ask(i);
        found[thread][i] = one.node;
        if (one.fresh) written[thread].push_back(one.node);
      }
    });
  for (std::thread& thread : threads) thread.join();

  // Each number is written down once, by whoever was given it first.
  std::set<NodeId> numbers;
  for (const auto& of_thread : written)
    for (const NodeId number : of_thread) CHECK(numbers.insert(number).second);
  CHECK(numbers.size() == table.count());
  // A thread that is stopped while it fills a slot makes the others take a second number for that node, so a
  // node may have a few. No number has two nodes.
  std::map<NodeId, unsigned> meaning;
  for (const auto& of_thread : found)
    for (unsigned i = 0; i < kFrames; ++i) {
      CHECK(numbers.count(of_thread[i]) == 1);
      CHECK(meaning.emplace(of_thread[i], i).first->second == i);
    }
  CHECK(meaning.size() == numbers.size());
  // Once all slots are filled, everybody finds the same number, and no new one is given.
  for (unsigned i = 0; i < kFrames; ++i) {
    const auto one = ask(i);
    CHECK(!one.fresh);
    CHECK(meaning[one.node] == i);
    CHECK(ask(i).node == one.node);
  }
}

TEST_CASE("names: rare ones leave room for others, and none is taken for another") {
  constexpr std::uint32_t kSpare = 4096;
  const auto path = [](unsigned number, std::size_t length) {
    return "layers." + std::to_string(number) + std::string(length, '.');
  };
  for (const std::size_t length : {1u, 200u}) {  // by their number, and by their bytes
    const auto table = std::make_unique<NameTable>();
    REQUIRE(table->start());
    unsigned refused = 0;
    for (unsigned i = 0; i < 2 * NameTable::kMost; ++i) {
      const std::uint32_t number = table->find(path(i, length), kSpare);
      if (number == 0) ++refused;
      else REQUIRE((*table)[number] == path(i, length));
    }
    CHECK(refused > NameTable::kMost);
    for (unsigned i = 0; i < kSpare; ++i) {
      const std::string name = "aten::operator_" + std::to_string(i) + std::string(40, '_');
      const std::uint32_t number = table->find(name);
      REQUIRE((*table)[number] == name);
      REQUIRE(table->find(name) == number);
    }
    CHECK(table->find(path(2 * NameTable::kMost, length), kSpare) == 0);
    const std::uint32_t known = table->find(path(7, length), kSpare);
    CHECK((*table)[known] == path(7, length));
  }
  const auto names = std::make_unique<NameTable>();
  REQUIRE(names->start());
  const std::uint32_t cut = names->find(std::string(1000, 'x'));
  CHECK((*names)[cut] == std::string(255, 'x'));
  CHECK((*names)[0].empty());
}

TEST_CASE("callers whose frames have one hash are told apart") {
  NodeTable table;
  REQUIRE(table.start(8));
  std::set<NodeId> numbers;
  for (NodeId caller = 1; caller <= 20; ++caller) {
    const auto one = ask_for(table, {caller, 7}, 0x400000);
    CHECK(one.fresh);
    CHECK(numbers.insert(one.node).second);
  }
  for (NodeId caller = 1; caller <= 20; ++caller)
    CHECK(numbers.count(ask_for(table, {caller, 7}, 0x400000).node) == 1);
  CHECK(table.count() == 20);
}

TEST_CASE("a full table forgets, and gives no number twice") {
  NodeTable table;
  REQUIRE(table.start(8));
  std::map<NodeId, Frame> meaning;
  for (Frame frame = 1; frame < 5000; ++frame) {
    const auto one = ask_for(table, {}, frame);
    REQUIRE(one.fresh);
    REQUIRE(meaning.emplace(one.node, frame).second);
    const auto again = ask_for(table, {}, frame);
    if (again.fresh) meaning[again.node] = frame;
    REQUIRE(meaning.at(again.node) == frame);
  }
}

}  // namespace memoir::stacks

#endif

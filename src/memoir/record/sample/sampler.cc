// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/sample/sampler.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "memoir/base/site.h"
#include "memoir/predict/profile/log_buckets.h"

namespace memoir {

using sample_image::kShapes;
using sample_image::Live;

namespace {

constexpr double kTau = 2;  // as the learner's: how fast the maximum of the live bytes decays

std::uint64_t nanoseconds(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000000 + static_cast<std::uint64_t>(time.tv_nsec);
}

/// errno is the program's, and a signal handler that allocates meanwhile is not sampled.
class Inside {
 public:
  explicit Inside(SamplerThread& thread) noexcept : thread_(thread), errno_(errno) { thread.inside = true; }
  ~Inside() {
    thread_.inside = false;
    errno = errno_;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  SamplerThread& thread_;
  int errno_;
};

}  // namespace

/// Holds the lock, and tells those who look without it that something changes.
class Sampler::Change {
 public:
  explicit Change(Sampler& sampler) noexcept : sampler_(sampler), guard_(sampler.lock_) {
    if (sampler.active()) step();
  }
  ~Change() {
    if (sampler_.active()) step();
  }

 private:
  void step() noexcept { sampler_.header().changes.fetch_add(1, std::memory_order_acq_rel); }

  Sampler& sampler_;
  LockGuard guard_;
};

bool Sampler::start(void* image, Take take, void* owner, Capture capture,
                    const SamplerOptions& options) noexcept {
  const int kept = errno;
  const LockGuard guard(lock_);
  if (active() || options.every == 0 || options.every > byte_sampling::kMostEvery) return false;
  const Size tables = kHeads * 2 * sizeof(std::uint32_t) + kShapes[sample_image::kModules].most * 2;
  if (heads_ == nullptr) {
    void* const memory = map_metadata(tables);
    if (memory == nullptr) return false;
    heads_ = static_cast<std::atomic<std::uint32_t>*>(memory);
    context_heads_ = static_cast<std::uint32_t*>(memory) + kHeads;
    module_order_ = reinterpret_cast<std::uint16_t*>(static_cast<std::uint32_t*>(memory) + 2 * kHeads);
  } else {
    std::memset(static_cast<void*>(heads_), 0, tables);
  }
  const Size header_size = sample_image::region_begin(0);
  if (!take(owner, 0, header_size)) return false;
  image_ = image;
  take_ = take;
  owner_ = owner;
  capture_ = capture;
  every_ = options.every;
  taken_bytes_ = header_size;
  modules_ = 0;
  read_modules_from_ = 0;
  points_pending_ = 0;
  last_clock_ = 0;
  free_live_ = 0;
  for (auto& byte : filter_) byte.store(0, std::memory_order_relaxed);
  std::memset(filter_counts_, 0, sizeof filter_counts_);

  auto& head = *new (image) sample_image::Header;
  std::uint64_t seeds[3] = {};
  if (options.seed != 0 || ::getrandom(seeds, sizeof seeds, GRND_NONBLOCK) != sizeof seeds) {
    byte_sampling::Random random(options.seed != 0 ? options.seed
                                                   : nanoseconds(CLOCK_MONOTONIC) ^ ::getpid());
    for (std::uint64_t& seed : seeds) seed = random();
  }
  random_ = byte_sampling::Random(seeds[0]);
  head.id[0] = seeds[1];
  head.id[1] = seeds[2];
  head.version = sample_image::kVersion;
  head.process = static_cast<std::uint32_t>(::getpid());
  head.start = nanoseconds(CLOCK_REALTIME);
  head.start_monotonic = nanoseconds(CLOCK_MONOTONIC);
  head.every = every_;
  head.point_every = 1;
  head.magic = sample_image::kMagic;
  period_.fetch_add(1, std::memory_order_relaxed);
  active_.store(true, std::memory_order_release);
  read_modules();
  errno = kept;
  return true;
}

void Sampler::stop() noexcept {
  const LockGuard guard(lock_);
  if (!active()) return;
  header().last = now();
  active_.store(false, std::memory_order_release);
}

void Sampler::tell_time() noexcept {
  const LockGuard guard(lock_);
  if (active()) header().last = now();
}

void Sampler::forget() noexcept {
  lock_.~Lock();
  new (&lock_) Lock;  // whoever had it is in the parent
  active_.store(false, std::memory_order_relaxed);
  for (auto& byte : filter_) byte.store(0, std::memory_order_relaxed);
  image_ = nullptr;
}

bool Sampler::room_for(sample_image::Region region, std::uint64_t count) noexcept {
  sample_image::Header& head = header();
  if (count <= head.taken[region]) return true;
  if (count > kShapes[region].most) return false;
  const Size record = kShapes[region].record, begin = sample_image::region_begin(region);
  const Size room = align_up(record * kShapes[region].most, sample_image::kStep);
  const Size held = std::min(room, align_up(head.taken[region] * record, sample_image::kStep));
  const Size wanted = std::min(room, align_up(count * record, sample_image::kStep));
  if (wanted > held) {
    if (taken_bytes_ + wanted - held > sample_image::kMostTaken) return false;
    if (!take_(owner_, begin + held, begin + wanted)) return false;
    taken_bytes_ += wanted - held;
  }
  head.taken[region] = std::min(kShapes[region].most, wanted / record);
  return true;
}

std::uint64_t Sampler::now() noexcept {
  return (nanoseconds(CLOCK_MONOTONIC) - header().start_monotonic) / 1000000;
}

void Sampler::draw_gap(SamplerThread& thread) noexcept {
  thread.remaining = thread.gap = byte_sampling::gap(thread.random, every_);
}

/// The bytes that the program has allocated, with those of this thread since its last sample.
std::uint64_t Sampler::clock(SamplerThread& thread) noexcept {
  const std::int64_t more = thread.period == period() ? thread.gap - thread.remaining : 0;
  return header().allocated.load(std::memory_order_relaxed) +
         static_cast<std::uint64_t>(std::max<std::int64_t>(more, 0));
}

// --- allocations ---

void Sampler::allocated(SamplerThread& thread, const void* block, Size size, const void* entry) noexcept {
  if (!active()) {
    thread.remaining = std::int64_t{1} << 62;
    thread.period = 0;
    return;
  }
  if (thread.inside) {
    header().lost.fetch_add(1, std::memory_order_relaxed);
    return;  // the slow half that was interrupted draws the next gap
  }
  const Inside inside(thread);
  if (thread.period != period()) {  // the first allocation of this thread, or since sampling was switched on
    thread.period = period();
    thread.number = header().threads.fetch_add(1, std::memory_order_relaxed) + 1;
    {
      const LockGuard guard(lock_);
      thread.random = byte_sampling::Random(random_());
    }
    draw_gap(thread);
    if (!due(thread, size)) return;
  }
  header().allocated.fetch_add(static_cast<std::uint64_t>(thread.gap - thread.remaining),
                               std::memory_order_relaxed);
  draw_gap(thread);
  if (size == 0) return;

  P::Pair pair;
  pair.size = size;
  pair.weight = byte_sampling::weight(size, every_);
  pair.allocated_by = thread.number;
  pair.begin_clock = header().allocated.load(std::memory_order_relaxed);
  pair.priority = thread.random();

  const Change change(*this);
  if (!active()) return;
  pair.begin = now();
  SampledStack found;
  capture_(entry, found);
  Stack stack;
  normalize(found, stack);
  const std::uint32_t context = context_of(stack);
  pair.context = context - 1;
  if (context == 0 || !insert_live(block, pair)) {
    header().lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  P::Context& known = records<sample_image::Context>(sample_image::kContexts)[pair.context].context;
  known.least_size = known.most_size == 0 ? size : std::min(known.least_size, size);
  known.most_size = std::max(known.most_size, size);
  if (found.height != 0)
    known.height = known.height == 0 ? found.height : std::min(known.height, found.height);
  header().samples += 1;
  header().live = add_up_to_most(header().live, byte_sampling::weighted_bytes(size, pair.weight));
  note_live(pair.begin, pair.begin_clock);
}

void Sampler::thread_ended(SamplerThread& thread) noexcept {
  if (!active() || thread.inside || thread.period != period()) return;
  header().allocated.fetch_add(static_cast<std::uint64_t>(thread.gap - thread.remaining),
                               std::memory_order_relaxed);
  thread.gap = thread.remaining;
}

// --- stacks ---

/// Addresses become numbers of modules and offsets, which mean the same in every run.
void Sampler::normalize(const SampledStack& found, Stack& stack) noexcept {
  if (modules_stale_.exchange(false, std::memory_order_relaxed)) {
    modules_ = 0;
    read_modules();
  }
  stack.count = std::min(found.count, SampledStack::kMost);
  stack.cut = found.cut;
  std::uint64_t hash = stack.cut ? 1 : 0;
  for (size_t i = 0; i < stack.count; ++i) {
    stack.frames[i] = normal(found.frames[i]);
    hash = memoir::detail::mix(hash * 0x9e3779b97f4a7c15ull + stack.frames[i]);
  }
  stack.hash = hash;
}

sample_image::Frame Sampler::normal(std::uintptr_t address) noexcept {
  const auto* const modules = records<sample_image::Module>(sample_image::kModules);
  for (int attempt = 0; attempt < 2; ++attempt) {
    // The last module that begins below the return address. A call may be the last instruction of one.
    std::uint16_t* const end = module_order_ + modules_;
    const std::uint16_t* const after = std::upper_bound(
        module_order_, end, address - 1,
        [&](std::uintptr_t wanted, std::uint16_t number) { return wanted < modules[number].begin; });
    if (after != module_order_) {
      const std::uint16_t number = after[-1];
      const sample_image::Module& module = modules[number];
      if (address - 1 < module.end)
        return (std::uint64_t{number} + 1) << sample_image::kOffsetBits |
               ((address - module.bias) & ((std::uint64_t{1} << sample_image::kOffsetBits) - 1));
    }
    if (attempt > 0 || now() < read_modules_from_) break;  // code that no file has comes again and again
    read_modules();
  }
  return 0;
}

// --- contexts ---

/// Its number + 1; 0 when there is no room.
std::uint32_t Sampler::context_of(const Stack& stack) noexcept {
  using namespace sample_image;
  Header& head = header();
  auto* const contexts = records<sample_image::Context>(kContexts);
  auto* const frames = records<Frame>(kFrames);
  std::uint32_t& first = context_heads_[stack.hash % kHeads];
  for (std::uint32_t next = first; next != 0; next = contexts[next - 1].next) {
    const sample_image::Context& known = contexts[next - 1];
    if (known.hash == stack.hash && known.context.frames == stack.count &&
        (known.context.flags == P::kCut) == stack.cut &&
        std::equal(stack.frames, stack.frames + stack.count, frames + known.context.first))
      return next;
  }
  const std::uint64_t number = head.used[kContexts], frame = head.used[kFrames];
  if (!room_for(kContexts, number + 1) || !room_for(kFrames, frame + stack.count)) return 0;
  std::copy(stack.frames, stack.frames + stack.count, frames + frame);
  sample_image::Context& fresh = contexts[number];
  fresh = {};
  fresh.context.first = static_cast<std::uint32_t>(frame);
  fresh.context.frames = static_cast<std::uint32_t>(stack.count);
  fresh.context.flags = stack.cut ? std::uint32_t{P::kCut} : 0;
  fresh.hash = stack.hash;
  fresh.next = first;
  head.used[kFrames] += stack.count;
  head.used[kContexts] += 1;
  return first = static_cast<std::uint32_t>(number + 1);
}

// --- live samples ---

bool Sampler::insert_live(const void* block, const P::Pair& pair) noexcept {
  using namespace sample_image;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  std::uint32_t before = 0;
  if (Live* const stale = find(address, &before)) {  // its free was not told
    header().missed_frees.fetch_add(1, std::memory_order_relaxed);
    header().live -= std::min(header().live, byte_sampling::weighted_bytes(stale->size, stale->weight));
    unlink(stale, before);
  }
  Live* const all = records<Live>(kLive);
  std::uint32_t number = free_live_;
  if (number != 0) {
    free_live_ = all[number - 1].next.load(std::memory_order_relaxed);
  } else {
    if (!room_for(kLive, header().used[kLive] + 1)) return false;
    number = static_cast<std::uint32_t>(++header().used[kLive]);
  }
  Live& live = all[number - 1];
  live.context = pair.context;
  live.thread = pair.allocated_by;
  live.size = pair.size;
  live.weight = pair.weight;
  live.begin = pair.begin;
  live.begin_clock = pair.begin_clock;
  live.priority = pair.priority;
  auto& head = heads_[memoir::detail::mix(address) % kHeads];
  live.next.store(head.load(std::memory_order_relaxed), std::memory_order_relaxed);
  live.address.store(address, std::memory_order_relaxed);
  head.store(number, std::memory_order_release);
  const size_t bit = filter_bit(address);
  if (filter_counts_[bit] < 255) ++filter_counts_[bit];
  filter_[bit / 8].store(
      static_cast<std::uint8_t>(filter_[bit / 8].load(std::memory_order_relaxed) | 1u << bit % 8),
      std::memory_order_relaxed);
  return true;
}

/// With the lock held. *before: the number of the one before it in its chain, 0 if it is the first.
Live* Sampler::find(std::uintptr_t address, std::uint32_t* before) noexcept {
  Live* const all = records<Live>(sample_image::kLive);
  *before = 0;
  for (std::uint32_t next = heads_[memoir::detail::mix(address) % kHeads].load(std::memory_order_relaxed);
       next != 0;) {
    Live& live = all[next - 1];
    if (live.address.load(std::memory_order_relaxed) == address) return &live;
    *before = next;
    next = live.next.load(std::memory_order_relaxed);
  }
  return nullptr;
}

void Sampler::unlink(Live* live, std::uint32_t before) noexcept {
  Live* const all = records<Live>(sample_image::kLive);
  const std::uintptr_t address = live->address.load(std::memory_order_relaxed);
  auto& link = before == 0 ? heads_[memoir::detail::mix(address) % kHeads] : all[before - 1].next;
  link.store(live->next.load(std::memory_order_relaxed), std::memory_order_relaxed);
  live->address.store(0, std::memory_order_relaxed);
  live->next.store(free_live_, std::memory_order_relaxed);
  free_live_ = static_cast<std::uint32_t>(live - all + 1);
  const size_t bit = filter_bit(address);
  if (filter_counts_[bit] == 255) return;  // it stopped counting
  if (--filter_counts_[bit] == 0)
    filter_[bit / 8].store(
        static_cast<std::uint8_t>(filter_[bit / 8].load(std::memory_order_relaxed) & ~(1u << bit % 8)),
        std::memory_order_relaxed);
}

/// Without the lock: whether no live sample has that address. False when that cannot be told. Nobody else
/// may insert or remove this address meanwhile: its owner is freeing it.
bool Sampler::absent(std::uintptr_t address) noexcept {
  // Each load is ordered before the next: the last one sees any change that one of them has seen a part of.
  constexpr auto kInOrder = std::memory_order_acquire;
  const std::uint32_t changes = header().changes.load(kInOrder);
  if (changes % 2 != 0) return false;
  const Live* const all = records<Live>(sample_image::kLive);
  size_t steps = 0;
  for (std::uint32_t next = heads_[memoir::detail::mix(address) % kHeads].load(kInOrder); next != 0;
       ++steps) {
    if (steps > 64 || all[next - 1].address.load(kInOrder) == address) return false;
    next = all[next - 1].next.load(kInOrder);
  }
  return header().changes.load(std::memory_order_relaxed) == changes;
}

// --- frees ---

Sampler::Taken Sampler::take_out(SamplerThread& thread, const void* block) noexcept {
  Taken taken;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (!active() || absent(address)) return taken;
  if (thread.inside) {  // in a signal handler, above a slow half that may hold the lock
    header().missed_frees.fetch_add(1, std::memory_order_relaxed);
    return taken;
  }
  const Inside inside(thread);
  const Change change(*this);
  std::uint32_t before = 0;
  Live* const live = active() ? find(address, &before) : nullptr;
  if (live == nullptr) return taken;
  taken.found = true;
  P::Pair& pair = taken.pair;
  pair.context = live->context;
  pair.allocated_by = live->thread;
  pair.freed_by = thread.number;
  pair.size = live->size;
  pair.weight = live->weight;
  pair.begin = live->begin;
  pair.begin_clock = live->begin_clock;
  pair.priority = live->priority;
  pair.end = std::max(now(), pair.begin);
  pair.end_clock = std::max(clock(thread), pair.begin_clock);
  unlink(live, before);
  return taken;
}

void Sampler::finish(SamplerThread& thread, const Taken& taken) noexcept {
  if (!taken.found || !active() || thread.inside) return;
  const Inside inside(thread);
  const Change change(*this);
  if (!active()) return;
  count(taken.pair);
  keep_pair(taken.pair);
  header().live -= std::min(header().live, byte_sampling::weighted_bytes(taken.pair.size, taken.pair.weight));
  note_live(taken.pair.end, taken.pair.end_clock);
}

void Sampler::freed(SamplerThread& thread, const void* block) noexcept {
  finish(thread, take_out(thread, block));
}

void Sampler::put_back(SamplerThread& thread, const void* block, const Taken& taken) noexcept {
  if (!taken.found || !active() || thread.inside) return;
  const Inside inside(thread);
  const Change change(*this);
  if (active()) insert_live(block, taken.pair);
}

void Sampler::count(const P::Pair& pair) noexcept {
  sample_image::Context& context = records<sample_image::Context>(sample_image::kContexts)[pair.context];
  const P::Estimate one{1, pair.weight, byte_sampling::weighted_bytes(pair.size, pair.weight)};
  const std::uint64_t time = pair.end - pair.begin, bytes = pair.end_clock - pair.begin_clock;
  context.context.estimates[P::kFreed].add(one);
  context.context.tallies[P::kFreed][P::kMilliseconds].add(time);
  context.context.tallies[P::kFreed][P::kBytes].add(bytes);
  if (pair.freed_by != pair.allocated_by) ++context.context.freed_elsewhere;
  count_cell(context, P::kMilliseconds, time, one);
  count_cell(context, P::kBytes, bytes, one);
}

void Sampler::count_cell(sample_image::Context& context, P::Clock clock, std::uint64_t lifetime,
                         const P::Estimate& one) noexcept {
  using namespace sample_image;
  const auto bucket = static_cast<std::uint16_t>(log_buckets::of(lifetime));
  auto* const cells = records<sample_image::Cell>(kCells);
  for (std::uint32_t next = context.cells; next != 0; next = cells[next - 1].next) {
    sample_image::Cell& cell = cells[next - 1];
    if (cell.bucket == bucket && cell.clock == clock) return cell.estimate.add(one);
  }
  const std::uint64_t number = header().used[kCells];
  if (!room_for(kCells, number + 1)) return;  // the tallies have it
  cells[number] = {context.cells, bucket, clock, P::kFreed, one};
  header().used[kCells] += 1;
  context.cells = static_cast<std::uint32_t>(number + 1);
}

/// Keeps those of least priority: a heap with the largest on top.
void Sampler::keep_pair(const P::Pair& pair) noexcept {
  using namespace sample_image;
  auto* const pairs = records<P::Pair>(kPairs);
  std::uint64_t& used = header().used[kPairs];
  const auto less = [](const P::Pair& a, const P::Pair& b) { return a.priority < b.priority; };
  if (used < kShapes[kPairs].most) {
    if (!room_for(kPairs, used + 1)) return;
    pairs[used++] = pair;
    std::push_heap(pairs, pairs + used, less);
    return;
  }
  if (!less(pair, pairs[0])) return;
  std::pop_heap(pairs, pairs + used, less);
  pairs[used - 1] = pair;
  std::push_heap(pairs, pairs + used, less);
}

// --- live bytes ---

void Sampler::note_live(std::uint64_t time, std::uint64_t clock) noexcept {
  using namespace sample_image;
  Header& head = header();
  head.last = std::max(head.last, time);
  const auto live = static_cast<double>(head.live);
  if (clock > last_clock_ && head.decayed > 0) {  // halves in four horizons without the heap growing again
    const double horizons = static_cast<double>(clock - last_clock_) / (kTau * head.decayed);
    head.decayed /= 1 + std::min(horizons, 64.0) / 4;
  }
  last_clock_ = std::max(last_clock_, clock);
  head.decayed = std::max(head.decayed, live);

  auto* const points = records<P::Point>(kPoints);
  std::uint64_t& used = head.used[kPoints];
  const auto decayed = static_cast<Size>(head.decayed);
  if (used > 0 && points_pending_ < head.point_every) {
    P::Point& last = points[used - 1];
    last.time = std::max(last.time, time);
    last.clock = std::max(last.clock, clock);
    last.live = std::max(last.live, head.live);
    last.decayed = std::max(decayed, last.live);
    ++points_pending_;
    return;
  }
  if (used == kShapes[kPoints].most) {  // two become one
    for (std::uint64_t i = 0; i < used / 2; ++i) {
      P::Point point = points[2 * i + 1];
      point.live = std::max(point.live, points[2 * i].live);
      point.decayed = std::max(point.decayed, point.live);
      points[i] = point;
    }
    used /= 2;
    head.point_every *= 2;
  }
  if (!room_for(kPoints, used + 1)) return;
  points[used++] = {std::max(time, used > 1 ? points[used - 2].time : 0),
                    std::max(clock, used > 1 ? points[used - 2].clock : 0), head.live,
                    std::max(decayed, head.live)};
  points_pending_ = 1;
}

}  // namespace memoir

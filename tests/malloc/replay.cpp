// SPDX-License-Identifier: Apache-2.0
//
// A recorded program under memoir's malloc and under its simulation, side by side:
//
//   malloc_replay TRACE [--set key=bytes,...] [--one-thread] [--within 0.03] [--verbose]
//
// Each event of the trace goes to both. What they hold, and what of it has memory, is compared at the peaks
// and troughs of the load: where the live bytes turn by a quarter of their peak. Exits with 1 where one
// differs by more than --within of the other.
//
// No time of the machine matters: both have the trace's clock, one thread is each of the recorded ones in
// turn, and rounds of the upkeep are run where the background would have. Huge pages are off: whether they
// are there, and what they cost, is the machine's.
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/arena/sim_arena.h"
#include "memoir/base/error.h"
#include "memoir/heap/malloc/malloc_heap.h"
#include "memoir/malloc/background.h"
#include "memoir/malloc/malloc.h"
#include "memoir/trace/read/trace.h"

namespace {
memoir::Tick trace_time = 0;
}

/// For the malloc as for everything else in this program.
extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const bool counts = clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME;
  constexpr memoir::Tick kSecond = 1'000'000'000;
  const memoir::Tick now = counts ? trace_time + 1000 * kSecond : 0;
  *out = {static_cast<time_t>(now / kSecond), static_cast<long>(now % kSecond)};
  return 0;
}

namespace memoir::malloc_ {

namespace {

struct Figures {
  Size held = 0, resident = 0;
  bool operator==(const Figures&) const = default;
};

/// The malloc, called by one thread that is each of the trace's in turn.
class Real {
 public:
  explicit Real(const LifetimeOptions& options) {
    if (!central().ready()) throw Error("memoir's malloc cannot be ready here");
    static_cast<LifetimeOptions&>(central().options) = options;
    central().limit.looked({}, Size{1} << 50);  // the machine's are none of the program's
    background_wanted.store(true);              // it is awake already: nobody starts it
  }

  void be(std::uint32_t thread) {
    if (thread >= heaps_.size()) heaps_.resize(thread + 1, nullptr);
    if (heaps_[thread] == nullptr) {
      heaps_[thread] = registry().take();
      heaps_[thread]->token.store(heaps_[thread]->id());
    }
    this_heap = heaps_[thread];
    background_calls.store(0);
  }
  [[gnu::noinline]] void* take(Size size, Size alignment, SiteId site) {
    this_heap->stack_base = stack_pointer();  // all at one height
    const auto caller = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(site));
    return alignment <= 16 ? allocate(size, caller) : allocate_aligned(size, alignment, caller);
  }
  static void give(void* block) { malloc_::free(block); }
  void round() {
    if (begun_ || central().held() >= central().options.background_from || central().large.keeps_much()) {
      begun_ = true;
      upkeep_.run(false);
    }
  }
  static Figures figures() {
    const Size large = central().large.live() + central().large.cached();
    return {central().heap.figures().used + large, central().heap.figures().resident + large};
  }

 private:
  std::vector<ThreadHeap*> heaps_;
  Upkeep upkeep_;
  bool begun_ = false;
};

/// Where the live bytes turn: ranges of events, a peak and a trough in turn.
struct Turn {
  bool peak = false;
  size_t begin = 0, end = 0;  // from the turn before to the one behind it
  Size live = 0;
};

std::vector<Turn> turns_of(std::span<const Event> events) {
  std::vector<Size> sizes, lives(events.size());
  Size live = 0, most = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.object >= sizes.size() &&
        (event.kind == EventKind::kAllocate || event.kind == EventKind::kFree))
      sizes.resize(event.object * 2 + 1);
    if (event.kind == EventKind::kAllocate) live += sizes[event.object] = event.size;
    if (event.kind == EventKind::kFree) live -= sizes[event.object];
    lives[i] = live;
    most = std::max(most, live);
  }
  std::vector<size_t> at;  // a trough at the begin, a peak, a trough, ...
  bool up = true;
  size_t best = 0;
  for (size_t i = 0; i < lives.size(); ++i) {
    if (up ? lives[i] >= lives[best] : lives[i] <= lives[best]) {
      best = i;
    } else if ((up ? lives[best] - lives[i] : lives[i] - lives[best]) > most / 4) {
      at.push_back(best);
      best = i;
      up = !up;
    }
  }
  at.push_back(best);
  std::vector<Turn> turns;
  for (size_t i = 0; i < at.size(); ++i)
    turns.push_back(
        {i % 2 == 0, i == 0 ? 0 : at[i - 1], i + 1 < at.size() ? at[i + 1] : lives.size(), lives[at[i]]});
  return turns;
}

struct Object {
  void* block = nullptr;
  Offset offset = kNoOffset;
};

class Comparison {
 public:
  Comparison(const Trace& trace, const LifetimeOptions& options, bool one_thread)
      : events_(trace.events()), one_thread_(one_thread), real_(options), heap_(arena_, options) {}

  /// What was found at each event, in pairs.
  void run() {
    std::vector<Object> objects;
    real_figures_.resize(events_.size());
    simulated_.resize(events_.size());
    for (size_t i = 0; i < events_.size(); ++i) {
      const Event& event = events_[i];
      pass_time(event.time);
      if (event.kind == EventKind::kAllocate || event.kind == EventKind::kFree) {
        if (event.object >= objects.size()) objects.resize(event.object * 2 + 1);
        Object& object = objects[event.object];
        const std::uint32_t thread = one_thread_ ? 0 : event.thread;
        real_.be(thread);
        if (event.kind == EventKind::kAllocate) {
          const Size size = std::max<Size>(event.size, 1), alignment = Size{1} << event.alignment_log2;
          object.block = real_.take(size, alignment, event.site);
          object.offset =
              heap_.allocate({.size = size, .alignment = alignment, .site = event.site, .thread = thread});
          if (object.block == nullptr || object.offset == kNoOffset) throw Error("there is no memory");
        } else {
          Real::give(object.block);
          if (!heap_.free_on(thread, object.offset)) throw Error("the simulation does not know an object");
        }
      }
      look(i);
    }
    // What goes back afterwards, for three seconds.
    for (int round = 0; round < 30; ++round) pass_time(trace_time + UpkeepRules::kRound);
    if (!events_.empty()) look(events_.size() - 1);
  }

  /// The largest difference, as a share.
  double compare(bool verbose) const {
    double largest = 0;
    const auto mib = [](Size bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); };
    std::printf("          live MiB      held  simulated           resident  simulated\n");
    const std::vector<Turn> turns = turns_of(events_);
    for (const Turn& turn : turns) {
      const auto extreme = [&](const std::vector<Figures>& all, Size Figures::*of) {
        Size found = all[turn.begin].*of;
        for (size_t i = turn.begin; i < turn.end; ++i)
          found = turn.peak ? std::max(found, all[i].*of) : std::min(found, all[i].*of);
        return found;
      };
      std::printf("%-8s %9.2f", turn.peak ? "peak" : "trough", mib(turn.live));
      for (const auto of : {&Figures::held, &Figures::resident}) {
        const Size real = extreme(real_figures_, of), simulated = extreme(simulated_, of);
        const double difference =
            real == 0 ? 0 : static_cast<double>(simulated) / static_cast<double>(real) - 1;
        std::printf("  %9.2f  %9.2f  %+6.2f%%", mib(real), mib(simulated), 100 * difference);
        largest = std::max(largest, difference < 0 ? -difference : difference);
      }
      std::printf("\n");
    }
    const auto differs = std::mismatch(real_figures_.begin(), real_figures_.end(), simulated_.begin()).first;
    if (differs != real_figures_.end())
      std::printf("the first difference is at event %td\n", differs - real_figures_.begin());
    if (verbose) print_all();
    return largest;
  }

 private:
  void pass_time(Tick now) {
    // After a long silence there is nothing more to do than after three seconds of it: as MallocHeap.
    constexpr Tick kMostRounds = 30;
    if (now > next_round_ + kMostRounds * UpkeepRules::kRound)
      next_round_ = now - kMostRounds * UpkeepRules::kRound;
    for (; next_round_ <= now; next_round_ += UpkeepRules::kRound) {
      trace_time = next_round_;
      real_.round();
      heap_.tick(trace_time);
    }
    trace_time = now;
    if (now >= due_) due_ = heap_.tick(now);
  }
  void look(size_t i) {
    real_figures_[i] = Real::figures();
    simulated_[i] = {heap_.held(), arena_.committed()};
  }
  void print_all() const {
    for (size_t i = 0; i < events_.size(); i += std::max<size_t>(events_.size() / 200, 1))
      std::printf("%zu %llu %llu %llu %llu %llu\n", i,
                  static_cast<unsigned long long>(events_[i].time / 1000000),
                  static_cast<unsigned long long>(real_figures_[i].held / kKiB),
                  static_cast<unsigned long long>(simulated_[i].held / kKiB),
                  static_cast<unsigned long long>(real_figures_[i].resident / kKiB),
                  static_cast<unsigned long long>(simulated_[i].resident / kKiB));
  }

  std::span<const Event> events_;
  bool one_thread_;
  SimArena arena_{64 * kGiB};
  Real real_;
  MallocHeap heap_;
  Tick next_round_ = 0, due_ = 0;
  std::vector<Figures> real_figures_, simulated_;
};

/// "key=bytes,...": those of LifetimeOptions that are bytes, which small programs need smaller.
void set(LifetimeOptions& options, std::string_view text) {
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const size_t equals = one.find('=');
    bool known = false;
    std::apply(
        [&](const auto&... field) {
          const auto try_one = [&](const auto& each) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(options.*each.member)>, Size>) {
              if (each.name != one.substr(0, equals) || equals == one.npos) return;
              const std::string_view value = one.substr(equals + 1);
              const auto read =
                  std::from_chars(value.data(), value.data() + value.size(), options.*each.member);
              known = read.ec == std::errc{} && read.ptr == value.data() + value.size();
            }
          };
          (try_one(field), ...);
        },
        LifetimeOptions::fields());
    if (!known) throw Error("no setting in bytes: " + std::string(one));
  }
}

int replay(int count, char** given) {
  LifetimeOptions options;
  options.huge = false;
  bool one_thread = false, verbose = false;
  double within = 0.03;
  std::string path;
  for (int i = 1; i < count; ++i) {
    const std::string_view one = given[i];
    if (one == "--set" && i + 1 < count) set(options, given[++i]);
    else if (one == "--within" && i + 1 < count) within = std::strtod(given[++i], nullptr);
    else if (one == "--one-thread") one_thread = true;
    else if (one == "--verbose") verbose = true;
    else path = one;
  }
  const Trace trace = Trace::open(path, Only::kMallocs);
  if (trace.events().empty()) throw Error(path + " has no events");
  Comparison comparison(trace, options, one_thread);
  comparison.run();
  const double largest = comparison.compare(verbose);
  std::printf("%zu events, differs by %.2f%% at most\n", trace.events().size(), 100 * largest);
  return largest <= within ? 0 : 1;
}

}  // namespace

}  // namespace memoir::malloc_

int main(int count, char** given) {
  try {
    return memoir::malloc_::replay(count, given);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "malloc_replay: %s\n", error.what());
    return 2;
  }
}

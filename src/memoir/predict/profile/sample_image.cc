// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/profile/sample_image.h"

#include <algorithm>
#include <cstring>

#include "memoir/base/error.h"
#include "memoir/base/utf8.h"
#include "memoir/predict/profile/byte_sampling.h"
#include "memoir/predict/profile/log_buckets.h"
#include "memoir/predict/profile/profile_merger.h"

namespace memoir::sample_image {

namespace {

using P = LifetimeProfile;

/// The records of a region that are there, whatever the header says: the program may have been killed, or
/// the bytes may come from a stranger.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& program, const std::string& name, std::uint64_t now)
      : bytes_(bytes), program_(program) {
    if (bytes.size() < sizeof(Header)) throw Error(name + ": too short for what a sampled program keeps");
    std::memcpy(static_cast<void*>(&header_), bytes.data(), sizeof header_);
    if (header_.magic != kMagic) throw Error(name + ": nothing was sampled: the program allocated nothing");
    if (header_.version != kVersion)
      throw Error(name + ": was sampled by another version of memoir; read it with that one");
    if (header_.every == 0 || header_.every > P::kMostSize)
      throw Error(name + ": damaged: it samples nothing");
    end_ = std::min(header_.last, P::kMostTime);
    if (now > header_.start_monotonic)
      end_ = std::max(end_, std::min((now - header_.start_monotonic) / 1000000, P::kMostTime));
    clock_ = std::min(header_.allocated.load(), P::kMostClock);
  }

  LifetimeProfile read() {
    modules();
    contexts();
    run();
    return canonical(result_);
  }

 private:
  template <class T>
  std::uint64_t count(Region region) const {
    const Size begin = region_begin(region);
    if (begin >= bytes_.size()) return 0;
    return std::min({header_.used[region], kShapes[region].most, (bytes_.size() - begin) / sizeof(T)});
  }
  template <class T>
  T at(Region region, std::uint64_t index) const {
    T record;
    std::memcpy(static_cast<void*>(&record), bytes_.data() + region_begin(region) + index * sizeof(T),
                sizeof(T));
    return record;
  }

  void modules() {
    const std::uint64_t modules = count<Module>(kModules), paths = count<char>(kPaths);
    for (std::uint64_t i = 0; i < modules; ++i) {
      const auto module = at<Module>(kModules, i);
      P::Module kept;
      kept.id_size = std::min<std::uint32_t>(module.id_size, P::kMostIdSize);
      std::memcpy(kept.id, module.id, kept.id_size);
      std::string path = "?";
      if (module.path < paths && module.path_size <= paths - module.path && module.path_size > 0)
        path = valid_text(bytes_.substr(region_begin(kPaths) + module.path, module.path_size));
      kept.path = result_.store(path);
      result_.modules.push_back(kept);
    }
  }
  static std::string valid_text(std::string_view text) { return valid_utf8(text.substr(0, text.find('\0'))); }

  void contexts() {
    const std::uint64_t contexts = count<Context>(kContexts), frames = count<Frame>(kFrames);
    for (std::uint64_t i = 0; i < contexts; ++i) {
      const auto source = at<Context>(kContexts, i);
      P::Context context = source.context;
      std::uint64_t first = context.first;
      const bool whole =
          first <= frames && context.frames <= frames - first && context.frames <= P::kMostFrames;
      if (!whole) context.frames = 0, first = 0;
      context.first = static_cast<std::uint32_t>(result_.stacks.size());
      context.flags = (context.flags & P::kCut) | (whole ? 0u : std::uint32_t{P::kCut});
      context.reserved = 0;
      for (std::uint32_t k = 0; k < context.frames; ++k) frame(at<Frame>(kFrames, first + k));
      context.least_size = std::min(context.least_size, P::kMostSize);
      context.most_size = std::clamp(context.most_size, context.least_size, P::kMostSize);
      // Freed ones as the program counted them; what is alive is added below.
      context.estimates[P::kCensored] = {};
      for (Tally& tally : context.tallies[P::kCensored]) tally = {};
      agree(context);
      result_.contexts.push_back(context);
      cells(static_cast<std::uint32_t>(i), source.cells);
    }
  }
  /// The program may have been killed between the fields of one sample.
  static void agree(P::Context& context) {
    P::Estimate& freed = context.estimates[P::kFreed];
    Tally& time = context.tallies[P::kFreed][P::kMilliseconds];
    Tally& clock = context.tallies[P::kFreed][P::kBytes];
    freed.samples = std::min({freed.samples, time.count, clock.count});
    const auto possible = [](const Tally& tally, std::uint64_t most) {
      return tally.least <= tally.most && tally.most <= most && tally.sum.value() >= tally.most;
    };
    if (freed.samples == 0 || !possible(time, P::kMostTime) || !possible(clock, P::kMostClock))
      freed = {}, time = {}, clock = {};
    time.count = clock.count = freed.samples;
  }
  void frame(Frame packed) {
    P::Frame frame;
    const std::uint64_t module = packed >> kOffsetBits;
    if (module != 0 && module <= result_.modules.size()) {
      frame.module = static_cast<std::uint32_t>(module - 1);
      frame.offset = packed & ((std::uint64_t{1} << kOffsetBits) - 1);
    }
    result_.stacks.push_back(static_cast<std::uint32_t>(result_.frames.size()));
    result_.frames.push_back(frame);
  }
  void cells(std::uint32_t context, std::uint32_t first) {
    const std::uint64_t cells = count<Cell>(kCells);
    size_t steps = 0;  // a chain that was torn may run in a circle
    for (std::uint32_t next = first; next != 0 && next <= cells && steps < 2 * log_buckets::kCount; ++steps) {
      const auto cell = at<Cell>(kCells, next - 1);
      next = cell.next;
      if (cell.bucket >= log_buckets::kCount || cell.clock > P::kBytes || cell.estimate.samples == 0)
        continue;
      result_.cells.push_back({context, cell.bucket, cell.clock, P::kFreed, cell.estimate});
    }
  }

  void run() {
    P::Run run;
    std::memcpy(run.id, header_.id, sizeof run.id);
    run.start = header_.start;
    run.every = header_.every;
    run.samples = header_.samples;
    run.lost = header_.lost.load();
    run.missed_frees = header_.missed_frees.load();
    run.process = header_.process;
    run.threads = header_.threads.load();
    run.program = result_.store(valid_text(program_));
    const std::uint64_t pairs = count<P::Pair>(kPairs), points = count<P::Point>(kPoints);
    for (std::uint64_t i = 0; i < pairs; ++i) pair(at<P::Pair>(kPairs, i));
    live();
    for (std::uint64_t i = 0; i < points; ++i) {
      auto point = at<P::Point>(kPoints, i);
      const P::Point last = result_.points.empty() ? P::Point{} : result_.points.back();
      point.time = std::max(last.time, std::min(point.time, end_));
      clock_ = std::max(clock_, std::min(point.clock, P::kMostClock));
      point.clock = std::max(last.clock, std::min(point.clock, P::kMostClock));
      point.decayed = std::max(point.decayed, point.live);
      result_.points.push_back(point);
    }
    std::stable_sort(result_.pairs.begin(), result_.pairs.end(),
                     [](const P::Pair& a, const P::Pair& b) { return a.priority < b.priority; });
    if (result_.pairs.size() > result_.totals.most_pairs) result_.pairs.resize(result_.totals.most_pairs);
    run.milliseconds = end_;
    run.allocated = clock_;
    run.priority = run_priority(run);
    run.pairs = static_cast<std::uint32_t>(result_.pairs.size());
    run.points = static_cast<std::uint32_t>(result_.points.size());
    result_.runs.push_back(run);
    P::Totals& totals = result_.totals;
    totals.runs = 1;
    totals.samples = run.samples;
    totals.lost = run.lost;
    totals.missed_frees = run.missed_frees;
    totals.milliseconds = run.milliseconds;
    totals.allocated = run.allocated;
  }
  /// With times inside the run; left out when the program was killed while it wrote it.
  void pair(P::Pair pair) {
    if (pair.context >= result_.contexts.size() || pair.size == 0 || pair.size > P::kMostSize ||
        pair.weight == 0)
      return;
    pair.flags &= P::kNeverFreed;
    pair.end = std::min(pair.end, end_);
    pair.begin = std::min(pair.begin, pair.end);
    clock_ = std::max(clock_, std::min(pair.end_clock, P::kMostClock));
    pair.end_clock = std::min(pair.end_clock, P::kMostClock);
    pair.begin_clock = std::min(pair.begin_clock, pair.end_clock);
    result_.pairs.push_back(pair);
  }
  /// What is alive now was never freed: censored.
  void live() {
    const std::uint64_t live = count<Live>(kLive);
    for (std::uint64_t i = 0; i < live; ++i) {
      const auto one = read_live(i);
      clock_ = std::max(clock_, std::min(one.begin_clock, P::kMostClock));
    }
    for (std::uint64_t i = 0; i < live; ++i) {
      const auto one = read_live(i);
      const size_t before = result_.pairs.size();
      P::Pair censored = one;
      censored.end = end_;
      censored.end_clock = clock_;
      pair(censored);
      if (result_.pairs.size() == before) continue;
      count_censored(result_.pairs.back());
    }
  }
  P::Pair read_live(std::uint64_t i) const {
    Live live;
    std::memcpy(static_cast<void*>(&live), bytes_.data() + region_begin(kLive) + i * sizeof(Live),
                sizeof live);
    P::Pair pair;
    if (live.address.load() == 0) return pair;
    pair.context = live.context;
    pair.flags = P::kNeverFreed;
    pair.allocated_by = live.thread;
    pair.size = live.size;
    pair.weight = live.weight;
    pair.begin = live.begin;
    pair.begin_clock = live.begin_clock;
    pair.priority = live.priority;
    return pair;
  }
  void count_censored(const P::Pair& pair) {
    P::Context& context = result_.contexts[pair.context];
    const P::Estimate one{1, pair.weight, byte_sampling::weighted_bytes(pair.size, pair.weight)};
    context.estimates[P::kCensored].add(one);
    const std::uint64_t lifetimes[] = {pair.end - pair.begin, pair.end_clock - pair.begin_clock};
    for (const auto clock : {P::kMilliseconds, P::kBytes}) {
      context.tallies[P::kCensored][clock].add(lifetimes[clock]);
      result_.cells.push_back({pair.context, static_cast<std::uint16_t>(log_buckets::of(lifetimes[clock])),
                               clock, P::kCensored, one});
    }
  }

  std::string_view bytes_;
  const std::string& program_;
  Header header_;
  std::uint64_t end_ = 0, clock_ = 0;
  LifetimeProfile result_;
};

}  // namespace

LifetimeProfile read_image(std::string_view bytes, const std::string& program, const std::string& name,
                           std::uint64_t now) {
  return Reader(bytes, program, name, now).read();
}

}  // namespace memoir::sample_image

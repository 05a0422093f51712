// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/learning_heap.h"

#include <algorithm>
#include <exception>
#include <map>
#include <vector>

#include "memoir/policy/few_waits.h"

namespace memoir {

namespace {
constexpr std::uint64_t kTolerated = 50;  // one request of a round in so many may depart from the plan,
constexpr std::uint64_t kFew = 32;        // and these in any case
constexpr Size kFewGranules = 6;          // of a small program, all that excess allows may be less
// times excess: where no plan keeps to that, one that costs a little more
constexpr double kSecondShare = 2.5;
constexpr std::uint64_t kEndOfRound = 8;       // the last of so many parts
constexpr std::uint64_t kToleratedCalls = 4;   // of a round, after the first that follows a plan
constexpr std::uint32_t kMostPatience = 1024;  // rounds
constexpr std::uint32_t kRoundsToWait = 2;     // for a moment at which little lives
constexpr std::uint32_t kGoodPlan = 16;  // rounds: a loop that went so far is not held against the next one
}  // namespace

LearningHeap::LearningHeap(Arena& arena, const LearningOptions& options, StreamOrder* order,
                           Segments* plain) noexcept
    : pool_(arena, options, order, plain), arena_(arena), order_(order), options_(options) {
  if (options_.learn) start_learning();
}

void LearningHeap::start_learning() noexcept {
  options_.learn = true;
  if (pool_.ok() && detector_.start()) pool_.watch(&detector_);
}

Offset LearningHeap::allocate(const Request& request) noexcept {
  if (planned_ != nullptr) {
    if (const Offset offset = follow(request); offset != kNoOffset) [[likely]]
      return offset;
  }
  const Offset offset = pool_.allocate(request);
  if (offset == kNoOffset && planned_ != nullptr) {
    give_up();
    return pool_.allocate(request);
  }
  if (detector_.due() || pending_) [[unlikely]]
    learn();
  return offset;
}

bool LearningHeap::free(Offset offset) noexcept {
  if (is_in_slab(offset)) {
    const std::uint32_t entry = planned_->release(offset - slab_.begin);
    if (entry == PlannedLayout::kNone) return false;
    if (streams_->any()) streams_->end(entry);
    return true;
  }
  const bool freed = pool_.free(offset);
  if (pending_) [[unlikely]]
    learn();
  return freed;
}

Size LearningHeap::size_of(Offset offset) const noexcept {
  return is_in_slab(offset) ? planned_->size_of(offset - slab_.begin) : pool_.size_of(offset);
}

void LearningHeap::trim() noexcept {
  if (planned_ != nullptr) give_up();
  pool_.trim();
}

// --- following a plan ---

Offset LearningHeap::follow(const Request& request) noexcept {
  if (planned_->at_end() || begins_round(request)) {
    begin_round();
    if (planned_ == nullptr) return kNoOffset;
  }
  const std::uint64_t escaping = planned_->counters().escaping;
  if (const Offset offset = match(request); offset != kNoOffset) [[likely]] {
    ++counters_.planned;
    return offset;
  }
  if (planned_->counters().escaping != escaping) return kNoOffset;
  ++counters_.departed;
  ++departed_;
  if (departed_ > kFew + layout_->entries().size() / kTolerated || !may_stay(request)) give_up();
  return kNoOffset;
}

/// A round that was not in step may leave out its last requests.
bool LearningHeap::begins_round(const Request& request) const noexcept {
  if (planned_->in_step()) [[likely]]
    return false;
  const auto entries = layout_->entries();
  return entries.size() - planned_->place() < entries.size() / kEndOfRound &&
         request.size == entries[0].size && SiteId{request.stream} + 1 == entries[0].site;
}

Offset LearningHeap::match(const Request& request) noexcept {
  if (request.plain) return kNoOffset;
  const Offset planned =
      planned_->allocate({request.size, request.alignment, SiteId{request.stream} + 1, request.stream});
  if (planned == kNoOffset) return kNoOffset;
  if (streams_->any() && !streams_->begin(planned_->last_entry())) {
    planned_->free(planned);
    return kNoOffset;
  }
  return slab_.begin + planned;
}

/// Whether the online pool can serve the request without more memory than it would have without slabs.
bool LearningHeap::may_stay(const Request& request) const noexcept {
  return pool_.has_free(request) || arena_.committed() + request.size <= most_reserved(peak_held_);
}

Size LearningHeap::most_reserved(Size held) const noexcept {
  const double share = options_.excess * (patience_ == 1 ? 1 : kSecondShare);
  return held +
         std::max(static_cast<Size>(static_cast<double>(held) * share), kFewGranules * arena_.granule());
}

void LearningHeap::begin_round() noexcept {
  const std::uint64_t calls = pool_.counters().calls();
  if (rounds_ > 2 && calls - calls_ > kToleratedCalls) {
    patience_ = kMostPatience;  // what the plan knows and what it does not take turns, and would again
    return give_up();
  }
  if (rounds_ == kGoodPlan) {
    patience_ = 1;
    detector_.want_rounds(1);
  }
  calls_ = calls;
  ++rounds_;
  departed_ = 0;
  planned_->begin_pass();
}

/// The slab becomes what lives in it. Where that cannot be now (no memory for it, a stream that is captured)
/// it stays, and is followed on.
void LearningHeap::give_up() noexcept try {
  std::vector<DevicePoolHeap::Part> parts;
  planned_->for_each_live([&](const PlannedLayout::Entry& entry) {
    parts.push_back({{slab_.begin + entry.offset, entry.size}, static_cast<StreamId>(entry.site - 1)});
  });
  if (!streams_->close() || !pool_.break_up(slab_.begin, parts)) return;
  planned_.reset();
  streams_.reset();
  layout_.reset();
  slab_ = {};
  pool_.lower_peak(peak_held_);
  ++counters_.dropped;
  detector_.start();
  if (rounds_ < kGoodPlan) postpone();
} catch (const std::exception&) {  // no memory for the list
}

// --- learning ---

void LearningHeap::learn() noexcept try {
  if (pending_ && (detector_.period() != pending_->period ||
                   detector_.next() - pending_->made > kRoundsToWait * pending_->period)) {
    return postpone();
  }
  if (!pending_) {
    if (!detector_.due()) return;
    pending_ = plan_loop();
    if (!pending_) return postpone();
  }
  const Size live = pool_.live();
  const std::uint32_t place = (detector_.next() - pending_->first) % pending_->period;
  if (live > pending_->most_live || (pending_->at_cut && place != 0)) return;
  // What lies beside live objects, in the same granules, cannot be moved.
  if (arena_.committed() - pool_.idle_bytes() > pending_->room) {
    if (!pending_->at_cut) pending_->most_live = live == 0 ? 0 : live - 1;
    return;
  }
  if (!adopt(place)) {
    detector_.start();
    return postpone();
  }
  pending_.reset();
} catch (const std::exception&) {  // no memory for it
  pending_.reset();
  detector_.stop();
}

/// No plan now; the loop, or the next one, has to repeat itself more often.
void LearningHeap::postpone() noexcept {
  pending_.reset();
  detector_.want_rounds(patience_);
  patience_ = std::min(2 * patience_, kMostPatience);
}

/// What passes from one round to the next has a place for the whole round, if there is a moment at which so
/// little lives that the slab can be made; else it is left to the online pool.
std::optional<LearningHeap::PendingPlan> LearningHeap::plan_loop() const {
  const LoopRound round(detector_);
  const std::uint32_t cut = round.cut();
  if (auto pending = plan_round(round, cut, true)) return pending;
  return plan_round(round, cut, false);
}

std::optional<LearningHeap::PendingPlan> LearningHeap::plan_round(const LoopRound& round, std::uint32_t cut,
                                                                  bool with_passing) const {
  const auto count = static_cast<std::uint32_t>(round.objects.size());
  PendingPlan pending;
  pending.first = round.first + cut;
  pending.period = count;
  pending.made = detector_.next();
  Problem problem;
  std::vector<StreamId> streams;
  std::map<StreamId, Size> bytes;
  std::vector<std::uint32_t> members;  // of the plan
  Size passing = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const LoopRound::Object& object = round.objects[(cut + i) % count];
    const std::uint32_t begin = (object.begin + round.ticks - round.objects[cut].begin) % round.ticks;
    const std::uint64_t end = std::uint64_t{begin} + object.ticks;
    const bool passes = end > round.ticks;
    const Lifetime lifetime = passes ? Lifetime{0, round.ticks} : Lifetime{begin, end};
    pending.plan.sequence.push_back(
        {SiteId{object.stream} + 1, object.size, options_.alignment, lifetime, kNoOffset});
    if (passes) passing += object.size;
    if (object.ticks == 0 || (passes && !with_passing)) continue;
    problem.push_back({lifetime, object.size, options_.alignment});
    streams.push_back(object.stream);
    bytes[object.stream] += object.size;
    members.push_back(i);
  }
  if (problem.empty() || (passing == 0 && !with_passing)) return std::nullopt;
  const Plan plan = plan_with_few_waits(problem, streams, options_.alignment);
  const Size bound = std::max(most_reserved(pool_.peak_held()), arena_.committed());
  // What lives at the cut passes it, or lives for longer than rounds.
  const Size live = detector_.record(pending.first + count).live;
  const Size beside = (live > passing ? live - passing : 0) + round.longer + (with_passing ? 0 : passing);
  if (plan.arena_size > bound || bound - plan.arena_size < std::max(beside, round.least_live))
    return std::nullopt;
  for (size_t i = 0; i < members.size(); ++i) pending.plan.sequence[members[i]].offset = plan.offsets[i];
  pending.plan.arena_size = plan.arena_size;
  pending.at_cut = !with_passing;
  pending.room = pending.most_live = bound - plan.arena_size;
  pending.owner = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) {
                    return a.second < b.second;
                  })->first;
  return pending;
}

bool LearningHeap::adopt(std::uint32_t place) noexcept try {
  auto layout = std::make_unique<PlannedLayout>(pending_->plan);
  if (!layout->ok()) return false;
  auto planned = std::make_unique<PlannedHeap>(*layout);
  if (!planned->ok()) return false;
  auto streams = std::make_unique<SlabStreams>(*layout, order_, pending_->owner);
  peak_held_ = pool_.peak_held();
  detector_.stop();
  const Size size = layout->arena_size();
  const Offset offset = pool_.allocate({.size = size, .stream = pending_->owner});
  if (offset == kNoOffset) return false;
  if (!streams->open()) {
    pool_.free(offset);
    pool_.lower_peak(peak_held_);
    return false;
  }
  slab_ = {offset, size};
  layout_ = std::move(layout);
  planned_ = std::move(planned);
  streams_ = std::move(streams);
  planned_->begin_pass(place);
  departed_ = 0;
  rounds_ = 0;
  calls_ = pool_.counters().calls();
  ++counters_.plans;
  return true;
} catch (const std::exception&) {
  return false;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/learning_heap.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

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
constexpr std::uint32_t kRoundsToPlan = 64;    // after which nobody will bring a plan any more
constexpr std::uint32_t kGoodPlan = 16;  // rounds: a loop that went so far is not held against the next one
}  // namespace

LearningHeap::LearningHeap(Arena& arena, const LearningOptions& options, StreamOrder* order, Segments* plain,
                           PlanRunner* runner) noexcept
    : pool_(arena, options, order, plain), arena_(arena), order_(order), options_(options), runner_(runner) {
  if (options_.learn) start_learning();
}

void LearningHeap::start_learning() noexcept {
  options_.learn = true;
  if (pool_.ok() && detector_.start()) pool_.watch(&detector_);
}

Offset LearningHeap::allocate(const Request& request) noexcept {
  if (job_ || pending_) [[unlikely]]
    learn();
  if (planned_ != nullptr) {
    if (const Offset offset = follow(request); offset != kNoOffset) [[likely]]
      return offset;
  }
  const Offset offset = pool_.allocate(request);
  if (offset == kNoOffset && planned_ != nullptr) {
    give_up();
    return pool_.allocate(request);
  }
  if (detector_.due() && !job_ && !pending_) [[unlikely]]
    have_planned();
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
  if (job_ || pending_) [[unlikely]]
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

/// Before a request is served, and after a free.
void LearningHeap::learn() noexcept {
  if (job_) look_at_job();
  if (!pending_) return;
  if (detector_.period() != pending_->period ||
      detector_.next() - pending_since_ > kRoundsToWait * pending_->period) {
    return postpone();
  }
  const Size live = pool_.live();
  const std::uint32_t place = (detector_.next() - pending_->first) % pending_->period;
  if (live > pending_live_ || (pending_->at_cut && place != 0)) return;
  // What lies next to live objects, in the same granules, cannot be moved.
  if (arena_.committed() - pool_.idle_bytes() > pending_->room) {
    if (!pending_->at_cut) pending_live_ = live == 0 ? 0 : live - 1;
    return;
  }
  if (!adopt(place)) {
    detector_.start();
    return postpone();
  }
  pending_.reset();
}

void LearningHeap::have_planned() noexcept try {
  const Size bound = std::max(most_reserved(pool_.peak_held()), arena_.committed());
  job_ = std::make_shared<LoopPlanJob>(detector_, options_.alignment, bound, order_);
  if (runner_ != nullptr) {
    runner_->start(job_);
  } else {
    job_->run();
  }
} catch (const std::exception&) {  // no memory for it
  job_.reset();
  detector_.stop();
}

/// Takes the plan over where a round begins.
void LearningHeap::look_at_job() noexcept {
  if (detector_.period() != job_->period() ||
      detector_.next() - job_->made() > std::uint64_t{kRoundsToPlan} * job_->period()) {
    return postpone();
  }
  if (!job_->is_done()) return;
  if (job_->made_plan() == nullptr) return postpone();
  if ((detector_.next() - job_->made_plan()->first) % job_->period() != 0) return;
  pending_ = job_->take();
  job_.reset();
  pending_since_ = detector_.next();
  pending_live_ = pending_->room;
}

/// No plan now; the loop, or the next one, has to repeat itself more often.
void LearningHeap::postpone() noexcept {
  job_.reset();
  pending_.reset();
  detector_.want_rounds(patience_);
  patience_ = std::min(2 * patience_, kMostPatience);
}

bool LearningHeap::adopt(std::uint32_t place) noexcept {
  peak_held_ = pool_.peak_held();
  detector_.stop();
  const Size size = pending_->layout->arena_size();
  const Offset offset = pool_.allocate({.size = size, .stream = pending_->owner});
  if (offset == kNoOffset) return false;
  if (!pending_->streams->open()) {
    pool_.free(offset);
    pool_.lower_peak(peak_held_);
    return false;
  }
  slab_ = {offset, size};
  layout_ = std::move(pending_->layout);
  planned_ = std::move(pending_->heap);
  streams_ = std::move(pending_->streams);
  planned_->begin_pass(place);
  departed_ = 0;
  rounds_ = 0;
  calls_ = pool_.counters().calls();
  ++counters_.plans;
  return true;
}

}  // namespace memoir

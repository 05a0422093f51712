// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/memory.h"

#include <time.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "memoir/plan/program_plan.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

namespace {

// A first sight is a call whose numbers are new, and that no plan can be derived for. These count first
// sights in a row, which tell how varied the inputs are; the first that is seen again sets the count back.
constexpr unsigned kFirstSightsApart =
    4;  // up to here a recorded pass keeps its large objects apart from malloc's
constexpr unsigned kFirstSightsRecorded =
    8;                                     // up to here all are recorded; later ones when they are seen again
constexpr unsigned kFirstSightsSaid = 32;  // after so many it is said that nothing repeats

constexpr unsigned kLongestPause = 64;    // passes between two recordings of what keeps differing, or failing
constexpr size_t kUnrepeatedKept = 4096;  // keys seen once and not recorded that are remembered
constexpr size_t kMostFamilies = 64;
constexpr size_t kMostTemplates = 6;    // of one family
constexpr unsigned kSettled = 16;       // derived passes in step before nobody listens to operators any more
constexpr unsigned kFirstPatience = 6;  // derived plans in a row that are out of step; then 12, 24, ...
// Passes that exceptions ended, more than others: no accident from here on; and the most that count.
constexpr unsigned kCutOffs = 4, kMostCutOffs = 8;
// Derived plans known to lack something that are recorded instead: some at once, then one in so many.
constexpr std::uint64_t kFirstRecordedAgain = 6, kBetweenRecordedAgain = 10;
// allocations served for each that was not: a derived plan is of use
constexpr std::uint64_t kWorthIt = 2;
constexpr unsigned kFailuresBelieved =
    3;                                    // derived plans in a row that were of no use before recording again
constexpr size_t kMostEscapesOfSite = 8;  // of one operator, before all that it allocates is planned no more

void pause_a_millisecond() noexcept {
  const timespec pause{0, 1'000'000};
  ::nanosleep(&pause, nullptr);
}

}  // namespace

/// What one thread does for all: others find it claimed. In the child of a fork() the claim of a thread that
/// is gone is void.
class Claim {
 public:
  bool is_held() const noexcept { return held_ && generation_ == fork_generation(); }
  bool take() noexcept {
    if (is_held()) return false;
    held_ = true;
    generation_ = fork_generation();
    return true;
  }
  void drop() noexcept { held_ = false; }

 private:
  bool held_ = false;
  std::uint32_t generation_ = 0;
};

struct Memory::Plan {
  std::uint64_t key = 0, form = 0;
  std::vector<std::int64_t> point;  // the call's numbers, then those of its values that are numbers
  std::vector<CallShape::Value> values;
  std::shared_ptr<const RecordedPlan> plan;
  std::shared_ptr<const PlannedLayout> layout;
  std::shared_ptr<PassTemplate> derived_from;  // null: these numbers were recorded
  std::vector<std::uint32_t> allocations;      // of derived_from, per allocation of the plan
  bool outdated = false;                       // sizes were learned since it was derived
  bool is_partial = false;                     // see DerivedPlan
  std::uint64_t used = 0;
  Claim recording;
  bool scoped = true;     // the first pass of a plan listens to operators; later ones only after a difference
  unsigned wait = 1;      // passes that may differ before the next recording
  unsigned differed = 0;  // passes that differed since the last recording
  unsigned skip = 0;      // calls that are plain, since something failed
  unsigned failures = 0;
  unsigned cut_off = 0;  // passes that an exception ended and that left something behind, less the others
  std::shared_ptr<const RecordedPlan> whole;  // with what such passes left behind; null: `plan` has it

  bool needs_recording() const noexcept { return skip == 0 && (layout == nullptr || differed >= wait); }
};

/// All calls of one form.
struct Memory::Family {
  std::vector<bool> matters;  // per value of the call: allocations differed where it did
  std::vector<std::shared_ptr<PassTemplate>> templates;  // the one used last first
  unsigned failures = 0;                                 // derived plans in a row that were of no use
  // Derived plans in a row that were not followed in step, and how many before one is recorded instead.
  unsigned out_of_step = 0, patience = kFirstPatience;
  // Calls with new numbers that a plan could be derived for, and those of them recorded all the same.
  std::uint64_t first_sights = 0, recorded_again = 0;
  bool takes_guests = true;  // until one outlives its pass
  std::uint64_t used = 0;
};

namespace {

std::vector<std::int64_t> point_of(const CallShape& shape, const std::vector<bool>& matters) {
  std::vector<std::int64_t> point = shape.numbers;
  for (size_t i = 0; i < shape.values.size(); ++i) {
    if (i < matters.size() && matters[i] && shape.values[i].is_number) point.push_back(shape.values[i].value);
  }
  return point;
}

}  // namespace

Memory::Memory(MemoryOptions options, std::shared_ptr<SlabSet> slabs)
    : options_(options), slabs_(std::move(slabs)) {}

Memory::~Memory() = default;

std::uint64_t Memory::key_of(const CallShape& shape, const Family* family) const noexcept {
  std::uint64_t key = shape.form;
  for (const std::int64_t number : shape.numbers)
    key = CallShape::mix(key, static_cast<std::uint64_t>(number));
  if (family == nullptr) return key;
  for (size_t i = 0; i < shape.values.size() && i < family->matters.size(); ++i) {
    if (family->matters[i])
      key = CallShape::mix(key,
                           static_cast<std::uint64_t>(shape.values[i].value) * 2 + shape.values[i].is_number);
  }
  return key;
}

Memory::Decision Memory::decide(const CallShape& shape) noexcept try {
  Decision decision;
  const std::lock_guard lock(mutex_);
  ++stats_.calls;
  decision.plan = find(shape, decision);
  Plan* const plan = decision.plan.get();
  if (plan == nullptr || plan->skip > 0) {
    if (plan != nullptr) --plan->skip;
    ++stats_.plain_passes;
    return decision;
  }
  plan->used = ++uses_;
  // A pass from fresh pages peaks at its live bytes, but takes their faults: not where nothing repeats.
  decision.large_apart = first_sights_ <= kFirstSightsApart;
  if (plan->needs_recording() && plan->derived_from == nullptr && plan->recording.take()) {
    decision.way = Way::kRecord;
    if (plan->layout != nullptr) {
      decision.records = true;
      follow(decision);
    }
  } else if (plan->layout != nullptr && !plan->needs_recording()) {
    follow(decision);
  } else {
    decision.way = Way::kSlow;
  }
  return decision;
} catch (...) {  // no memory
  return {};
}

/// Its plan has a layout. The caller has the lock.
void Memory::follow(Decision& decision) noexcept {
  const Plan& plan = *decision.plan;
  decision.way = Way::kFollow;
  decision.layout = plan.layout;
  decision.scoped = plan.scoped || decision.records;
  decision.logged = plan.derived_from != nullptr;
  last_ = decision.plan;
}

Memory::Decision Memory::decide_slowly(Decision decision) noexcept try {
  Plan& plan = *decision.plan;
  for (unsigned waited = 0;; ++waited) {
    std::unique_lock lock(mutex_);
    if (plan.derived_from != nullptr && plan.layout == nullptr && !derive(plan)) plan.derived_from = nullptr;
    if (plan.needs_recording() && plan.recording.take()) {
      plan.derived_from = nullptr;
      decision.way = Way::kRecord;
      return decision;
    }
    if (plan.layout != nullptr) {
      follow(decision);
      return decision;
    }
    // Without a plan to follow meanwhile, callers wait for it, since a pass on malloc next to the recorded
    // one would leave malloc with memory that no later pass needs; but not for long: the recorded pass may
    // itself be waiting for this caller's.
    const bool busy = plan.recording.is_held();
    if (!busy || !waits_ || waited >= options_.patience_ms) {
      if (busy && waits_) waits_ = false;
      ++stats_.plain_passes;
      decision.way = Way::kPlain;
      return decision;
    }
    lock.unlock();
    pause_a_millisecond();
  }
} catch (...) {
  const std::lock_guard lock(mutex_);
  failed(*decision.plan);
  ++stats_.plain_passes;
  return {};
}

/// The plan of this call, perhaps one to be made; null: it is none to remember yet. The caller has the lock.
std::shared_ptr<Memory::Plan> Memory::find(const CallShape& shape, Decision& decision) {
  const auto known = families_.find(shape.form);
  Family* const family = known == families_.end() ? nullptr : known->second.get();
  const std::uint64_t key = key_of(shape, family);
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    first_sights_ = 0;
    Plan& plan = *found->second;
    if (std::exchange(plan.outdated, false) && plan.derived_from != nullptr) derive(plan);
    return found->second;
  }
  decision.is_new = true;
  const bool drifts = family != nullptr && family->out_of_step >= family->patience;
  if (drifts) {  // operators choose other ways for these numbers: they are recorded like the first
    family->out_of_step = 0;
    family->patience = std::min(2 * family->patience, kLongestPause);
    auto plan = remember(key, shape);
    decision.records = derive(*plan) && plan->recording.take();
    return plan;
  }
  if (family != nullptr && family->failures < kFailuresBelieved && !family->templates.empty()) {
    auto plan = remember(key, shape);
    family->used = uses_;
    ++family->first_sights;
    if (derive(*plan)) {
      if (plan->is_partial && may_record_again(*family)) decision.records = plan->recording.take();
      return plan;
    }
    plans_.erase(key);
  }
  if (++first_sights_ <= kFirstSightsRecorded) return remember(key, shape);
  if (!said_ && first_sights_ > kFirstSightsSaid) said_ = decision.repeats_nothing = true;
  if (seen_set_.insert(key).second) {
    if (seen_.size() < kUnrepeatedKept) {
      seen_.push_back(key);
    } else {
      seen_set_.erase(seen_[next_seen_]);
      seen_[next_seen_] = key;
      next_seen_ = (next_seen_ + 1) % kUnrepeatedKept;
    }
    return nullptr;
  }
  first_sights_ = 0;
  return remember(key, shape);
}

std::shared_ptr<Memory::Plan> Memory::remember(std::uint64_t key, const CallShape& shape) {
  while (plans_.size() >= options_.max_plans) {
    plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
      return a.second->used < b.second->used;
    }));
  }
  auto plan = std::make_shared<Plan>();
  plan->key = key;
  plan->form = shape.form;
  plan->point = point_of(shape, family_of(shape.form).matters);
  plan->values = shape.values;
  plan->used = ++uses_;
  plans_[key] = plan;
  return plan;
}

Memory::Family& Memory::family_of(std::uint64_t form) {
  auto& family = families_[form];
  if (family == nullptr) {
    family = std::make_unique<Family>();
    if (families_.size() > kMostFamilies) {
      auto oldest = families_.end();
      for (auto at = families_.begin(); at != families_.end(); ++at) {
        if (at->first == form || at->second == nullptr) continue;
        if (oldest == families_.end() || at->second->used < oldest->second->used) oldest = at;
      }
      families_.erase(oldest);
    }
  }
  auto& found = families_[form];
  found->used = ++uses_;
  return *found;
}

/// Whether a pass is recorded although a plan could be derived, since it is known to lack something.
bool Memory::may_record_again(Family& family) noexcept {
  if (family.recorded_again >= kFirstRecordedAgain + family.first_sights / kBetweenRecordedAgain)
    return false;
  ++family.recorded_again;
  return true;
}

/// True when the plan has a layout then, made of what calls of other numbers did. The caller has the lock.
bool Memory::derive(Plan& plan) {
  Family& family = family_of(plan.form);
  auto candidates = family.templates;
  std::stable_sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return a->likeness(plan.point) > b->likeness(plan.point);
  });
  for (const auto& candidate : candidates) {
    auto made = candidate->at(plan.point);
    if (!made) continue;
    plan.derived_from = candidate;
    plan.allocations = std::move(made->allocations);
    plan.is_partial = made->is_partial;
    plan.scoped = candidate->settled < kSettled;
    set_layout(plan, std::move(made->plan));
    return true;
  }
  return false;
}

/// Throws when it cannot be planned. Takes the lock where it must.
void Memory::make_plan(Plan& plan, const RecordedPass& recorded) {
  std::string_view planner;
  const auto placed = plan_quickly(recorded.problem, &planner);
  RecordedPlan made = record_plan(recorded, placed, planner);
  const std::lock_guard lock(mutex_);
  Family& family = family_of(plan.form);
  family.failures = 0;
  know(family, recorded, plan.point);
  // What keeps changing is recorded after 1, 2, 4, ... differing passes. A derived plan did not change: its
  // pass was recorded since it was known to lack something.
  if (plan.plan != nullptr && plan.derived_from == nullptr)
    plan.wait = std::min(2 * plan.wait, kLongestPause);
  plan.derived_from = nullptr;
  plan.scoped = true;
  plan.failures = 0;
  set_layout(plan, std::move(made));
}

/// That recorded pass, for plans of other numbers. The caller has the lock.
void Memory::know(Family& family, const RecordedPass& recorded, const std::vector<std::int64_t>& point) {
  for (const auto& like : family.templates) {
    if (like->add(recorded, point)) return;
  }
  family.templates.insert(family.templates.begin(), std::make_shared<PassTemplate>(recorded, point));
  if (family.templates.size() > kMostTemplates) family.templates.pop_back();
}

void Memory::set_layout(Plan& plan, RecordedPlan made) {
  drop_known_escapes(made);
  auto layout = std::make_shared<const PlannedLayout>(
      made, plan.derived_from != nullptr ? PlannedFit::kSmallerToo : PlannedFit::kExact,
      family_of(plan.form).takes_guests);
  if (!layout->ok()) throw std::bad_alloc();
  plan.plan = std::make_shared<const RecordedPlan>(std::move(made));
  plan.layout = std::move(layout);
  plan.whole = nullptr;
  plan.differed = 0;
  plan.outdated = false;
}

void Memory::failed(Plan& plan) noexcept {
  plan.skip = std::min(1u << std::min(plan.failures, 6u), kLongestPause);
  ++plan.failures;
}

void Memory::recorded(const Decision& decision, Recorder& recorder, bool complete) noexcept {
  Plan& plan = *decision.plan;
  bool planned = false;
  if (complete) {
    try {
      const RecordedPass pass = read_pass(Trace::from_bytes(recorder.writer().bytes()).events());
      if (pass.pass && recorder.writer().dropped() == 0) {
        make_plan(plan, pass);
        planned = true;
      }
    } catch (...) {  // no memory for it, at some moment
    }
  }
  const std::lock_guard lock(mutex_);
  plan.recording.drop();
  ++stats_.recorded_passes;
  if (complete && !planned) failed(plan);
}

void Memory::followed(const Decision& decision, const CallShape& shape, const FollowedPass& pass,
                      const RequestLog& log) noexcept {
  const std::lock_guard lock(mutex_);
  ++stats_.plan_hits;
  stats_.in_step_passes += pass.repeated;
  stats_.derived_passes += decision.logged;
  stats_.planned += pass.counters.planned;
  stats_.escaping += pass.counters.escaping;
  stats_.unmatched += pass.counters.unmatched;
  stats_.occupied += pass.counters.occupied;
  stats_.guests += pass.counters.guests;
  Plan& plan = *decision.plan;
  if (plan.layout != decision.layout) return;  // another one was made meanwhile
  try {
    if (!pass.finished) return was_cut_off(plan, pass.kept);
    if (plan.cut_off > 0 && --plan.cut_off == 0 && plan.whole != nullptr) {
      set_layout(plan, RecordedPlan(*plan.whole));
      return;
    }
    if (!pass.kept.empty()) learn_escapes(plan, pass.kept);
    if (decision.records) return;  // recorded() learns the rest
    plan.scoped = !pass.repeated;
    if (pass.repeated) {
      plan.differed = 0;
      if (plan.derived_from != nullptr) {
        ++plan.derived_from->settled;
        Family& family = family_of(plan.form);
        family.failures = family.out_of_step = 0;
        family.patience = kFirstPatience;
        if (pass.counters.smaller > 0) plan.outdated = learn_sizes(family, plan, log);
      }
      return;
    }
    ++plan.differed;
    if (plan.derived_from != nullptr) {
      plan.derived_from->settled = 0;
      Family& family = family_of(plan.form);
      ++family.out_of_step;
      const auto& went = pass.counters;
      const bool of_use = went.planned > kWorthIt * (went.unmatched + went.occupied);
      family.failures = of_use ? 0 : family.failures + 1;
      if (learn_sizes(family, plan, log)) {
        family.failures = 0;
        plan.outdated = true;
      }
    } else if (plan.wait > 1) {  // recorded once more already, and that did not help
      learn_values(plan, shape);
    }
  } catch (...) {  // no memory: nothing was learned
  }
}

void Memory::plain() noexcept {
  const std::lock_guard lock(mutex_);
  ++stats_.plain_passes;
}

void Memory::give_plans(Decision& decision, std::span<const GivenPlan> plans) noexcept try {
  const std::lock_guard lock(mutex_);
  if (decision.plan == nullptr) return;
  Plan& of_call = *decision.plan;
  const RecordedPlan* exact = nullptr;
  for (const GivenPlan& given : plans) {
    if (given.numbers.size() != of_call.point.size()) continue;
    if (given.numbers == of_call.point) exact = &given.plan;
    RecordedPass pass;
    pass.sequence = given.plan.sequence;
    for (std::uint32_t i = 0; i < pass.sequence.size(); ++i) {
      const PlannedAllocation& one = pass.sequence[i];
      if (!one.planned()) continue;
      pass.positions.push_back(i);
      pass.problem.push_back({one.lifetime, one.size, one.alignment});
    }
    know(family_of(of_call.form), pass, given.numbers);
  }
  if (exact != nullptr) {
    of_call.derived_from = nullptr;
    set_layout(of_call, *exact);
  } else if (decision.way != Way::kRecord || !derive(of_call)) {
    return;
  }
  if (decision.way == Way::kRecord) of_call.recording.drop();
  of_call.scoped = true;
  follow(decision);
} catch (...) {  // it is recorded, as without
}

/// A pass that an exception ended says nothing of the plan, and the exception holds what lived just then. But
/// where most passes end so, what they leave behind is not planned until they finish again.
void Memory::was_cut_off(Plan& plan, const std::vector<std::uint32_t>& kept) {
  if (kept.empty()) return;
  plan.cut_off = std::min(plan.cut_off + 1, kMostCutOffs);
  if (plan.cut_off < kCutOffs) return;
  RecordedPlan changed = *plan.plan;
  bool any = false;
  for (const std::uint32_t index : kept) {
    if (index >= changed.sequence.size() || !changed.sequence[index].planned()) continue;
    any = true;
    changed.sequence[index].offset = kNoOffset;
  }
  if (!any) return;
  const auto whole = plan.whole != nullptr ? plan.whole : plan.plan;
  const unsigned differed = plan.differed;
  set_layout(plan, std::move(changed));
  plan.whole = whole;
  plan.differed = differed;
}

/// What outlived a pass once is planned no more, here and in plans to come.
void Memory::learn_escapes(Plan& plan, const std::vector<std::uint32_t>& kept) {
  if (kept.back() == PlannedLayout::kNone) learn_of_guests(plan);
  RecordedPlan changed = plan.whole != nullptr ? *plan.whole : *plan.plan;
  bool any = false;
  for (const std::uint32_t index : kept) {
    if (index >= changed.sequence.size() || !changed.sequence[index].planned()) continue;
    any = true;
    const SiteId site = changed.sequence[index].site;
    const auto number = std::count_if(changed.sequence.begin(), changed.sequence.begin() + index,
                                      [&](const PlannedAllocation& a) { return a.site == site; });
    changed.sequence[index].offset = kNoOffset;
    if (site != kNoSite) escapes_[site].insert(static_cast<std::uint32_t>(number));
    if (plan.derived_from != nullptr && index < plan.allocations.size())
      plan.derived_from->escapes(plan.allocations[index]);
  }
  if (!any) return;
  const unsigned differed = plan.differed;
  set_layout(plan, std::move(changed));
  plan.differed = differed;
}

/// One outlived its pass: its slab can serve no other plan until that is gone. So there are no more.
void Memory::learn_of_guests(Plan& plan) {
  Family& family = family_of(plan.form);
  if (!family.takes_guests) return;
  family.takes_guests = false;
  for (const auto& [key, other] : plans_) {
    if (other->form != plan.form || other->layout == nullptr) continue;
    auto layout = std::make_shared<const PlannedLayout>(*other->plan, other->layout->fit());
    if (layout->ok()) other->layout = std::move(layout);
  }
}

void Memory::drop_known_escapes(RecordedPlan& plan) const {
  if (escapes_.empty()) return;
  std::unordered_map<SiteId, std::uint32_t> numbers;
  for (PlannedAllocation& allocation : plan.sequence) {
    const std::uint32_t number = numbers[allocation.site]++;
    const auto known = escapes_.find(allocation.site);
    if (known == escapes_.end()) continue;
    if (known->second.size() > kMostEscapesOfSite || known->second.contains(number))
      allocation.offset = kNoOffset;
  }
}

/// What a pass asked for that was not as derived. False when it is like none that is known.
bool Memory::learn_sizes(Family& family, Plan& plan, const RequestLog& log) {
  if (plan.derived_from->add(log, plan.point, {plan.plan->sequence, plan.allocations})) return true;
  for (auto like = family.templates.begin(); like != family.templates.end(); ++like) {
    if (*like == plan.derived_from || !(*like)->add(log, plan.point)) continue;
    std::rotate(family.templates.begin(), like, like + 1);
    return true;
  }
  return false;
}

/// A pass differed from its recording: perhaps since its values did. Then they count from now on.
void Memory::learn_values(const Plan& plan, const CallShape& shape) {
  if (plan.values == shape.values || plan.values.size() != shape.values.size()) return;
  Family& family = family_of(plan.form);
  bool any = false;
  family.matters.resize(shape.values.size());
  for (size_t i = 0; i < shape.values.size(); ++i) {
    if (plan.values[i] == shape.values[i] || family.matters[i]) continue;
    family.matters[i] = any = true;
  }
  if (!any) return;
  family.templates.clear();  // their points lack these values
  std::erase_if(plans_, [&](const auto& entry) { return entry.second->form == plan.form; });
}

MemoryStats Memory::stats() const {
  const std::lock_guard lock(mutex_);
  MemoryStats stats = stats_;
  stats.plans = static_cast<std::uint64_t>(std::count_if(
      plans_.begin(), plans_.end(), [](const auto& entry) { return entry.second->layout != nullptr; }));
  if (last_ != nullptr && last_->plan != nullptr) {
    stats.arena_size = last_->plan->arena_size;
    stats.peak_live_bytes = loads_of(last_->plan->sequence, 1)[0];
  }
  return stats;
}

void Memory::forget() noexcept {
  {
    const std::lock_guard lock(mutex_);
    plans_.clear();
    families_.clear();
    escapes_.clear();
    seen_.clear();
    seen_set_.clear();
    next_seen_ = 0;
    last_ = nullptr;
    first_sights_ = 0;
  }
  slabs_->retire_all();
}

}  // namespace memoir

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

constexpr unsigned kTries = 3;  // passes until it is known whether a new plan is of use

void pause_a_millisecond() noexcept {
  const timespec pause{0, 1'000'000};
  ::nanosleep(&pause, nullptr);
}

/// Tells a ledger the CPU time of the calling thread between its begin and its end.
class Spending {
 public:
  explicit Spending(Ledger* ledger) noexcept : ledger_(ledger), begin_(ledger == nullptr ? 0 : now()) {}
  ~Spending() {
    if (ledger_ != nullptr) ledger_->learned(now() - begin_);
  }
  Spending(const Spending&) = delete;
  Spending& operator=(const Spending&) = delete;

 private:
  static Ledger::Nanoseconds now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return Ledger::Nanoseconds{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  Ledger* const ledger_;
  const Ledger::Nanoseconds begin_;
};

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
  std::shared_ptr<PlannedLayout> layout;
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
  unsigned tried = 0;    // passes that followed the layout, while it is not known whether it is of use
  unsigned cut_off = 0;  // passes that an exception ended and that left something behind, less the others
  std::shared_ptr<const RecordedPlan> whole;  // with what such passes left behind; null: `plan` has it

  bool needs_recording() const noexcept { return skip == 0 && (layout == nullptr || differed >= wait); }
  bool is_in_step() const noexcept { return layout != nullptr && differed == 0; }
};

struct Memory::Templates {                         // guarded by learning_
  std::vector<std::shared_ptr<PassTemplate>> all;  // the one used last first
};

/// All calls of one form.
struct Memory::Family {
  std::vector<bool> matters;  // per value of the call: allocations differed where it did
  std::shared_ptr<Templates> templates = std::make_shared<Templates>();
  bool has_templates = false;
  unsigned failures = 0;  // derived plans in a row that were of no use
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

Memory::Memory(MemoryOptions options, std::shared_ptr<SlabSet> slabs, std::shared_ptr<Ledger> ledger)
    : options_(options), slabs_(std::move(slabs)), ledger_(std::move(ledger)) {}

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
  const bool learns = may_learn();
  if (plan == nullptr || plan->skip > 0 || (!learns && !plan->is_in_step())) {
    if (plan != nullptr && plan->skip > 0) --plan->skip;
    ++stats_.plain_passes;
    return decision;
  }
  plan->used = ++uses_;
  // A pass from fresh pages peaks at its live bytes, but takes their faults: not where nothing repeats.
  decision.large_apart = first_sights_ <= kFirstSightsApart;
  if (decision.derives) {
    decision.way = Way::kSlow;
  } else if (plan->needs_recording() && plan->derived_from == nullptr && plan->recording.take()) {
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
  decision.scoped = decision.records || (plan.scoped && may_learn());
  decision.logged = plan.derived_from != nullptr;
  last_ = decision.plan;
}

Memory::Decision Memory::decide_slowly(Decision decision) noexcept try {
  if (decision.derives) {
    derive_claimed(decision);
    return decision;
  }
  Plan& plan = *decision.plan;
  for (unsigned waited = 0;; ++waited) {
    std::unique_lock lock(mutex_);
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
  if (decision.derives) decision.plan->recording.drop();
  failed(*decision.plan);
  ++stats_.plain_passes;
  return {};
}

/// The call has claimed the plan, which is new or outdated.
void Memory::derive_claimed(Decision& decision) {
  Plan& plan = *decision.plan;
  const bool made = derive(plan);
  const std::lock_guard lock(mutex_);
  if (made || plan.layout != nullptr) {  // an outdated one still stands
    decision.records =
        made &&
        (decision.drifts || (decision.is_new && plan.is_partial && may_record_again(family_of(plan.form))));
    if (!decision.records) plan.recording.drop();
    follow(decision);
  } else if (decision.drifts || is_worth_recording(plan.key, decision)) {
    decision.way = Way::kRecord;
    decision.large_apart = first_sights_ <= kFirstSightsApart;
  } else {
    plan.recording.drop();
    const auto found = plans_.find(plan.key);
    if (found != plans_.end() && found->second == decision.plan) plans_.erase(found);
    ++stats_.plain_passes;
    decision.way = Way::kPlain;
  }
  decision.derives = false;
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
    if (plan.outdated && plan.derived_from != nullptr && plan.skip == 0 && may_learn() &&
        plan.recording.take()) {
      plan.outdated = false;
      decision.derives = true;
    }
    return found->second;
  }
  if (!may_learn()) return nullptr;
  decision.is_new = true;
  decision.drifts = family != nullptr && family->out_of_step >= family->patience;
  if (decision.drifts) {  // operators choose other ways for these numbers: they are recorded like the first
    family->out_of_step = 0;
    family->patience = std::min(2 * family->patience, kLongestPause);
  }
  if (decision.drifts ||
      (family != nullptr && family->failures < kFailuresBelieved && family->has_templates)) {
    if (!decision.drifts) ++family->first_sights;
    auto plan = remember(key, shape);
    decision.derives = plan->recording.take();
    return plan;
  }
  return is_worth_recording(key, decision) ? remember(key, shape) : nullptr;
}

/// Of numbers that are new, and for which no plan can be derived. The caller has the lock.
bool Memory::is_worth_recording(std::uint64_t key, Decision& decision) {
  if (++first_sights_ <= kFirstSightsRecorded) return true;
  if (!said_ && first_sights_ > kFirstSightsSaid) said_ = decision.repeats_nothing = true;
  if (seen_set_.insert(key).second) {
    if (seen_.size() < kUnrepeatedKept) {
      seen_.push_back(key);
    } else {
      seen_set_.erase(seen_[next_seen_]);
      seen_[next_seen_] = key;
      next_seen_ = (next_seen_ + 1) % kUnrepeatedKept;
    }
    return false;
  }
  first_sights_ = 0;
  return true;
}

std::shared_ptr<Memory::Plan> Memory::remember(std::uint64_t key, const CallShape& shape) {
  while (plans_.size() >= options_.max_plans) {
    const auto oldest = std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
      return a.second->used < b.second->used;
    });
    if (oldest->second->layout != nullptr) proved(*oldest->second, false);
    // A call that holds the plan is about to follow it: only a plan that nobody holds gives its layout away.
    if (oldest->second.use_count() == 1 && oldest->second->layout.use_count() == 1)
      spare_ = std::move(oldest->second->layout);
    plans_.erase(oldest);
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

std::shared_ptr<Memory::Templates> Memory::templates_of(std::uint64_t form) {
  const std::lock_guard lock(mutex_);
  return family_of(form).templates;
}

/// True when the plan has a new layout then, made of what calls of other numbers did.
bool Memory::derive(Plan& plan) {
  const Spending spending(ledger_.get());
  const std::lock_guard learning(learning_);
  auto candidates = templates_of(plan.form)->all;
  std::stable_sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return a->likeness(plan.point) > b->likeness(plan.point);
  });
  for (const auto& candidate : candidates) {
    auto made = candidate->at(plan.point);
    if (!made) continue;
    {
      const std::lock_guard lock(mutex_);
      plan.derived_from = candidate;
      plan.allocations = std::move(made->allocations);
      plan.is_partial = made->is_partial;
      plan.scoped = candidate->settled < kSettled;
    }
    set_layout(plan, std::move(made->plan), PlannedFit::kSmallerToo);
    return true;
  }
  return false;
}

/// Throws when it cannot be planned.
void Memory::make_plan(Plan& plan, const RecordedPass& recorded) {
  std::string_view planner;
  const auto placed = plan_quickly(recorded.problem, &planner);
  RecordedPlan made = record_plan(recorded, placed, planner);
  {
    const std::lock_guard learning(learning_);
    know(*templates_of(plan.form), recorded, plan.point);
  }
  {
    const std::lock_guard lock(mutex_);
    Family& family = family_of(plan.form);
    family.failures = 0;
    family.has_templates = true;
    // What keeps changing is recorded after 1, 2, 4, ... differing passes. A derived plan did not change: its
    // pass was recorded since it was known to lack something.
    if (plan.plan != nullptr && plan.derived_from == nullptr)
      plan.wait = std::min(2 * plan.wait, kLongestPause);
    plan.derived_from = nullptr;
    plan.scoped = true;
    plan.failures = 0;
  }
  set_layout(plan, std::move(made), PlannedFit::kExact);
}

/// That recorded pass, for plans of other numbers. The caller has learning_.
void Memory::know(Templates& templates, const RecordedPass& recorded,
                  const std::vector<std::int64_t>& point) {
  for (const auto& like : templates.all) {
    if (like->add(recorded, point)) return;
  }
  templates.all.insert(templates.all.begin(), std::make_shared<PassTemplate>(recorded, point));
  if (templates.all.size() > kMostTemplates) templates.all.pop_back();
}

/// Throws without memory for it. The caller has no lock, or learning_ alone.
void Memory::set_layout(Plan& plan, RecordedPlan made, PlannedFit fit) {
  bool takes_guests = false;
  std::shared_ptr<PlannedLayout> layout;
  {
    const std::lock_guard lock(mutex_);
    drop_known_escapes(made);
    takes_guests = family_of(plan.form).takes_guests;
    layout = std::move(spare_);
    spare_ = nullptr;
  }
  if (layout != nullptr) layout->build_again(made, fit, takes_guests);
  else layout = std::make_shared<PlannedLayout>(made, fit, takes_guests);
  if (!layout->ok()) throw std::bad_alloc();
  auto kept = std::make_shared<const RecordedPlan>(std::move(made));
  const std::lock_guard lock(mutex_);
  plan.plan = std::move(kept);
  plan.layout = std::move(layout);
  plan.whole = nullptr;
  plan.differed = plan.tried = 0;
  plan.outdated = false;
}

/// Once for each layout. The caller has the lock.
void Memory::proved(Plan& plan, bool useful) noexcept {
  if (plan.tried < kTries && ledger_ != nullptr) ledger_->proved(useful);
  plan.tried = kTries;
}

void Memory::failed(Plan& plan) noexcept {
  plan.skip = std::min(1u << std::min(plan.failures, 6u), kLongestPause);
  ++plan.failures;
}

void Memory::recorded(const Decision& decision, Recorder& recorder, bool complete) noexcept {
  const Spending spending(ledger_.get());
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

bool Memory::followed(const Decision& decision, const FollowedPass& pass) noexcept try {
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
  if (plan.layout != decision.layout) return false;  // another one was made meanwhile
  if (!pass.finished) return !pass.kept.empty();
  if (pass.repeated || plan.tried + 1 == kTries) proved(plan, pass.repeated);
  else if (plan.tried < kTries) ++plan.tried;
  if (plan.cut_off > 0 && --plan.cut_off == 0 && plan.whole != nullptr) return true;
  const bool escaped = !pass.kept.empty();
  if (decision.records) return escaped;  // recorded() learns the rest
  plan.scoped = !pass.repeated;
  if (pass.repeated) {
    plan.differed = 0;
    if (plan.derived_from == nullptr) return escaped;
    ++plan.derived_from->settled;
    Family& family = family_of(plan.form);
    family.failures = family.out_of_step = 0;
    family.patience = kFirstPatience;
    return escaped || (pass.counters.smaller > 0 && may_learn());
  }
  ++plan.differed;
  if (plan.derived_from == nullptr) return escaped || (plan.wait > 1 && may_learn());
  plan.derived_from->settled = 0;
  Family& family = family_of(plan.form);
  ++family.out_of_step;
  const auto& went = pass.counters;
  const bool of_use = went.planned > kWorthIt * (went.unmatched + went.occupied);
  family.failures = of_use ? 0 : family.failures + 1;
  return escaped || may_learn();
} catch (...) {  // no memory
  return false;
}

void Memory::learn(const Decision& decision, const CallShape& shape, const FollowedPass& pass,
                   const RequestLog& log) noexcept try {
  const Spending spending(ledger_.get());
  const std::lock_guard learning(learning_);
  Plan& plan = *decision.plan;
  std::shared_ptr<const RecordedPlan> whole;
  bool is_derived = false, is_recorded_again = false;
  {
    const std::lock_guard lock(mutex_);
    if (plan.layout != decision.layout) return;
    if (plan.cut_off == 0) whole = plan.whole;
    is_derived = plan.derived_from != nullptr;
    is_recorded_again = plan.wait > 1;
  }
  if (!pass.finished) return was_cut_off(plan, pass.kept);
  if (whole != nullptr) return set_layout(plan, RecordedPlan(*whole), decision.layout->fit());
  if (!pass.kept.empty()) learn_escapes(plan, pass.kept);
  if (decision.records || !may_learn()) return;
  if (is_derived) {
    if (pass.repeated && pass.counters.smaller == 0) return;
    const bool learned = learn_sizes(plan, log);
    const std::lock_guard lock(mutex_);
    if (learned && !pass.repeated) family_of(plan.form).failures = 0;
    plan.outdated = learned || (!pass.repeated && plan.outdated);
  } else if (!pass.repeated && is_recorded_again) {  // once more already, and that did not help
    learn_values(plan, shape);
  }
} catch (...) {  // no memory: nothing was learned
}

void Memory::plain() noexcept {
  const std::lock_guard lock(mutex_);
  ++stats_.plain_passes;
}

void Memory::give_plans(Decision& decision, std::span<const GivenPlan> plans) noexcept try {
  if (decision.plan == nullptr) return;
  Plan& of_call = *decision.plan;
  const RecordedPlan* exact = nullptr;
  {
    const std::lock_guard learning(learning_);
    const auto templates = templates_of(of_call.form);
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
      know(*templates, pass, given.numbers);
    }
    const std::lock_guard lock(mutex_);
    family_of(of_call.form).has_templates = !templates->all.empty();
    if (exact != nullptr) of_call.derived_from = nullptr;
  }
  if (exact != nullptr) set_layout(of_call, *exact, PlannedFit::kExact);
  else if (decision.way != Way::kRecord || !derive(of_call)) return;
  const std::lock_guard lock(mutex_);
  if (decision.way == Way::kRecord) of_call.recording.drop();
  of_call.scoped = true;
  follow(decision);
} catch (...) {  // it is recorded, as without
}

/// A pass that an exception ended says nothing of the plan, and the exception holds what lived just then. But
/// where most passes end so, what they leave behind is not planned until they finish again. The caller has
/// learning_.
void Memory::was_cut_off(Plan& plan, const std::vector<std::uint32_t>& kept) {
  std::shared_ptr<const RecordedPlan> whole;
  RecordedPlan changed;
  PlannedFit fit = PlannedFit::kExact;
  unsigned differed = 0;
  {
    const std::lock_guard lock(mutex_);
    plan.cut_off = std::min(plan.cut_off + 1, kMostCutOffs);
    if (plan.cut_off < kCutOffs) return;
    changed = *plan.plan;
    whole = plan.whole != nullptr ? plan.whole : plan.plan;
    fit = plan.layout->fit();
    differed = plan.differed;
  }
  bool any = false;
  for (const std::uint32_t index : kept) {
    if (index >= changed.sequence.size() || !changed.sequence[index].planned()) continue;
    any = true;
    changed.sequence[index].offset = kNoOffset;
  }
  if (!any) return;
  set_layout(plan, std::move(changed), fit);
  const std::lock_guard lock(mutex_);
  plan.whole = std::move(whole);
  plan.differed = differed;
}

/// What outlived a pass once is planned no more, here and in plans to come. The caller has learning_.
void Memory::learn_escapes(Plan& plan, const std::vector<std::uint32_t>& kept) {
  if (kept.back() == PlannedLayout::kNone) learn_of_guests(plan);
  RecordedPlan changed;
  PlannedFit fit = PlannedFit::kExact;
  unsigned differed = 0, tried = 0;
  bool any = false;
  {
    const std::lock_guard lock(mutex_);
    changed = plan.whole != nullptr ? *plan.whole : *plan.plan;
    fit = plan.layout->fit();
    differed = plan.differed;
    tried = plan.tried;
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
  }
  if (!any) return;
  set_layout(plan, std::move(changed), fit);
  const std::lock_guard lock(mutex_);
  plan.differed = differed;
  plan.tried = tried;
}

/// One outlived its pass: its slab can serve no other plan until that is gone. So there are no more.
void Memory::learn_of_guests(Plan& plan) {
  std::vector<std::shared_ptr<Plan>> like;
  {
    const std::lock_guard lock(mutex_);
    Family& family = family_of(plan.form);
    if (!family.takes_guests) return;
    family.takes_guests = false;
    for (const auto& [key, other] : plans_) {
      if (other->form == plan.form && other->layout != nullptr) like.push_back(other);
    }
  }
  for (const auto& other : like) {
    std::unique_lock lock(mutex_);
    const auto planned = other->plan;
    const auto before = other->layout;
    lock.unlock();
    auto layout = std::make_shared<PlannedLayout>(*planned, before->fit());
    lock.lock();
    if (layout->ok() && other->layout == before) other->layout = std::move(layout);
  }
}

/// The caller has the lock.
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

/// What a pass asked for that was not as derived. False when it is like none that is known. The caller has
/// learning_.
bool Memory::learn_sizes(Plan& plan, const RequestLog& log) {
  std::shared_ptr<PassTemplate> from;
  std::shared_ptr<const RecordedPlan> planned;
  {
    const std::lock_guard lock(mutex_);
    from = plan.derived_from;
    planned = plan.plan;
  }
  if (from == nullptr) return false;
  if (from->add(log, plan.point, {planned->sequence, plan.allocations})) return true;
  auto& all = templates_of(plan.form)->all;
  for (auto like = all.begin(); like != all.end(); ++like) {
    if (*like == from || !(*like)->add(log, plan.point)) continue;
    std::rotate(all.begin(), like, like + 1);
    return true;
  }
  return false;
}

/// A pass differed from its recording: perhaps since its values did. Then they count from now on.
void Memory::learn_values(const Plan& plan, const CallShape& shape) {
  const std::lock_guard lock(mutex_);
  if (plan.values == shape.values || plan.values.size() != shape.values.size()) return;
  Family& family = family_of(plan.form);
  bool any = false;
  family.matters.resize(shape.values.size());
  for (size_t i = 0; i < shape.values.size(); ++i) {
    if (plan.values[i] == shape.values[i] || family.matters[i]) continue;
    family.matters[i] = any = true;
  }
  if (!any) return;
  family.templates = std::make_shared<Templates>();  // the points of the others lack these values
  family.has_templates = false;
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
    spare_ = nullptr;
    last_ = nullptr;
    first_sights_ = 0;
  }
  slabs_->retire_all();
}

}  // namespace memoir

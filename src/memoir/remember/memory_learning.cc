// SPDX-License-Identifier: Apache-2.0
//
// What passes teach a Memory: plans of what was recorded, those that are derived from them, and what is found
// out when they are followed. Which way each call goes is in memory.cc.
#include <time.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "memoir/plan/program_plan.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/remember/memory.h"
#include "memoir/remember/memory_plans.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

namespace {

constexpr size_t kMostTemplates = 6;  // of one family
constexpr unsigned kSettled = 16;     // derived passes in step before nobody listens to operators any more
// Passes that exceptions ended, more than others: no accident from here on; and the most that count.
constexpr unsigned kCutOffs = 4, kMostCutOffs = 8;
// allocations served for each that was not: a derived plan is of use
constexpr std::uint64_t kWorthIt = 2;
constexpr size_t kMostEscapesOfSite = 8;  // of one operator, before all that it allocates is planned no more
constexpr unsigned kTries = 3;            // passes until it is known whether a new plan is of use

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

}  // namespace memoir

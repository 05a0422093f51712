// SPDX-License-Identifier: Apache-2.0
//
// Which way each call goes. What passes teach is in memory_learning.cc.
#include "memoir/remember/memory.h"

#include <time.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "memoir/plan/program_plan.h"
#include "memoir/remember/memory_plans.h"

namespace memoir {

namespace {

// A first sight is a call whose numbers are new, and that no plan can be derived for. These count first
// sights in a row, which tell how varied the inputs are; the first that is seen again sets the count back.
constexpr unsigned kFirstSightsApart =
    4;  // up to here a recorded pass keeps its large objects apart from malloc's
constexpr unsigned kFirstSightsRecorded =
    8;                                     // up to here all are recorded; later ones when they are seen again
constexpr unsigned kFirstSightsSaid = 32;  // after so many it is said that nothing repeats

constexpr size_t kUnrepeatedKept = 4096;  // keys seen once and not recorded that are remembered
constexpr size_t kMostFamilies = 64;
// Derived plans known to lack something that are recorded instead: some at once, then one in so many.
constexpr std::uint64_t kFirstRecordedAgain = 6, kBetweenRecordedAgain = 10;
constexpr unsigned kFailuresBelieved =
    3;  // derived plans in a row that were of no use before recording again

void pause_a_millisecond() noexcept {
  const timespec pause{0, 1'000'000};
  ::nanosleep(&pause, nullptr);
}

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

void Memory::plain() noexcept {
  const std::lock_guard lock(mutex_);
  ++stats_.plain_passes;
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

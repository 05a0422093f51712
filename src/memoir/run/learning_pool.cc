// SPDX-License-Identifier: Apache-2.0
#include "memoir/run/learning_pool.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "memoir/run/pool_plan.h"

namespace memoir {

namespace {
constexpr std::uint64_t kTolerated = 50;       // one request in so many may depart from the plan
constexpr std::uint64_t kToleratedCalls = 4;   // of a pass, after the first that follows a plan
constexpr std::uint32_t kMostPatience = 1024;  // passes
}  // namespace

Offset LearningPool::allocate(const Request& request) noexcept {
  const Offset offset = heap_.allocate(request);
  if (!recording_ || offset == kNoOffset || request.plain) return offset;
  if (!record_at_.reserve_one() || !records_.push_back({request, {tick_, kOpen}})) {
    recording_ = false;  // half a pass is not worth planning
    return offset;
  }
  record_at_.insert(offset, static_cast<OffsetTable::Index>(records_.size()));
  ++tick_;
  return offset;
}

bool LearningPool::free(Offset offset) noexcept {
  if (recording_) {
    if (const auto record = record_at_.take(offset); record != 0) records_[record - 1].lifetime.end = tick_++;
  }
  return heap_.free(offset);
}

void LearningPool::begin_pass() noexcept {
  if (recording_) {
    recording_ = false;
    if (!plan()) left_ = patience_;
  } else if (layout_ != nullptr && (departed() || calls_for_ever())) {
    if (calls_for_ever()) patience_ = kMostPatience;  // and so would the next plan
    heap_.follow(nullptr);
    layout_.reset();
    left_ = patience_;
    patience_ = std::min(2 * patience_, kMostPatience);
  }
  calls_ = heap_.pool().counters().calls();
  if (layout_ != nullptr) {
    if (followed_++ != 0) heap_.begin_pass();
  } else if (--left_ == 0) {
    left_ = patience_;
    records_.clear();
    record_at_ = {};
    tick_ = 0;
    recording_ = true;
  }
}

bool LearningPool::departed() const noexcept {
  const GuidedPoolHeap::Counters& pass = heap_.counters();
  const std::uint64_t departed = pass.unmatched + pass.occupied;
  return departed * kTolerated > departed + pass.planned + pass.escaping;
}

/// What escapes and what is planned take turns in the memory, and the device is called in every pass.
bool LearningPool::calls_for_ever() const noexcept {
  return followed_ > 2 && heap_.pool().counters().calls() - calls_ > kToleratedCalls;
}

bool LearningPool::plan() noexcept try {
  Problem problem;
  std::vector<StreamId> streams;
  for (const Record& record : records_) {
    if (record.lifetime.end == kOpen) continue;  // it escapes the pass
    problem.push_back({record.lifetime, record.request.size, record.request.alignment});
    streams.push_back(record.request.stream);
  }
  if (problem.empty()) return false;
  const Plan plan = plan_for_pool(problem, streams, options_.alignment);
  RecordedPlan recorded;
  recorded.arena_size = plan.arena_size;
  recorded.sequence.reserve(records_.size());
  size_t planned = 0;
  for (const Record& record : records_) {
    const Request& request = record.request;
    const bool escapes = record.lifetime.end == kOpen;
    recorded.sequence.push_back({request.site,
                                 request.size,
                                 std::max(request.alignment, options_.alignment),
                                 {record.lifetime.begin, escapes ? tick_ : record.lifetime.end},
                                 escapes ? kNoOffset : plan.offsets[planned++]});
  }
  layout_ = std::make_unique<PlannedLayout>(recorded);
  followed_ = 0;
  if (heap_.follow(layout_.get())) return true;
  layout_.reset();
  return false;
} catch (const std::exception&) {  // no memory for the plan
  layout_.reset();
  return false;
}

}  // namespace memoir

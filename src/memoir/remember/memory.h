// SPDX-License-Identifier: Apache-2.0
//
// What memoir remembers of one callable: its plans, its slabs, and when to record again. It decides how each
// call runs; who calls the callable (remember/torch's module) does what was decided, and tells how it went:
//
//   first calls of a form           later calls                    of numbers never seen
//   ------------------------        ------------------------       ------------------------------------------
//   record (PyTorch's allocator)    lease a slab, follow the       the plan is made of those of others
//                                   plan of these numbers          (pass_template.h), and followed
//
// A plan that does not hold what its passes do is followed once more while they are recorded: what it has no
// place for finds room in the slab (heap/planned), so that pass takes no second memory.
//
// What takes time (planning, deriving, aligning) is done in decide_slowly(), recorded() and learn(), which a
// caller with a lock of its own (Python's) calls without it: no other call waits for them. They tell the
// ledger (ledger.h) what they took; while that allows no learning, a call that has no plan is a plain one.
//
// Nothing here waits for Python or for another thread's pass without a bound, and what fails (no memory for a
// recording, no plan) makes a plain call, now and for a while; then it is tried again. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "memoir/base/fork_mutex.h"
#include "memoir/remember/call_shape.h"
#include "memoir/remember/ledger.h"
#include "memoir/remember/pass_template.h"
#include "memoir/remember/slab/recorder.h"
#include "memoir/remember/slab/request_log.h"
#include "memoir/remember/slab/slab_set.h"

namespace memoir {

struct MemoryOptions {
  size_t max_plans = 16;        // plans kept, the least recently used forgotten first
  unsigned patience_ms = 2000;  // that a call waits at most while another one records the same
};

struct MemoryStats {  // since the Memory was made
  std::uint64_t calls = 0;
  std::uint64_t recorded_passes = 0;
  std::uint64_t plan_hits = 0;       // passes that followed a plan
  std::uint64_t in_step_passes = 0;  // of those, passes that repeated it to the last allocation
  std::uint64_t derived_passes = 0;  // of plan_hits, passes whose plan was made of other numbers' recordings
  std::uint64_t plain_passes = 0;
  std::uint64_t planned = 0, escaping = 0, unmatched = 0, occupied = 0;  // allocations
  std::uint64_t guests = 0;                  // of unmatched and occupied: served from free room of the slab
  std::uint64_t plans = 0;                   // now
  Size arena_size = 0, peak_live_bytes = 0;  // of the plan followed last, bytes
};

/// How a pass that followed a plan went.
struct FollowedPass {
  PlannedHeap::Counters counters;
  bool repeated = false;            // in step, to the last allocation
  bool finished = false;            // not cut off by an exception
  std::vector<std::uint32_t> kept;  // as Slab::release() tells: what outlived it
};

class Memory {
 public:
  /// `ledger`: of this callable, or of several together; null: learning may cost what it takes.
  Memory(MemoryOptions options, std::shared_ptr<SlabSet> slabs, std::shared_ptr<Ledger> ledger = nullptr);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  struct Plan;  // of one form and its numbers

  enum class Way {
    kPlain,
    kRecord,  // the caller records, and calls recorded() however the pass ends
    // the caller holds a slab for `layout`, and calls followed() however the pass ends, and then recorded()
    // if `records`; or else it does as with kRecord if `records`, and calls plain() if not
    kFollow,
    kSlow,  // ask decide_slowly()
  };
  struct Decision {
    Way way = Way::kPlain;
    std::shared_ptr<Plan> plan;
    std::shared_ptr<const PlannedLayout> layout;
    bool scoped = true;       // listen to operators from the first allocation on
    bool logged = false;      // tell learn() what was asked for
    bool records = false;     // with kFollow: the plan is known to lack something, the pass is recorded too
    bool is_new = false;      // these numbers were not known before
    bool derives = false;     // with kSlow: a plan is to be derived from others; this call claimed the plan
    bool drifts = false;      // ... and its pass is recorded too
    bool large_apart = true;  // of a recorded pass: see torch_door::begin_recording()
    bool repeats_nothing = false;  // time to say so, once
  };
  /// What to do with this call. Never waits: then the way is kSlow.
  Decision decide(const CallShape& shape) noexcept;
  /// The same, after a decide() that was kSlow.
  Decision decide_slowly(Decision decision) noexcept;

  /// Plans it, which takes its time. `complete`: the callable returned. What cannot be planned is recorded
  /// again after some calls.
  void recorded(const Decision& decision, Recorder& recorder, bool complete) noexcept;
  /// True: there is something to learn from that pass, so learn() is to be called.
  bool followed(const Decision& decision, const FollowedPass& pass) noexcept;
  /// Takes its time.
  void learn(const Decision& decision, const CallShape& shape, const FollowedPass& pass,
             const RequestLog& log) noexcept;
  /// A call ran without plan and recording although it was to follow: there was no slab.
  void plain() noexcept;

  struct GivenPlan {
    std::vector<std::int64_t> numbers;  // of the call that it was recorded with
    RecordedPlan plan;
  };
  /// Plans of calls of this one's form, as if recorded: the call follows that of its numbers, or one that is
  /// made of several others.
  void give_plans(Decision& decision, std::span<const GivenPlan> plans) noexcept;

  SlabSet& slabs() noexcept { return *slabs_; }
  Ledger* ledger() const noexcept { return ledger_.get(); }
  MemoryStats stats() const;
  /// Drops every plan and gives all slabs back.
  void forget() noexcept;

 private:
  struct Family;
  struct Templates;

  std::uint64_t key_of(const CallShape& shape, const Family* family) const noexcept;
  std::shared_ptr<Plan> find(const CallShape& shape, Decision& decision);
  bool is_worth_recording(std::uint64_t key, Decision& decision);
  std::shared_ptr<Plan> remember(std::uint64_t key, const CallShape& shape);
  Family& family_of(std::uint64_t form);
  std::shared_ptr<Templates> templates_of(std::uint64_t form);
  void follow(Decision& decision) noexcept;
  bool derive(Plan& plan);
  void derive_claimed(Decision& decision);
  void know(Templates& templates, const RecordedPass& recorded, const std::vector<std::int64_t>& point);
  static bool may_record_again(Family& family) noexcept;
  bool may_learn() const noexcept { return ledger_ == nullptr || ledger_->may_learn(); }
  void proved(Plan& plan, bool useful) noexcept;
  void make_plan(Plan& plan, const RecordedPass& recorded);
  void set_layout(Plan& plan, RecordedPlan made, PlannedFit fit);
  void failed(Plan& plan) noexcept;
  void was_cut_off(Plan& plan, const std::vector<std::uint32_t>& kept);
  void learn_escapes(Plan& plan, const std::vector<std::uint32_t>& kept);
  void learn_of_guests(Plan& plan);
  void drop_known_escapes(RecordedPlan& plan) const;
  bool learn_sizes(Plan& plan, const RequestLog& log);
  void learn_values(const Plan& plan, const CallShape& shape);

  const MemoryOptions options_;
  const std::shared_ptr<SlabSet> slabs_;
  const std::shared_ptr<Ledger> ledger_;
  // Guards what is in a family's templates, and Plan::allocations. Held while something is learned, and taken
  // before mutex_.
  ForkMutex learning_;
  mutable ForkMutex mutex_;  // guards all below; held for some instructions
  std::unordered_map<std::uint64_t, std::shared_ptr<Plan>> plans_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Family>> families_;
  // Of an operator's tensors those that outlived a pass, by their number among that operator's.
  std::unordered_map<SiteId, std::unordered_set<std::uint32_t>> escapes_;
  std::vector<std::uint64_t> seen_;  // while nothing repeats: keys seen once, the latest ones; a ring
  std::unordered_set<std::uint64_t> seen_set_;
  size_t next_seen_ = 0;
  std::shared_ptr<PlannedLayout> spare_;  // of a plan that was forgotten: its memory serves a new one
  std::shared_ptr<const Plan> last_;
  MemoryStats stats_;
  std::uint64_t uses_ = 0;
  unsigned first_sights_ = 0;  // in a row: keys that were new, and had no plan
  bool said_ = false;
  bool waits_ = true;  // for another caller's recording; not any more once that took too long
};

}  // namespace memoir

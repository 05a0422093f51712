// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/row_sweep.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/full/row_events.h"
#include "memoir/plan/search/full/row_groups.h"
#include "memoir/plan/search/full/row_steps.h"
#include "memoir/plan/search/full/row_tree.h"

namespace memoir {
namespace {

using Units = RowTree::Units;
using Marks = RowTree::Marks;
using Id = RowTree::Id;

constexpr std::uint32_t kBetweenSaved = 2, kFirstBack = 8;  // sections
constexpr std::uint32_t kFartherBack = 3;                   // times, the next time
constexpr double kNoiseBack = 1;
constexpr double kWorthCompleting = 0.5;  // of the sections
constexpr unsigned kMostLooseGroups = 3;

}  // namespace

class RowSweep::Beam {
 public:
  Beam(const Problem& problem, const Sections& sections, const Grid& grid, Size height,
       const RowSweepOptions& options)
      : problem_(problem),
        sections_(sections),
        height_(static_cast<Units>(height / grid.unit)),
        events_(row_events(problem, sections, grid, height_, options.backwards)),
        size_(events_.size),
        options_(options),
        groups_(events_.size, work_, options.width, options.seed, static_cast<std::uint32_t>(problem.size())),
        mark_(problem.size(), 0) {
    groups_.set_noise(options.noise);
    RowState start;
    start.root = start.tree.add({groups_.new_name(), height_, true}, 0);
    beam_.push_back(std::move(start));
    ended_ = !events_.fits;
  }

  void run(std::uint64_t tries, const SearchLimits& limits, std::uint64_t& work) {
    work_ = {&limits};
    while (!ended_ && work_.done < tries && !work_.stopped()) {
      if (section_ == sections_.count) {
        offsets_ = way_back(beam_.front());
        ended_ = true, farther_ = false;
      } else if (events_.born[section_].empty() && events_.dying[section_].empty()) {
        ++section_;
      } else {
        if (options_.goes_back && section_ % kBetweenSaved == 0) save();
        if (advance(section_)) ++section_;
        else if (!work_.stopped()) go_back();
      }
      passed_ = std::max(passed_, section_);
    }
    if (farther_ && died_ >= kWorthCompleting * sections_.count) {
      offsets_ = way_back(farthest_);
      work_.done += problem_.size();
    }
    farther_ = false;
    work += work_.done;
  }

  bool ended() const { return ended_; }
  const std::vector<Offset>& offsets() const { return offsets_; }
  std::uint32_t passed() const { return passed_; }

 private:
  struct Saved {  // before that section
    std::uint32_t section;
    std::vector<RowState> beam;
  };

  // --- back, where no tree comes through ---

  // The older, the fewer are kept: with twice the distance, half as many.
  void save() {
    saved_.push_back({section_, beam_});
    for (std::size_t k = 1; k + 1 < saved_.size(); ++k) {
      if (saved_[k + 1].section - saved_[k - 1].section > (section_ - saved_[k + 1].section) / 2) continue;
      saved_.erase(saved_.begin() + static_cast<std::ptrdiff_t>(k));
      return;
    }
  }

  void go_back() {
    if (section_ > died_) {
      died_ = section_, back_ = kFirstBack;
      farthest_ = beam_.front();
      farther_ = true;
    } else {
      back_ *= kFartherBack;
    }
    if (!options_.goes_back || back_ > kFartherBack * died_) {
      ended_ = true;
      return;
    }
    const std::uint32_t to = section_ - std::min(section_, back_);
    while (saved_.size() > 1 && saved_.back().section > to) saved_.pop_back();
    section_ = saved_.back().section;
    beam_ = std::move(saved_.back().beam);
    saved_.pop_back();
    groups_.set_noise(std::max(groups_.noise(), kNoiseBack));
  }

  // --- from one section to the next ---

  bool advance(std::uint32_t section) {
    groups_.enter(events_.born[section], events_.room[section]);
    Units change = 0;
    for (const std::uint32_t i : events_.dying[section]) change += size_[i];
    for (const std::uint32_t i : groups_.newborn()) change -= size_[i];
    next_.clear();
    // At first every group is exact, but for one where the load changes.
    for (const unsigned loose : {change == 0 ? 0u : 1u, kMostLooseGroups}) {
      groups_.forget_seen();
      for (const RowState& state : beam_) {
        if (work_.stopped()) return false;
        groups_.expand(state, events_.dying[section], loose, next_);
      }
      if (work_.stopped()) return false;
      std::erase_if(next_, [&](RowState& state) { return !gather(state, section); });
      if (!next_.empty()) break;
    }
    if (next_.empty()) return false;
    keep_best();
    return true;
  }

  void keep_best() {
    std::stable_sort(next_.begin(), next_.end(),
                     [](const RowState& a, const RowState& b) { return a.score > b.score; });
    if (next_.size() > options_.width) next_.resize(options_.width);
    for (RowState& state : next_) {
      for (RowStep& step : state.pending) state.last = steps_.add(std::move(step), state.last);
      state.pending.clear();
    }
    beam_.swap(next_);
    if (steps_.crowded()) forget();
  }

  void forget() {
    std::vector<std::uint32_t*> lasts{&farthest_.last};
    for (RowState& state : beam_) lasts.push_back(&state.last);
    for (Saved& saved : saved_) {
      for (RowState& state : saved.beam) lasts.push_back(&state.last);
    }
    steps_.forget_others(lasts);
  }

  // Who will die together are neighbours from the time on at which all of them live. False: the tree has no
  // such order.
  bool gather(RowState& state, std::uint32_t section) {
    for (const std::uint32_t s : events_.together[section]) {
      const std::vector<std::uint32_t>& together = events_.dying[s];
      scratch_.clear();
      Marks every = 0;
      for (std::size_t k = 0; k < together.size(); ++k) every |= mark_[together[k]] = Marks{1} << k;
      const Id root = scratch_.copy(state.tree, state.root, [&](RowTree::Leaf& leaf) {
        return leaf.free ? Marks{0} : mark_[leaf.name];
      });
      for (const std::uint32_t i : together) mark_[i] = 0;
      if (scratch_.marks(root) != every) continue;  // one was left out
      double lost = 0;
      const Id gathered = scratch_.gather(root, scratch_.marks(root), lost);
      if (gathered == RowTree::kNone) return false;
      state.score -= lost;
      state.tree.clear();
      state.root = state.tree.copy(scratch_, gathered, [](RowTree::Leaf&) { return Marks{0}; });
    }
    return true;
  }

  // --- the way back ---

  std::vector<Offset> way_back(const RowState& best) const {
    std::vector<RowTree::Leaf> row;
    best.tree.leaves(best.root, row);
    return completed(steps_.way_back(std::move(row), best.last, problem_.size()));
  }

  // In the order of their offsets to the lowest place; those who had no mark last.
  std::vector<Offset> completed(const std::vector<Units>& at) const {
    std::vector<std::uint32_t> order(problem_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
      if ((at[a] < 0) != (at[b] < 0)) return at[b] < 0;
      if (at[a] < 0) return size_[a] > size_[b];
      return at[a] < at[b];
    });
    return fit_in_order(problem_, sections_, order, false);
  }

  const Problem& problem_;
  const Sections& sections_;
  const Units height_;
  const RowEvents events_;
  const std::vector<Units>& size_;  // per buffer
  const RowSweepOptions options_;
  RowWork work_;  // of the run, as are its limits
  RowGroups groups_;
  RowSteps steps_;
  std::vector<RowState> beam_, next_;
  std::uint32_t section_ = 0, passed_ = 0;  // the next, and the farthest it was
  std::vector<Saved> saved_;                // by section
  RowState farthest_;                       // the best tree there
  bool farther_ = false;                    // since the last run
  std::uint32_t died_ = 0, back_ = 0;       // where, at most, and how far it goes back from there
  bool ended_ = false;
  std::vector<Offset> offsets_;
  RowTree scratch_;
  std::vector<Marks> mark_;  // per buffer of a group that is gathered
};

RowSweep::RowSweep(const Problem& problem, const Sections& sections, const Grid& grid, Size height,
                   const RowSweepOptions& options)
    : beam_(std::make_unique<Beam>(problem, sections, grid, height, options)) {}
RowSweep::~RowSweep() = default;
RowSweep::RowSweep(RowSweep&&) noexcept = default;
RowSweep& RowSweep::operator=(RowSweep&&) noexcept = default;

void RowSweep::run(std::uint64_t tries, const SearchLimits& limits, std::uint64_t& work) {
  beam_->run(tries, limits, work);
}
bool RowSweep::ended() const { return beam_->ended(); }
const std::vector<Offset>& RowSweep::offsets() const { return beam_->offsets(); }
std::uint32_t RowSweep::passed() const { return beam_->passed(); }

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/row_sweep.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <unordered_set>

#include "memoir/plan/index/first_fit_orders.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/random.h"
#include "memoir/plan/search/full/row_events.h"
#include "memoir/plan/search/full/row_tree.h"

namespace memoir {
namespace {

using Units = RowTree::Units;
using Marks = RowTree::Marks;
using Id = RowTree::Id;

constexpr std::uint32_t kNobody = ~std::uint32_t{0};
constexpr std::size_t kMostMarks = 64, kMostDying = 56;
constexpr Marks kCrowded = ~Marks{0};       // instead of a mark: there are no more
constexpr std::size_t kMostTried = 400;     // groups tried in one tree at one time
constexpr std::size_t kBranches = 8;        // of the groups tried for one buffer, how many are followed
constexpr std::size_t kMostFound = 32;      // ways from one tree to the next section
constexpr std::size_t kMostEntered = 1024;  // half-made ways looked at from one tree, dead ends included
constexpr std::size_t kSetsOfTry = 32;      // sets of neighbours take as long to find as one try
constexpr std::uint64_t kMostTriedFromOne = 5000;           // groups tried in one tree, in all
constexpr std::uint32_t kBetweenSaved = 2, kFirstBack = 8;  // sections
constexpr std::uint32_t kFartherBack = 3;                   // times, the next time
constexpr double kNoiseBack = 1;
constexpr double kWorthCompleting = 0.5;         // of the sections
constexpr std::size_t kMostLoose = 3;            // groups with room to spare for one set of neighbours
constexpr std::size_t kMostForgotten = 1 << 16;  // steps that no tree of the beam has come by
constexpr double kLoose = 4;  // in nats, as all likelihoods here: what a group that leaves room costs
constexpr unsigned kMostLooseGroups = 3;

int bit_of(Marks set) { return std::countr_zero(set); }
Marks first_bits(std::size_t count) { return count >= kMostMarks ? ~Marks{0} : (Marks{1} << count) - 1; }
// Of how many subsets as large as `chosen` the set has.
double log_choices(Marks set, Marks chosen) {
  const auto n = static_cast<std::size_t>(std::popcount(set)),
             k = static_cast<std::size_t>(std::popcount(chosen));
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k);
}

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
        noise_(options.noise),
        random_(options.seed),
        names_(static_cast<std::uint32_t>(problem.size())) {
    mark_.assign(problem.size(), 0);
    State start;
    start.root = start.tree.add({names_++, height_, true}, 0);
    beam_.push_back(std::move(start));
    ended_ = !events_.fits;
  }

  void run(std::uint64_t tries, const SearchLimits& limits, std::uint64_t& work) {
    limits_ = &limits;
    work_ = 0;
    while (!ended_ && work_ < tries && !stopped()) {
      if (section_ == sections_.count) {
        offsets_ = way_back(beam_.front());
        ended_ = true, farther_ = false;
      } else if (events_.born[section_].empty() && events_.dying[section_].empty()) {
        ++section_;
      } else {
        if (options_.goes_back && section_ % kBetweenSaved == 0) save();
        if (advance(section_)) ++section_;
        else if (!stopped()) go_back();
      }
      passed_ = std::max(passed_, section_);
    }
    if (farther_ && died_ >= kWorthCompleting * sections_.count) {
      offsets_ = way_back(farthest_);
      work_ += problem_.size();
    }
    farther_ = false;
    work += work_;
  }

  bool ended() const { return ended_; }
  const std::vector<Offset>& offsets() const { return offsets_; }
  std::uint32_t passed() const { return passed_; }

 private:
  using List = std::vector<std::uint32_t>;
  struct Step {  // neighbours that others came in the place of
    std::vector<RowTree::Leaf> before, after;
    std::uint32_t beside = kNobody;  // a name: in which order they are, seen from there
    bool beside_first = false;
    std::uint32_t previous = kNobody;
  };
  struct State {
    RowTree tree;
    Id root = 0;
    double score = 0;
    std::uint32_t last = kNobody;  // of steps_
    std::vector<Step> pending{};   // since then
  };
  struct Saved {  // before that section
    std::uint32_t section;
    std::vector<State> beam;
  };
  struct Group {
    double score;
    Id root;
    RowTree::Block block;
    std::vector<RowTree::Leaf> after;
    Marks neighbours, newborn;
    bool loose;
  };
  struct Trace {  // of the groups chosen so far, in the scratch tree
    RowTree::Block block;
    std::vector<RowTree::Leaf> after;
  };
  struct Sum {
    Units bytes;
    Marks set;
    bool operator<(const Sum& other) const {
      return bytes != other.bytes ? bytes < other.bytes : set < other.set;
    }
  };

  bool stopped() const {
    return work_ >= limits_->nodes || (limits_->stop && limits_->stop->load(std::memory_order_relaxed)) ||
           (limits_->enough && limits_->enough->load(std::memory_order_relaxed)) ||
           std::chrono::steady_clock::now() >= limits_->deadline;
  }

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
    noise_ = std::max(noise_, kNoiseBack);
  }

  // --- from one section to the next ---

  bool advance(std::uint32_t section) {
    newborn_ = events_.born[section];
    rooms_here_ = &events_.room[section];
    // For want of marks the smallest are left out.
    if (newborn_.size() > kMostMarks) newborn_.resize(kMostMarks);
    sum_up();
    Units change = 0;
    for (const std::uint32_t i : events_.dying[section]) change += size_[i];
    for (const std::uint32_t i : newborn_) change -= size_[i];
    next_.clear();
    // At first every group is exact, but for one where the load changes.
    for (const unsigned loose : {change == 0 ? 0u : 1u, kMostLooseGroups}) {
      seen_.clear();
      for (const State& state : beam_) {
        if (stopped()) return false;
        expand(state, events_.dying[section], loose);
      }
      if (stopped()) return false;
      std::erase_if(next_, [&](State& state) { return !gather(state, section); });
      if (!next_.empty()) break;
    }
    if (next_.empty()) return false;
    keep_best();
    return true;
  }

  void keep_best() {
    std::stable_sort(next_.begin(), next_.end(),
                     [](const State& a, const State& b) { return a.score > b.score; });
    if (next_.size() > options_.width) next_.resize(options_.width);
    for (State& state : next_) {
      for (Step& step : state.pending) {
        step.previous = state.last;
        state.last = static_cast<std::uint32_t>(steps_.size());
        steps_.push_back(std::move(step));
      }
      state.pending.clear();
    }
    beam_.swap(next_);
    if (steps_.size() > 2 * kept_steps_ + kMostForgotten) forget();
  }

  void forget() {
    std::vector<std::uint32_t> moved(steps_.size(), kNobody);
    const auto each_state = [&](auto visit) {
      for (State& state : beam_) visit(state);
      visit(farthest_);
      for (Saved& saved : saved_) {
        for (State& state : saved.beam) visit(state);
      }
    };
    each_state([&](const State& state) {
      for (std::uint32_t k = state.last; k != kNobody && moved[k] == kNobody; k = steps_[k].previous)
        moved[k] = 0;
    });
    std::uint32_t kept = 0;
    for (std::uint32_t k = 0; k < steps_.size(); ++k) {
      if (moved[k] == kNobody) continue;
      moved[k] = kept;
      if (steps_[k].previous != kNobody) steps_[k].previous = moved[steps_[k].previous];
      if (kept != k) steps_[kept] = std::move(steps_[k]);
      ++kept;
    }
    steps_.resize(kept);
    kept_steps_ = kept;
    each_state([&](State& state) { state.last = state.last == kNobody ? kNobody : moved[state.last]; });
  }

  // Sums of subsets of the newborn; where they are many, of those that take few or leave few.
  void sum_up() {
    sums_.clear();
    const std::size_t n = newborn_.size();
    const std::size_t most = n <= 15 ? n : n <= 20 ? 5 : n <= 30 ? 4 : n <= 45 ? 3 : 2;
    const Marks every = first_bits(n);
    Units all = 0;
    for (const std::uint32_t i : newborn_) all += size_[i];
    const auto add = [&](const auto& self, std::size_t from, std::size_t left, Units bytes,
                         Marks set) -> void {
      if (set != 0) sums_.push_back({bytes, set});
      if (most < n) sums_.push_back({all - bytes, every & ~set});
      for (std::size_t k = from; left > 0 && k < n; ++k)
        self(self, k + 1, left - 1, bytes + size_[newborn_[k]], set | Marks{1} << k);
    };
    add(add, 0, most, 0, 0);
    std::sort(sums_.begin(), sums_.end());
  }

  void expand(const State& state, const List& dying, unsigned loose) {
    scratch_.clear();
    marked_.clear();
    opening_.clear();
    traces_.clear();
    for (const std::uint32_t i : dying) {
      mark_[i] = kCrowded;
      if (marked_.size() == kMostDying) continue;
      mark_[i] = Marks{1} << marked_.size();
      marked_.push_back(size_[i]);
    }
    const Marks must = first_bits(marked_.size());
    Id root = scratch_.copy(state.tree, state.root, [&](RowTree::Leaf& leaf) -> Marks {
      if (!leaf.free && mark_[leaf.name] != kCrowded) return mark_[leaf.name];
      if (!leaf.free) {  // one too many: it leaves its room to anybody
        opening_.push_back({{leaf}, {{names_, leaf.size, true}}});
        leaf = opening_.back().after[0];
        ++names_;
      }
      if (marked_.size() == kMostMarks) return 0;
      marked_.push_back(leaf.size);
      return Marks{1} << (marked_.size() - 1);
    });
    for (const std::uint32_t i : dying) mark_[i] = 0;
    while (const Marks joined = scratch_.joined_room(root)) join(root, joined);
    const Marks here = scratch_.marks(root);
    from_ = &state;
    found_ = entered_ = 0;
    work_before_ = work_;
    choose(root, state.score, here & must, here & ~must, first_bits(newborn_.size()), loose);
  }

  void join(Id& root, Marks joined) {
    const RowTree::Leaf room{names_++, bytes_of(joined), true};
    const int bit = bit_of(joined);
    RowTree::Block block;
    root = scratch_.replace(root, joined, scratch_.add(room, Marks{1} << bit), block);
    marked_[static_cast<std::size_t>(bit)] = room.size;
    traces_.push_back({block, {room}});
  }

  Units bytes_of(Marks set) const {
    Units bytes = 0;
    for (; set != 0; set &= set - 1) bytes += marked_[static_cast<std::size_t>(bit_of(set))];
    return bytes;
  }

  // Goes on from a tree in which `dying` and the `newborn` wait for their groups, and `room` is free.
  void choose(Id root, double score, Marks dying, Marks room, Marks newborn, unsigned loose) {
    if (dying == 0 && newborn == 0) {
      ++found_;
      arrive(root, score);
      return;
    }
    if (++entered_ > kMostEntered || work_ > work_before_ + kMostTriedFromOne || stopped()) return;
    std::vector<Group> groups = groups_of(root, score, dying, room, newborn, loose);
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.score > b.score; });
    for (std::size_t k = 0; k < groups.size() && k < kBranches && found_ < kMostFound; ++k) {
      Group& group = groups[k];
      traces_.push_back({group.block, std::move(group.after)});
      choose(group.root, group.score, dying & ~group.neighbours, room & ~group.neighbours,
             newborn & ~group.newborn, loose - (group.loose ? 1 : 0));
      traces_.pop_back();
    }
  }

  std::vector<Group> groups_of(Id root, double score, Marks dying, Marks room, Marks newborn,
                               unsigned loose) {
    std::vector<Group> groups;
    const auto attempt = [&](Marks set, Marks come) {
      if (groups.size() < kMostTried) try_group(root, score, set, come, dying, room, newborn, groups);
    };
    const std::vector<Marks> sets = scratch_.neighbours(root, dying | room);
    work_ += sets.size() / kSetsOfTry;
    if (dying != 0) {
      // One that few groups can have decides; of those groups it has one.
      std::array<std::uint32_t, kMostMarks> count{};
      for (Marks set : sets) {
        for (set &= dying; set != 0; set &= set - 1) ++count[static_cast<std::size_t>(bit_of(set))];
      }
      int picked = bit_of(dying);
      for (Marks left = dying; left != 0; left &= left - 1) {
        if (count[static_cast<std::size_t>(bit_of(left))] < count[static_cast<std::size_t>(picked)])
          picked = bit_of(left);
      }
      for (const Marks set : sets) {
        if ((set >> picked & 1) == 0) continue;
        groups_for(set, bytes_of(set), newborn, 0, loose, attempt);
        if (loose > 0 && (set & room) == 0) attempt(set, 0);
      }
    } else {
      const Marks largest = newborn & ~(newborn - 1);
      for (const Marks set : sets) groups_for(set, bytes_of(set), newborn, largest, loose, attempt);
    }
    return groups;
  }

  // Who of the newborn may come in the place of these neighbours, `with` among them.
  template <class Attempt>
  void groups_for(Marks set, Units bytes, Marks newborn, Marks with, unsigned loose, Attempt&& attempt) {
    const auto possible = [&](Marks come) { return (come & ~newborn) == 0 && (come & with) == with; };
    auto sum = std::upper_bound(sums_.begin(), sums_.end(), Sum{bytes, ~Marks{0}});
    std::size_t others = 0;
    bool all = false;
    for (std::size_t looked = 0; sum != sums_.begin() && looked < kMostTried; ++looked) {
      --sum;
      if (sum->bytes < bytes && (loose == 0 || others == kMostLoose)) break;
      if (!possible(sum->set)) continue;
      all |= sum->set == newborn;
      others += sum->bytes < bytes;
      attempt(set, sum->set);
    }
    if (all || newborn == 0) return;  // there may be too many for their sum to be known
    Units every = 0;
    for (Marks left = newborn; left != 0; left &= left - 1)
      every += size_[newborn_[static_cast<std::size_t>(bit_of(left))]];
    if (every == bytes || (every < bytes && loose > 0)) attempt(set, newborn);
  }

  void try_group(Id root, double score, Marks set, Marks come, Marks dying, Marks room, Marks newborn,
                 std::vector<Group>& groups) {
    ++work_;
    Group group{score, 0, {}, {}, set, come, false};
    Units left = bytes_of(set);
    for (Marks each = come; each != 0; each &= each - 1) {
      const std::uint32_t i = newborn_[static_cast<std::size_t>(bit_of(each))];
      group.after.push_back({i, size_[i], false});
      left -= size_[i];
    }
    group.loose = left > 0;
    // What is free in several places is where several that nobody knows would be.
    const std::vector<Units>& rooms = *rooms_here_;
    if (left > 0 && left == std::accumulate(rooms.begin(), rooms.end(), Units{0})) {
      for (const Units room : rooms) group.after.push_back({names_++, room, true});
    } else if (left > 0) {
      group.after.push_back({names_++, left, true});
    }
    std::vector<Id> children;
    for (const RowTree::Leaf& leaf : group.after) children.push_back(scratch_.add(leaf, 0));
    group.root = scratch_.replace(root, set, scratch_.add_any(children), group.block);
    if (group.root == RowTree::kNone) return;
    group.score -= group.block.lost;
    if (group.loose) {
      group.score -= kLoose;
    } else if (set != (dying | room) || come != newborn) {
      // How unlikely it is that some group of so many adds up by chance.
      group.score += std::log(static_cast<double>(bytes_of(set)) + 1.0) - log_choices(dying | room, set) -
                     log_choices(newborn, come);
    }
    if (noise_ > 0) group.score += noise_ * random_.normal();
    groups.push_back(std::move(group));
  }

  // A tree at the next section: kept if it may be among the best.
  void arrive(Id root, double score) {
    if (!seen_.insert(scratch_.hash(root)).second) return;
    State state;
    state.score = score;
    state.last = from_->last;
    state.pending = opening_;
    for (const Trace& trace : traces_) state.pending.push_back(step(scratch_, trace.block, trace.after));
    state.root = state.tree.copy(scratch_, root, [](RowTree::Leaf&) { return Marks{0}; });
    next_.push_back(std::move(state));
    if (next_.size() > 4 * options_.width) {
      std::nth_element(next_.begin(), next_.begin() + static_cast<std::ptrdiff_t>(options_.width),
                       next_.end(), [](const State& a, const State& b) { return a.score > b.score; });
      next_.resize(options_.width);
    }
  }

  static Step step(const RowTree& tree, const RowTree::Block& block,
                   const std::vector<RowTree::Leaf>& after) {
    Step step;
    tree.leaves(block, step.before);
    step.after = after;
    bool before = false;
    std::uint32_t name = kNobody;
    if (tree.beside(block, name, before)) step.beside = name, step.beside_first = before;
    return step;
  }

  // Who will die together are neighbours from the time on at which all of them live. False: the tree has no
  // such order.
  bool gather(State& state, std::uint32_t section) {
    for (const std::uint32_t s : events_.together[section]) {
      const List& together = events_.dying[s];
      scratch_.clear();
      for (std::size_t k = 0; k < together.size(); ++k) mark_[together[k]] = Marks{1} << k;
      const Id root = scratch_.copy(state.tree, state.root, [&](RowTree::Leaf& leaf) {
        return leaf.free ? Marks{0} : mark_[leaf.name];
      });
      for (const std::uint32_t i : together) mark_[i] = 0;
      if (scratch_.marks(root) != first_bits(together.size())) continue;  // one was left out
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

  std::vector<Offset> way_back(const State& best) const {
    constexpr Units kNowhere = -1;
    std::vector<Units> at(problem_.size(), kNowhere);
    std::vector<RowTree::Leaf> row;
    best.tree.leaves(best.root, row);
    const auto place = [&](const std::vector<RowTree::Leaf>& leaves) {
      for (const RowTree::Leaf& wanted : leaves) {
        if (wanted.free) continue;
        Units below = 0;
        for (const RowTree::Leaf& leaf : row) {
          if (leaf.name == wanted.name) at[wanted.name] = below;
          below += leaf.size;
        }
      }
    };
    const auto find = [&](std::uint32_t name) {
      return std::find_if(row.begin(), row.end(), [&](const auto& leaf) { return leaf.name == name; });
    };
    for (std::uint32_t k = best.last; k != kNobody; k = steps_[k].previous) {
      const Step& step = steps_[k];
      place(step.after);
      auto begin = row.end();
      for (const RowTree::Leaf& leaf : step.after) begin = std::min(begin, find(leaf.name));
      std::vector<RowTree::Leaf> before = step.before;
      if (step.beside != kNobody && (find(step.beside) < begin) != step.beside_first)
        std::reverse(before.begin(), before.end());
      const auto where = begin - row.begin();
      row.erase(begin, begin + static_cast<std::ptrdiff_t>(step.after.size()));
      row.insert(row.begin() + where, before.begin(), before.end());
    }
    return completed(at);
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
  double noise_;
  const SearchLimits* limits_ = nullptr;  // of the run, as is:
  std::uint64_t work_ = 0;
  Random random_;
  std::uint32_t section_ = 0, passed_ = 0;  // the next, and the farthest it was
  std::vector<Saved> saved_;                // by section
  State farthest_;                          // the best tree there
  bool farther_ = false;                    // since the last run
  std::uint32_t died_ = 0, back_ = 0;       // where, at most, and how far it goes back from there
  bool ended_ = false;
  std::vector<Offset> offsets_;
  std::uint32_t names_;  // the next one: of buffers, then of free room
  std::vector<State> beam_, next_;
  std::vector<Step> steps_;
  std::size_t kept_steps_ = 0;
  std::unordered_set<std::uint64_t> seen_;

  const std::vector<Units>* rooms_here_ = nullptr;
  List newborn_;               // by their bits
  std::vector<Sum> sums_;      // of subsets of them
  std::vector<Marks> mark_;    // per buffer that dies
  std::vector<Units> marked_;  // sizes, by bits
  RowTree scratch_;
  const State* from_ = nullptr;
  std::vector<Step> opening_;  // before the groups are chosen
  std::vector<Trace> traces_;
  std::size_t found_ = 0, entered_ = 0;
  std::uint64_t work_before_ = 0;
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

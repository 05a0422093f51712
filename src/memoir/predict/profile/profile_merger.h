// SPDX-License-Identifier: Apache-2.0
//
// Adds lifetime profiles up: of several runs, processes or machines. The order and the grouping of what is
// added change nothing: the result has the same bytes.
//
//   modules   the same build id, or the same path where there is none
//   frames    the same offset of the same module; a name wins over none
//   contexts  the same stack: estimates, tallies and cells are added
//   runs      those of least priority keep their pairs and points; the others are counted in the totals
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "memoir/predict/profile/lifetime_profile.h"

namespace memoir {

class ProfileMerger {
 public:
  /// Throws Error when a run of it was added before: it would count twice. `name` is for that message.
  void add(const LifetimeProfile& profile, const std::string& name);
  /// The canonical profile of all that was added. Call it once, at the end.
  LifetimeProfile finish();

 private:
  using P = LifetimeProfile;

  struct MergedModule {
    std::string path, id;
  };
  struct MergedFrame {
    std::uint32_t module;
    std::uint64_t offset;
    std::string_view name;  // one of names_
  };
  struct MergedContext {
    P::Context context;
    std::vector<std::uint32_t> frames;           // numbers of frames_
    std::map<std::uint32_t, P::Estimate> cells;  // by fate, clock and bucket
  };
  struct MergedRun {
    P::Run run;
    std::string program;
    std::vector<P::Pair> pairs;  // with numbers of contexts_
    std::vector<P::Point> points;
  };

  std::uint32_t module_of(const P& profile, const P::Module& module);
  std::uint32_t frame_of(const P& profile, const P::Frame& frame, const std::vector<std::uint32_t>& modules);
  std::uint32_t context_of(const P::Context& context, std::vector<std::uint32_t> frames);
  void add_runs(const P& profile, const std::vector<std::uint32_t>& contexts, const std::string& name);
  void keep_best_runs();

  P::Totals totals_{.most_pairs = P::kMostPairs, .most_runs = P::kMostRuns};
  std::set<std::string, std::less<>> names_;
  std::vector<MergedModule> modules_;
  std::vector<MergedFrame> frames_;
  std::vector<MergedContext> contexts_;
  std::map<std::string, std::uint32_t> module_numbers_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> frame_numbers_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> context_numbers_;  // frames, then flags
  std::map<std::pair<std::uint64_t, std::uint64_t>, MergedRun> runs_;    // by id
};

/// The canonical form of one profile.
LifetimeProfile canonical(const LifetimeProfile& profile);

}  // namespace memoir

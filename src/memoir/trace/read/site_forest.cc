// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/site_forest.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "memoir/base/keyed_hash.h"

namespace memoir {

namespace {

/// Numbers for the frames of both tables.
class FrameNumbers {
 public:
  FrameNumbers(const StackTable& stacks, std::vector<StackFrame>& frames)
      : stacks_(stacks), frames_(frames) {}

  /// The frames of a site, from `first` on, outermost first: several where functions are inlined.
  struct Run {
    std::uint32_t first = 0, count = 0;
  };
  Run of(const SiteTable::Site& site) {
    if (site.frame == 0) return of_name(site);
    const auto [found, fresh] = by_frame_.emplace(site.frame, Run{});
    if (fresh) {
      found->second.first = static_cast<std::uint32_t>(frames_.size());
      stacks_.append_frames(site.frame, frames_);
      found->second.count = static_cast<std::uint32_t>(frames_.size()) - found->second.first;
    }
    return found->second;
  }

 private:
  Run of_name(const SiteTable::Site& site) {
    const auto [found, fresh] = by_name_.emplace(site.name, Run{});
    if (fresh) {
      found->second = {static_cast<std::uint32_t>(frames_.size()), 1};
      StackFrame& frame = frames_.emplace_back();
      frame.kind = site.kind;
      frame.function = site.name;
    }
    return found->second;
  }

  const StackTable& stacks_;
  std::vector<StackFrame>& frames_;
  std::unordered_map<std::uint64_t, Run, KeyedHash> by_frame_;
  std::map<std::string_view, Run> by_name_;  // names that a stranger chose
};

}  // namespace

SiteForest::SiteForest(const SiteTable& sites, const StackTable& stacks, std::span<const SiteId> wanted) {
  FrameNumbers numbers(stacks, frames);
  std::unordered_map<SiteId, std::uint32_t, KeyedHash> rows;  // of sites that have one
  std::vector<const SiteTable::Site*> chain;
  row.reserve(wanted.size());
  for (const SiteId site : wanted) {
    chain.clear();
    std::uint32_t below = kNone;
    for (const auto* at = sites.find(site); at != nullptr; at = sites.find(at->parent)) {
      if (const auto known = rows.find(at->id); known != rows.end()) {
        below = known->second;
        break;
      }
      chain.push_back(at);
    }
    for (auto each = chain.rbegin(); each != chain.rend(); ++each) {
      const FrameNumbers::Run run = numbers.of(**each);
      for (std::uint32_t i = 0; i < run.count; ++i) {
        parent.push_back(below);
        frame.push_back(run.first + i);
        below = static_cast<std::uint32_t>(parent.size() - 1);
      }
      rows.emplace((*each)->id, below);
    }
    row.push_back(below);
  }
}

}  // namespace memoir

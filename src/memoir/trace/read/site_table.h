// SPDX-License-Identifier: Apache-2.0
//
// The sites of a trace: each a frame and the site that it was reached from. Found by their ids in constant
// time, whoever chose the ids.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/base/keyed_hash.h"
#include "memoir/trace/event.h"

namespace memoir {

class SiteTable {
 public:
  struct Site {
    SiteId id = kNoSite;
    SiteId parent = kNoSite;
    std::string_view name;    // lives as long as the table
    std::uint32_t frame = 0;  // of the stack table; 0: none
    std::uint16_t depth = 0;  // frames of its chain, 0 while unknown
    FrameKind kind = FrameKind::kOperator;
  };

  const Site* find(SiteId id) const noexcept;
  /// A site whose name is copied. False when it is there with another parent or name: nothing changed.
  bool define(SiteId id, SiteId parent, std::string_view name, FrameKind kind);
  /// One of a stack table, which keeps the name. One that is there already stays as it is.
  void add(SiteId id, SiteId parent, std::string_view name, FrameKind kind, std::uint32_t frame);
  /// Names of a stack table's frames, by number, where they became known later.
  void rename(const std::deque<std::string_view>& by_frame);

  /// The id of a site whose chain runs in a circle or has more than kMaxFrames; kNoSite when none does.
  SiteId endless();

  std::size_t size() const noexcept { return sites_.size(); }
  std::span<const Site> all() const noexcept { return sites_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t number_of(SiteId id) const noexcept;
  void insert(const Site& site);

  std::uint64_t key_ = hash_key();
  std::vector<Site> sites_;
  std::vector<std::uint32_t> table_;  // a power of two, at most three quarters taken
  std::deque<std::string> texts_;
  std::size_t walked_ = 0;   // sites of which endless() knows the depth
  bool is_defined_ = false;  // by define() since: their parents may come later
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/site_table.h"

#include "memoir/trace/format.h"

namespace memoir {

std::uint32_t SiteTable::number_of(SiteId id) const noexcept {
  if (table_.empty()) return kNone;
  for (std::size_t at = keyed_hash(id, key_) & (table_.size() - 1);; at = (at + 1) & (table_.size() - 1)) {
    if (table_[at] == kNone || sites_[table_[at]].id == id) return table_[at];
  }
}

const SiteTable::Site* SiteTable::find(SiteId id) const noexcept {
  const std::uint32_t number = number_of(id);
  return number == kNone ? nullptr : &sites_[number];
}

void SiteTable::insert(const Site& site) {
  const auto place = [this](SiteId id, std::uint32_t number) {
    std::size_t at = keyed_hash(id, key_) & (table_.size() - 1);
    while (table_[at] != kNone) at = (at + 1) & (table_.size() - 1);
    table_[at] = number;
  };
  if (4 * (sites_.size() + 1) > 3 * table_.size()) {
    table_.assign(table_.empty() ? 256 : 2 * table_.size(), kNone);
    for (std::uint32_t number = 0; number < sites_.size(); ++number) place(sites_[number].id, number);
  }
  place(site.id, static_cast<std::uint32_t>(sites_.size()));
  sites_.push_back(site);
}

bool SiteTable::define(SiteId id, SiteId parent, std::string_view name, FrameKind kind) {
  if (const Site* known = find(id)) return known->parent == parent && known->name == name;
  insert({id, parent, texts_.emplace_back(name), 0, 0, kind});
  is_defined_ = true;
  return true;
}

void SiteTable::add(SiteId id, SiteId parent, std::string_view name, FrameKind kind, std::uint32_t frame) {
  if (find(id) == nullptr) insert({id, parent, name, frame, 0, kind});
}

void SiteTable::rename(const std::deque<std::string_view>& by_frame) {
  for (Site& site : sites_) {
    if (site.frame != 0 && site.frame < by_frame.size()) site.name = by_frame[site.frame];
  }
}

SiteId SiteTable::endless() {
  using trace_format::kMaxFrames;
  if (is_defined_) {  // a parent may have come behind its child: all depths are open again
    for (Site& site : sites_) site.depth = 0;
    walked_ = 0;
    is_defined_ = false;
  }
  std::vector<Site*> chain;
  for (; walked_ < sites_.size(); ++walked_) {
    chain.clear();
    std::size_t frames = 0;
    for (Site* next = &sites_[walked_]; next != nullptr;) {
      if (next->depth != 0) {
        frames = next->depth;
        break;
      }
      chain.push_back(next);
      if (chain.size() > kMaxFrames) break;
      const std::uint32_t parent = number_of(next->parent);
      next = parent == kNone ? nullptr : &sites_[parent];
    }
    if (frames + chain.size() > kMaxFrames) return sites_[walked_].id;
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
      (*link)->depth = static_cast<std::uint16_t>(++frames);
    }
  }
  return kNoSite;
}

}  // namespace memoir

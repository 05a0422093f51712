// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/objects/usage.h"

#include <algorithm>
#include <unordered_map>

#include "memoir/base/keyed_hash.h"

namespace memoir {

namespace {

/// What a C library's malloc takes for a request.
Size chunk_of(Size size) noexcept { return std::max<Size>(32, align_up(size + 8, 16)); }

}  // namespace

LoadUsage load_of(std::span<const Event> events, const Lives& lives, std::span<const std::uint32_t> begins) {
  LoadUsage load;
  Amount live;
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    while (load.most.size() < begins.size() && begins[load.most.size()] <= i) load.most.push_back(live.bytes);
    const Event& event = events[i];
    if (event.kind == EventKind::kAllocate) {
      live.add(event.size);
      if (!load.most.empty()) load.most.back() = std::max(load.most.back(), live.bytes);
      if (live.bytes > load.held.bytes || load.held.count == 0) {
        load.held = live;
        load.peak = i;
      }
    } else if (event.kind == EventKind::kFree) {
      --live.count;
      live.bytes -= lives.allocation(lives.number(i)).size;
    }
  }
  load.most.resize(begins.size(), live.bytes);
  return load;
}

Usage::Usage(std::span<const Event> events, std::optional<Tick> at, std::size_t points)
    : events_(events), lives_(events), is_temporary_(lives_.size()) {
  find_peak();
  count_moment(at);
  count_sites();
  count_rates(std::max<std::size_t>(points, 1));
}

void Usage::find_peak() {
  std::unordered_map<std::uint32_t, std::uint32_t, KeyedHash> last;  // by thread: the life it allocated last
  Amount live;
  for (std::uint32_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    if (event.kind == EventKind::kAllocate) {
      allocated_.add(event.size);
      live.add(event.size);
      last[event.thread] = lives_.number(i);
      if (live.bytes > held_at_peak_.bytes || peak_ == kNone) {
        held_at_peak_ = live;
        peak_ = i;
      }
    } else if (event.kind == EventKind::kFree) {
      const std::uint32_t life = lives_.number(i);
      live.count -= 1;
      live.bytes -= lives_.allocation(life).size;
      const auto latest = last.find(event.thread);
      if (latest != last.end() && latest->second == life) {
        is_temporary_[life] = true;
        temporary_.add(lives_.allocation(life).size);
      }
    }
  }
  kept_ = live;
}

std::uint32_t Usage::last_event(Tick time) const noexcept {
  const auto behind = std::upper_bound(events_.begin(), events_.end(), time,
                                       [](Tick until, const Event& event) { return until < event.time; });
  return behind == events_.begin() ? kNone : static_cast<std::uint32_t>(behind - events_.begin() - 1);
}

void Usage::count_moment(std::optional<Tick> at) {
  moment_ = at ? last_event(*at) : peak_;
  for (std::uint32_t number = 0; number < lives_.size(); ++number) {
    if (lives_at(number, moment_)) held_.add(lives_.allocation(number).size);
  }
}

void Usage::count_sites() {
  std::unordered_map<SiteId, std::uint32_t, KeyedHash> site_rows;
  std::unordered_map<std::uint64_t, std::uint32_t, KeyedHash> thread_rows;
  const auto site_row = [&](SiteId site) -> SiteUsage& {
    const auto [row, fresh] = site_rows.emplace(site, static_cast<std::uint32_t>(sites_.size()));
    if (fresh) sites_.push_back({.site = site, .allocated = {}, .held = {}, .kept = {}, .temporary = {}});
    return sites_[row->second];
  };
  const auto thread_row = [&](std::uint32_t thread) -> ThreadUsage& {
    const auto [row, fresh] = thread_rows.emplace(thread, static_cast<std::uint32_t>(threads_.size()));
    if (fresh) threads_.emplace_back().thread = thread;
    return threads_[row->second];
  };
  for (std::uint32_t number = 0; number < lives_.size(); ++number) {
    const Event& made = lives_.allocation(number);
    const std::uint32_t end = lives_.end(number);
    const bool is_held = lives_at(number, moment_);
    const auto count = [&](auto& row) {
      row.allocated.add(made.size);
      if (is_held) row.held.add(made.size);
      if (end == Life::kNever) row.kept.add(made.size);
      if (is_temporary_[number]) row.temporary.add(made.size);
    };
    count(site_row(made.site));
    ThreadUsage& thread = thread_row(made.thread);
    count(thread);
    if (end == Life::kNever) continue;
    if (events_[end].thread != made.thread) thread.freed_elsewhere.add(made.size);
    thread_row(events_[end].thread).freed.add(made.size);
  }
  std::sort(sites_.begin(), sites_.end(), [](const SiteUsage& one, const SiteUsage& other) {
    if (one.held.bytes != other.held.bytes) return one.held.bytes > other.held.bytes;
    if (one.allocated.bytes != other.allocated.bytes) return one.allocated.bytes > other.allocated.bytes;
    return one.site < other.site;
  });
  std::sort(threads_.begin(), threads_.end(),
            [](const ThreadUsage& one, const ThreadUsage& other) { return one.thread < other.thread; });
}

void Usage::count_rates(std::size_t points) {
  const Tick end = events_.empty() ? 0 : events_.back().time;
  step_ = end / points + 1;
  rates_.resize(static_cast<std::size_t>(end / step_) + 1);
  Size live = 0;
  std::size_t reached = 0;  // stretches that have a peak
  for (std::uint32_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    const auto at = static_cast<std::size_t>(event.time / step_);
    for (; reached <= at; ++reached) rates_[reached].peak_bytes = live;  // what went on from before
    RateUsage& rate = rates_[at];
    if (event.kind == EventKind::kAllocate) {
      ++rate.allocations;
      rate.bytes += event.size;
      live += event.size;
      rate.peak_bytes = std::max(rate.peak_bytes, live);
    } else if (event.kind == EventKind::kFree) {
      ++rate.frees;
      live -= lives_.allocation(lives_.number(i)).size;
    }
  }
}

std::vector<Size> Usage::curves(std::span<const std::uint32_t> group_of, std::size_t groups,
                                std::size_t points) const {
  std::vector<Size> most(groups * points), live(groups);
  if (most.empty() || events_.empty()) return most;
  std::unordered_map<SiteId, std::uint32_t, KeyedHash> by_site;
  for (std::size_t i = 0; i < std::min(group_of.size(), sites_.size()); ++i) {
    if (group_of[i] < groups) by_site.emplace(sites_[i].site, group_of[i]);
  }
  const Tick step = events_.back().time / points + 1;
  std::size_t reached = 0;  // the stretch that is filled
  const auto begin_stretch = [&] {
    for (std::size_t group = 0; group < groups; ++group) most[group * points + reached] = live[group];
  };
  for (std::uint32_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    if (event.kind != EventKind::kAllocate && event.kind != EventKind::kFree) continue;
    for (const auto at = static_cast<std::size_t>(event.time / step); reached < at;) {
      ++reached;
      begin_stretch();
    }
    const Event& made = event.kind == EventKind::kAllocate ? event : lives_.allocation(lives_.number(i));
    const auto found = by_site.find(made.site);
    if (found == by_site.end()) continue;
    Size& now = live[found->second];
    if (event.kind == EventKind::kFree) {
      now -= made.size;
      continue;
    }
    now += made.size;
    Size& highest = most[found->second * points + reached];
    highest = std::max(highest, now);
  }
  while (++reached < points) begin_stretch();
  return most;
}

std::vector<FreedAtEnd> Usage::freed_at_end(std::span<const std::uint8_t> marked) const {
  std::vector<FreedAtEnd> freed(sites_.size());
  std::unordered_map<SiteId, std::uint32_t, KeyedHash> rows;
  for (std::uint32_t i = 0; i < sites_.size(); ++i) rows.emplace(sites_[i].site, i);
  std::uint32_t last = kNone;  // the event
  for (auto number = static_cast<std::uint32_t>(lives_.size()); number-- > 0 && last == kNone;) {
    const std::uint32_t row = rows.find(lives_.allocation(number).site)->second;
    if (row < marked.size() && marked[row] != 0) last = lives_.begin(number);
  }
  for (std::uint32_t number = 0; number < lives_.size(); ++number) {
    if (!lives_at(number, last) || lives_.end(number) == Life::kNever) continue;
    const Event& made = lives_.allocation(number);
    FreedAtEnd& row = freed[rows.find(made.site)->second];
    row.amount.add(made.size);
    row.byte_nanoseconds +=
        static_cast<double>(made.size) * static_cast<double>(events_[last].time - made.time + 1);
  }
  return freed;
}

PageUsage Usage::pages(Tick time, Size page) const {
  const std::uint32_t moment = last_event(time);
  PageUsage usage;
  std::vector<std::uint32_t> live;  // lives, by address
  for (std::uint32_t number = 0; number < lives_.size(); ++number) {
    const Size size = lives_.allocation(number).size;
    if (!lives_at(number, moment) || size == 0 || lives_[number].address == kNoOffset) continue;
    live.push_back(number);
    usage.held.add(size);
    usage.rounding += chunk_of(size) - size;
  }
  std::sort(live.begin(), live.end(), [&](std::uint32_t one, std::uint32_t other) {
    return lives_[one].address < lives_[other].address;
  });
  std::unordered_map<SiteId, PageUsage::Pinned, KeyedHash> sites;
  std::vector<SiteId> on_page;  // a site for each object on the page that is filled
  Size filled = 0;
  Offset current = kNoOffset;  // that page
  const auto end_page = [&] {
    if (on_page.empty()) return;
    usage.pages += page;
    const Size free = page - std::min(page, filled);
    for (std::size_t i = 0; i < on_page.size(); ++i) {
      sites[on_page[i]].free_bytes += free / on_page.size() + (i < free % on_page.size());
    }
    on_page.clear();
    filled = 0;
  };
  for (const std::uint32_t number : live) {
    const Offset begin = lives_[number].address;
    const Size size = lives_.allocation(number).size;
    const SiteId site = lives_.allocation(number).site;
    sites[site].held.add(size);
    const Offset first = begin / page, last = (begin + size - 1) / page;
    if (first != current) end_page();
    on_page.push_back(site);
    if (first == last) {
      current = first;
      filled += size;
      continue;
    }
    filled += (first + 1) * page - begin;
    end_page();
    usage.pages += (last - first - 1) * page;  // those between are full
    current = last;
    on_page.push_back(site);
    filled = begin + size - last * page;
  }
  end_page();
  for (auto& [site, pinned] : sites) {
    pinned.site = site;
    usage.sites.push_back(pinned);
  }
  std::sort(usage.sites.begin(), usage.sites.end(), [](const auto& one, const auto& other) {
    return one.free_bytes != other.free_bytes ? one.free_bytes > other.free_bytes : one.site < other.site;
  });
  return usage;
}

}  // namespace memoir

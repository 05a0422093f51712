// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/slab/recorder.h"

#include <bit>
#include <mutex>
#include <string_view>

namespace memoir {

size_t LiveTable::home(const void* address) const noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15ull;
  return static_cast<size_t>(bits >> (64 - std::countr_zero(slots_.size())));
}

bool LiveTable::insert(const void* address, ObjectId object) noexcept {
  if (2 * (size_ + 1) > slots_.size() && !grow()) return false;
  size_t at = home(address);
  while (slots_[at].address != nullptr && slots_[at].address != address) at = (at + 1) & (slots_.size() - 1);
  if (slots_[at].address == nullptr) ++size_;
  slots_[at] = {address, object};
  return true;
}

ObjectId LiveTable::take(const void* address) noexcept {
  if (slots_.empty() || address == nullptr) return 0;
  const size_t mask = slots_.size() - 1;
  size_t hole = home(address);
  while (slots_[hole].address != address) {
    if (slots_[hole].address == nullptr) return 0;
    hole = (hole + 1) & mask;
  }
  const ObjectId object = slots_[hole].object;
  // Close the gap (Knuth 6.4, algorithm R): move back what the hole would cut off from its home.
  for (size_t at = (hole + 1) & mask; slots_[at].address != nullptr; at = (at + 1) & mask) {
    if (((at - home(slots_[at].address)) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --size_;
  return object;
}

bool LiveTable::grow() noexcept {
  MetadataArray<Slot> old = std::move(slots_);
  slots_ = {};
  if (!slots_.assign(old.empty() ? 1024 : 2 * old.size(), Slot{})) {
    slots_ = std::move(old);
    return false;
  }
  size_ = 0;
  for (const Slot& slot : old) {
    if (slot.address != nullptr) insert(slot.address, slot.object);
  }
  return true;
}

void Recorder::allocated(const void* address, Size size, Size alignment, const ScopeStack* scopes) noexcept {
  const std::uint32_t thread = thread_number();
  const std::lock_guard lock(mutex_);
  if (scopes != nullptr) define_sites(*scopes);
  const ObjectId object = next_object_;
  // Without memory for the table, or with the trace full, the object is not seen at all: a free without its
  // allocation would make the trace unreadable.
  if (!live_.insert(address, object)) return;
  const SiteId site = scopes == nullptr ? kNoSite : scopes->site();
  if (writer_.allocate(object, site, size, alignment, thread)) {
    ++next_object_;
  } else {
    live_.take(address);
  }
}

bool Recorder::freed(const void* address) noexcept {
  const std::uint32_t thread = thread_number();
  const std::lock_guard lock(mutex_);
  const ObjectId object = live_.take(address);
  if (object == 0) return false;
  writer_.free(object, thread);
  return true;
}

void Recorder::pass_begin(std::uint64_t pass) noexcept {
  const std::lock_guard lock(mutex_);
  writer_.pass_begin(pass, thread_number());
}

void Recorder::pass_end(std::uint64_t pass) noexcept {
  const std::lock_guard lock(mutex_);
  writer_.pass_end(pass, thread_number());
}

void Recorder::meta(std::string_view key, std::string_view value) noexcept {
  const std::lock_guard lock(mutex_);
  writer_.meta(key, value);
}

void Recorder::define_sites(const ScopeStack& scopes) noexcept {
  if (scopes.kept() == 0) {
    if (is_new_site(ScopeStack::kOutside))
      writer_.define_site(ScopeStack::kOutside, kNoSite, "(no operator)");
    return;
  }
  // The innermost is the one most often seen before; a defined site has all its parents defined.
  size_t first = scopes.kept();
  while (first > 0 && is_new_site(scopes[first - 1].site)) --first;
  for (size_t i = first; i < scopes.kept(); ++i) {
    writer_.define_site(scopes[i].site, i == 0 ? kNoSite : scopes[i - 1].site, scopes[i].name);
  }
}

bool Recorder::is_new_site(SiteId site) noexcept {
  if (2 * (site_count_ + 1) > sites_.size()) {
    MetadataArray<SiteId> old = std::move(sites_);
    sites_ = {};
    if (!sites_.assign(old.empty() ? 1024 : 2 * old.size(), kNoSite)) {
      sites_ = std::move(old);
      return false;
    }
    site_count_ = 0;
    for (const SiteId known : old) {
      if (known != kNoSite) is_new_site(known);
    }
  }
  size_t at = site & (sites_.size() - 1);  // a site is a hash already
  while (sites_[at] != kNoSite) {
    if (sites_[at] == site) return false;
    at = (at + 1) & (sites_.size() - 1);
  }
  sites_[at] = site;
  ++site_count_;
  return true;
}

std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> next{0};
  static thread_local const std::uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace memoir

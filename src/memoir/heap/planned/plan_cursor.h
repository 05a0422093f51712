// SPDX-License-Identifier: Apache-2.0
//
// The place of a run in its recording: which recorded allocation is this request?
//
//   recorded   conv:64   relu:64   conv:32           in step      the next one, when size and site agree
//   requested  conv:64   extra:8   relu:64   conv:32 out of step  the nearest of that site and size that was
//   answer     0         none      1         2                   not used yet in this pass
//
// A plan whose sizes were guessed serves smaller requests too (PlannedFit), out of step the next one near.
// (The thesis MemoMalloc, chapter 3.3, matches by bare order, and is lost after the first extra operator;
// STAlloc, Huang et al. 2025, by the index of the event.) Far jumps wait until some requests in a row found
// nothing near: one extra operator must not drag the place to the end of the pass. In metadata memory; not
// thread-safe.
#pragma once

#include "memoir/heap/heap.h"
#include "memoir/heap/planned/planned_layout.h"

namespace memoir {

class PlanCursor {
 public:
  static constexpr std::uint32_t kNone = PlannedLayout::kNone;

  /// At the start of a pass of `layout`, which the caller keeps alive and whose ok() holds. Requests without
  /// a site are matched out of step too when `by_size`, by their size alone; a heap for which a wrong match
  /// is a wrong answer leaves that be.
  explicit PlanCursor(const PlannedLayout& layout, bool by_size = false) noexcept;

  /// The same for another layout.
  void follow(const PlannedLayout& layout) noexcept;

  /// False when there was no metadata memory.
  bool ok() const noexcept { return ok_; }

  /// `at`: the entry that the next request is; those before it are not looked for in this pass.
  void begin_pass(std::uint32_t at = 0) noexcept;
  /// The index of the recorded allocation that this request is, which counts as used then; or kNone.
  std::uint32_t match(const Request& request) noexcept {
    const auto entries = layout_->entries();
    if (in_step_) [[likely]] {
      if (next_ < entries.size() && is_like(entries[next_], request)) [[likely]]
        return next_++;
      leave_step();
    }
    return match_out_of_step(request);
  }
  /// From here on each match is remembered by itself. match() does so when a request is not the next one.
  void leave_step() noexcept;

  /// True while every request of this pass was the next one of the recording.
  bool in_step() const noexcept { return in_step_; }
  /// The entry after the last match.
  std::uint32_t place() const noexcept { return next_; }
  /// True when nothing of the recording is left to come.
  bool at_end() const noexcept { return next_ == layout_->entries().size(); }
  /// Requests in a row that found nothing near.
  std::uint32_t misses() const noexcept { return misses_; }

 private:
  bool is_like(const PlannedLayout::Entry& entry, const Request& request) const noexcept {
    return (entry.size == request.size ||
            (takes_smaller_ && entry.size > request.size && entry.size - request.size <= entry.size / 2)) &&
           (request.site == kNoSite || request.site == entry.site);
  }
  bool is_used(std::uint32_t index) const noexcept { return used_[index / 64] >> (index % 64) & 1; }
  std::uint32_t match_out_of_step(const Request& request) noexcept;
  std::uint32_t find(const Request& request) noexcept;
  std::uint32_t find_larger(const Request& request) const noexcept;

  const PlannedLayout* layout_;
  MetadataArray<std::uint64_t> used_;  // a bit per entry: matched in this pass; kept once out of step
  std::uint32_t next_ = 0;             // the entry after the last match
  std::uint32_t misses_ = 0;
  bool in_step_ = true;
  const bool by_size_;
  bool takes_smaller_ = false;  // see PlannedFit
  bool ok_ = false;
};

}  // namespace memoir

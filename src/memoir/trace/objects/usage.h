// SPDX-License-Identifier: Apache-2.0
//
// Who allocated how much, who held it at one moment, what stayed and what was short: the figures behind
// `memoir show`, in one walk over a trace's events.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memoir/trace/event.h"
#include "memoir/trace/objects/lives.h"

namespace memoir {

/// So many objects, so many bytes.
struct Amount {
  std::uint64_t count = 0;
  Size bytes = 0;

  void add(Size size) noexcept {
    ++count;
    bytes += size;
  }
  bool operator==(const Amount&) const = default;
};

struct SiteUsage {
  SiteId site = kNoSite;
  Amount allocated;
  Amount held;       // at the moment
  Amount kept;       // never freed
  Amount temporary;  // freed on its thread before that allocated again
};

struct ThreadUsage {
  std::uint32_t thread = 0;
  Amount allocated, held, kept, temporary;
  Amount freed;            // by this thread, whoever allocated it
  Amount freed_elsewhere;  // allocated here, freed on another thread
};

/// What a program gives back only when it has come to its end.
struct FreedAtEnd {
  Amount amount;
  double byte_nanoseconds = 0;  // bytes times how long they had been held by then
};

/// One of equal stretches of time.
struct RateUsage {
  std::uint64_t allocations = 0, frees = 0;
  Size bytes = 0;       // allocated
  Size peak_bytes = 0;  // most that was live
};

/// The pages under live objects, and the free space on them that no neighbour fills.
struct PageUsage {
  struct Pinned {
    SiteId site = kNoSite;
    Size free_bytes = 0;  // its objects' share of the free space on their pages
    Amount held;
  };
  Amount held;        // objects whose addresses are known, as asked
  Size rounding = 0;  // bytes that a C library adds to them: a header of 8, multiples of 16, at least 32
  Size pages = 0;     // bytes of pages that they touch
  std::vector<Pinned> sites;  // who pins free space, most first
};

/// How much lived over stretches of events, and the peak.
struct LoadUsage {
  std::vector<Size> most;                  // bytes, in each stretch; with what lived before it
  std::uint32_t peak = ~std::uint32_t{0};  // the event that reaches it first; the largest number: none does
  Amount held;                             // after it
};

/// A stretch begins at each of `begins`, which ascend from 0; `lives` are those of the events.
LoadUsage load_of(std::span<const Event> events, const Lives& lives, std::span<const std::uint32_t> begins);

class Usage {
 public:
  /// `at`: the moment, in nanoseconds, instead of the peak. `points`: stretches of time. The events are the
  /// caller's. Throws Error as Lives does.
  explicit Usage(std::span<const Event> events, std::optional<Tick> at = std::nullopt,
                 std::size_t points = 200);

  /// The event after which the moment is; kNone when nothing was allocated until then.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t moment() const noexcept { return moment_; }
  Amount held() const noexcept { return held_; }
  std::uint32_t peak() const noexcept { return peak_; }
  Amount held_at_peak() const noexcept { return held_at_peak_; }

  /// The most bytes held first, then the most allocated.
  std::span<const SiteUsage> sites() const noexcept { return sites_; }
  std::span<const ThreadUsage> threads() const noexcept { return threads_; }
  Amount allocated() const noexcept { return allocated_; }
  Amount kept() const noexcept { return kept_; }
  Amount temporary() const noexcept { return temporary_; }
  std::span<const RateUsage> rates() const noexcept { return rates_; }
  Tick rate_step() const noexcept { return step_; }  // nanoseconds of one stretch; the first begins at time 0

  /// For each group the most bytes that lived in each of `points` equal stretches of time, with what lived
  /// before: `groups` rows of `points` numbers. `group_of`: of each row of sites(), below `groups`; others
  /// count nowhere. One walk over the events.
  std::vector<Size> curves(std::span<const std::uint32_t> group_of, std::size_t groups,
                           std::size_t points) const;

  /// By row of sites(): what lived after the last allocation of the sites that are marked, and was freed
  /// later. Without one nothing did.
  std::vector<FreedAtEnd> freed_at_end(std::span<const std::uint8_t> marked) const;

  /// The pages at some time, 4 KiB each; of objects with addresses.
  PageUsage pages(Tick time, Size page = 4 * kKiB) const;

 private:
  void find_peak();
  void count_moment(std::optional<Tick> at);
  void count_sites();
  void count_rates(std::size_t points);
  bool lives_at(std::uint32_t life, std::uint32_t event) const noexcept {
    return event != kNone && lives_.begin(life) <= event && lives_.end(life) > event;  // kNever is later
  }
  std::uint32_t last_event(Tick time) const noexcept;

  std::span<const Event> events_;
  Lives lives_;
  std::vector<bool> is_temporary_;  // by life
  std::uint32_t moment_ = kNone, peak_ = kNone;
  Amount held_, held_at_peak_, allocated_, kept_, temporary_;
  std::vector<SiteUsage> sites_;
  std::vector<ThreadUsage> threads_;
  std::vector<RateUsage> rates_;
  Tick step_ = 1;
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Streams with vector clocks, and a checker that holds a heap to them: whoever gets bytes is ordered after
// everyone who used them.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "memoir/heap/stream_order.h"

namespace memoir {

class CheckedStreams final : public StreamOrder {
 public:
  bool is_ordered(StreamId from, Tick moment, StreamId to) noexcept override {
    return from == to || knows(to, from) >= moment;
  }
  bool order(StreamId from, Tick moment, StreamId to) noexcept override {
    if (refuses) return false;
    ++waits;
    const Clock seen = clock_at(from, moment);
    Clock clock = clock_at(to, moment_);
    for (const auto& [stream, until] : seen) clock[stream] = std::max(clock[stream], until);
    clock[from] = std::max(clock[from], moment);
    history_[to].push_back({++moment_, clock});
    return true;
  }

  /// The heap gave `range` to `stream`: true when everything that used its bytes is known to be done.
  bool may_use(Range range, StreamId stream) {
    bool ordered = true;
    std::vector<Use> kept;
    for (const Use& use : uses_) {
      if (!use.range.overlaps(range)) {
        kept.push_back(use);
        continue;
      }
      ordered &= is_ordered(use.stream, use.until, stream);
      const Offset end = use.range.end();  // what the new object does not cover is still used by the old one
      if (use.range.begin < range.begin) {
        kept.push_back({{use.range.begin, range.begin - use.range.begin}, use.stream, use.until});
      }
      if (end > range.end()) kept.push_back({{range.end(), end - range.end()}, use.stream, use.until});
    }
    uses_ = kept;
    return ordered;
  }
  /// The object at `range` of `stream` is about to be freed.
  void used(Range range, StreamId stream) { uses_.push_back({range, stream, ++moment_}); }

  size_t waits = 0;
  bool refuses = false;  // as a stream that is being captured does

 private:
  using Clock = std::map<StreamId, Tick>;
  struct Use {
    Range range;
    StreamId stream;
    Tick until;
  };

  Clock clock_at(StreamId stream, Tick moment) {
    Clock clock;
    for (const auto& [since, at] : history_[stream]) {
      if (since <= moment) clock = at;
    }
    return clock;
  }
  Tick knows(StreamId stream, StreamId of) {
    Clock clock = clock_at(stream, moment_);
    return clock[of];
  }

  std::map<StreamId, std::vector<std::pair<Tick, Clock>>> history_;
  std::vector<Use> uses_;
};

}  // namespace memoir

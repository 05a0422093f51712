// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/memory/stream_clock.h"

#include <algorithm>
#include <map>

namespace memoir {

bool StreamClock::order(StreamId from, Tick moment, StreamId to) noexcept {
  if (is_ordered(from, moment, to)) return true;
  const auto is_captured = [this](StreamId stream) { return stream < captured_.size() && captured_[stream]; };
  if (is_captured(from) || is_captured(to)) return false;
  const std::size_t streams = std::max(from, to) + std::size_t{1};
  if (seen_.size() < streams) seen_.resize(streams);
  std::vector<Tick>& by = seen_[to];
  if (by.size() < seen_.size()) by.resize(seen_.size());
  // An event covers all that is queued by now, and what that in turn waited for.
  for (std::size_t of = 0; of < seen_[from].size(); ++of) by[of] = std::max(by[of], seen_[from][of]);
  by[from] = moment_;
  ++waits_;
  if (keep_log_) log_.push_back({StreamEvent::Kind::kWait, to, from, {}});
  return true;
}

void StreamClock::capture(StreamId stream, bool on) {
  if (captured_.size() <= stream) captured_.resize(stream + std::size_t{1});
  captured_[stream] = on;
}

namespace {

struct Use {  // of bytes, by an object that is dead
  Range range;
  StreamId stream;
  std::uint64_t step;  // the stream's own count when it ended
  std::size_t event;   // of the allocation
};

using Clock = std::map<StreamId, std::uint64_t>;  // per stream: how many of its steps are before

}  // namespace

std::optional<StreamViolation> check_stream_order(std::span<const StreamEvent> log) {
  struct Object {
    Size size;
    StreamId stream;
    std::size_t event;
  };
  std::map<Offset, Object> live;
  std::vector<Use> uses;
  std::map<StreamId, Clock> clocks;
  for (std::size_t at = 0; at < log.size(); ++at) {
    const StreamEvent& event = log[at];
    const std::string here = "event " + std::to_string(at) + ": ";
    if (event.kind == StreamEvent::Kind::kWait) {
      Clock& waiting = clocks[event.stream];
      for (const auto& [stream, steps] : clocks[event.other])
        waiting[stream] = std::max(waiting[stream], steps);
    } else if (event.kind == StreamEvent::Kind::kFree) {
      const auto found = live.find(event.range.begin);
      if (found == live.end()) {
        return StreamViolation{at, here + "nothing lives at " + std::to_string(event.range.begin)};
      }
      const Object& object = found->second;
      uses.push_back(
          {{found->first, object.size}, object.stream, ++clocks[object.stream][object.stream], object.event});
      live.erase(found);
    } else {
      const std::string who = "stream " + std::to_string(event.stream) + " gets bytes ";
      const auto after = live.lower_bound(event.range.begin);
      const auto overlapped =
          after != live.end() && after->first < event.range.end() ? after
          : after != live.begin() &&
                  std::prev(after)->first + std::prev(after)->second.size > event.range.begin
              ? std::prev(after)
              : live.end();
      if (overlapped != live.end()) {
        return StreamViolation{
            at, here + who + "that live since event " + std::to_string(overlapped->second.event)};
      }
      Clock& clock = clocks[event.stream];
      for (const Use& use : uses) {
        if (!use.range.overlaps(event.range) || use.stream == event.stream || clock[use.stream] >= use.step)
          continue;
        return StreamViolation{at, here + who + "of event " + std::to_string(use.event) + " on stream " +
                                       std::to_string(use.stream) + " without waiting for it"};
      }
      // What lies wholly inside is before this use now: whoever comes after this one comes after those.
      std::erase_if(uses, [&](const Use& use) {
        return use.range.begin >= event.range.begin && use.range.end() <= event.range.end();
      });
      live[event.range.begin] = {event.range.size, event.stream, at};
    }
  }
  return std::nullopt;
}

}  // namespace memoir

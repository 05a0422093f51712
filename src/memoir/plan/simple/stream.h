// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

/// Plans buffers that come in the order of their births, in memory that is proportional to how many are live
/// at a time, not to how many there are: a window of births is planned by first fit, the longest-lived of the
/// fullest sections first, around the buffers of earlier windows that are still live; those then keep their
/// offsets. Every buffer is checked against the live ones as it is handed out.
///
/// A window is 16 times what is live, at least 65,536 births. Not thread-safe.
class StreamPlanner {
 public:
  /// `decided(offset)` is called once for each buffer, in the order of add().
  explicit StreamPlanner(std::function<void(Offset)> decided) : decided_(std::move(decided)) {}

  /// Throws Error, counting buffers from 0, when one is born before its predecessor, is none (see
  /// validate()), or brings the sizes of a window and what lives into it to 2^63 bytes or more.
  void add(const Buffer& buffer);
  /// Decides what is still open. Nothing may be added afterwards.
  void finish();

  Size arena_size() const { return arena_; }  // of what is decided
  Size load() const { return load_; }         // the same
  std::size_t most_live() const { return most_live_; }
  std::uint64_t count() const { return count_; }  // buffers added

 private:
  struct Live {
    Buffer buffer;
    Offset offset;
  };
  void plan_window();
  void hand_out(const Buffer& buffer, Offset offset);

  std::function<void(Offset)> decided_;
  Problem window_;
  std::vector<Live> carried_;                    // of earlier windows, live at the first birth of this one
  std::map<Offset, Offset> now_;                 // begin -> end, as the sweep of the check sees it
  std::vector<std::pair<Tick, Offset>> deaths_;  // a heap, the earliest first
  Tick last_birth_ = 0;
  std::uint64_t count_ = 0;
  Size live_ = 0, load_ = 0, arena_ = 0;
  std::size_t most_live_ = 0;
};

/// What stream_csv() did.
struct Streamed {
  std::uint64_t buffers = 0;
  Size load = 0, arena_size = 0;
  std::uint64_t most_live = 0;
};

/// The CSV at `input` (columns id, lower, upper or end, size and perhaps alignment; rows by birth) with an
/// `offset` column to `output`, which must not exist and is removed again when this throws Error: naming
/// file and line for what is wrong with a row. That ids differ is not checked; it would take memory for all.
Streamed stream_csv(const std::string& input, const std::string& output);

}  // namespace memoir

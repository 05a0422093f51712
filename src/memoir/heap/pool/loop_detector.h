// SPDX-License-Identifier: Apache-2.0
//
// Does a program ask for the same memory again and again? Every request leaves a record; when the last ones
// are the same as those a period before, for a whole period and with as many bytes live, the program is in a
// loop, and its records say how long each object of it lives.
//
//   requests   setup | a b b c d | a b b c d | a b b c d ...
//                                            ^ found: period 5, from here on what comes next is known
//
// A place where the last requests were seen before is found by a rolling hash of their sizes and streams:
// each step shifts what is older out of 64 bits, so that it covers sixteen of them (a gear hash, as Xia and
// others cut files with, "FastCDC", USENIX ATC 2016). Only the places whose hash begins with zeros are looked
// up: the same ones in each round. How far back the two agree is compared then, record by record, so that a
// loop is known at the end of its second round wherever in it the place was found.
//
// A loop without trouble needs no plan: after a while the detector sleeps, and costs a question a request,
// until there is trouble again.
//
// In metadata memory, a fixed amount. Not thread-safe.
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class LoopDetector {
 public:
  static constexpr std::uint32_t kRecords = 1u << 17;          // that are kept, the newest
  static constexpr std::uint32_t kLongest = kRecords / 2 - 1;  // requests in a period: two are compared
  static constexpr std::uint32_t kLive = ~std::uint32_t{0};

  struct Record {
    Size size;  // bytes as asked
    Size live;  // bytes live before it
    StreamId stream;
    std::uint32_t troubles;  // before it: what the owner counts and would be spared by a plan; the low bits
    std::uint32_t begin;     // counted in allocations and frees, modulo 2^32
    std::uint32_t end;       // kLive until it is freed
  };

  /// Keeps nothing yet.
  LoopDetector() = default;
  /// Forgets everything. False when there is no metadata memory: it then notes nothing.
  bool start() noexcept;
  void stop() noexcept { active_ = due_ = sleeps_ = false; }
  /// There was trouble: if it sleeps, it starts again.
  void wake() noexcept {
    if (sleeps_) start();
  }

  /// A request was served. Gives back the number by which note_free() knows it, 0 for none.
  std::uint32_t note_allocate(Size size, StreamId stream, Size live, std::uint32_t troubles) noexcept {
    if (!active_) return 0;
    const std::uint32_t number = next_++;
    if (number == 0) [[unlikely]]
      return 0;
    records_[number % kRecords] = {size, live, stream, troubles, clock_++, kLive};
    hash_ = (hash_ << 4) + ((size + stream) * 0x9e3779b97f4a7c15ull >> 8);
    if (period_ != 0) {
      const Record& before = record(number - period_);
      if (before.size == size && before.stream == stream) [[likely]] {
        ++matched_;
        quiet_ = before.troubles == troubles ? quiet_ + 1 : 0;
        due_ = quiet_ == 0 && matched_ >= wanted_ && before.live == live;
        if (quiet_ == enough_) [[unlikely]]
          sleep();
      } else {
        period_ = 0;
        due_ = false;
      }
    }
    if (hash_ >> 60 == 0) look_up(number);
    return number;
  }
  void note_free(std::uint32_t number) noexcept {
    // One that is too old is not kept any more.
    if (number != 0 && active_ && next_ - number < kRecords) records_[number % kRecords].end = clock_++;
  }

  /// True when the last requests were a round like the one before, and with trouble: a loop that would be
  /// better off with a plan.
  bool due() const noexcept { return due_; }
  /// Requests in a round, while the last ones repeat those before; 0 when they do not.
  std::uint32_t period() const noexcept { return period_; }
  /// The record of request `number`; of the newest kRecords.
  const Record& record(std::uint32_t number) const noexcept { return records_[number % kRecords]; }
  /// The number that the next request will have.
  std::uint32_t next() const noexcept { return next_; }

  /// A loop is due after so many rounds that were like the one before, counted from now if one is under way;
  /// at first 1.
  void want_rounds(std::uint32_t rounds) noexcept {
    rounds_ = rounds;
    wanted_ = matched_ + std::uint64_t{period_} * rounds_;
    due_ = false;
  }

 private:
  struct Place {
    std::uint32_t number;
    std::uint32_t check;
  };

  void look_up(std::uint32_t number) noexcept;
  void sleep() noexcept {
    active_ = false;
    sleeps_ = true;
  }

  MetadataArray<Record> records_;  // a ring: request n is at n % kRecords
  MetadataArray<Place> places_;    // by hash: where it was seen last
  std::uint64_t hash_ = 0;
  std::uint32_t next_ = 1;
  std::uint32_t first_ = 1;  // the oldest request since start()
  std::uint32_t clock_ = 0;
  std::uint32_t period_ = 0;
  std::uint64_t matched_ = 0;  // requests in a row that repeat those a period before
  std::uint64_t wanted_ = 0;
  std::uint64_t quiet_ = 0;   // of these, the last ones whose round had no trouble
  std::uint64_t enough_ = 0;  // of them to sleep
  std::uint32_t rounds_ = 1;
  bool sleeps_ = false;
  bool due_ = false;
  bool active_ = false;
};

}  // namespace memoir

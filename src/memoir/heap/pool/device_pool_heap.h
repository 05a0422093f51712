// SPDX-License-Identifier: Apache-2.0
//
// memoir's own pool for devices that map memory page by page (cuMemMap and its like): best fit over one range
// of addresses that is several times as large as the device, of which only the granules in use have memory.
//
//   addresses   | live | free | live |  hole   | live | hole ...            hole: no memory behind it
//   granules    |======|======|======|         |======|                     2 MiB each
//
// A request takes, in this order,
//   1  the smallest committed free block of its own stream that holds it, unless it is much too large and
//      there is a place that fits better: between what lives at the ends of a hole, or in a block of another
//      stream that is done with it (pool_windows.h);
//   2  one of another stream whose work is known to be done before; then one for which its stream has to
//      wait;
//   3  new memory, in the place that needs the fewest granules, as long as what is committed does not exceed
//      the most bytes that were ever live: a pool that was perfectly packed would have needed them as well;
//      into addresses that nobody has used it maps a little ahead, while a device has room;
//   4  idle memory moved there: granules that lie wholly in free blocks elsewhere are unmapped and new ones
//      mapped here. No object moves. (GMLake, Guo et al., ASPLOS 2024, stitches free pieces under a new range
//      of addresses; with one large range and memory that follows, nothing is left to be stitched.)
//   5  new memory beyond that. A cap (the arena's limit) turns 5 back into 4.
//
// Moving costs device calls and a wait of the host. So it only ever takes the place of growing, and of the
// requests of one size only `patience` are served so, new peaks of live bytes aside: those that a loop
// repeats soon find their place, and the loop makes no device calls. Growth of that kind ends at `excess`, if
// not at a cap. A program that has to move all the time buys memory instead of calls: each move lets the pool
// grow by a little more, up to kMostBought of the peak. What a move takes away beyond its need
// is the reserve of the next ones.
//
// On a device with much room left it grows by a share of that room before it moves anything: see ease_of().
//
// Once idle memory was moved often, small objects have a zone of addresses, so that they pin no granule that
// large ones leave. They use the common one where theirs has no room.
//
// Free neighbours are joined at once, unless different streams freed them; a few small objects that were
// freed last are kept as they are for the next request of their size.
//
// Alignment: every object begins at a multiple of options.alignment; a request may ask for more.
#pragma once

#include <algorithm>
#include <span>
#include <tuple>

#include "memoir/arena/arena.h"
#include "memoir/base/metadata.h"
#include "memoir/base/option.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/pool/aside_range.h"
#include "memoir/heap/pool/loop_detector.h"
#include "memoir/heap/pool/pool_row.h"
#include "memoir/heap/pool/pool_windows.h"
#include "memoir/heap/segments.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

struct DevicePoolOptions {
  Size alignment = 512;         // bytes, a power of two, at most a granule
  double slack = 0;             // of peak live bytes
  Size small = 64 * kKiB;       // bytes
  Size patience = 2;            // moves
  double excess = 0.01;         // of peak live bytes
  bool wait_first = true;       // a wait rather than memory
  Size plain_step = 20 * kMiB;  // bytes

  static constexpr auto fields() {
    return std::tuple{
        OptionField{"alignment", &DevicePoolOptions::alignment, Unit::kBytes,
                    "objects begin and end at multiples of it"},
        OptionField{"slack", &DevicePoolOptions::slack, Unit::kShare,
                    "grow by this share of the peak live bytes before moving idle memory"},
        OptionField{"small", &DevicePoolOptions::small, Unit::kBytes,
                    "place smaller objects at the end of a free block, larger ones at its start"},
        OptionField{"patience", &DevicePoolOptions::patience, Unit::kCount,
                    "move idle memory so many times for requests of one size, then grow"},
        OptionField{"excess", &DevicePoolOptions::excess, Unit::kShare,
                    "with more idle memory than this share of the peak live bytes, move it in any case"},
        OptionField{"wait_first", &DevicePoolOptions::wait_first, Unit::kFlag,
                    "make a stream wait for another's free memory rather than grow"},
        OptionField{"plain_step", &DevicePoolOptions::plain_step, Unit::kBytes,
                    "smallest segment of plain memory"}};
  }
};

class DevicePoolHeap final : public Heap {
 public:
  struct Counters {
    std::uint64_t commits = 0;    // calls that committed a run of granules
    std::uint64_t decommits = 0;  // and that decommitted one
    Size moved = 0;               // bytes decommitted to be committed elsewhere
    std::uint64_t moves = 0;      // requests that were served so
    std::uint64_t repeated = 0;   // requests that needed memory although as much had been live before
    std::uint64_t waits = 0;      // times one stream was made to wait for another
    std::uint64_t cross = 0;      // requests that got memory which another stream had freed
    std::uint64_t calls() const noexcept { return commits + decommits; }
  };

  /// Works in the whole of `arena`, whose capacity should be several times the device's memory. Without
  /// `order` no stream ever gets what another one freed. `plain` serves requests for plain memory
  /// (Request::plain), at offsets beyond the arena's. The caller keeps all of them alive and leaves them to
  /// this heap.
  explicit DevicePoolHeap(Arena& arena, const DevicePoolOptions& options = {}, StreamOrder* order = nullptr,
                          Segments* plain = nullptr) noexcept;
  DevicePoolHeap(const DevicePoolHeap&) = delete;
  DevicePoolHeap& operator=(const DevicePoolHeap&) = delete;

  /// False when there was no metadata memory, or the options cannot be; then every request gets kNoOffset.
  bool ok() const noexcept { return capacity_ != 0; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  /// Decommits every granule that lies wholly in free blocks, and gives whole free plain segments back.
  void trim() noexcept override;
  Size live() const noexcept override { return live_; }

  const Counters& counters() const noexcept { return counters_; }

  /// --- for a pool that learns (policy/learning_heap.h) ---

  /// The most bytes that live objects ever held, which is what the pool grows to without asking whether it
  /// should.
  Size peak_held() const noexcept { return peak_held_; }
  /// From now on it counts as if they had held so many, or as many as they do now.
  void lower_peak(Size held) noexcept { peak_held_ = std::max(held, held_); }
  /// Tells `detector` of every request that is served from mapped memory, and of its free; nullptr: nobody.
  /// Kept alive by the caller.
  void watch(LoopDetector* detector) noexcept { detector_ = detector; }
  /// Committed bytes that could be committed elsewhere: granules that lie wholly in free blocks.
  Size idle_bytes() noexcept;
  /// True when the request needs no memory that is not committed already, nor another stream's.
  bool has_free(const Request& request) const noexcept;
  /// A part of an object, which becomes one itself.
  struct Part {
    Range range;
    StreamId stream = 0;  // that uses it
  };
  /// The object at this offset becomes several: ascending, none overlapping, of sizes above 0, their begins
  /// multiples of the alignment. The rest of its bytes is free from now on, after all that is queued on its
  /// stream. False when there is no metadata memory, or no such object: nothing changed.
  bool break_up(Offset offset, std::span<const Part> parts) noexcept;

  /// --- for a heap that knows where things will go (heap/pool/guided_pool_heap.h) ---

  /// Sets `size` bytes of addresses aside, which allocate() leaves alone; false when no hole is as large.
  /// Ends the range that was set aside before: what lives there stays, and the rest is anybody's again.
  bool set_aside(Size size) noexcept;
  using Aside = AsideRange::Treatment;
  void treat_aside(Aside how) noexcept { aside_.treat(how); }
  Aside treats_aside() const noexcept { return aside_.treatment(); }
  /// What is set aside; of size 0 when nothing is.
  Range aside() const noexcept { return aside_.range(); }
  /// Serves the request at exactly this offset of the range that is set aside, or gives kNoOffset: something
  /// lives there, a stream cannot be ordered, or there is no memory.
  Offset allocate_at(Offset offset, const Request& request) noexcept;

 private:
  using Index = PoolRow::Index;
  using Block = PoolRow::Block;
  using State = PoolRow::State;
  using Zone = PoolRow::Zone;
  using Window = PoolWindows::Window;
  static constexpr int kSizeBits = 12;
  static constexpr std::uint64_t kFreeMoves = 64;  // that buy nothing: a loop has made its moves by then
  static constexpr std::uint8_t kFrequent = 128;   // requests of one size since then
  static constexpr Size kFitFrom = kMiB;           // smaller objects take any free block of their stream
  static constexpr Size kFitRest = kMiB;           // and larger ones a block of which less is left
  static constexpr Size kApart = 512 * kKiB;  // objects below have granules of their own, after kFreeMoves
  static constexpr std::uint64_t kMany = 16;  // moves: places that need memory are worth a look as well
  static constexpr Size kMuch = 512 * kKiB;   // left of a block: another stream's may be better

  /// The block is live from now on: its offset. The rest is told, since the fast path has it at hand.
  Offset begin_life(Index index, Size asked, std::uint16_t slot, Zone zone) noexcept {
    Block& block = row_[index];
    if (detector_ != nullptr && zone != Zone::kPlain) {
      block.number = detector_->note_allocate(asked, row_.stream_of(slot), live_,
                                              static_cast<std::uint32_t>(counters_.repeated));
    }
    live_ += asked;
    if (zone == Zone::kPlain) return block.range.begin;
    held_ += block.range.size;
    if (zone == Zone::kAside) aside_.took(block.range.size);
    peak_held_ = std::max(peak_held_, held_);
    return block.range.begin;
  }
  Offset begin_life(Index index) noexcept {
    const Block& block = row_[index];
    return begin_life(index, block.asked, block.slot, block.zone);
  }
  void end_life(Block& block) noexcept;
  /// Large objects get the low end of a free block, small ones its high end, so that each kind finds its like
  /// next to it and small ones do not cut what large ones leave. Once the pool has moved memory often, sizes
  /// below a granule that come again and again (the pages of a cache) go with the small ones.
  PoolRow::End end_for(Size size) noexcept {
    const bool is_high = size < options_.small || (counters_.moves >= kFreeMoves && is_frequent(size));
    return is_high ? PoolRow::End::kHigh : PoolRow::End::kLow;
  }
  bool is_frequent(Size size) noexcept;
  Zone zone_for(Size size) const noexcept {
    return size < kApart && keeps_apart_ ? Zone::kSmall : Zone::kCommon;
  }
  size_t slot_of_size(Size size) const noexcept {
    return static_cast<size_t>((size / options_.alignment * 0x9e3779b97f4a7c15ull) >> (64 - kSizeBits));
  }
  /// Whether a place that needs memory may fit better than this free block, so that it is worth a look.
  bool may_fit_better(Index index, Size size) const noexcept {
    const Size whole = row_[index].range.size;
    return whole - size >= kFitRest && size >= kFitFrom && counters_.moves >= kMany &&
           row_.has_smaller_room(Zone::kCommon, size, whole);
  }
  /// Whether so much is left of this free block that another stream's may be better.
  bool is_much_too_large(Index index, Size size) const noexcept {
    return row_[index].range.size - size >= kMuch && row_.slots() > 1;
  }

  // When no committed block of the stream does (device_pool_growth.cc).
  Offset allocate_slowly(const Request& request, Size size, std::uint16_t slot) noexcept;
  Offset allocate_in(Zone zone, const Request& request, Size size, std::uint16_t slot) noexcept;
  Offset take_from_other(const Request& request, Size size, std::uint16_t slot, Zone zone,
                         bool waits) noexcept;
  Offset take_smaller_of_other(const Request& request, Size size, std::uint16_t slot, Zone zone,
                               Size most) noexcept;
  Offset try_windows(const Request& request, Size size, std::uint16_t slot, Zone zone, bool waits) noexcept;
  Offset serve(const Window& window, const Request& request, Size size, std::uint16_t slot) noexcept;
  bool order(const Block& block, std::uint16_t slot) noexcept;
  bool order_all(Index first, Range range, std::uint16_t slot) noexcept;
  bool commit_all(Index& first, Range range, Size need, Size& ahead) noexcept;
  Size ahead_of(Index first, Range range, Size held, Size committed) const noexcept;
  double ease_of(Size held) noexcept;
  bool may_move(Size size) noexcept;
  bool commit_holes(Index first, Range range, Size ahead = 0) noexcept;
  Range idle(const Block& block) const noexcept;
  Size move_away(Size bytes, Size more, Range keep) noexcept;
  Size move_pieces(Size bytes, Size more, Range keep) noexcept;
  bool join_across() noexcept;
  Offset allocate_plain(const Request& request, Size size, std::uint16_t slot) noexcept;
  void give_back_plain() noexcept;

  Arena* arena_;
  StreamOrder* order_;
  Segments* plain_;
  LoopDetector* detector_ = nullptr;
  DevicePoolOptions options_;
  PoolRow row_;
  PoolWindows windows_;
  AsideRange aside_;
  Size capacity_ = 0;                     // bytes of the arena, in whole granules; 0: not ok()
  MetadataArray<std::uint8_t> moves_;     // for requests of one size, by its hash
  MetadataArray<std::uint8_t> requests_;  // of sizes below a granule, by their hash
  Size live_ = 0;
  bool keeps_apart_ = false;  // small objects, in a zone of their own
  bool asked_apart_ = false;  // whether there are addresses for it
  Size held_ = 0;             // bytes that live blocks hold in the arena
  Size peak_held_ = 0;        // the most of them ever
  Counters counters_;
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Addresses of a GPU with memory mapped into them as a heap needs it (the driver's virtual memory management,
// CUDA programming guide, "Virtual Memory Management"): a heap's holes can be filled with memory from
// elsewhere.
//
//   addresses   |  granule  |  granule  |  granule  |  granule  |  granule  |   reserved once, when made
//   pieces      |<----- one handle ---->|           |<-handle-->|               mapped by commit
//
// The driver can neither split a handle nor unmap a part of one. A piece is what one handle covers: at most
// options.piece bytes of one commit. It goes back when all of its granules were decommitted; until then
// committed() counts it, and a commit of its granules costs no call. Pieces of one granule (the default) make
// decommit exact; longer ones take fewer calls.
//
// What was taken away (Arena::take_away) becomes spares of the device, from where the next commit of any of
// its arenas takes them first: memory that moves is neither released nor created.
//
// Before memory is unmapped the device is waited for (CudaDevice::wait_until_quiet): the driver does not
// promise to. Where that cannot be, and while the arena is kept, decommitted pieces stay mapped, to be
// unmapped later.
#pragma once

#include "memoir/arena/arena.h"
#include "memoir/arena/cuda_device.h"
#include "memoir/base/metadata.h"

namespace memoir {

struct CudaArenaOptions {
  Size piece = 0;    // bytes: the most that one handle covers, a power of two; 0 is one granule
  Size granule = 0;  // bytes, a multiple of the device's granularity; 0 is that
};

class CudaArena final : public Arena {
 public:
  /// Reserves `capacity` bytes of the device's addresses, rounded up to granules. ok() is false when the
  /// device cannot map or refuses; its last_failure() says why. The device is kept alive by the caller.
  CudaArena(CudaDevice& device, Size capacity, CudaArenaOptions options = {}) noexcept;
  ~CudaArena() override;  // waits for the device, gives all memory back, ends the reservation
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;

  bool ok() const noexcept { return base_ != 0; }
  /// Where offset 0 lies.
  cuda::Address base() const noexcept { return base_; }
  /// While kept, nothing is unmapped: what a captured graph uses must stay where it is.
  void keep(bool keep) noexcept;
  /// What is mapped may be used by all that the device has admitted, as what will be mapped may.
  void share_mapped() noexcept;
  /// Unmaps what is mapped and not committed, if that may be now.
  void reclaim() noexcept { reclaim(0, granules_.size()); }

  /// Calls `visit(Range)` for every mapped piece, by address.
  template <class Visit>
  void for_each_piece(Visit visit) const {
    for (size_t i = 0, length = 0; i < granules_.size(); i += length != 0 ? length : 1) {
      length = granules_[i].length;  // the visitor may unmap it
      if (length != 0) visit(Range{i * granule_, length * granule_});
    }
  }

  Size capacity() const noexcept override { return granules_.size() * granule_; }
  Size granule() const noexcept override { return granule_; }
  bool commit(Range range) noexcept override;
  void decommit(Range range) noexcept override { decommit(range, false); }
  void take_away(Range range) noexcept override { decommit(range, true); }
  void settle() noexcept override;
  Size room() noexcept override;
  Size committed() const noexcept override { return committed_; }

 private:
  struct Granule {
    cuda::Handle handle = 0;   // of the piece that begins here
    std::uint32_t length = 0;  // granules of the piece that begins here; 0: none does
    std::uint32_t wanted = 0;  // of these, how many are committed
    std::uint32_t back = 0;    // granules to the start of the piece that this one is in
    bool mapped = false;
    bool committed = false;
    // of the piece that begins here: mapped by the commit that is under way, never used yet; and made for it
    bool fresh = false, made = false;
    bool moves = false;  // of the piece that begins here: its memory is wanted elsewhere
  };

  /// The granules that a range touches; empty when it leaves the arena.
  Range cover(Range range) const noexcept;
  bool is_there(Size size) noexcept;
  bool map_missing(size_t first, size_t end) noexcept;
  bool set_access(size_t first, size_t end) noexcept;
  bool map_run(size_t first, size_t end) noexcept;
  size_t map_piece(size_t first, size_t most) noexcept;
  void unmap_piece(size_t first, bool keeps) noexcept;
  void decommit(Range range, bool moves) noexcept;
  void reclaim(size_t first, size_t end) noexcept;
  cuda::Address address(size_t granule) const noexcept { return base_ + granule * granule_; }

  CudaDevice* device_;
  cuda::Address base_ = 0;
  Size granule_ = 1;
  size_t piece_ = 1;  // granules
  Size committed_ = 0;
  size_t unwanted_ = 0;  // pieces mapped of which nothing is committed
  bool keep_ = false;
  MetadataArray<Granule> granules_;
};

}  // namespace memoir

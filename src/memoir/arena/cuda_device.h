// SPDX-License-Identifier: Apache-2.0
//
// One GPU, as everything of memoir that takes memory from it shares it: its context, its cap, and who waits
// before memory is taken out of its address space. The cap is one for all arenas and segments of the device,
// so what a captured graph keeps counts like anything else.
//
//   cap  |<-- held: arenas, segments | spares -->|<-- may still be taken -->|
//
// Spares are handles of memory that arenas unmapped (spare_handles.h): they count as held, are mapped again
// before anything is created, and go back before anything is refused.
//
// Not thread-safe: under the lock of whoever owns the device's heaps. Nothing throws.
#pragma once

#include <cstdint>

#include <span>

#include "memoir/arena/cuda_driver.h"
#include "memoir/arena/spare_handles.h"
#include "memoir/base/units.h"

namespace memoir {

/// Waits until nothing that is queued on the device may still use memory that was freed.
class DeviceQuiet {
 public:
  virtual ~DeviceQuiet() = default;
  /// False when that cannot be now (a stream is being captured): the memory then stays where it is.
  virtual bool wait() noexcept = 0;
};

/// Told of the device's memory, and of where it can be used.
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  /// Bytes taken from the device, and given back to it.
  virtual void taken(Size size) noexcept = 0;
  virtual void given_back(Size size) noexcept = 0;
  /// Memory lies at these addresses from now on, or no longer. `mapped`: into reserved addresses (an arena),
  /// else where the device chose (a segment).
  virtual void placed(Range addresses, bool mapped) noexcept = 0;
  virtual void removed(Range addresses, bool mapped) noexcept = 0;
};

/// Calls to the driver about memory, by kind.
struct CudaCounts {
  std::uint64_t takes = 0;       // segments (cuMemAlloc)
  std::uint64_t give_backs = 0;  // segments (cuMemFree)
  std::uint64_t creates = 0;     // handles made (cuMemCreate)
  std::uint64_t releases = 0;    // and given back (cuMemRelease)
  std::uint64_t commits = 0;     // pieces mapped (cuMemMap)
  std::uint64_t decommits = 0;   // and unmapped (cuMemUnmap)
  std::uint64_t accesses = 0;    // runs of pieces made usable (cuMemSetAccess)
  std::uint64_t refusals = 0;    // of the above, by the cap or the device

  bool operator==(const CudaCounts&) const = default;
};

class CudaDevice {
 public:
  /// The device of this number, as the CUDA runtime counts them (CUDA_VISIBLE_DEVICES applies), with its
  /// primary context retained: it is the one that PyTorch uses. ok() is false when there is none; problem()
  /// says why.
  explicit CudaDevice(int ordinal) noexcept;
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  bool ok() const noexcept { return context_ != nullptr; }
  /// What mapped memory here cannot do though the device says so, in a sentence for people; "" when nothing
  /// is amiss.
  const char* notice() const noexcept { return notice_; }
  /// One sentence for people; "" when ok.
  const char* problem() const noexcept { return problem_; }

  const cuda::Driver& driver() const noexcept { return *driver_; }
  int ordinal() const noexcept { return ordinal_; }
  const char* name() const noexcept { return name_; }
  /// Bytes of memory that the device has.
  Size total() const noexcept { return total_; }
  /// Bytes free on the device now, whoever holds the rest; 0 when it does not say.
  Size free_now() const noexcept;
  /// The unit of mapping in bytes, as the device gives it (2 MiB on most); 0 when it cannot map.
  Size granularity() const noexcept { return granularity_; }
  static constexpr size_t kMostPeers = 16;
  /// Who may use memory that is mapped here: this device, and those that were admitted.
  std::span<const cuda::AccessDescription> accessors() const noexcept {
    return {accessors_, accessor_count_};
  }
  /// Admits a device, if it can reach this one's memory; memory that is mapped already is shared with
  /// CudaArena::share_mapped(). False when nothing changed.
  bool admit(int ordinal) noexcept;
  /// Admits all that there are.
  void admit_all() noexcept;
  /// How physical memory here is asked for.
  const cuda::AllocationProperties& properties() const noexcept { return properties_; }

  /// The most bytes that all arenas and segments may hold together; total() at first. A cap under what is
  /// held takes nothing away, and grants nothing until enough was given back.
  Size cap() const noexcept { return cap_; }
  void set_cap(Size cap) noexcept { cap_ = cap < total_ ? cap : total_; }
  Size held() const noexcept { return held_; }
  Size peak_held() const noexcept { return peak_held_; }
  void reset_peak() noexcept { peak_held_ = held_; }

  void set_quiet(DeviceQuiet* quiet) noexcept { quiet_ = quiet; }
  void set_watch(DeviceWatch* watch) noexcept { watch_ = watch; }
  const CudaCounts& counts() const noexcept { return counts_; }
  /// The driver's answer to the last call that failed for another reason than memory; "" when none did.
  const char* last_failure() const noexcept { return failure_; }

  // --- for arenas and segments ---

  /// False when the cap does not allow `size` bytes more, even without spares: as many go back as are in the
  /// way.
  bool allows(Size size) noexcept;
  void note_taken(Size size) noexcept;
  void note_given_back(Size size) noexcept;
  void note_placed(Range addresses, bool mapped) noexcept;
  void note_removed(Range addresses, bool mapped) noexcept;
  void note_access() noexcept { ++counts_.accesses; }
  void note_refusal(const char* call, cuda::Result result) noexcept;

  /// Memory to be mapped: the largest spare of at most `size` bytes; of size 0 when there is none. The caller
  /// owns it until keep_spare() or release().
  SpareHandles::Spare take_spare(Size size) noexcept { return spares_.take(size); }
  /// New memory of just that size, or of size 0.
  SpareHandles::Spare create(Size size) noexcept;
  /// What was unmapped, to be mapped again.
  void keep_spare(SpareHandles::Spare spare) noexcept;
  void release(SpareHandles::Spare spare) noexcept;
  /// While it lives a request is in need: what is decommitted becomes spares, and settling waits. At its end
  /// they go back.
  class Need {
   public:
    explicit Need(CudaDevice& device) noexcept : device_(device) { device_.in_need_ = true; }
    ~Need() {
      device_.in_need_ = false;
      device_.release_spares();
    }
    Need(const Need&) = delete;
    Need& operator=(const Need&) = delete;

   private:
    CudaDevice& device_;
  };
  bool in_need() const noexcept { return in_need_; }
  /// Bytes of spares.
  Size spare() const noexcept { return spares_.bytes(); }
  /// Gives spares back until at most `most` bytes of them are left. True when any went.
  bool release_spares(Size most = 0) noexcept;

  /// Waits until what was freed is unused; see DeviceQuiet. Without one, nothing is queued that could.
  bool wait_until_quiet() noexcept { return quiet_ == nullptr || quiet_->wait(); }

  /// While it lives, calls of this thread go to this device, and are allowed while another thread captures a
  /// graph.
  class Scope {
   public:
    explicit Scope(const CudaDevice& device) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const cuda::Driver& driver_;
    int mode_ = cuda::kCaptureModeRelaxed;
    bool pushed_ = false;
  };

 private:
  void settle_properties() noexcept;
  bool can_create() noexcept;

  const cuda::Driver* driver_ = nullptr;
  int ordinal_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  cuda::AllocationProperties properties_;
  cuda::AccessDescription accessors_[kMostPeers + 1];
  size_t accessor_count_ = 0;
  Size total_ = 0;
  Size granularity_ = 0;
  Size cap_ = 0;
  Size held_ = 0;
  Size peak_held_ = 0;
  SpareHandles spares_;
  bool in_need_ = false;
  DeviceQuiet* quiet_ = nullptr;
  DeviceWatch* watch_ = nullptr;
  CudaCounts counts_;
  char name_[96] = "";
  char problem_[512] = "";
  char failure_[160] = "";
  char notice_[320] = "";
};

}  // namespace memoir

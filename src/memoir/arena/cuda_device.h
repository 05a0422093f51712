// SPDX-License-Identifier: Apache-2.0
//
// One GPU, as everything of memoir that takes memory from it shares it: its context, its cap, and who waits
// before memory is taken out of its address space. The cap is one for all arenas and segments of the device,
// so what a captured graph keeps counts like anything else.
//
//   cap  |<-- held: arenas and segments -->|<-- may still be taken -->|
//
// Not thread-safe: under the lock of whoever owns the device's heaps. Nothing throws.
#pragma once

#include <cstdint>

#include <span>

#include "memoir/arena/cuda_driver.h"
#include "memoir/base/units.h"

namespace memoir {

/// Waits until nothing that is queued on the device may still use memory that was freed.
class DeviceQuiet {
 public:
  virtual ~DeviceQuiet() = default;
  /// False when that cannot be now (a stream is being captured): the memory then stays where it is.
  virtual bool wait() noexcept = 0;
};

/// Told of memory that is taken from the device and given back to it.
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  /// `mapped`: into reserved addresses (an arena), else where the device chose (a segment).
  virtual void taken(cuda::Address address, Size size, bool mapped) noexcept = 0;
  virtual void given_back(cuda::Address address, Size size, bool mapped) noexcept = 0;
};

/// Calls that took or gave back memory.
struct CudaCounts {
  std::uint64_t takes = 0;       // segments (cuMemAlloc)
  std::uint64_t give_backs = 0;  // segments (cuMemFree)
  std::uint64_t commits = 0;     // pieces of memory mapped (cuMemCreate, cuMemMap)
  std::uint64_t decommits = 0;   // pieces unmapped (cuMemUnmap, cuMemRelease)
  std::uint64_t refusals = 0;    // takes and commits that the cap or the device refused

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

  /// False when the cap does not allow `size` bytes more.
  bool allows(Size size) noexcept;
  void note_taken(cuda::Address address, Size size, bool mapped) noexcept;
  void note_given_back(cuda::Address address, Size size, bool mapped) noexcept;
  void note_refusal(const char* call, cuda::Result result) noexcept;
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
  DeviceQuiet* quiet_ = nullptr;
  DeviceWatch* watch_ = nullptr;
  CudaCounts counts_;
  char name_[96] = "";
  char problem_[512] = "";
  char failure_[160] = "";
  char notice_[320] = "";
};

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/arena/cuda_device.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace memoir {

CudaDevice::CudaDevice(int ordinal) noexcept : driver_(cuda::driver()), ordinal_(ordinal) {
  if (driver_ == nullptr) {
    std::snprintf(problem_, sizeof problem_, "%s", cuda::driver_problem());
    return;
  }
  int count = 0;
  cuda::Result result = driver_->init(0);  // costs nothing when the program has done it
  if (result == cuda::kSuccess) result = driver_->device_get_count(&count);
  if (result != cuda::kSuccess) {
    std::snprintf(
        problem_, sizeof problem_,
        "the CUDA driver does not start (%s): see that nvidia-smi finds a device, that "
        "CUDA_VISIBLE_DEVICES does not hide it, and that this process was not forked from one that used "
        "CUDA",
        driver_->error_name(result));
    return;
  }
  if (ordinal < 0 || ordinal >= count) {
    std::snprintf(problem_, sizeof problem_, "there is no CUDA device %d: the driver shows %d", ordinal,
                  count);
    return;
  }
  size_t total = 0;
  cuda::Context context = nullptr;
  result = driver_->device_get(&device_, ordinal);
  if (result == cuda::kSuccess) result = driver_->device_total_memory(&total, device_);
  if (result == cuda::kSuccess) result = driver_->primary_context_retain(&context, device_);
  if (result != cuda::kSuccess) {
    std::snprintf(problem_, sizeof problem_, "CUDA device %d cannot be used: %s", ordinal,
                  driver_->error_name(result));
    return;
  }
  context_ = context;
  total_ = cap_ = total;
  driver_->device_get_name(name_, sizeof name_, device_);
  properties_.location.id = device_;
  accessors_[accessor_count_++].location.id = device_;
  int maps = 0;
  driver_->device_get_attribute(&maps, cuda::kAttributeVirtualMemory, device_);
  size_t granularity = 0;
  const Scope scope(*this);
  if (maps != 0 &&
      driver_->granularity(&granularity, &properties_, cuda::kMinimumGranularity) == cuda::kSuccess &&
      is_power_of_two(granularity)) {
    granularity_ = granularity;
    settle_properties();
  }
}

/// Network cards and other processes can use mapped memory only if it was made so. A device may say that it
/// makes such memory and then refuse (WSL2, containers without IMEX channels): each refusal gives up the
/// demand that is met most rarely, and the last one mapping itself.
void CudaDevice::settle_properties() noexcept {
  struct Demand {
    int attribute;
    int handle_type;  // 0: for network cards
    const char* loss;
  };
  static constexpr Demand kDemands[] = {
      {cuda::kAttributeFabricHandles, cuda::kFabricHandle, "be shared with other nodes (fabric handles)"},
      {cuda::kAttributeRdmaWithVirtualMemory, 0, "be registered by network cards (GPUDirect RDMA)"},
      {cuda::kAttributeFileDescriptorHandles, cuda::kFileDescriptorHandle,
       "be shared with other processes (CUDA IPC)"},
  };
  bool asked[std::size(kDemands)] = {};
  bool asks = false;
  for (size_t i = 0; i < std::size(kDemands); ++i) {
    int has = 0;
    driver_->device_get_attribute(&has, kDemands[i].attribute, device_);
    asked[i] = has != 0;
    asks |= asked[i];
    if (has == 0) continue;
    if (kDemands[i].handle_type != 0) properties_.handle_types |= kDemands[i].handle_type;
    else properties_.gpu_direct_rdma_capable = 1;
  }
  if (!asks || can_create()) return;
  int length = std::snprintf(notice_, sizeof notice_, "mapped memory of %s cannot", name_);
  for (size_t i = 0; i < std::size(kDemands); ++i) {
    if (!asked[i]) continue;
    if (kDemands[i].handle_type != 0) properties_.handle_types &= ~kDemands[i].handle_type;
    else properties_.gpu_direct_rdma_capable = 0;
    length += std::snprintf(notice_ + length, sizeof notice_ - static_cast<size_t>(length), "%s %s",
                            notice_[length - 1] == ')' ? "," : "", kDemands[i].loss);
    if (can_create()) return;
  }
  granularity_ = 0;
  std::snprintf(notice_, sizeof notice_, "%s says that it can map memory, and does not (%s)", name_,
                failure_);
}

/// Whether memory of these properties can be made, or may be: a full device does not say.
bool CudaDevice::can_create() noexcept {
  cuda::Handle handle = 0;
  const cuda::Result result = driver_->create(&handle, granularity_, &properties_, 0);
  if (result == cuda::kSuccess) driver_->release(handle);
  else if (result != cuda::kOutOfMemory)
    std::snprintf(failure_, sizeof failure_, "cuMemCreate: %s", driver_->error_name(result));
  return result == cuda::kSuccess || result == cuda::kOutOfMemory;
}

CudaDevice::~CudaDevice() {
  if (!ok()) return;
  release_spares();
  driver_->primary_context_release(device_);
}

bool CudaDevice::admit(int ordinal) noexcept {
  cuda::Device peer = 0;
  int can = 0;
  if (ordinal == ordinal_ || accessor_count_ > kMostPeers ||
      driver_->device_get(&peer, ordinal) != cuda::kSuccess ||
      driver_->can_access_peer(&can, peer, device_) != cuda::kSuccess || can == 0)
    return false;
  for (const cuda::AccessDescription& known : accessors()) {
    if (known.location.id == peer) return false;
  }
  accessors_[accessor_count_++].location.id = peer;
  return true;
}

void CudaDevice::admit_all() noexcept {
  int devices = 0;
  driver_->device_get_count(&devices);
  for (int other = 0; other < devices; ++other) admit(other);
}

Size CudaDevice::free_now() const noexcept {
  if (!ok()) return 0;
  const Scope scope(*this);
  size_t free = 0, total = 0;
  return driver_->memory_info(&free, &total) == cuda::kSuccess ? free : 0;
}

bool CudaDevice::allows(Size size) noexcept {
  const auto fits = [&] { return held_ <= cap_ && size <= cap_ - held_; };
  if (fits()) return true;
  if (size <= cap_) release_spares(spares_.bytes() - std::min(spares_.bytes(), held_ - (cap_ - size)));
  if (fits()) return true;
  ++counts_.refusals;
  return false;
}

void CudaDevice::note_taken(Size size) noexcept {
  held_ += size;
  if (held_ > peak_held_) peak_held_ = held_;
  if (watch_ != nullptr) watch_->taken(size);
}

void CudaDevice::note_given_back(Size size) noexcept {
  held_ -= size;
  if (watch_ != nullptr) watch_->given_back(size);
}

void CudaDevice::note_placed(Range addresses, bool mapped) noexcept {
  ++(mapped ? counts_.commits : counts_.takes);
  if (watch_ != nullptr) watch_->placed(addresses, mapped);
}

void CudaDevice::note_removed(Range addresses, bool mapped) noexcept {
  ++(mapped ? counts_.decommits : counts_.give_backs);
  if (watch_ != nullptr) watch_->removed(addresses, mapped);
}

SpareHandles::Spare CudaDevice::create(Size size) noexcept {
  if (!allows(size)) return {};
  const Scope scope(*this);
  cuda::Handle handle = 0;
  cuda::Result result = driver_->create(&handle, size, &properties_, 0);
  if (result == cuda::kOutOfMemory && release_spares())  // they are of other sizes
    result = driver_->create(&handle, size, &properties_, 0);
  if (result != cuda::kSuccess) {
    note_refusal("cuMemCreate", result);
    return {};
  }
  ++counts_.creates;
  note_taken(size);
  return {handle, size};
}

void CudaDevice::keep_spare(SpareHandles::Spare spare) noexcept {
  if (!spares_.put(spare)) release(spare);
}

/// A release that fails is the device's end (a reset, a lost context), after which nothing is held any more.
void CudaDevice::release(SpareHandles::Spare spare) noexcept {
  const Scope scope(*this);
  const cuda::Result result = driver_->release(spare.handle);
  if (result != cuda::kSuccess) note_refusal("cuMemRelease", result);
  else ++counts_.releases;
  note_given_back(spare.size);
}

bool CudaDevice::release_spares(Size most) noexcept {
  bool any = false;
  while (spares_.bytes() > most) {
    release(spares_.take_largest());
    any = true;
  }
  return any;
}

void CudaDevice::note_refusal(const char* call, cuda::Result result) noexcept {
  ++counts_.refusals;
  if (result == cuda::kOutOfMemory) return;
  std::snprintf(failure_, sizeof failure_, "%s: %s", call, driver_->error_name(result));
}

CudaDevice::Scope::Scope(const CudaDevice& device) noexcept : driver_(device.driver()) {
  pushed_ = driver_.context_push(device.context_) == cuda::kSuccess;
  driver_.exchange_capture_mode(&mode_);
}

CudaDevice::Scope::~Scope() {
  driver_.exchange_capture_mode(&mode_);
  cuda::Context context = nullptr;
  if (pushed_) driver_.context_pop(&context);
}

}  // namespace memoir

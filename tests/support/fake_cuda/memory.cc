// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "state.h"

namespace fake {

namespace {

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

void close_range(Address address, uint64_t size) {
  ::mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

Result take(int device, uint64_t size) {
  Device& it = state().devices[static_cast<size_t>(device)];
  if (size > it.capacity - it.used - std::min(it.foreign, it.capacity - it.used)) return kOutOfMemory;
  it.used += size;
  it.peak = std::max(it.peak, it.used);
  return 0;
}

void drop_if_unused(Handle handle) {
  PhysicalMemory& memory = state().memory[handle];
  if (!memory.released || memory.mappings != 0) return;
  state().devices[static_cast<size_t>(memory.device)].used -= memory.size;
  ::fallocate(state().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(memory.file_offset), static_cast<off_t>(memory.size));
  state().memory.erase(handle);
}

Result no_context(const char* function) {
  if (!thread().contexts.empty()) return 0;
  misuse(std::string(function) + " without a current context");
  return kInvalidContext;
}

}  // namespace

bool is_accessible(Address address, uint64_t size) {
  const Address end = address + size;
  while (address < end) {
    auto allocation = state().allocations.upper_bound(address);
    if (allocation != state().allocations.begin()) {
      --allocation;
      if (address < allocation->first + allocation->second.first) {
        address = allocation->first + allocation->second.first;
        continue;
      }
    }
    auto mapping = state().mappings.upper_bound(address);
    if (mapping == state().mappings.begin()) return false;
    --mapping;
    if (address >= mapping->first + mapping->second.size || !mapping->second.accessible) return false;
    address = mapping->first + mapping->second.size;
  }
  return true;
}

/// The first mapping at the address or beyond it, within `size` bytes; nullptr when there is none.
const Mapping* mapping_in(Address address, uint64_t size) {
  auto found = state().mappings.upper_bound(address);
  if (found != state().mappings.begin()) {
    const auto before = std::prev(found);
    if (address < before->first + before->second.size) found = before;
  }
  return found != state().mappings.end() && found->first < address + size ? &found->second : nullptr;
}

int device_of(Address address) {
  const Mapping* const mapping = mapping_in(address, 1);
  if (mapping != nullptr) return state().memory[mapping->handle].device;
  const auto allocation = state().allocations.upper_bound(address);
  return allocation == state().allocations.begin() ? -1 : std::prev(allocation)->second.second;
}

bool may_use(int device, Address address, uint64_t size) {
  for (uint64_t done = 0; done < size;) {
    const Mapping* const mapping = mapping_in(address + done, size - done);
    if (mapping == nullptr) return true;  // plain memory: devices are peers
    if (!mapping->accessors.contains(device)) return false;
    done += mapping->size;
  }
  return true;
}

}  // namespace fake

using namespace fake;

namespace {
/// What plain memory is rounded up to.
uint64_t plain_step(uint64_t size) {
  const uint64_t page = state().granularity != 0 ? state().granularity : uint64_t{2} << 20;
  return size < (1 << 20) ? 512 : page;
}
}  // namespace

#define LOCKED(function)                                           \
  const std::lock_guard<std::recursive_mutex> lock(state().mutex); \
  if (const Result wanted = entered(function); wanted != 0) return wanted

extern "C" {

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  LOCKED("cuMemGetInfo");
  if (const Result result = no_context("cuMemGetInfo")) return result;
  const Device& device = state().devices[static_cast<size_t>(thread().contexts.back())];
  *total = device.capacity;
  *free = device.capacity - device.used - std::min(device.foreign, device.capacity - device.used);
  return 0;
}

Result cuMemAlloc_v2(Address* address, size_t size) {
  LOCKED("cuMemAlloc");
  if (const Result result = no_context("cuMemAlloc")) return result;
  if (const Result result = unsafe_during_capture("cuMemAlloc")) return result;
  if (size == 0) return kInvalidValue;
  const int device = thread().contexts.back();
  const uint64_t step = plain_step(size);
  if (const Result result = take(device, (size + step - 1) / step * step)) return result;
  if (state().placing.place != nullptr) {
    *address = state().placing.place(state().placing.context, size);
  } else {
    void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return kOutOfMemory;
    *address = reinterpret_cast<Address>(mapped);
  }
  state().allocations[*address] = {size, device};
  return 0;
}

Result cuMemFree_v2(Address address) {
  LOCKED("cuMemFree");
  if (const Result result = no_context("cuMemFree")) return result;
  if (const Result result = unsafe_during_capture("cuMemFree")) return result;
  const auto found = state().allocations.find(address);
  if (found == state().allocations.end()) {
    misuse("cuMemFree of what cuMemAlloc did not give");
    return kInvalidValue;
  }
  const auto [size, device] = found->second;
  if (is_in_use(address, size)) misuse("cuMemFree under queued work");
  const uint64_t step = plain_step(size);
  state().devices[static_cast<size_t>(device)].used -= (size + step - 1) / step * step;
  if (state().placing.gone != nullptr) {
    state().placing.gone(state().placing.context, address);
  } else {
    ::munmap(pointer(address), size);
  }
  state().allocations.erase(found);
  return 0;
}

Result cuMemGetAllocationGranularity(size_t* granularity,
                                     const memoir::cuda::AllocationProperties* properties, int) {
  LOCKED("cuMemGetAllocationGranularity");
  if (properties->type != 1 || properties->location.type != 1) return kInvalidValue;
  *granularity = state().granularity;
  return 0;
}

Result cuMemAddressReserve(Address* address, size_t size, size_t, Address, unsigned long long) {
  LOCKED("cuMemAddressReserve");
  const uint64_t unit = state().granularity;
  if (size == 0 || size % unit != 0) {
    misuse("cuMemAddressReserve of a size that is not a multiple of the granularity");
    return kInvalidValue;
  }
  void* const mapped =
      ::mmap(nullptr, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return kOutOfMemory;
  const Address begin = reinterpret_cast<Address>(mapped), aligned = (begin + unit - 1) / unit * unit;
  if (aligned != begin) ::munmap(mapped, aligned - begin);
  if (aligned != begin + unit) ::munmap(pointer(aligned + size), begin + unit - aligned);
  *address = aligned;
  state().reservations[aligned] = size;
  return 0;
}

Result cuMemAddressFree(Address address, size_t size) {
  LOCKED("cuMemAddressFree");
  const auto found = state().reservations.find(address);
  if (found == state().reservations.end() || found->second != size) {
    misuse("cuMemAddressFree of what is not reserved");
    return kInvalidValue;
  }
  const auto mapping = state().mappings.lower_bound(address);
  if (mapping != state().mappings.end() && mapping->first < address + size) {
    misuse("cuMemAddressFree with memory mapped there");
    return kInvalidValue;
  }
  ::munmap(pointer(address), size);
  state().reservations.erase(found);
  return 0;
}

Result cuMemCreate(Handle* handle, size_t size, const memoir::cuda::AllocationProperties* properties,
                   unsigned long long) {
  LOCKED("cuMemCreate");
  if (const Result result = unsafe_during_capture("cuMemCreate")) return result;
  const State::Features& features = state().features;
  if ((properties->gpu_direct_rdma_capable != 0 && features.refused_rdma != 0) ||
      (properties->handle_types & features.refused_handle_types) != 0)
    return kNotSupported;
  const int device = properties->location.id;
  if (size == 0 || size % state().granularity != 0 || device < 0 ||
      device >= static_cast<int>(state().devices.size())) {
    misuse("cuMemCreate of a bad size or device");
    return kInvalidValue;
  }
  if (const Result result = take(device, size)) return result;
  *handle = state().next_handle++;
  const uint64_t at = state().file_end;
  state().file_end += size;
  if (::ftruncate(state().file, static_cast<off_t>(state().file_end)) != 0) return kOutOfMemory;
  state().memory[*handle] = {.size = size, .file_offset = at, .device = device};
  return 0;
}

Result cuMemRelease(Handle handle) {
  LOCKED("cuMemRelease");
  const auto found = state().memory.find(handle);
  if (found == state().memory.end() || found->second.released) {
    misuse("cuMemRelease of no handle");
    return kInvalidValue;
  }
  found->second.released = true;
  drop_if_unused(handle);
  return 0;
}

Result cuMemMap(Address address, size_t size, size_t offset, Handle handle, unsigned long long) {
  LOCKED("cuMemMap");
  const auto memory = state().memory.find(handle);
  auto reservation = state().reservations.upper_bound(address);
  const bool reserved = reservation != state().reservations.begin() &&
                        (--reservation, address + size <= reservation->first + reservation->second);
  if (memory == state().memory.end() || memory->second.released || offset != 0 ||
      size != memory->second.size || address % state().granularity != 0 || !reserved) {
    misuse("cuMemMap of a part, of no handle, or outside of reserved addresses");
    return kInvalidValue;
  }
  const auto next = state().mappings.lower_bound(address);
  const auto before = next == state().mappings.begin() ? state().mappings.end() : std::prev(next);
  if ((next != state().mappings.end() && next->first < address + size) ||
      (before != state().mappings.end() && before->first + before->second.size > address)) {
    misuse("cuMemMap over a mapping");
    return kInvalidValue;
  }
  ::mmap(pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, state().file,
         static_cast<off_t>(memory->second.file_offset));
  state().mappings[address] = {size, handle, false};
  ++memory->second.mappings;
  return 0;
}

Result cuMemSetAccess(Address address, size_t size, const memoir::cuda::AccessDescription* access,
                      size_t count) {
  LOCKED("cuMemSetAccess");
  for (size_t i = 0; i < count; ++i) {
    const int device = access[i].location.id;
    if (access[i].flags != 3 || access[i].location.type != 1 || device < 0 ||
        device >= static_cast<int>(state().devices.size())) {
      misuse("cuMemSetAccess for no device");
      return kInvalidValue;
    }
  }
  const Address end = address + size;
  for (Address at = address; at < end;) {
    const auto found = state().mappings.find(at);
    if (found == state().mappings.end() || at + found->second.size > end) {
      misuse("cuMemSetAccess where nothing, or a part, is mapped");
      return kInvalidValue;
    }
    ::mprotect(pointer(at), found->second.size, PROT_READ | PROT_WRITE);
    found->second.accessible = true;
    found->second.accessors.clear();
    for (size_t i = 0; i < count; ++i) found->second.accessors.insert(access[i].location.id);
    at += found->second.size;
  }
  return 0;
}

Result cuMemUnmap(Address address, size_t size) {
  LOCKED("cuMemUnmap");
  const Address end = address + size;
  for (Address at = address; at < end;) {
    const auto found = state().mappings.find(at);
    if (found == state().mappings.end() || at + found->second.size > end) {
      misuse("cuMemUnmap where nothing, or a part, is mapped");
      return kInvalidValue;
    }
    at += found->second.size;
  }
  if (is_in_use(address, size)) misuse("cuMemUnmap under queued work");
  for (Address at = address; at < end;) {
    const Mapping mapping = state().mappings[at];
    state().mappings.erase(at);
    close_range(at, mapping.size);
    --state().memory[mapping.handle].mappings;
    drop_if_unused(mapping.handle);
    at += mapping.size;
  }
  return 0;
}

void fake_reset(int devices, uint64_t capacity, uint64_t granularity) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  State& all = state();
  if (all.placing.place == nullptr) {
    for (const auto& [address, allocation] : all.allocations) ::munmap(pointer(address), allocation.first);
  }
  all.placing = {};
  all.features = {};
  all.was_reset = false;
  for (const auto& [address, size] : all.reservations) ::munmap(pointer(address), size);
  for (Event* event : all.events) delete event;
  for (Stream* stream : all.streams) delete stream;
  all.memory.clear(), all.mappings.clear(), all.reservations.clear(), all.allocations.clear();
  all.events.clear(), all.streams.clear(), all.graphs.clear(), all.default_stream = {};
  all.calls.clear(), all.failures.clear(), all.misuses.clear();
  if (all.file >= 0) ::close(all.file);
  all.file = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  all.file_end = 0;
  all.granularity = granularity;
  all.devices.assign(static_cast<size_t>(devices), Device{.capacity = capacity});
  thread() = {};
}

void fake_place_segments(uint64_t (*place)(void*, uint64_t), void (*gone)(void*, uint64_t), void* context) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().placing = {place, gone, context};
}

void fake_set_features(int rdma, int handle_types, int refused_rdma, int refused_handle_types) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().features = {rdma, handle_types, refused_rdma, refused_handle_types};
}

void fake_device_reset(void) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  State& all = state();
  for (const auto& [address, mapping] : all.mappings) close_range(address, mapping.size);
  all.mappings.clear(), all.memory.clear(), all.allocations.clear();
  for (Device& device : all.devices) device.used = 0;
  all.was_reset = true;
}

void fake_set_foreign(int device, uint64_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().devices[static_cast<size_t>(device)].foreign = bytes;
}

int fake_accessors(uint64_t address) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  const auto found = state().mappings.find(address);
  return found == state().mappings.end() ? 0 : static_cast<int>(found->second.accessors.size());
}

uint64_t fake_used(int device) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  return state().devices[static_cast<size_t>(device)].used;
}

uint64_t fake_peak_used(int device) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  return state().devices[static_cast<size_t>(device)].peak;
}

uint64_t fake_live_things(void) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  const State& all = state();
  uint64_t queued = all.default_stream.queue.size();
  for (const Stream* stream : all.streams) queued += stream->queue.size();
  return all.memory.size() + all.mappings.size() + all.reservations.size() + all.allocations.size() +
         all.events.size() + queued;
}

}  // extern "C"

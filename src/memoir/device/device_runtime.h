// SPDX-License-Identifier: Apache-2.0
//
// The owner of one GPU's heaps: what stands between a program's allocations and a policy. Thread-safe, by one
// lock.
//
//   allocate   poll the events of pending frees -> the pool (the graph's, while one is captured) -> its heap
//              nothing there: the ladder, which searches again after every rung
//                 1 events of pending frees    2 callbacks (without the lock)    3 trim every pool
//                 4 wait for pending frees     5 wait for the whole device       6 trim every pool
//              and then an error that says who holds what. PyTorch's policies climb a ladder of their own
//              inside the heap; they are asked again only when a rung gave something back
//   free       used by its own stream only: to the heap at once; the heap keeps streams separate
//              used by others (record_stream): to the heap when an event of each of them is reached
//
// While a graph is captured no event may be recorded on its streams and nothing may be waited for: such frees
// are put off until its end, and rungs 5 and 6 leave mapped memory where it is. What a captured graph uses
// lives in a pool of its own, which keeps its memory, and which nobody else is given any of, until the graph
// releases it.
//
// Behind PyTorch, where malloc is somebody else's: new and std containers are used off the fast path.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memoir/base/metadata_queue.h"
#include "memoir/device/device_heap.h"
#include "memoir/device/device_view.h"
#include "memoir/device/plan_thread.h"
#include "memoir/heap/index/offset_table.h"

namespace memoir {

struct DeviceRuntimeOptions {
  Size cap = ~Size{0};  // bytes: the most that is taken from the device, whatever set_fraction() says later
  size_t history = 0;   // entries of the history that are kept
  SiteNames site_names = {};  // for texts; called without the lock of the runtime
  /// Nanoseconds, never going back; asked under the lock, for policies that do something on their own now and
  /// then. nullptr: the system's steady clock.
  std::function<Tick()> clock = nullptr;
};

class DeviceRuntime final : private Collector, private DeviceWatch {
 public:
  /// What every object is aligned to, in bytes: as cudaMalloc does.
  static constexpr Size kAlignment = 256;
  /// Given the device, lets go of what it can; called without the lock, so that it may free.
  using LowMemoryCallback = void (*)(int device, void* context);
  using StreamFilter = std::function<bool(cuda::Stream)>;

  /// The device of this number under the policy. Throws Error when there is no such device, or no driver.
  DeviceRuntime(int ordinal, Policy policy, DeviceRuntimeOptions options = {});
  /// Waits for the device and gives everything back.
  ~DeviceRuntime();
  DeviceRuntime(const DeviceRuntime&) = delete;
  DeviceRuntime& operator=(const DeviceRuntime&) = delete;

  /// `size` bytes for work that is queued on `stream` from now on; nullptr for 0 bytes, and when there are
  /// none: `refusal` then says who holds what. Throws Error in a process that was forked after this was made.
  void* allocate(Size size, cuda::Stream stream, SiteId site, std::string& refusal);
  /// Ends the object there. False when there is none: nothing happened.
  bool free(void* pointer);
  /// `stream` uses the object as well: its memory is not given to others before what is queued there at its
  /// free is done. Addresses that are not memoir's are ignored.
  void record_stream(void* pointer, cuda::Stream stream);

  /// Gives back to the device what is not live, as far as streams allow.
  void empty_cache();
  /// The cap as a part of the device's memory, at most the options'.
  void set_fraction(double fraction);
  /// The allocation of the device that the object lies in, as others need it to share it; `size` gets its
  /// bytes.
  void* base_of(void* pointer, size_t* size);

  /// From now on allocations on streams that the filter is true for come from this pool; it is called under
  /// the lock.
  void begin_pool(DevicePoolId id, StreamFilter filter);
  void end_pool(DevicePoolId id);
  /// One begin_pool() less is in need of the pool's memory; with the last one it goes back as its objects
  /// die.
  void release_pool(DevicePoolId id);

  /// Until the plans that are being made are there, without the lock: who waits so before each request and
  /// free gets what a simulation says.
  void finish_plans() noexcept { planner_.wait(); }

  void on_low_memory(LowMemoryCallback callback, void* context);

  /// From now on the device of this number may use mapped memory too, if it reaches it: copies between the
  /// two need that.
  void share_with(int ordinal);

  /// Nothing lives in it, and nothing is captured: its end gives everything back, and may be now.
  bool may_end() const noexcept;
  DeviceView view(DeviceDetail detail = DeviceDetail::kObjects) const;
  void reset_peaks();
  const CudaDevice& device() const noexcept { return device_; }
  /// What the device does not do, or what was chosen in its place, in a sentence for people; "" when all is
  /// as asked for. Does not change.
  const std::string& notice() const noexcept { return notice_; }

  /// Around a fork: no other thread is inside, so that the child finds the pool as it should be.
  void before_fork() noexcept { mutex_.lock(); }
  /// `child`: CUDA does not work in it. Allocations are refused from now on, and frees do nothing.
  void after_fork(bool child) noexcept {
    is_child_ = is_child_ || child;
    mutex_.unlock();
  }

 private:
  using Index = OffsetTable::Index;  // of an object; 0 is none
  static constexpr StreamId kAnyStream = DeviceStreams::kNoStream;
  static constexpr unsigned kManyStreams = 63;  // the bit that stands for all streams from this number on

  struct Object {
    cuda::Address address = 0;
    Size size = 0;
    SiteId site = kNoSite;
    std::uint64_t users = 0;  // a bit per other stream that uses it
    StreamId stream = 0;
    std::uint32_t pool = 0;    // index into pools_
    std::uint32_t events = 0;  // that its free waits for
    bool pending = false;
  };
  struct Pool {
    DevicePoolId id;
    StreamId stream = kAnyStream;
    std::unique_ptr<DeviceHeap> heap;  // nullptr: the place is unused
  };
  struct Graph {
    DevicePoolId id;
    int uses = 0;
  };
  struct Route {
    DevicePoolId id;
    StreamFilter filter;
    StreamId captured = DeviceStreams::kNoStream;  // a stream that it was for, and that was being captured
  };
  struct Waiting {
    cuda::Event event;
    Index object;
  };

  void collect(bool full) noexcept override;
  void taken(Size size) noexcept override { stats_.reserved_bytes.add(size); }
  void given_back(Size size) noexcept override { stats_.reserved_bytes.take(size); }
  void placed(Range addresses, bool mapped) noexcept override;
  void removed(Range addresses, bool mapped) noexcept override;

  void use_plain_memory();
  DevicePoolId pool_of(StreamId stream);
  void forget_failed_captures() noexcept;
  std::uint32_t find_pool(DevicePoolId id, StreamId stream);
  std::uint32_t number_of(DevicePoolId id);
  void* try_allocate(Size size, StreamId stream, SiteId site, DevicePoolId id);
  void* climb_or_refuse(std::unique_lock<std::mutex>& lock, Size size, StreamId stream, SiteId site,
                        DevicePoolId id, std::string& refusal);
  void* climb(std::unique_lock<std::mutex>& lock, Size size, StreamId stream, SiteId site, DevicePoolId id,
              std::string& tried);
  Index take_record();
  void finish(Index index) noexcept;
  void wait_for_users(Index index);
  void settle_deferred();
  bool poll() noexcept;
  void wait_for_pending() noexcept;
  void trim_all(const DeviceHeap* except = nullptr) noexcept;
  Tick now() const;
  void tick() noexcept;
  void drop_unused_pools() noexcept;
  Graph* find_graph(DevicePoolId id) noexcept;
  void note(DeviceAction action, cuda::Address address, Size size, StreamId stream, SiteId site) noexcept;
  DeviceView view_locked(DeviceDetail detail) const;
  void list_objects(DeviceView& view) const;

  mutable std::mutex mutex_;  // guards all below
  CudaDevice device_;
  DeviceStreams streams_;
  Policy policy_;
  const DeviceRuntimeOptions options_;
  PlanThread planner_;
  std::string notice_;
  bool is_child_ = false;  // of a fork
  std::vector<Pool> pools_;
  std::vector<Graph> graphs_;
  std::vector<DevicePoolId> private_pools_;  // in the order of their first use
  std::vector<Route> routes_;
  MetadataArray<Object> objects_;  // [0] stands for none
  MetadataArray<Index> unused_;
  OffsetTable by_address_;
  std::vector<MetadataQueue<Waiting>> waiting_;  // per stream, in the order of their events
  size_t waiting_count_ = 0;
  std::vector<Index> deferred_;  // frees put off until no graph is captured
  std::vector<std::pair<LowMemoryCallback, void*>> callbacks_;
  Tick due_ = Heap::kNever;  // when a heap wants its tick
  DeviceStats stats_;
  std::vector<DeviceEntry> history_;  // a ring
  std::uint64_t history_count_ = 0;
};

}  // namespace memoir

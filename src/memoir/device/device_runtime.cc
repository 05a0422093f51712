// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/device_runtime.h"

#include <algorithm>
#include <chrono>

#include "memoir/base/check.h"
#include "memoir/base/error.h"

namespace memoir {

DeviceRuntime::DeviceRuntime(int ordinal, Policy policy, DeviceRuntimeOptions options)
    : device_(ordinal), streams_(device_), policy_(std::move(policy)), options_(std::move(options)) {
  if (!device_.ok()) throw Error(device_.problem());
  notice_ = device_.notice();
  if (device_.granularity() == 0) use_plain_memory();
  device_.set_cap(options_.cap);
  device_.set_quiet(&streams_);
  device_.set_watch(this);
  history_.resize(options_.history);
  if (!objects_.push_back({})) throw Error("no memory for the device pool's bookkeeping");
  find_pool(
      {},
      policy_.traits.sees_streams ? kAnyStream : streams_.number(nullptr));  // what cannot be shows at once
}

/// Where memory cannot be mapped, memoir's own pool goes on over plain memory, with the settings that it has
/// there; other policies say what is missing.
void DeviceRuntime::use_plain_memory() {
  const std::string_view text = policy_.text;
  if (text != "memoir" && !text.starts_with("memoir,")) return;
  std::string plain = "memoir_plain" + std::string(text.substr(6));
  try {
    policy_ = choose_policy(plain, Substrate::kDevice);
  } catch (const Error&) {  // a setting of mapped memory
    plain = "memoir_plain";
    policy_ = choose_policy(plain, Substrate::kDevice);
  }
  if (notice_.empty()) notice_ = std::string(device_.name()) + " cannot map memory";
  notice_ += ": " + plain + " serves it, over plain memory";
}

DeviceRuntime::~DeviceRuntime() {
  const std::lock_guard lock(mutex_);
  streams_.begin_section();
  wait_for_pending();
  pools_.clear();
  device_.set_watch(nullptr);
  device_.set_quiet(nullptr);
}

void* DeviceRuntime::allocate(Size size, cuda::Stream handle, SiteId site, std::string& refusal) {
  if (size == 0) return nullptr;
  std::unique_lock lock(mutex_);
  if (is_child_) [[unlikely]] {
    throw Error(
        "CUDA does not work in a process that was forked from one that uses it: start workers with spawn");
  }
  streams_.begin_section();
  if (due_ != Heap::kNever) tick();
  if (waiting_count_ != 0 && routes_.empty()) poll();
  const StreamId stream = streams_.number(handle);
  try {
    if (stream == DeviceStreams::kNoStream)
      throw Error("memoir: no memory for the device pool's bookkeeping");
    const DevicePoolId id = routes_.empty() ? DevicePoolId{} : pool_of(stream);
    if (void* const pointer = try_allocate(size, stream, site, id)) [[likely]]
      return pointer;
    return climb_or_refuse(lock, size, stream, site, id, refusal);
  } catch (const Error& error) {  // a pool that could not be made
    refusal = error.what();
    return nullptr;
  }
}

void* DeviceRuntime::climb_or_refuse(std::unique_lock<std::mutex>& lock, Size size, StreamId stream,
                                     SiteId site, DevicePoolId id, std::string& refusal) {
  FailedRequest request{size, streams_.handle(stream), site, id, ""};
  // What the rungs take from heaps stays ours until this one had its turn: a neighbour would have it at once.
  void* pointer = nullptr;
  {
    const CudaDevice::Need need(device_);
    pointer = climb(lock, size, stream, site, id, request.tried);
  }
  if (pointer != nullptr) {
    ++stats_.retries;
    return pointer;
  }
  ++stats_.ooms;
  note(DeviceAction::kOutOfMemory, device_.free_now(), size, stream, site);
  const DeviceView view = view_locked(DeviceDetail::kObjects);
  lock.unlock();
  refusal = out_of_memory_text(view, request, options_.site_names);
  return nullptr;
}

void* DeviceRuntime::climb(std::unique_lock<std::mutex>& lock, Size size, StreamId stream, SiteId site,
                           DevicePoolId id, std::string& tried) {
  const bool climbs_itself = policy_.traits.pytorch;
  // has trimmed itself
  const DeviceHeap* const own = climbs_itself ? pools_[find_pool(id, kAnyStream)].heap.get() : nullptr;
  void* pointer = nullptr;
  // A heap that was refused is the same as before unless a rung changed something.
  const auto search = [&](const char* rung, bool is_worth_it) {
    tried += (tried.empty() ? "" : ", ") + std::string(rung);
    if (is_worth_it) pointer = try_allocate(size, stream, site, id);
    return pointer != nullptr;
  };
  const auto trim = [&] {
    const Size held = device_.held() - device_.spare();
    trim_all(own);
    return search("trim", !climbs_itself || device_.held() - device_.spare() != held);
  };
  if (search("events", poll())) return pointer;
  const auto callbacks = callbacks_;
  if (!callbacks.empty()) {
    lock.unlock();
    for (const auto& [callback, context] : callbacks) callback(device_.ordinal(), context);
    lock.lock();
    streams_.begin_section();
    poll();
    if (search("callbacks", true)) return pointer;
  }
  if (trim()) return pointer;
  const std::uint64_t active = stats_.active_objects.current;
  wait_for_pending();
  if (search("waiting for pending frees", stats_.active_objects.current != active)) return pointer;
  if (streams_.wait() && search("waiting for the device", !climbs_itself)) return pointer;
  trim();
  return pointer;
}

DevicePoolId DeviceRuntime::pool_of(StreamId stream) {
  forget_failed_captures();
  for (Route& route : routes_) {
    if (route.filter && !route.filter(streams_.handle(stream))) continue;
    if (route.captured == DeviceStreams::kNoStream && streams_.is_capturing(stream)) route.captured = stream;
    return route.id;
  }
  return {};
}

/// PyTorch before 2.13 does not end the pool of a capture that failed, whose filter is the failed graph's and
/// goes with it.
void DeviceRuntime::forget_failed_captures() noexcept {
  std::erase_if(routes_, [this](const Route& route) {
    return route.captured != DeviceStreams::kNoStream && !streams_.is_capturing(route.captured);
  });
  streams_.announce_capture(!routes_.empty());
}

std::uint32_t DeviceRuntime::find_pool(DevicePoolId id, StreamId stream) {
  size_t unused = pools_.size();
  for (size_t i = 0; i < pools_.size(); ++i) {
    if (pools_[i].heap == nullptr) {
      unused = i;
    } else if (pools_[i].stream == stream && pools_[i].id == id) {
      return static_cast<std::uint32_t>(i);
    }
  }
  const bool keeps = id != DevicePoolId{};
  auto made = std::make_unique<DeviceHeap>(
      policy_, DeviceContext{device_, streams_, this, &planner_, number_of(id), keeps});
  if (keeps) made->keep(true);
  due_ = std::min(due_, made->heap().tick(now()));
  if (unused == pools_.size()) pools_.emplace_back();
  pools_[unused] = {id, stream, std::move(made)};
  return static_cast<std::uint32_t>(unused);
}

std::uint32_t DeviceRuntime::number_of(DevicePoolId id) {
  if (id == DevicePoolId{}) return 0;
  const auto found = std::find(private_pools_.begin(), private_pools_.end(), id);
  const auto number = static_cast<std::uint32_t>(found - private_pools_.begin()) + 1;
  if (found == private_pools_.end()) private_pools_.push_back(id);
  return number;
}

void* DeviceRuntime::try_allocate(Size size, StreamId stream, SiteId site, DevicePoolId id) {
  const std::uint32_t pool = find_pool(id, policy_.traits.sees_streams ? kAnyStream : stream);
  const Index index = take_record();
  if (index == 0) return nullptr;
  DeviceHeap& it = *pools_[pool].heap;
  const Offset offset = it.heap().allocate(
      {.size = size, .alignment = kAlignment, .site = site, .stream = stream, .plain = policy_.traits.plain});
  if (offset == kNoOffset) {
    unused_.push_back(index);
    return nullptr;
  }
  const cuda::Address address = it.address(offset);
  objects_[index] = {.address = address, .size = size, .site = site, .stream = stream, .pool = pool};
  by_address_.insert(address, index);
  stats_.objects.add(1);
  stats_.allocated_bytes.add(size);
  stats_.active_objects.add(1);
  stats_.active_bytes.add(size);
  note(DeviceAction::kAlloc, address, size, stream, site);
  return reinterpret_cast<void*>(address);
}

DeviceRuntime::Index DeviceRuntime::take_record() {
  if (!by_address_.reserve_one()) return 0;
  if (!unused_.empty()) {
    const Index index = unused_.back();
    unused_.pop_back();
    return index;
  }
  // So that giving a record back needs no memory.
  if (!objects_.push_back({}) ||
      (unused_.capacity() < objects_.size() && !unused_.reserve(2 * objects_.size())))
    return 0;
  return static_cast<Index>(objects_.size() - 1);
}

bool DeviceRuntime::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  if (is_child_) [[unlikely]]
    return true;  // its memory is the parent's
  streams_.begin_section();
  if (due_ != Heap::kNever) tick();
  const Index index = by_address_.find(reinterpret_cast<cuda::Address>(pointer));
  if (index == 0 || objects_[index].pending) return false;
  Object& object = objects_[index];
  stats_.objects.take(1);
  stats_.allocated_bytes.take(object.size);
  note(DeviceAction::kFreeRequested, object.address, object.size, object.stream, object.site);
  if (object.users == 0) {
    finish(index);
    return true;
  }
  object.pending = true;
  if (routes_.empty()) {
    wait_for_users(index);
  } else {
    deferred_.push_back(index);
  }
  return true;
}

void DeviceRuntime::finish(Index index) noexcept {
  const Object object = objects_[index];
  Pool& pool = pools_[object.pool];
  const bool freed = pool.heap->heap().free(pool.heap->offset(object.address));
  MEMOIR_CHECK(freed, "an object of the runtime is one of its heap");
  streams_.note_free(object.stream);
  by_address_.take(object.address);
  unused_.push_back(index);
  stats_.active_objects.take(1);
  stats_.active_bytes.take(object.size);
  note(DeviceAction::kFreeCompleted, object.address, object.size, object.stream, object.site);
  if (pool.id != DevicePoolId{} && pool.heap->heap().live() == 0) drop_unused_pools();
}

void DeviceRuntime::record_stream(void* pointer, cuda::Stream handle) {
  const std::lock_guard lock(mutex_);
  const Index index = by_address_.find(reinterpret_cast<cuda::Address>(pointer));
  if (index == 0 || is_child_) return;
  const StreamId stream = streams_.number(handle);
  if (stream == DeviceStreams::kNoStream) {  // no memory for its number: as if every stream used it
    objects_[index].users = ~std::uint64_t{0};
    return;
  }
  if (stream != objects_[index].stream) {
    objects_[index].users |= std::uint64_t{1} << std::min<unsigned>(stream, kManyStreams);
  }
}

void DeviceRuntime::wait_for_users(Index index) {
  Object& object = objects_[index];
  waiting_.resize(streams_.count());
  for (StreamId stream = 0; stream < streams_.count() && object.users != 0; ++stream) {
    const unsigned bit = std::min<unsigned>(stream, kManyStreams);
    if ((object.users >> bit & 1) == 0 || stream == object.stream) continue;
    const cuda::Event event = streams_.record(stream);
    if (event == nullptr) {  // it is being captured: the rest at the capture's end
      deferred_.push_back(index);
      return;
    }
    if (!waiting_[stream].push_back({event, index})) {  // no metadata memory: perhaps later
      streams_.put(event);
      deferred_.push_back(index);
      return;
    }
    ++waiting_count_;
    ++object.events;
    if (bit != kManyStreams) object.users &= ~(std::uint64_t{1} << bit);
  }
  object.users = 0;
  if (object.events == 0) finish(index);
}

void DeviceRuntime::settle_deferred() {
  if (deferred_.empty() || !routes_.empty()) return;
  const std::vector<Index> deferred = std::move(deferred_);
  deferred_.clear();
  for (const Index index : deferred) wait_for_users(index);
}

/// True when a free came through.
bool DeviceRuntime::poll() noexcept {
  const std::uint64_t before = stats_.active_objects.current;
  settle_deferred();
  for (MetadataQueue<Waiting>& queue : waiting_) {
    while (!queue.empty() && streams_.is_reached(queue.front().event)) {
      const Waiting reached = queue.front();
      queue.pop_front();
      --waiting_count_;
      streams_.put(reached.event);
      Object& object = objects_[reached.object];
      if (--object.events == 0 && object.users == 0) finish(reached.object);
    }
  }
  return stats_.active_objects.current != before;
}

void DeviceRuntime::wait_for_pending() noexcept {
  settle_deferred();
  for (MetadataQueue<Waiting>& queue : waiting_) {
    if (!queue.empty()) streams_.synchronize(queue.back().event);  // those before it are reached as well
  }
  poll();
}

void DeviceRuntime::collect(bool full) noexcept {
  if (full) {
    wait_for_pending();
  } else {
    poll();
  }
}

Tick DeviceRuntime::now() const {
  if (options_.clock) return options_.clock();
  return static_cast<Tick>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

void DeviceRuntime::tick() noexcept {
  const Tick now = this->now();
  if (now < due_) return;
  due_ = Heap::kNever;
  for (const Pool& pool : pools_) {
    if (pool.heap != nullptr) due_ = std::min(due_, pool.heap->heap().tick(now));
  }
}

void DeviceRuntime::trim_all(const DeviceHeap* except) noexcept {
  for (Pool& pool : pools_) {
    if (pool.heap == nullptr || pool.heap.get() == except) continue;
    const Graph* const graph = find_graph(pool.id);
    if (graph == nullptr || graph->uses == 0) pool.heap->trim();
  }
}

void DeviceRuntime::empty_cache() {
  const std::lock_guard lock(mutex_);
  if (is_child_) return;
  streams_.begin_section();
  forget_failed_captures();
  if (routes_.empty()) wait_for_pending();
  trim_all();
}

bool DeviceRuntime::may_end() const noexcept {
  const std::lock_guard lock(mutex_);
  return !is_child_ && routes_.empty() && stats_.active_objects.current == 0 && !streams_.is_any_capturing();
}

void DeviceRuntime::set_fraction(double fraction) {
  const std::lock_guard lock(mutex_);
  const double wanted = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(device_.total());
  device_.set_cap(std::min(options_.cap, static_cast<Size>(wanted)));
}

void DeviceRuntime::share_with(int ordinal) {
  const std::lock_guard lock(mutex_);
  if (!device_.admit(ordinal)) return;
  for (Pool& pool : pools_) {
    if (pool.heap != nullptr) pool.heap->share_mapped();
  }
}

void* DeviceRuntime::base_of(void* pointer, size_t* size) {
  const std::lock_guard lock(mutex_);
  const Index index = by_address_.find(reinterpret_cast<cuda::Address>(pointer));
  if (index == 0) return pointer;
  const Object& object = objects_[index];
  Range base{object.address, object.size};
  const DeviceHeap& heap = *pools_[object.pool].heap;
  if (const CudaSegments* const segments = heap.plain()) {
    const Range segment = segments->segment_of(heap.offset(object.address));
    if (segment.size != 0) base = {heap.address(segment.begin), segment.size};
  }
  if (size != nullptr) *size = base.size;
  return reinterpret_cast<void*>(base.begin);
}

DeviceRuntime::Graph* DeviceRuntime::find_graph(DevicePoolId id) noexcept {
  for (Graph& graph : graphs_) {
    if (graph.id == id) return &graph;
  }
  return nullptr;
}

void DeviceRuntime::begin_pool(DevicePoolId id, StreamFilter filter) {
  const std::lock_guard lock(mutex_);
  Graph* graph = find_graph(id);
  if (graph == nullptr) graph = &graphs_.emplace_back(Graph{id});
  if (graph->uses++ == 0) {
    for (Pool& pool : pools_) {
      if (pool.heap != nullptr && pool.id == id) pool.heap->keep(true);
    }
  }
  routes_.push_back({id, std::move(filter)});
  streams_.announce_capture(true);
}

void DeviceRuntime::end_pool(DevicePoolId id) {
  const std::lock_guard lock(mutex_);
  streams_.begin_section();
  const auto found =
      std::find_if(routes_.begin(), routes_.end(), [&](const Route& route) { return route.id == id; });
  if (found != routes_.end()) routes_.erase(found);
  streams_.announce_capture(!routes_.empty());
  settle_deferred();
}

void DeviceRuntime::release_pool(DevicePoolId id) {
  const std::lock_guard lock(mutex_);
  streams_.begin_section();
  Graph* const graph = find_graph(id);
  if (graph == nullptr || graph->uses == 0 || --graph->uses > 0) return;
  for (Pool& pool : pools_) {
    if (pool.heap == nullptr || pool.id != id) continue;
    pool.heap->keep(false);
    pool.heap->trim();
  }
  drop_unused_pools();
}

void DeviceRuntime::drop_unused_pools() noexcept {
  for (Pool& pool : pools_) {
    if (pool.heap == nullptr || pool.id == DevicePoolId{} || pool.heap->heap().live() != 0) continue;
    const Graph* const graph = find_graph(pool.id);
    // Not while something is captured: the device cannot be waited for then. The next release or free comes
    // by again.
    if ((graph == nullptr || graph->uses == 0) && streams_.wait()) pool.heap.reset();
  }
  std::erase_if(graphs_, [this](const Graph& graph) {
    return graph.uses == 0 && std::none_of(pools_.begin(), pools_.end(), [&](const Pool& pool) {
             return pool.heap != nullptr && pool.id == graph.id;
           });
  });
}

void DeviceRuntime::on_low_memory(LowMemoryCallback callback, void* context) {
  const std::lock_guard lock(mutex_);
  callbacks_.emplace_back(callback, context);
}

void DeviceRuntime::placed(Range addresses, bool mapped) noexcept {
  stats_.segments.add(1);
  note(mapped ? DeviceAction::kSegmentMap : DeviceAction::kSegmentAlloc, addresses.begin, addresses.size, 0,
       kNoSite);
}

void DeviceRuntime::removed(Range addresses, bool mapped) noexcept {
  stats_.segments.take(1);
  note(mapped ? DeviceAction::kSegmentUnmap : DeviceAction::kSegmentFree, addresses.begin, addresses.size, 0,
       kNoSite);
}

void DeviceRuntime::note(DeviceAction action, cuda::Address address, Size size, StreamId stream,
                         SiteId site) noexcept {
  if (history_.empty()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  history_[history_count_++ % history_.size()] = {
      .action = action,
      .address = address,
      .size = size,
      .stream = stream < streams_.count() ? streams_.handle(stream) : nullptr,
      .site = site,
      .time_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count()};
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Follows a script (allocator_script.py) with memoir's PyTorchHeap or ExpandableHeap, as the settings say.
//   memoir_allocator SETTINGS DEVICE_MEMORY CAP AREA_STRIDE TORCH < script   TORCH: 11, 12 or 13, of 2.x
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/heap/peers/pytorch/expandable_heap.h"
#include "memoir/heap/peers/pytorch/pytorch_heap.h"

namespace memoir {

namespace {

constexpr std::uint64_t kAllStreams = 99;

std::string calls;  // to the device, since the last step

void note(char kind, Range range) {
  calls += std::string(1, kind) + ' ' + std::to_string(range.begin) + ' ' + std::to_string(range.size) + '\n';
}

/// Every segment lies behind the one before, as in fake_cudart.cc.
class FreshSegments final : public Segments {
 public:
  explicit FreshSegments(Size cap) : cap_(cap) {}
  Offset take(Size size) noexcept override {
    if (held_ + size > cap_) return kNoOffset;
    const Offset at = next_;
    held_ += size;
    next_ += size;
    note('S', {at, size});
    return at;
  }
  void give_back(Range range) noexcept override {
    held_ -= range.size;
    note('R', range);
  }
  Size held() const noexcept override { return held_; }

 private:
  Size cap_, held_ = 0;
  Offset next_ = 0;
};

class CappedArena final : public Arena {
 public:
  explicit CappedArena(Size cap) : cap_(cap) {}
  Size capacity() const noexcept override { return Size{1} << 46; }
  Size granule() const noexcept override { return kMiB; }
  bool commit(Range range) noexcept override {
    if (committed_ + range.size > cap_) return false;
    committed_ += range.size;
    note('M', range);
    return true;
  }
  void decommit(Range range) noexcept override {
    committed_ -= range.size;
    note('U', range);
  }
  Size committed() const noexcept override { return committed_; }

 private:
  Size cap_, committed_ = 0;
};

/// What a driver does for the heap: frees wait for the events of other streams, and both of PyTorch's hooks.
class Driver final : public Collector {
 public:
  PyTorchPools* heap = nullptr;

  std::string allocate(std::uint64_t id, Size size, std::uint64_t stream) {
    if (!is_captured(stream)) process_events();
    const Offset offset = heap->allocate({size, 1, kNoSite, static_cast<StreamId>(stream)});
    if (offset == kNoOffset) return " -> oom";
    live_[id] = {offset, stream, {}};
    return " -> " + std::to_string(offset);
  }
  bool is_live(std::uint64_t id) const { return live_.count(id) != 0; }
  void use(std::uint64_t id, std::uint64_t stream) {
    Object& object = live_.at(id);
    const bool known = std::count(object.used_on.begin(), object.used_on.end(), stream) != 0;
    if (stream != object.stream && !known) object.used_on.push_back(stream);
  }
  void free(std::uint64_t id) {
    const Object object = live_.at(id);
    live_.erase(id);
    if (object.used_on.empty()) {
      heap->free(object.offset);
    } else if (is_captured(0)) {
      deferred_.push_back(object);  // no event can be looked at while the stream is captured
    } else {
      wait_for_events(object);
    }
  }
  void die(std::uint64_t id) { dead_.push_back(id); }
  void complete_events() { events_done_ = events_; }

  void collect(bool full) noexcept override {
    if (full) {
      events_done_ = events_;
      process_events();
      return;
    }
    std::puts("callback");
    for (const auto id : dead_) free(id);
    dead_.clear();
  }

  void begin(PoolId pool, bool capture, std::uint64_t stream) {
    streams_[pool] = stream;
    heap->begin_allocate_to_pool(
        pool, stream == kAllStreams ? PoolFilter{} : PoolFilter{is_stream, &streams_[pool]}, capture);
    if (capture) ++captures_[stream];
  }
  void end(PoolId pool, bool capture) {
    heap->end_allocate_to_pool(pool);
    if (capture) --captures_[streams_[pool]];
  }

 private:
  struct Object {
    Offset offset;
    std::uint64_t stream;
    std::vector<std::uint64_t> used_on;  // other streams
  };
  struct Pending {
    Offset offset;
    std::uint64_t event;  // the last of its events
  };

  static bool is_stream(const void* context, StreamId stream) noexcept {
    return *static_cast<const std::uint64_t*>(context) == stream;
  }
  bool is_captured(std::uint64_t stream) { return captures_[kAllStreams] > 0 || captures_[stream] > 0; }
  void wait_for_events(const Object& object) {
    events_ += object.used_on.size();
    pending_.push_back({object.offset, events_});
  }
  void process_events() {
    for (const Object& object : deferred_) wait_for_events(object);
    deferred_.clear();
    std::erase_if(pending_, [&](const Pending& pending) {
      return pending.event <= events_done_ && heap->free(pending.offset);
    });
  }

  std::map<std::uint64_t, Object> live_;
  std::vector<Object> deferred_;
  std::vector<Pending> pending_;
  std::vector<std::uint64_t> dead_;
  std::uint64_t events_ = 0, events_done_ = 0;
  std::map<PoolId, std::uint64_t> streams_;  // that each pool is allocated to from
  std::map<std::uint64_t, int> captures_;    // graphs, by stream
};

std::string step(Driver& driver, const std::string& verb, std::uint64_t id, std::uint64_t x,
                 std::uint64_t y) {
  if (verb == "allocate") return driver.allocate(id, x, y);
  if (verb == "events") driver.complete_events();
  if (verb == "trim") driver.heap->trim();
  if (verb == "trim_pool") driver.heap->trim_pool(id);
  if (verb == "begin") driver.begin(id, x != 0, y);
  if (verb == "end") driver.end(id, x != 0);
  if (verb == "add_use") driver.heap->add_pool_use(id);
  if (verb == "release") driver.heap->release_pool(id);
  if (verb == "lend") driver.heap->lend_pool(id, x != 0);
  if (verb == "whole") driver.heap->keep_pool_whole(id);
  if (!driver.is_live(id)) return "";
  if (verb == "use") driver.use(id, x);
  if (verb == "dead") driver.die(id);
  if (verb == "free") driver.free(id);
  return "";
}

}  // namespace

}  // namespace memoir

int main(int, char** argv) {
  using namespace memoir;
  PyTorchOptions options;
  try {
    options = PyTorchOptions::parse(argv[1]);
  } catch (const Error&) {
    std::puts("refused");
    return 0;
  }
  options.device_memory = std::stoull(argv[2]);
  options.keep_under_mempool = std::stoull(argv[5]) <= 12;
  options.ties_by_record = std::stoull(argv[5]) == 12;
  FreshSegments segments(std::stoull(argv[3]));
  CappedArena arena(std::stoull(argv[3]));
  Driver driver;
  std::unique_ptr<PyTorchPools> heap;
  if (options.expandable_segments) {
    heap = std::make_unique<ExpandableHeap>(arena, options, &driver);
  } else {
    heap = std::make_unique<PyTorchHeap>(segments, options, &driver);
  }
  driver.heap = heap.get();
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string verb;
    std::uint64_t id = 0, x = 0, y = 0;
    in >> verb >> id >> x >> y;
    const std::string answer = step(driver, verb, id, x, y);
    std::printf("%s%s\n%s", line.c_str(), answer.c_str(), calls.c_str());
    calls.clear();
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "memoir/base/hex.h"
#include "memoir/base/json.h"
#include "memoir/formats/timeline/export_timeline.h"
#include "memoir/formats/timeline/timeline.h"

namespace memoir {

namespace {

constexpr unsigned kProgram = 65'536;  // the process that the passes are of; devices are 0 to 65,535

class ChromeSink final : public TimelineSink {
 public:
  ChromeSink(const Trace& trace, Output& output) : trace_(trace), output_(output) {
    json_.begin_object().key("displayTimeUnit").value("ns").key("traceEvents").begin_array();
  }

  void finish() {
    text_ += '\n';
    json_.end_array().key("stackFrames").begin_object();
    first_ = true;
    for (const Event& event : trace_.events()) {
      if (event.kind != EventKind::kSite) continue;
      next_line().key(hex(event.site)).begin_object().key("name").value(trace_.site_name(event.site));
      if (event.size != kNoSite) json_.key("parent").value(hex(event.size));
      json_.end_object();
      put();
    }
    text_ += '\n';
    json_.end_object().key("otherData").begin_object();
    for (const std::string_view key : trace_.meta_keys()) json_.key(key).value(trace_.meta(key));
    json_.end_object().end_object();
    text_ += '\n';
    put();
  }

  void device(std::uint16_t number, bool) override {
    begin('M', number, 0);
    json_.key("name").value("process_name").key("args").begin_object();
    json_.key("name").value("device " + std::to_string(number)).end_object();
    end();
  }
  void live(std::uint16_t device, std::optional<StreamId> stream, Tick time, Size bytes) override {
    counter(device, time, stream ? "stream " + std::to_string(*stream) + ", live" : "live", bytes);
  }
  void reserved(std::uint16_t device, Tick time, Size bytes) override {
    counter(device, time, "reserved", bytes);
  }
  void begins(const Event& allocation, std::uint32_t, const Event* address) override {
    object('b', allocation, allocation.time);
    json_.key("args").begin_object().key("bytes").value(allocation.size);
    json_.key("stream").value(allocation.stream);
    if (address != nullptr) json_.key("address").value(hex(address->size));
    if (address != nullptr && pool_of(*address) != 0) json_.key("pool").value(pool_of(*address));
    json_.end_object();
    stack(allocation.site);
    end();
  }
  void ends(const Event& allocation, std::uint32_t, Tick time, bool freed) override {
    object('e', allocation, time);
    if (!freed) json_.key("args").begin_object().key("freed").value("never").end_object();
    end();
  }
  void free_requested(const Event& allocation, std::uint32_t, Tick time) override {
    begin('n', allocation.device, time);
    json_.key("cat").value("allocation");
    id(allocation.object);
    json_.key("name").value("free requested");
    end();
  }
  void out_of_memory(const Event& event) override {
    begin('i', event.device, event.time);
    json_.key("s").value("p").key("cat").value("out of memory").key("name").value("out of memory");
    json_.key("args").begin_object().key("asked").value(event.size);
    json_.key("free").value(event.object).end_object();
    stack(event.site);
    end();
  }
  /// On the lowest lane that is free, a lane being a thread: each async name would be a row of its own.
  void pass(const Event& event) override {
    const bool begins = event.kind == EventKind::kPassBegin;
    std::size_t lane = 0;
    if (begins) {
      lane = static_cast<std::size_t>(std::find(lanes_.begin(), lanes_.end(), false) - lanes_.begin());
      if (lane == lanes_.size()) new_lane(lane);
      lanes_[lane] = true;
      running_[event.object] = lane;
    } else {
      lane = running_[event.object];
      lanes_[lane] = false;
    }
    begin(begins ? 'B' : 'E', kProgram, event.time, lane + 1);
    json_.key("cat").value("pass").key("name").value("pass " + std::to_string(event.object));
    end();
  }

 private:
  /// Each event and each site, the first too, is on a line of its own.
  JsonWriter& next_line() {
    if (first_) text_ += '\n';
    first_ = false;
    return json_.next_line();
  }
  /// What was written so far goes to the file.
  void put() {
    output_.put(text_);
    text_.clear();
  }
  void begin(char phase, unsigned process, Tick time, std::size_t thread = 0) {
    char microseconds[32];
    std::snprintf(microseconds, sizeof microseconds, "%llu.%03llu",
                  static_cast<unsigned long long>(time / 1000), static_cast<unsigned long long>(time % 1000));
    next_line().begin_object().key("ph").value(std::string_view(&phase, 1)).key("pid").value(process);
    json_.key("tid").value(thread).key("ts").raw(microseconds);
  }
  void end() {
    json_.end_object();
    put();
  }
  /// Perfetto calls it by its name and by its argument's: "live bytes".
  void counter(std::uint16_t device, Tick time, const std::string& name, Size bytes) {
    begin('C', device, time);
    json_.key("name").value(name).key("args").begin_object().key("bytes").value(bytes).end_object();
    end();
  }
  template <class Value>
  void metadata(std::size_t lane, const char* name, const char* key, Value value) {
    begin('M', kProgram, 0, lane + 1);  // thread 0 is the idle one
    json_.key("name").value(name).key("args").begin_object().key(key).value(value).end_object();
    end();
  }
  void new_lane(std::size_t lane) {
    lanes_.push_back(false);
    if (lane == 0) {
      metadata(lane, "process_name", "name", "passes");
      metadata(lane, "process_sort_index", "sort_index", -1);  // above the devices
    }
    metadata(lane, "thread_name", "name", "passes");
  }
  /// Of the device alone: what has an id of the whole trace, Perfetto draws outside of every device.
  void id(ObjectId object) { json_.key("id2").begin_object().key("local").value(hex(object)).end_object(); }
  void stack(SiteId site) {
    if (trace_.site_parent(site)) json_.key("sf").value(hex(site));
  }
  void object(char phase, const Event& allocation, Tick time) {
    begin(phase, allocation.device, time);
    json_.key("cat").value("allocation");
    id(allocation.object);
    const std::string_view name = trace_.site_name(allocation.site);
    json_.key("name").value(name.empty() ? "allocation" : name);
  }

  const Trace& trace_;
  Output& output_;
  std::string text_;
  JsonWriter json_{text_, {.spaces = false}};
  bool first_ = true;                                       // of the events, or of the sites
  std::vector<bool> lanes_;                                 // of passes: is one running
  std::unordered_map<std::uint64_t, std::size_t> running_;  // pass -> its lane
};

}  // namespace

std::uint64_t export_chrome(const Trace& trace, Output& output) {
  ChromeSink sink(trace, output);
  const std::uint64_t objects = walk_timeline(trace, sink);
  sink.finish();
  output.flush();
  return objects;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "memoir/base/hex.h"
#include "memoir/formats/pickle/settings_json.h"
#include "memoir/formats/timeline/export_timeline.h"
#include "memoir/formats/timeline/timeline.h"

namespace memoir {

namespace {

constexpr unsigned kProgram = 65'536;  // the process that the passes are of; devices are 0 to 65,535

class ChromeSink final : public TimelineSink {
 public:
  ChromeSink(const Trace& trace, Output& output) : trace_(trace), output_(output) {
    output_.put("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  }

  void finish() {
    output_.put("\n],\"stackFrames\":{");
    bool first = true;
    for (const Event& event : trace_.events()) {
      if (event.kind != EventKind::kSite) continue;
      std::string line = first ? "\n" : ",\n";
      first = false;
      line.append("\"").append(hex(event.site)).append("\":{\"name\":");
      append_json_string(line, trace_.site_name(event.site));
      if (event.size != kNoSite) line += ",\"parent\":\"" + hex(event.size) + "\"";
      output_.put(line + "}");
    }
    std::string tail = "\n},\"otherData\":{";
    first = true;
    for (const std::string_view key : trace_.meta_keys()) {
      if (!first) tail += ',';
      first = false;
      append_json_string(tail, key);
      tail += ':';
      append_json_string(tail, trace_.meta(key));
    }
    output_.put(tail + "}}\n");
  }

  void device(std::uint16_t number, bool) override {
    begin('M', number, 0);
    line_ += ",\"name\":\"process_name\",\"args\":{\"name\":\"device " + std::to_string(number) + "\"}";
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
    line_ += ",\"args\":{\"bytes\":" + std::to_string(allocation.size) +
             ",\"stream\":" + std::to_string(allocation.stream);
    if (address != nullptr) line_ += ",\"address\":\"" + hex(address->size) + "\"";
    if (address != nullptr && pool_of(*address) != 0)
      line_ += ",\"pool\":" + std::to_string(pool_of(*address));
    line_ += "}";
    if (trace_.site_parent(allocation.site)) line_ += ",\"sf\":\"" + hex(allocation.site) + "\"";
    end();
  }
  void ends(const Event& allocation, std::uint32_t, Tick time, bool freed) override {
    object('e', allocation, time);
    if (!freed) line_ += ",\"args\":{\"freed\":\"never\"}";
    end();
  }
  void free_requested(const Event& allocation, std::uint32_t, Tick time) override {
    begin('n', allocation.device, time);
    line_ += ",\"cat\":\"allocation\"," + id(allocation.object) + ",\"name\":\"free requested\"";
    end();
  }
  void out_of_memory(const Event& event) override {
    begin('i', event.device, event.time);
    line_ += ",\"s\":\"p\",\"cat\":\"out of memory\",\"name\":\"out of memory\",\"args\":{\"asked\":" +
             std::to_string(event.size) + ",\"free\":" + std::to_string(event.object) + "}";
    if (trace_.site_parent(event.site)) line_ += ",\"sf\":\"" + hex(event.site) + "\"";
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
    line_ += ",\"cat\":\"pass\",\"name\":\"pass " + std::to_string(event.object) + "\"";
    end();
  }

 private:
  void begin(char phase, unsigned process, Tick time, std::size_t thread = 0) {
    char text[128];
    std::snprintf(text, sizeof text, "%s\n{\"ph\":\"%c\",\"pid\":%u,\"tid\":%zu,\"ts\":%llu.%03llu",
                  first_ ? "" : ",", phase, process, thread, static_cast<unsigned long long>(time / 1000),
                  static_cast<unsigned long long>(time % 1000));
    first_ = false;
    line_ = text;
  }
  void end() {
    line_ += '}';
    output_.put(line_);
  }
  /// Perfetto calls it by its name and by its argument's: "live bytes".
  void counter(std::uint16_t device, Tick time, const std::string& name, Size bytes) {
    begin('C', device, time);
    line_ += ",\"name\":\"" + name + "\",\"args\":{\"bytes\":" + std::to_string(bytes) + "}";
    end();
  }
  void metadata(std::size_t lane, const std::string& name, const std::string& arguments) {
    begin('M', kProgram, 0, lane + 1);  // thread 0 is the idle one
    line_ += ",\"name\":\"" + name + "\",\"args\":{" + arguments + "}";
    end();
  }
  void new_lane(std::size_t lane) {
    lanes_.push_back(false);
    if (lane == 0) {
      metadata(lane, "process_name", "\"name\":\"passes\"");
      metadata(lane, "process_sort_index", "\"sort_index\":-1");  // above the devices
    }
    metadata(lane, "thread_name", "\"name\":\"passes\"");
  }
  /// Of the device alone: what has an id of the whole trace, Perfetto draws outside of every device.
  static std::string id(ObjectId object) { return "\"id2\":{\"local\":\"" + hex(object) + "\"}"; }
  void object(char phase, const Event& allocation, Tick time) {
    begin(phase, allocation.device, time);
    line_ += ",\"cat\":\"allocation\"," + id(allocation.object) + ",\"name\":";
    const std::string_view name = trace_.site_name(allocation.site);
    append_json_string(line_, name.empty() ? "allocation" : name);
  }

  const Trace& trace_;
  Output& output_;
  std::string line_;
  bool first_ = true;
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

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "memoir/base/hex.h"
#include "memoir/exchange/export_timeline.h"
#include "memoir/exchange/settings_json.h"
#include "memoir/exchange/timeline.h"

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
    counter(device, time, stream ? "live, stream " + std::to_string(*stream) : "live", bytes);
  }
  void reserved(std::uint16_t device, Tick time, Size bytes) override {
    counter(device, time, "reserved", bytes);
  }
  void begins(const Event& allocation, std::uint32_t, std::optional<Offset> address) override {
    object('b', allocation, allocation.time);
    line_ += ",\"args\":{\"bytes\":" + std::to_string(allocation.size) +
             ",\"stream\":" + std::to_string(allocation.stream);
    if (address) line_ += ",\"address\":\"" + hex(*address) + "\"";
    line_ += "}";
    if (trace_.site_parent(allocation.site)) line_ += ",\"sf\":\"" + hex(allocation.site) + "\"";
    end();
  }
  void ends(const Event& allocation, std::uint32_t, Tick time, bool freed) override {
    object('e', allocation, time);
    if (!freed) line_ += ",\"args\":{\"freed\":\"never\"}";
    end();
  }
  void free_requested(const Event& event, std::uint32_t) override {
    begin('n', event.device, event.time);
    line_ += ",\"cat\":\"allocation\",\"id\":\"" + hex(event.object) + "\",\"name\":\"free requested\"";
    end();
  }
  void out_of_memory(const Event& event) override {
    begin('i', event.device, event.time);
    line_ += ",\"s\":\"p\",\"cat\":\"out of memory\",\"name\":\"out of memory\",\"args\":{\"asked\":" +
             std::to_string(event.size) + ",\"free\":" + std::to_string(event.object) + "}";
    if (trace_.site_parent(event.site)) line_ += ",\"sf\":\"" + hex(event.site) + "\"";
    end();
  }
  void pass(const Event& event) override {
    if (!has_program_) {
      has_program_ = true;
      begin('M', kProgram, 0);
      line_ += ",\"name\":\"process_name\",\"args\":{\"name\":\"passes\"}";
      end();
    }
    begin(event.kind == EventKind::kPassBegin ? 'b' : 'e', kProgram, event.time);
    line_ += ",\"cat\":\"pass\",\"id\":\"" + hex(event.object) + "\",\"name\":\"pass " +
             std::to_string(event.object) + "\"";
    end();
  }

 private:
  void begin(char phase, unsigned process, Tick time) {
    char text[96];
    std::snprintf(text, sizeof text, "%s\n{\"ph\":\"%c\",\"pid\":%u,\"tid\":0,\"ts\":%llu.%03llu",
                  first_ ? "" : ",", phase, process, static_cast<unsigned long long>(time / 1000),
                  static_cast<unsigned long long>(time % 1000));
    first_ = false;
    line_ = text;
  }
  void end() {
    line_ += '}';
    output_.put(line_);
  }
  void counter(std::uint16_t device, Tick time, const std::string& name, Size bytes) {
    begin('C', device, time);
    line_ += ",\"name\":\"" + name + " bytes\",\"args\":{\"bytes\":" + std::to_string(bytes) + "}";
    end();
  }
  void object(char phase, const Event& allocation, Tick time) {
    begin(phase, allocation.device, time);
    line_ += ",\"cat\":\"allocation\",\"id\":\"" + hex(allocation.object) + "\",\"name\":";
    const std::string_view name = trace_.site_name(allocation.site);
    append_json_string(line_, name.empty() ? "allocation" : name);
  }

  const Trace& trace_;
  Output& output_;
  std::string line_;
  bool first_ = true;
  bool has_program_ = false;
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

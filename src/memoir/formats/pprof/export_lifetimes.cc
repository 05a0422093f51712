// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/pprof/export_lifetimes.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"
#include "memoir/base/utf8.h"
#include "memoir/formats/proto_writer.h"
#include "memoir/predict/profile/byte_sampling.h"

namespace memoir {

namespace {

using P = LifetimeProfile;

constexpr std::uint64_t kModuleSpan = std::uint64_t{1} << 40;  // modules lie so far apart in the export
constexpr std::uint64_t kMillisecond = 1'000'000;

std::uint64_t objects_of(const P::Estimate& estimate) {
  return estimate.objects / byte_sampling::kOne +
         (estimate.objects % byte_sampling::kOne >= byte_sampling::kOne / 2);
}

double as_double(const WideSum& sum) { return static_cast<double>(sum.value()); }

class PprofExport {
 public:
  explicit PprofExport(const P& profile) : profile_(profile), nameless_(profile.modules.size()) {
    string("");
    for (const P::Frame& frame : profile.frames) {
      if (frame.module != P::kNoModule && frame.name.size == 0) nameless_[frame.module] = true;
    }
  }

  std::string write() {
    for (const auto& [type, unit] : {std::pair{"allocated_objects", "count"},
                                     {"allocated_space", "bytes"},
                                     {"deallocated_objects", "count"},
                                     {"deallocated_space", "bytes"},
                                     {"censored_allocated_objects", "count"},
                                     {"censored_allocated_space", "bytes"}})
      out_.message(1, value_type(type, unit));
    for (size_t i = 0; i < profile_.contexts.size(); ++i) {
      for (const auto fate : {P::kFreed, P::kCensored}) {
        if (profile_.contexts[i].estimates[fate].samples > 0) out_.message(2, sample(i, fate));
      }
    }
    for (size_t i = 0; i < profile_.modules.size(); ++i) out_.message(3, mapping(i));
    for (std::uint32_t i = 0; i < profile_.frames.size(); ++i) out_.message(4, location(i));
    for (const auto& [name, number] : functions_) {
      ProtoWriter function;
      function.varint(1, number);
      function.varint(2, string(name));
      function.varint(3, string(name));
      out_.message(5, function);
    }
    std::uint64_t start = profile_.runs.empty() ? 0 : ~std::uint64_t{0};
    Size every = 0;
    for (const P::Run& run : profile_.runs) {
      start = std::min(start, run.start);
      every = std::max(every, run.every);
    }
    const std::uint64_t default_type = string("deallocated_space");
    const ProtoWriter period_type = value_type("space", "bytes");
    const std::vector<const std::string*> table = strings_in_order();
    for (const std::string* const text : table) out_.bytes(6, *text);
    out_.varint(9, start);
    out_.varint(10, profile_.totals.milliseconds * kMillisecond);
    out_.message(11, period_type);
    out_.varint(12, every);
    out_.varint(14, default_type);
    return std::string(out_.text());
  }

 private:
  std::uint64_t string(std::string_view text) {
    return strings_.try_emplace(std::string(text), strings_.size()).first->second;
  }
  std::vector<const std::string*> strings_in_order() const {
    std::vector<const std::string*> table(strings_.size());
    for (const auto& [text, number] : strings_) table[number] = &text;
    return table;
  }
  ProtoWriter value_type(const char* type, const char* unit) {
    ProtoWriter writer;
    writer.varint(1, string(type));
    writer.varint(2, string(unit));
    return writer;
  }
  void label(ProtoWriter& to, const char* key, std::uint64_t value, const char* unit) {
    if (value == 0) return;  // as TCMalloc does
    ProtoWriter label;
    label.varint(1, string(key));
    label.varint(3, value);
    label.varint(4, string(unit));
    to.message(3, label);
  }
  ProtoWriter sample(size_t number, P::Fate fate) {
    const P::Context& context = profile_.contexts[number];
    const P::Estimate& estimate = context.estimates[fate];
    const Tally& tally = context.tallies[fate][P::kMilliseconds];
    ProtoWriter writer;
    for (const std::uint32_t frame : profile_.stack(context)) writer.varint(1, frame + 1);
    const std::uint64_t objects = objects_of(estimate);
    for (const P::Fate column : {P::kFreed, P::kFreed, P::kCensored}) {  // allocated, deallocated, censored
      writer.varint(2, column == fate ? objects : 0);
      writer.varint(2, column == fate ? estimate.bytes : 0);
    }
    const double count = static_cast<double>(tally.count), mean = as_double(tally.sum) / count;
    const double variance = std::max(0.0, as_double(tally.squares) / count - mean * mean);
    const auto nanoseconds = [](double milliseconds) {
      return static_cast<std::uint64_t>(std::min(milliseconds * 1e6, 9e18));
    };
    label(writer, "bytes", objects == 0 ? 0 : estimate.bytes / objects, "bytes");
    label(writer, "callstack-pair-id", number + 1, "count");
    label(writer, "avg_lifetime", nanoseconds(mean), "nanoseconds");
    label(writer, "stddev_lifetime", nanoseconds(std::sqrt(variance)), "nanoseconds");
    label(writer, "min_lifetime", tally.least * kMillisecond, "nanoseconds");
    label(writer, "max_lifetime", tally.most * kMillisecond, "nanoseconds");
    return writer;
  }
  ProtoWriter mapping(size_t number) {
    const P::Module& module = profile_.modules[number];
    std::string id;
    for (std::uint32_t i = 0; i < module.id_size; ++i) {
      id += "0123456789abcdef"[module.id[i] >> 4];
      id += "0123456789abcdef"[module.id[i] & 15];
    }
    bool named = true;
    for (const P::Frame& frame : profile_.frames)
      named = named && (frame.module != number || frame.name.size > 0);
    ProtoWriter writer;
    writer.varint(1, number + 1);
    writer.varint(2, (number + 1) * kModuleSpan);
    writer.varint(3, (number + 2) * kModuleSpan);
    writer.varint(5, string(profile_.view(module.path)));
    writer.varint(6, string(id));
    if (!nameless_[number]) writer.varint(7, 1);  // pprof need not look for names
    return writer;
  }
  ProtoWriter location(std::uint32_t number) {
    const P::Frame& frame = profile_.frames[number];
    ProtoWriter writer;
    writer.varint(1, number + 1);
    if (frame.module != P::kNoModule) {
      writer.varint(2, frame.module + 1);
      // The call, not where it returns to.
      writer.varint(
          3, (frame.module + 1) * kModuleSpan + std::min(frame.offset, kModuleSpan - 1) - (frame.offset > 0));
    }
    const std::string all = frame.name.size > 0 ? std::string(profile_.view(frame.name)) : "";
    for (std::string_view rest = all; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      ProtoWriter line;
      line.varint(
          1, functions_.try_emplace(std::string(rest.substr(0, end)), functions_.size() + 1).first->second);
      writer.message(4, line);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return writer;
  }

  const P& profile_;
  std::vector<bool> nameless_;  // modules with frames without a name
  ProtoWriter out_;
  std::map<std::string, std::uint64_t> strings_, functions_;
};

void fold(const P& profile, Output& output) {
  constexpr size_t kMostName = 1000;
  std::string line;
  for (const P::Context& context : profile.contexts) {
    line = context.flags & P::kCut ? "[cut]" : "";
    const auto frames = profile.stack(context);
    for (size_t i = frames.size(); i-- > 0;) {
      std::string names = frame_names(profile, frames[i]);
      std::replace(names.begin(), names.end(), ';', ',');
      while (!names.empty()) {  // the function first, then what is inlined into it
        const size_t begin = names.rfind('\n') + 1;
        if (!line.empty()) line += ';';
        line += valid_utf8(std::string_view(names).substr(begin, kMostName));
        names.resize(begin == 0 ? 0 : begin - 1);
      }
    }
    if (line.empty()) line = "[unknown]";
    Size bytes = 0;
    for (const P::Estimate& estimate : context.estimates) bytes = add_up_to_most(bytes, estimate.bytes);
    output.put(line);
    output.put(' ');
    output.put(std::to_string(bytes));
    output.put('\n');
  }
}

}  // namespace

std::string frame_names(const P& profile, std::uint32_t number) {
  const P::Frame& frame = profile.frames[number];
  if (frame.name.size > 0) return std::string(profile.view(frame.name));
  if (frame.module == P::kNoModule) return "[unknown]";
  const std::string_view path = profile.view(profile.modules[frame.module].path);
  return std::string(path.substr(path.rfind('/') + 1)) + "+" + hex(frame.offset);
}

void export_lifetimes(const P& profile, std::string_view format, Output& output) {
  if (format == "pprof") output.put(PprofExport(profile).write());
  else if (format == "folded") fold(profile, output);
  else
    throw Error("no format '" + std::string(format) + "' of a lifetime profile: there are pprof and folded");
  output.flush();
}

}  // namespace memoir

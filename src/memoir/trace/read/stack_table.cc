// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/stack_table.h"

#include <algorithm>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"
#include "memoir/trace/format.h"

namespace memoir {

using trace_format::Operation;

namespace {

std::string_view file_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

std::uint32_t small(std::uint64_t value) {
  if (value > ~std::uint32_t{0}) throw Error("a number of a definition is 2^32 or more");
  return static_cast<std::uint32_t>(value);
}

}  // namespace

/// The entry of an id; ids are dense, so that a table is no longer than what is read.
template <class T>
T& StackTable::at(std::vector<T>& of, std::uint64_t id, std::uint64_t most, const char* what) {
  if (id == 0 || id > most) {
    throw Error(std::string(what) + " " + std::to_string(id) + " cannot be: ids are dense, from 1 on");
  }
  if (id >= of.size()) of.resize(static_cast<std::size_t>(id) + 1);
  return of[static_cast<std::size_t>(id)];
}

void StackTable::define(const BlockDecoder::Item& item, Tick time, std::uint64_t most) {
  const auto& fields = item.numbers;
  switch (item.operation) {
    case Operation::kString:
      if (item.text.size() > trace_format::kMaxSiteText) throw Error("a string has over 4,096 bytes");
      at(strings_, fields[0], most / 3, "string") = texts_.emplace_back(item.text);
      break;
    case Operation::kModule:
      define_module(item, time);
      break;
    case Operation::kModuleGone:
      if (const auto gone = modules_.find(fields[0]); gone != modules_.end())
        gone->second.module.unloaded = time;
      break;
    case Operation::kNativeFrame:
      at(frames_, fields[0], most / 4, "frame") = {FrameKind::kNative, small(fields[1]), 0, fields[2], 0};
      break;
    case Operation::kPythonFrame:
      at(frames_, fields[0], most / 4, "frame") = {FrameKind::kPython, small(fields[1]), small(fields[2]),
                                                   fields[3], 0};
      break;
    case Operation::kNamedFrame:
      if (fields[1] == 0 || fields[1] > static_cast<std::uint64_t>(FrameKind::kOther)) {
        throw Error("a frame of the unknown kind " + std::to_string(fields[1]));
      }
      at(frames_, fields[0], most / 4, "frame") = {static_cast<FrameKind>(fields[1]), small(fields[2]), 0, 0,
                                                   0};
      break;
    case Operation::kStack:
      define_stack(item, most);
      break;
    case Operation::kSymbol: {
      NumberReader numbers(item.list);
      std::vector<Line>& lines = symbols_[fields[0]][fields[1]];
      lines.clear();
      for (std::uint64_t i = 0; i < fields[2]; ++i) {
        Line line;
        line.function = small(numbers.next());
        line.file = small(numbers.next());
        line.line = small(numbers.next());
        lines.push_back(line);
      }
      has_new_symbols_ = true;
      break;
    }
    default:
      break;
  }
}

void StackTable::define_module(const BlockDecoder::Item& item, Tick time) {
  const auto& fields = item.numbers;  // id, path, base, ranges
  Module& module = modules_[fields[0]];
  module.path = small(fields[1]);
  module.module.id = small(fields[0]);
  module.module.base = fields[2];
  module.module.loaded = time;
  module.module.build_id.clear();
  for (const char byte : item.text) {
    constexpr char kDigits[] = "0123456789abcdef";
    module.module.build_id += kDigits[static_cast<unsigned char>(byte) >> 4];
    module.module.build_id += kDigits[byte & 15];
  }
  module.module.ranges.clear();
  NumberReader numbers(item.list);
  for (std::uint64_t i = 0; i < fields[3]; ++i) {
    ProcessRecord::Module::Range range;
    range.begin = numbers.next();
    range.size = numbers.next();
    range.file_offset = numbers.next();
    range.protection = static_cast<std::uint32_t>(numbers.next() & 7);
    module.module.ranges.push_back(range);
  }
}

void StackTable::define_stack(const BlockDecoder::Item& item, std::uint64_t most) {
  std::uint64_t node = item.numbers[0];
  std::uint64_t parent = item.numbers[1];
  NumberReader numbers(item.list);
  for (std::uint64_t i = 0; i < item.numbers[2]; ++i, ++node) {
    if (parent >= node) throw Error("stack " + std::to_string(node) + " stands below its parent");
    const std::uint32_t frame = small(numbers.next());
    if (frame == 0) throw Error("stack " + std::to_string(node) + " has no frame");
    at(nodes_, node, most, "stack") = {small(parent), frame, kNoSite, kNoSite};
    if (node < resolved_nodes_) resolved_nodes_ = static_cast<std::size_t>(node);
    parent = node;
  }
}

std::string_view StackTable::string(std::uint64_t id) const noexcept {
  return id < strings_.size() ? strings_[static_cast<std::size_t>(id)] : std::string_view{};
}

std::string_view StackTable::module_path(std::uint32_t module) const noexcept {
  const auto found = modules_.find(module);
  return found == modules_.end() ? std::string_view{} : string(found->second.path);
}

std::vector<NativeAddress> StackTable::native_addresses() const {
  std::vector<NativeAddress> all;
  for (const Frame& frame : frames_)
    if (frame.kind == FrameKind::kNative) all.push_back({frame.name, frame.at});
  return all;
}

std::string_view StackTable::module_of(std::uint32_t frame) const noexcept {
  if (frame >= frames_.size() || frames_[frame].kind != FrameKind::kNative) return {};
  return module_path(frames_[frame].name);
}

std::vector<ProcessRecord::Module> StackTable::modules() const {
  std::vector<ProcessRecord::Module> all;
  for (const auto& [id, module] : modules_) {
    all.push_back(module.module);
    all.back().path = string(module.path);
  }
  std::sort(all.begin(), all.end(), [](const auto& one, const auto& other) { return one.id < other.id; });
  return all;
}

const std::vector<StackTable::Line>* StackTable::lines_of(const Frame& frame) const {
  if (frame.kind != FrameKind::kNative) return nullptr;
  const auto module = symbols_.find(frame.name);
  if (module == symbols_.end()) return nullptr;
  const auto found = module->second.find(frame.at);
  return found == module->second.end() || found->second.empty() ? nullptr : &found->second;
}

/// As people read it. Long names are cut where they are put together: a few bytes of a file must not become
/// thousands in memory.
std::string_view StackTable::name_of(const Frame& frame) {
  constexpr Size kMostPart = 128;
  if (frame.kind == FrameKind::kNone) return "(unknown)";
  if (frame.kind == FrameKind::kPython) {
    const std::string function(trace_format::cut_text(string(frame.name), kMostPart));
    const std::string file(trace_format::cut_text(file_name(string(frame.file)), kMostPart));
    return composed_.emplace_back(function + " (" + file + ":" + std::to_string(frame.at) + ")");
  }
  if (frame.kind != FrameKind::kNative) return string(frame.name);
  if (const auto* lines = lines_of(frame); lines != nullptr && lines->front().function != 0) {
    return string(lines->front().function);
  }
  const std::string_view path = module_path(frame.name);
  if (path.empty()) return composed_.emplace_back(hex(frame.at));
  const std::string file(trace_format::cut_text(file_name(path), kMostPart));
  return composed_.emplace_back(file + "+" + hex(frame.at));
}

std::uint64_t StackTable::hash_of_string(std::uint32_t id) {
  if (id >= strings_.size()) return hash_name({});
  hashes_.resize(strings_.size());
  if (hashes_[id] == 0) hashes_[id] = hash_name(strings_[id]);
  return hashes_[id];
}

/// What goes into site ids.
std::uint64_t StackTable::hash_of(const Frame& frame) {
  if (frame.kind == FrameKind::kPython) {
    return detail::mix(hash_of_string(frame.name) + detail::mix(hash_of_string(frame.file) + frame.at));
  }
  if (frame.kind != FrameKind::kNative) return hash_of_string(frame.name);
  const auto found = modules_.find(frame.name);
  if (found == modules_.end()) return detail::mix(frame.at);
  Module& module = found->second;
  if (module.hash == 0) {
    module.hash = hash_name(module.module.build_id.empty() ? file_name(string(module.path))
                                                           : std::string_view(module.module.build_id));
  }
  return detail::mix(module.hash + frame.at);
}

void StackTable::resolve(SiteTable& sites) {
  for (; resolved_frames_ < frames_.size(); ++resolved_frames_) {
    Frame& frame = frames_[resolved_frames_];
    frame.hash = hash_of(frame);
    names_.push_back(name_of(frame));
  }
  if (has_new_symbols_) {
    for (std::size_t i = 0; i < frames_.size(); ++i) {
      if (lines_of(frames_[i]) != nullptr) names_[i] = name_of(frames_[i]);
    }
    sites.rename(names_);
    has_new_symbols_ = false;
  }
  constexpr std::string_view kUnknown = "(unknown)";
  if (keeps_operators_) sites.add(kNoOperator, kNoSite, kNoOperatorName, FrameKind::kOperator, 0);
  for (; resolved_nodes_ < nodes_.size(); ++resolved_nodes_) {
    Node& node = nodes_[resolved_nodes_];
    if (node.frame == 0) continue;
    const bool known = node.frame < frames_.size();
    const SiteId parent = site(node.parent);
    node.site = child_site_of_hash(parent, known ? frames_[node.frame].hash : hash_name(kUnknown));
    sites.add(node.site, parent, known ? names_[node.frame] : kUnknown,
              known ? frames_[node.frame].kind : FrameKind::kOther, known ? node.frame : 0);
    if (!keeps_operators_) continue;
    node.operators = node.parent < nodes_.size() ? nodes_[node.parent].operators : kNoSite;
    if (!known || frames_[node.frame].kind != FrameKind::kOperator) continue;
    const SiteId outer = node.operators;
    // As base/scope_stack.h has it: a run finds its requests by these ids.
    node.operators = child_site_of_hash(outer == kNoSite ? kNoOperator : outer, frames_[node.frame].hash);
    sites.add(node.operators, outer, names_[node.frame], FrameKind::kOperator, node.frame);
  }
}

void StackTable::append_frames(std::uint32_t number, std::vector<StackFrame>& to) const {
  if (number >= frames_.size()) return;
  const Frame& frame = frames_[number];
  StackFrame seen;
  seen.kind = frame.kind;
  if (frame.kind != FrameKind::kNative) {
    seen.function = string(frame.name);
    seen.file = string(frame.file);
    if (frame.kind == FrameKind::kPython) seen.line = static_cast<std::uint32_t>(frame.at);
    to.push_back(seen);
    return;
  }
  seen.module = module_path(frame.name);
  seen.offset = frame.at;
  const std::vector<Line>* const lines = lines_of(frame);
  if (lines == nullptr) {
    to.push_back(seen);
    return;
  }
  const auto outermost = lines->rbegin() + (lines->size() - std::min(lines->size(), kMostInlined));
  for (auto line = outermost; line != lines->rend(); ++line) {  // the innermost is the first
    seen.is_inlined = line != outermost;
    seen.function = string(line->function);
    seen.file = string(line->file);
    seen.line = line->line;
    to.push_back(seen);
  }
}

}  // namespace memoir

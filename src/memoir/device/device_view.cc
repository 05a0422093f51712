// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/device_view.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>

#include "memoir/base/hex.h"

namespace memoir {

namespace {

std::string stream_text(cuda::Stream stream) {
  return stream == nullptr ? "the default stream" : "stream " + hex(reinterpret_cast<std::uint64_t>(stream));
}

std::string site_text(SiteId site, const SiteNames& names) {
  if (site == kNoSite) return "an unknown site";
  const std::string name = names ? names(site) : "";
  return name.empty() ? "site " + hex(site) : name;
}

struct Holder {
  std::string who;
  Size bytes = 0;
  std::uint64_t objects = 0;
};

/// The largest holders by what `who` calls them, as "12.0 MiB in 3 by X".
template <class Who>
std::string holders(const DeviceView& view, size_t most, Who who) {
  std::map<std::string, Holder> found;
  for (const DeviceView::Object& object : view.objects) {
    Holder& holder = found[who(object)];
    holder.bytes += object.size;
    ++holder.objects;
  }
  std::vector<Holder> sorted;
  for (auto& [name, holder] : found) sorted.push_back({name, holder.bytes, holder.objects});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  std::string text;
  for (size_t i = 0; i < sorted.size() && i < most; ++i) {
    text += "\n    " + bytes_text(sorted[i].bytes) + " in " + std::to_string(sorted[i].objects) + ": " +
            sorted[i].who;
  }
  if (sorted.size() > most) text += "\n    and " + std::to_string(sorted.size() - most) + " more";
  return text;
}

/// Calls visit(address, size, object or nullptr) for what lies in the segment, by address.
template <class Visit>
void for_each_block(const DeviceView& view, const DeviceView::Segment& segment, Visit visit) {
  const cuda::Address end = segment.address + segment.size;
  auto object =
      std::lower_bound(view.objects.begin(), view.objects.end(), segment.address,
                       [](const DeviceView::Object& o, cuda::Address at) { return o.address < at; });
  cuda::Address at = segment.address;
  for (; object != view.objects.end() && object->address < end; ++object) {
    if (object->address > at) visit(at, object->address - at, nullptr);
    const Size held = std::min<Size>(std::max(object->held, object->size), end - object->address);
    visit(object->address, held, &*object);
    at = object->address + held;
  }
  if (at < end) visit(at, end - at, nullptr);
}

const char* action_name(DeviceAction action) {
  switch (action) {
    case DeviceAction::kAlloc:
      return "alloc";
    case DeviceAction::kFreeRequested:
      return "free_requested";
    case DeviceAction::kFreeCompleted:
      return "free_completed";
    case DeviceAction::kSegmentAlloc:
      return "segment_alloc";
    case DeviceAction::kSegmentFree:
      return "segment_free";
    case DeviceAction::kSegmentMap:
      return "segment_map";
    case DeviceAction::kSegmentUnmap:
      return "segment_unmap";
    case DeviceAction::kOutOfMemory:
      return "oom";
  }
  return "";
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) json += c;
  }
  return json + '"';
}

std::string field(const char* name, std::uint64_t value) {
  return '"' + std::string(name) + "\": " + std::to_string(value);
}

std::string frames(SiteId site, const SiteNames& names) {
  if (site == kNoSite) return "\"frames\": []";
  return "\"frames\": [{\"filename\": \"memoir\", \"line\": 0, \"name\": " + quoted(site_text(site, names)) +
         "}]";
}

std::string pool_field(const char* name, DevicePoolId pool) {
  return '"' + std::string(name) + "\": [" + std::to_string(pool.first) + ", " + std::to_string(pool.second) +
         "]";
}

std::string stat_json(const char* name, const DeviceStat& stat) {
  return '"' + std::string(name) + "\": {" + field("current", stat.current) + ", " +
         field("peak", stat.peak) + ", " + field("allocated", stat.allocated) + ", " +
         field("freed", stat.freed) + "}";
}

}  // namespace

std::string bytes_text(Size bytes) {
  char text[32];
  if (bytes >= kGiB) {
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  } else if (bytes >= kMiB) {
    std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  } else if (bytes >= kKiB) {
    std::snprintf(text, sizeof text, "%.2f KiB", static_cast<double>(bytes) / static_cast<double>(kKiB));
  } else {
    std::snprintf(text, sizeof text, "%" PRIu64 " bytes", bytes);
  }
  return text;
}

std::string out_of_memory_text(const DeviceView& view, const FailedRequest& request, const SiteNames& names) {
  Size live = 0, pending = 0, largest = 0;
  std::uint64_t live_objects = 0;
  for (const DeviceView::Object& object : view.objects) {
    (object.pending ? pending : live) += object.size;
    live_objects += !object.pending;
  }
  for (const DeviceView::Segment& segment : view.segments) {
    for_each_block(view, segment, [&](cuda::Address, Size size, const DeviceView::Object* object) {
      if (object == nullptr) largest = std::max(largest, size);
    });
  }
  // What this process could hold at most: the cap, or what it holds and what the device still has.
  const Size limit = std::min(view.cap, view.held + view.free_now);
  const Size room = limit - std::min(limit, live + pending);
  std::string text = "memoir: out of memory on device " + std::to_string(view.device) + " (" + view.name +
                     "), policy " + view.policy + ": " + bytes_text(request.size) + " asked for on " +
                     stream_text(request.stream);
  if (request.site != kNoSite) text += " by " + site_text(request.site, names);
  if (request.pool != DevicePoolId{}) text += ", in a graph's pool";
  text += ".\n  live " + bytes_text(live) + " in " + std::to_string(live_objects) +
          " objects, freed but still used by other streams " + bytes_text(pending) + ", reserved " +
          bytes_text(view.held) + ", largest free range in it " + bytes_text(largest) + ";\n  cap " +
          bytes_text(view.cap) + (view.cap < view.total ? "" : " (the whole device)") +
          ", free on the device " + bytes_text(view.free_now) + " of " + bytes_text(view.total) +
          ", held by others " + bytes_text(view.total - std::min(view.total, view.held + view.free_now)) +
          ".\n  ";
  if (request.size <= room) {
    text += "A layout without holes could have held it (" + bytes_text(room) +
            " are not live): memory is fragmented, or kept by other pools.";
  } else {
    text += "No layout could have held it: only " + bytes_text(room) + " are not live, " +
            bytes_text(request.size - room) + " too little.";
  }
  if (!request.tried.empty()) text += "\n  tried: " + request.tried;
  if (view.in_capture) text += "\n  a graph is being captured: memory cannot be given back until its end";
  if (!view.last_failure.empty()) text += "\n  the driver's last trouble: " + view.last_failure;
  if (!view.objects.empty()) {
    const bool sites = std::any_of(view.objects.begin(), view.objects.end(),
                                   [](const DeviceView::Object& object) { return object.site != kNoSite; });
    if (sites) {
      text += "\n  largest sites:" + holders(view, 5, [&](const DeviceView::Object& object) {
                return site_text(object.site, names);
              });
    }
    text += "\n  largest streams:" + holders(view, 3, [](const DeviceView::Object& object) {
              return stream_text(object.stream) + (object.pool == DevicePoolId{} ? "" : ", a graph's pool");
            });
    const auto most = std::max_element(
        view.objects.begin(), view.objects.end(),
        [](const DeviceView::Object& a, const DeviceView::Object& b) { return a.size < b.size; });
    text += "\n  largest object: " + bytes_text(most->size) + " of " + site_text(most->site, names);
  }
  return text;
}

std::string stats_json(const DeviceView& view) {
  const DeviceStats& stats = view.stats;
  return "{" + field("device", static_cast<std::uint64_t>(view.device)) + ", \"name\": " + quoted(view.name) +
         ", \"policy\": " + quoted(view.policy) + ", " + field("total_bytes", view.total) + ", " +
         field("cap_bytes", view.cap) + ", " + stat_json("allocation", stats.objects) + ", " +
         stat_json("allocated_bytes", stats.allocated_bytes) + ", " +
         stat_json("active", stats.active_objects) + ", " + stat_json("active_bytes", stats.active_bytes) +
         ", " + stat_json("segment", stats.segments) + ", " +
         stat_json("reserved_bytes", stats.reserved_bytes) + ", " +
         field("num_alloc_retries", stats.retries) + ", " + field("num_ooms", stats.ooms) + ", " +
         field("num_device_alloc", view.device_calls.takes + view.device_calls.commits) + ", " +
         field("num_device_free", view.device_calls.give_backs + view.device_calls.decommits) + ", " +
         field("num_device_refusals", view.device_calls.refusals) + ", " +
         field("num_stream_waits", view.stream_calls.waits) + ", " +
         field("num_events", view.stream_calls.records) + ", " +
         field("num_sync_all_streams", view.stream_calls.quiets) + ", " +
         field("num_loop_plans", view.loops.plans) + ", " +
         field("num_loop_plans_dropped", view.loops.dropped) + ", " +
         field("num_planned_allocs", view.loops.planned) + ", " +
         field("num_departed_allocs", view.loops.departed) + "}";
}

std::string snapshot_json(const DeviceView& view, const SiteNames& names) {
  std::string json = "{\"segments\": [";
  const char* separator = "";
  for (const DeviceView::Segment& segment : view.segments) {
    Size allocated = 0, active = 0;
    std::string blocks;
    const char* block_separator = "";
    for_each_block(view, segment, [&](cuda::Address address, Size size, const DeviceView::Object* object) {
      const char* state = object == nullptr ? "inactive"
                          : object->pending ? "active_pending_free"
                                            : "active_allocated";
      if (object != nullptr) active += size;
      if (object != nullptr && !object->pending) allocated += size;
      blocks += std::string(block_separator) + "{" + field("address", address) + ", " + field("size", size) +
                ", " + field("requested_size", object == nullptr ? 0 : object->size) + ", \"state\": \"" +
                state + "\", " + frames(object == nullptr ? kNoSite : object->site, names) + "}";
      block_separator = ", ";
    });
    json += std::string(separator) + "{" + field("device", static_cast<std::uint64_t>(view.device)) + ", " +
            field("address", segment.address) + ", " + field("total_size", segment.size) + ", " +
            field("allocated_size", allocated) + ", " + field("active_size", active) + ", " +
            field("requested_size", allocated) + ", " +
            field("stream", reinterpret_cast<std::uint64_t>(segment.stream)) +
            ", \"segment_type\": \"large\", " + pool_field("segment_pool_id", segment.pool) +
            ", \"is_expandable\": " + (segment.mapped ? "true" : "false") +
            ", \"frames\": [], \"blocks\": [" + blocks + "]}";
    separator = ",\n ";
  }
  json += "],\n \"trace\": [";
  separator = "";
  for (const DeviceEntry& entry : view.history) {
    json += std::string(separator) + "{\"action\": \"" + action_name(entry.action) + "\", " +
            field(entry.action == DeviceAction::kOutOfMemory ? "device_free" : "addr", entry.address) + ", " +
            field("size", entry.size) + ", " +
            field("stream", reinterpret_cast<std::uint64_t>(entry.stream)) + ", " +
            field("time_us", static_cast<std::uint64_t>(entry.time_us)) + ", " + frames(entry.site, names) +
            "}";
    separator = ",\n ";
  }
  return json + "]}";
}

}  // namespace memoir

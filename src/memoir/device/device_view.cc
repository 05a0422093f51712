// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/device_view.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>

#include "memoir/base/hex.h"
#include "memoir/base/json.h"

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

void write_frames(JsonWriter& json, SiteId site, const SiteNames& names) {
  json.key("frames").begin_array();
  if (site != kNoSite) {
    json.begin_object().key("filename").value("memoir").key("line").value(0);
    json.key("name").value(site_text(site, names)).end_object();
  }
  json.end_array();
}

void write_stat(JsonWriter& json, const char* name, const DeviceStat& stat) {
  json.key(name).begin_object();
  json.key("current").value(stat.current).key("peak").value(stat.peak);
  json.key("allocated").value(stat.allocated).key("freed").value(stat.freed).end_object();
}

void write_segment(JsonWriter& json, const DeviceView& view, const DeviceView::Segment& segment,
                   const SiteNames& names) {
  Size allocated = 0, active = 0;
  for_each_block(view, segment, [&](cuda::Address, Size size, const DeviceView::Object* object) {
    if (object != nullptr) active += size;
    if (object != nullptr && !object->pending) allocated += size;
  });
  json.begin_object().key("device").value(view.device);
  json.key("address").value(segment.address).key("total_size").value(segment.size);
  json.key("allocated_size").value(allocated).key("active_size").value(active);
  json.key("requested_size").value(allocated);
  json.key("stream")
      .value(reinterpret_cast<std::uint64_t>(segment.stream))
      .key("segment_type")
      .value("large");
  json.key("segment_pool_id").begin_array().value(segment.pool.first).value(segment.pool.second).end_array();
  json.key("is_expandable").value(segment.mapped).key("frames").begin_array().end_array();
  json.key("blocks").begin_array();
  for_each_block(view, segment, [&](cuda::Address address, Size size, const DeviceView::Object* object) {
    json.begin_object().key("address").value(address).key("size").value(size);
    json.key("requested_size").value(object == nullptr ? 0 : object->size);
    json.key("state").value(object == nullptr ? "inactive"
                            : object->pending ? "active_pending_free"
                                              : "active_allocated");
    write_frames(json, object == nullptr ? kNoSite : object->site, names);
    json.end_object();
  });
  json.end_array().end_object();
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
  if (!view.last_failure.empty()) text += "\n  the driver's last error: " + view.last_failure;
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
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("device").value(view.device).key("name").value(view.name);
  json.key("policy").value(view.policy).key("total_bytes").value(view.total).key("cap_bytes").value(view.cap);
  write_stat(json, "allocation", stats.objects);
  write_stat(json, "allocated_bytes", stats.allocated_bytes);
  write_stat(json, "active", stats.active_objects);
  write_stat(json, "active_bytes", stats.active_bytes);
  write_stat(json, "segment", stats.segments);
  write_stat(json, "reserved_bytes", stats.reserved_bytes);
  json.key("num_alloc_retries").value(stats.retries).key("num_ooms").value(stats.ooms);
  json.key("num_device_alloc").value(view.device_calls.takes + view.device_calls.commits);
  json.key("num_device_free").value(view.device_calls.give_backs + view.device_calls.decommits);
  json.key("num_device_creates").value(view.device_calls.creates);
  json.key("num_device_releases").value(view.device_calls.releases);
  json.key("num_device_maps").value(view.device_calls.commits);
  json.key("num_device_unmaps").value(view.device_calls.decommits);
  json.key("num_device_accesses").value(view.device_calls.accesses);
  json.key("spare_bytes").value(view.spare);
  json.key("num_device_refusals").value(view.device_calls.refusals);
  json.key("num_stream_waits").value(view.stream_calls.waits);
  json.key("num_events").value(view.stream_calls.records);
  json.key("num_sync_all_streams").value(view.stream_calls.quiets);
  json.key("sync_all_streams_ns").value(view.stream_calls.quiet_time);
  json.key("sync_all_streams_ns_max").value(view.stream_calls.longest_quiet);
  json.key("num_loop_plans").value(view.loops.plans);
  json.key("num_loop_plans_dropped").value(view.loops.dropped);
  json.key("num_planned_allocs").value(view.loops.planned);
  json.key("num_departed_allocs").value(view.loops.departed).end_object();
  return text;
}

std::string snapshot_json(const DeviceView& view, const SiteNames& names) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("segments").begin_array();
  for (const DeviceView::Segment& segment : view.segments) {
    json.next_line(" ");
    write_segment(json, view, segment, names);
  }
  json.end_array().next_line(" ").key("trace").begin_array();
  for (const DeviceEntry& entry : view.history) {
    json.next_line(" ").begin_object().key("action").value(action_name(entry.action));
    json.key(entry.action == DeviceAction::kOutOfMemory ? "device_free" : "addr").value(entry.address);
    json.key("size").value(entry.size).key("stream").value(reinterpret_cast<std::uint64_t>(entry.stream));
    json.key("time_us").value(entry.time_us);
    write_frames(json, entry.site, names);
    json.end_object();
  }
  json.end_array().end_object();
  return text;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/device_view.h"

#include "doctest/doctest.h"

namespace memoir {
namespace {

DeviceView one_object() {
  DeviceView view;
  view.policy = "memoir";
  view.name = "a \"GPU\"\x01";
  view.objects.resize(1);
  view.objects[0].address = 0x1000;
  view.objects[0].size = 100;
  view.objects[0].held = 512;
  view.objects[0].site = 7;
  view.segments.resize(1);
  view.segments[0].address = 0x1000;
  view.segments[0].size = 1024;
  view.history.resize(2);
  return view;
}

}  // namespace

TEST_CASE("a snapshot as JSON: every field, and names as they are") {
  const SiteNames names = [](SiteId) { return "conv\n\xff\"1\""; };
  CHECK(
      snapshot_json(one_object(), names) ==
      R"({"segments": [{"device": 0, "address": 4096, "total_size": 1024, "allocated_size": 512, )"
      R"("active_size": 512, "requested_size": 512, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0], )"
      R"("is_expandable": false, "frames": [], "blocks": [{"address": 4096, "size": 512, )"
      R"("requested_size": 100, "state": "active_allocated", "frames": [{"filename": "memoir", "line": 0, )"
      "\"name\": \"conv\\u000a\xef\xbf\xbd\\\"1\\\"\"}]}, "
      R"({"address": 4608, "size": 512, "requested_size": 0, "state": "inactive", "frames": []}]}],)"
      "\n \"trace\": ["
      R"({"action": "alloc", "addr": 0, "size": 0, "stream": 0, "time_us": 0, "frames": []},)"
      "\n "
      R"({"action": "alloc", "addr": 0, "size": 0, "stream": 0, "time_us": 0, "frames": []}]})");
}

TEST_CASE("statistics as JSON: a name with quotes and control characters") {
  const std::string json = stats_json(one_object());
  CHECK(json.starts_with(R"({"device": 0, "name": "a \"GPU\"\u0001", "policy": "memoir", "total_bytes": )"));
  CHECK(json.find(
            R"("allocation": {"current": 0, "peak": 0, "allocated": 0, "freed": 0}, "allocated_bytes": )") !=
        json.npos);
  CHECK(json.ends_with(R"("num_departed_allocs": 0})"));
}

}  // namespace memoir

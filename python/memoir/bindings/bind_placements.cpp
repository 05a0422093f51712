// SPDX-License-Identifier: Apache-2.0
//
// Where a policy puts every object of a workload, as columns for a picture.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "columns.h"
#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/simulate/memory/held_log.h"
#include "memoir/simulate/restored_run.h"
#include "memoir/simulate/restored_state.h"
#include "memoir/simulate/simulated_heap.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

/// By object: its first event, its last (kNever), bytes, site, stream, place, and the bytes held for it. By
/// step: its event and what is reserved after it.
struct Placements {
  std::vector<std::uint64_t> object, born, died, size, site, stream, space, offset, held;
  std::vector<std::uint64_t> event, reserved;
  HeldLog segments;
  std::vector<HeldLog::Row> rows;  // what the device had handed out when the last step was done
};

Placements place_all(const Workload& workload, const std::string& policy, Size cap,
                     const std::string& recorded) {
  Placements all;
  std::optional<RestoredState> start;
  if (!recorded.empty()) start = restored_state(workload, recorded);
  const std::unique_ptr<SimulatedHeap> simulated =
      make_policy(policy, workload, cap, false, start ? &*start : nullptr, &all.segments);
  std::optional<RestoredRun> restored;
  if (simulated->restored() != nullptr) restored.emplace(workload, *simulated, *start, policy);
  const auto objects = workload.objects();
  const auto steps = workload.steps();
  for (const Workload::Object& object : objects) {
    all.object.push_back(object.id);
    all.born.push_back(steps[object.begin].event);
    all.died.push_back(object.end < steps.size() ? steps[object.end].event : kNever);
    all.size.push_back(object.size);
    all.site.push_back(object.site);
    all.stream.push_back(object.stream);
  }
  all.space.resize(objects.size());
  all.offset.resize(objects.size(), kNoOffset);
  all.held.resize(objects.size());
  std::vector<bool> is_live(objects.size());
  const auto keep = [&](std::uint32_t object, Offset offset) {
    all.offset[object] = offset;
    all.space[object] = simulated->space(objects[object].pool, objects[object].stream);
    is_live[object] = true;
    all.held[object] = simulated->heap(objects[object].pool, objects[object].stream).size_of(offset);
  };
  size_t at = 0;
  if (restored) {
    for (; at < workload.start_steps(); ++at)
      keep(steps[at].object, restored->start_offset(steps[at].object));
  }
  for (; at < steps.size(); ++at) {
    const Workload::Step& step = steps[at];
    all.segments.at(step.event);
    simulated->tick(step.time);
    if (restored) restored->before(at);
    const Workload::Object& object = objects[step.object];
    if (step.kind == Workload::Kind::kAllocate) {
      const Offset offset = simulated->allocate(object);
      if (restored) restored->placed(step, offset);
      if (offset == kNoOffset) break;  // the picture ends where memory ran out
      keep(step.object, offset);
    } else if (is_live[step.object]) {
      MEMOIR_CHECK(simulated->free(object, all.offset[step.object]), "a heap frees what it handed out");
      is_live[step.object] = false;
    }
    all.event.push_back(step.event);
    all.reserved.push_back(simulated->reserved());
  }
  all.rows = all.segments.rows();
  for (size_t i = 0; i < objects.size(); ++i) {
    if (is_live[i]) simulated->free(objects[i], all.offset[i]);
  }
  return all;
}

/// By range that the device handed out.
void add_segments(nb::dict& columns, const Placements& all) {
  std::vector<std::uint64_t> space, begin, size, born, died;
  for (const HeldLog::Row& row : all.rows) {
    space.push_back(row.space);
    begin.push_back(row.range.begin);
    size.push_back(row.range.size);
    born.push_back(row.born);
    died.push_back(row.died);
  }
  columns["segment_space"] = to_array(std::move(space));
  columns["segment_offset"] = to_array(std::move(begin));
  columns["segment_size"] = to_array(std::move(size));
  columns["segment_born"] = to_array(std::move(born));
  columns["segment_died"] = to_array(std::move(died));
  columns["segments_are_mapped"] = array({std::uint64_t{all.segments.is_mapped()}});
}

}  // namespace

void bind_placements(nb::module_& module) {
  module.def(
      "placements",
      [](const Workload& workload, const std::string& policy, std::optional<Size> cap,
         const std::string& recorded) {
        Placements all;
        {
          const nb::gil_scoped_release released;
          all = place_all(workload, policy, cap.value_or(kNoCap), recorded);
        }
        nb::dict columns;
        columns["object"] = to_array(std::move(all.object));
        columns["born"] = to_array(std::move(all.born));
        columns["died"] = to_array(std::move(all.died));
        columns["size"] = to_array(std::move(all.size));
        columns["site"] = to_array(std::move(all.site));
        columns["stream"] = to_array(std::move(all.stream));
        columns["space"] = to_array(std::move(all.space));
        columns["offset"] = to_array(std::move(all.offset));
        columns["held"] = to_array(std::move(all.held));
        columns["event"] = to_array(std::move(all.event));
        columns["reserved"] = to_array(std::move(all.reserved));
        add_segments(columns, all);
        return columns;
      },
      "workload"_a, "policy"_a, "cap"_a = nb::none(), "recorded"_a = "",
      "Where a policy puts every object, up to the first that finds no memory. Columns by object: object, "
      "born and "
      "died (events; 2^64 - 1: never), size, site, stream, space (offsets of two spaces have nothing in "
      "common), "
      "offset (2^64 - 1: not placed), held (bytes, rounding included). By step: event, reserved (bytes after "
      "it). By range that the device handed out: segment_space, segment_offset, segment_size, segment_born, "
      "segment_died "
      "(2^64 - 1: held at the end). segments_are_mapped: one element, 1 where ranges that touch are one "
      "memory.");
}

}  // namespace memoir

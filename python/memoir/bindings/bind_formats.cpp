// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <span>

#include "bind.h"
#include "memoir/base/error.h"
#include "memoir/formats/rmm/import_rmm_log.h"
#include "memoir/formats/snapshot/export_snapshot.h"
#include "memoir/formats/snapshot/import_snapshot.h"
#include "memoir/formats/text/import_text_trace.h"
#include "memoir/formats/timeline/export_timeline.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {

namespace {

/// Names that differ only in what is not UTF-8 are counted together.
nb::typed<nb::dict, nb::str, std::uint64_t> counts_by_name(
    const std::map<std::string, std::uint64_t>& counts) {
  nb::typed<nb::dict, nb::str, std::uint64_t> all;
  for (const auto& [name, count] : counts) {
    const nb::str key = to_str(name);
    all[key] = count + (all.contains(key) ? nb::cast<std::uint64_t>(all[key]) : 0);
  }
  return all;
}

ImportReport import_file(const FileName& snapshot, const FileName& trace, const std::string& passes) {
  const nb::gil_scoped_release release;
  const Snapshot read = Snapshot::open(snapshot);
  TraceWriter writer(trace.bytes.c_str());
  if (!writer.ok()) throw Error(trace.bytes + ": cannot be written: " + std::strerror(writer.error()));
  return import_snapshot(read, writer, {.passes = passes});
}

nb::bytes import_bytes(nb::bytes snapshot, const FileName& name, const std::string& passes) {
  const Snapshot read =
      Snapshot::from_bytes({static_cast<const std::byte*>(snapshot.data()), snapshot.size()}, name);
  TraceWriter writer;
  import_snapshot(read, writer, {.passes = passes});
  writer.close();
  const std::span<const std::byte> bytes = writer.bytes();
  return nb::bytes(bytes.data(), bytes.size());
}

nb::tuple import_rmm(nb::bytes log, const FileName& name) {
  TraceWriter writer;
  const RmmReport report = import_rmm_log({log.c_str(), log.size()}, name, writer);
  writer.close();
  nb::dict counts;
  counts["rows"] = report.rows;
  counts["allocations"] = report.allocations;
  counts["frees"] = report.frees;
  counts["out_of_memory"] = report.out_of_memory;
  counts["live_before"] = report.live_before;
  counts["lost_frees"] = report.lost_frees;
  counts["times_back"] = report.times_back;
  counts["unreadable"] = report.unreadable;
  counts["threads"] = report.threads;
  counts["streams"] = report.streams;
  const std::span<const std::byte> bytes = writer.bytes();
  return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), counts);
}

nb::tuple import_text(nb::bytes text, const FileName& name, std::uint16_t device) {
  TraceWriter writer;
  const TextTraceReport report = import_text_trace({text.c_str(), text.size()}, name, writer, device);
  writer.close();
  nb::dict counts;
  counts["allocations"] = report.allocations;
  counts["frees"] = report.frees;
  counts["segments"] = report.segments;
  counts["out_of_memory"] = report.out_of_memory;
  counts["live_before"] = report.live_before;
  const std::span<const std::byte> bytes = writer.bytes();
  return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), counts);
}

ExportReport export_as(const Trace& trace, const std::string& format, Output& output) {
  if (format == "snapshot") return export_snapshot(trace, output);
  if (format == "chrome") return {.events = export_chrome(trace, output)};
  if (format == "perfetto") return {.events = export_perfetto(trace, output)};
  throw Error("no format '" + format + "': there are snapshot, chrome and perfetto");
}

ExportReport export_file(const Trace& trace, const std::string& format, const FileName& path) {
  const nb::gil_scoped_release release;
  Output output(path);
  return export_as(trace, format, output);
}

nb::bytes export_bytes(const Trace& trace, const std::string& format) {
  Output output;
  export_as(trace, format, output);
  return nb::bytes(output.text().data(), output.text().size());
}

}  // namespace

void bind_formats(nb::module_& module) {
  nb::class_<ImportReport>(module, "ImportReport", "What an import did, inferred, and left out.")
      .def_ro("devices", &ImportReport::devices)
      .def_ro("entries", &ImportReport::entries)
      .def_ro("allocations", &ImportReport::allocations)
      .def_ro("frees", &ImportReport::frees)
      .def_ro("segments", &ImportReport::segments)
      .def_ro("out_of_memory", &ImportReport::out_of_memory)
      .def_ro("passes", &ImportReport::passes)
      .def_ro("live_before", &ImportReport::live_before)
      .def_ro("known_by_free", &ImportReport::known_by_free)
      .def_ro("pending", &ImportReport::pending)
      .def_ro("lost_frees", &ImportReport::lost_frees)
      .def_ro("after_history", &ImportReport::after_history)
      .def_ro("odd_segments", &ImportReport::odd_segments)
      .def_ro("without_time", &ImportReport::without_time)
      .def_ro("times_back", &ImportReport::times_back)
      .def_ro("private_pools", &ImportReport::private_pools)
      .def_ro("user_metadata", &ImportReport::user_metadata)
      .def_ro("compile_contexts", &ImportReport::compile_contexts)
      .def_ro("unreadable", &ImportReport::unreadable)
      .def_prop_ro("other_actions",
                   [](const ImportReport& report) { return counts_by_name(report.other_actions); })
      .def_prop_ro("other_annotations",
                   [](const ImportReport& report) { return counts_by_name(report.other_annotations); });

  const ImportOptions defaults;
  module.def(
      "import_snapshot", &import_file, "snapshot"_a, "trace"_a, "passes"_a = defaults.passes,
      "Reads a PyTorch memory snapshot and writes its story into the new file `trace`. After an Error that "
      "file is of no use.");
  module.def("import_snapshot_bytes", &import_bytes, "snapshot"_a, "name"_a = "<memory>",
             "passes"_a = defaults.passes, "The same over bytes: the bytes of the trace.");

  module.def(
      "is_rmm_log",
      [](nb::bytes begin) {
        return is_rmm_log({begin.c_str(), begin.size()});
      },
      "begin"_a, "Whether a file that begins so is a log of RAPIDS Memory Manager.");
  module.def("import_rmm_log", &import_rmm, "log"_a, "name"_a = "<memory>",
             "(bytes of a trace, what was counted) of the bytes of a log of RAPIDS Memory Manager.");

  module.def(
      "is_text_trace",
      [](nb::bytes begin) {
        return is_text_trace({begin.c_str(), begin.size()});
      },
      "begin"_a, "Whether a file that begins so is a text trace.");
  module.def("import_text_trace", &import_text, "text"_a, "name"_a = "<memory>", "device"_a = 0,
             "(bytes of a trace, what was counted) of the bytes of a text trace; all of it is on `device`.");

  nb::class_<ExportReport>(module, "ExportReport", "What an export wrote, and left out.")
      .def_ro("events", &ExportReport::events)
      .def_ro("placed", &ExportReport::placed)
      .def_ro("left_out", &ExportReport::left_out);
  module.def("export_trace", &export_file, "trace"_a, "format"_a, "path"_a,
             "Writes the new file `path`: snapshot (PyTorch's), chrome (Trace Event Format) or perfetto.");
  module.def("export_trace_bytes", &export_bytes, "trace"_a, "format"_a, "The same, as bytes.");
}

}  // namespace memoir

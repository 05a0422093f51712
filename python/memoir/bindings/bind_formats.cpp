// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "bind.h"
#include "memoir/base/error.h"
#include "memoir/formats/snapshot/export_snapshot.h"
#include "memoir/formats/snapshot/import_snapshot.h"
#include "memoir/formats/timeline/export_timeline.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {

namespace {

ImportReport import_file(const std::string& snapshot, const std::string& trace, const std::string& passes) {
  const nb::gil_scoped_release release;
  const Snapshot read = Snapshot::open(snapshot);
  TraceWriter writer(trace.c_str());
  if (!writer.ok()) throw Error(trace + ": cannot be written: " + std::strerror(writer.error()));
  return import_snapshot(read, writer, {.passes = passes});
}

nb::bytes import_bytes(nb::bytes snapshot, const std::string& name, const std::string& passes) {
  const Snapshot read =
      Snapshot::from_bytes({static_cast<const std::byte*>(snapshot.data()), snapshot.size()}, name);
  TraceWriter writer;
  import_snapshot(read, writer, {.passes = passes});
  writer.close();
  const std::span<const std::byte> bytes = writer.bytes();
  return nb::bytes(bytes.data(), bytes.size());
}

ExportReport export_as(const Trace& trace, const std::string& format, Output& output) {
  if (format == "snapshot") return export_snapshot(trace, output);
  if (format == "chrome") return {.events = export_chrome(trace, output)};
  if (format == "perfetto") return {.events = export_perfetto(trace, output)};
  throw Error("no format '" + format + "': there are snapshot, chrome and perfetto");
}

ExportReport export_file(const Trace& trace, const std::string& format, const std::string& path) {
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
      .def_ro("other_actions", &ImportReport::other_actions)
      .def_ro("other_annotations", &ImportReport::other_annotations);

  const ImportOptions defaults;
  module.def(
      "import_snapshot", &import_file, "snapshot"_a, "trace"_a, "passes"_a = defaults.passes,
      "Reads a PyTorch memory snapshot and writes its story into the new file `trace`. After an Error that "
      "file is of no use.");
  module.def("import_snapshot_bytes", &import_bytes, "snapshot"_a, "name"_a = "<memory>",
             "passes"_a = defaults.passes, "The same over bytes: the bytes of the trace.");

  nb::class_<ExportReport>(module, "ExportReport", "What an export wrote, and left out.")
      .def_ro("events", &ExportReport::events)
      .def_ro("placed", &ExportReport::placed)
      .def_ro("left_out", &ExportReport::left_out);
  module.def("export_trace", &export_file, "trace"_a, "format"_a, "path"_a,
             "Writes the new file `path`: snapshot (PyTorch's), chrome (Trace Event Format) or perfetto.");
  module.def("export_trace_bytes", &export_bytes, "trace"_a, "format"_a, "The same, as bytes.");
}

}  // namespace memoir

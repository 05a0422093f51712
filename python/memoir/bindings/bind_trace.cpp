// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "bind.h"
#include "memoir/base/error.h"
#include "memoir/base/site.h"
#include "memoir/trace/trace.h"
#include "memoir/trace/trace_writer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {

namespace {

/// Names in a file need not be UTF-8: what is not becomes U+FFFD.
nb::str to_str(std::string_view text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

/// A path as Python has it (str, bytes or os.PathLike), as the file system wants it.
std::string to_path(nb::handle path) {
  PyObject* encoded = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &encoded)) throw nb::python_error();
  const nb::bytes bytes = nb::steal<nb::bytes>(encoded);
  return {bytes.c_str(), bytes.size()};
}

/// The layout of Event, for numpy.
nb::object event_dtype() {
  struct Field {
    const char* name;
    const char* format;
    size_t offset;
  };
  static constexpr Field kFields[] = {
      {"kind", "u1", offsetof(Event, kind)},      {"alignment_log2", "u1", offsetof(Event, alignment_log2)},
      {"device", "<u2", offsetof(Event, device)}, {"thread", "<u4", offsetof(Event, thread)},
      {"object", "<u8", offsetof(Event, object)}, {"site", "<u8", offsetof(Event, site)},
      {"size", "<u8", offsetof(Event, size)},     {"time", "<u8", offsetof(Event, time)},
      {"stream", "<u4", offsetof(Event, stream)}, {"family", "u1", offsetof(Event, family)},
      {"frame", "u1", offsetof(Event, frame)},    {"address", "<u8", offsetof(Event, address)},
  };
  nb::list names, formats, offsets;
  for (const Field& field : kFields) {
    names.append(field.name);
    formats.append(field.format);
    offsets.append(field.offset);
  }
  nb::dict layout;
  layout["names"] = names;
  layout["formats"] = formats;
  layout["offsets"] = offsets;
  layout["itemsize"] = sizeof(Event);
  return nb::module_::import_("numpy").attr("dtype")(layout);
}

nb::object events_of(nb::handle_t<Trace> self) {
  const std::span<const Event> events = nb::cast<const Trace&>(self).events();
  const size_t bytes = events.size_bytes();
  const nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>> raw(events.data(), {bytes}, self);
  return nb::cast(raw).attr("view")(event_dtype());
}

std::unique_ptr<TraceWriter> open_writer(nb::object path) {
  if (path.is_none()) return std::make_unique<TraceWriter>();
  const std::string name = to_path(path);
  auto writer = std::make_unique<TraceWriter>(name.c_str());
  if (!writer->ok()) throw Error(name + ": cannot record into it: " + std::strerror(writer->error()));
  return writer;
}

}  // namespace

void bind_trace(nb::module_& module) {
  nb::enum_<EventKind>(module, "EventKind", nb::is_arithmetic(), "What a record of a trace says.")
      .value("kNone", EventKind::kNone)
      .value("kAllocate", EventKind::kAllocate)
      .value("kFree", EventKind::kFree)
      .value("kPassBegin", EventKind::kPassBegin)
      .value("kPassEnd", EventKind::kPassEnd)
      .value("kSite", EventKind::kSite)
      .value("kMeta", EventKind::kMeta)
      .value("kSegmentAllocate", EventKind::kSegmentAllocate)
      .value("kSegmentFree", EventKind::kSegmentFree)
      .value("kSegmentMap", EventKind::kSegmentMap)
      .value("kSegmentUnmap", EventKind::kSegmentUnmap)
      .value("kAddress", EventKind::kAddress)
      .value("kFreeRequested", EventKind::kFreeRequested)
      .value("kOutOfMemory", EventKind::kOutOfMemory)
      .value("kPool", EventKind::kPool);

  nb::class_<Trace>(module, "Trace", "A recording read back: checked once, then an array of events.")
      .def_static(
          "open", [](nb::object path) { return Trace::open(to_path(path)); }, "path"_a,
          "Reads and checks a trace file. Raises Error, which names the record, when it is none.")
      .def_static(
          "from_bytes",
          [](nb::bytes bytes, const std::string& name) {
            return Trace::from_bytes({static_cast<const std::byte*>(bytes.data()), bytes.size()}, name);
          },
          "bytes"_a, "name"_a = "<memory>", "The same over what TraceWriter.bytes() gave.")
      .def_prop_ro(
          "events", &events_of,
          "Every record but text, in order: a read-only numpy array with the fields of the format (times in "
          "nanoseconds, sizes in bytes). A view; it keeps the trace alive.")
      .def_prop_ro("version", &Trace::version, "Of the file's format. Its events are those of today's.")
      .def_prop_ro("complete", &Trace::complete, "The writer closed it, and nothing was cut off since.")
      .def_prop_ro("lost_bytes", &Trace::lost_bytes,
                   "Bytes of records known to be lost after the last complete one.")
      .def_prop_ro("dropped", &Trace::dropped, "Records that the writer could not write.")
      .def_prop_ro("start", &Trace::start, "Nanoseconds since 1970-01-01 UTC at time 0 of the events.")
      .def(
          "site_name", [](const Trace& trace, SiteId site) { return to_str(trace.site_name(site)); },
          "site"_a, "The name of the site's innermost frame, or ''.")
      .def("site_parent", &Trace::site_parent, "site"_a,
           "The site it was reached from, 0 at the bottom; None if unknown.")
      .def(
          "site_chain", [](const Trace& trace, SiteId site) { return to_str(trace.site_chain(site)); },
          "site"_a, "'outer > inner', or ''.")
      .def(
          "meta", [](const Trace& trace, std::string_view key) { return to_str(trace.meta(key)); }, "key"_a,
          "The value of a meta record, or ''.")
      .def(
          "meta_keys",
          [](const Trace& trace) {
            nb::list keys;
            for (const std::string_view key : trace.meta_keys()) keys.append(to_str(key));
            return keys;
          },
          "The keys of all meta records, sorted.");

  nb::class_<TraceWriter>(
      module, "TraceWriter",
      "Writes a trace, into a new file or (without a path) into memory. Not thread-safe. Methods that "
      "write give False when the record was dropped.")
      .def(nb::new_(&open_writer), "path"_a.none() = nb::none())
      .def_prop_ro("ok", &TraceWriter::ok)
      .def_prop_ro("error", &TraceWriter::error, "An errno, 0 when nothing failed.")
      .def_prop_ro("records", &TraceWriter::records)
      .def_prop_ro("dropped", &TraceWriter::dropped)
      .def("allocate", &TraceWriter::allocate, "object"_a, "site"_a, "size"_a, "alignment"_a = 64,
           "thread"_a = 0, "device"_a = 0, "stream"_a = 0)
      .def("free", &TraceWriter::free, "object"_a, "thread"_a = 0, "device"_a = 0, "stream"_a = 0,
           "site"_a = kNoSite)
      .def("free_requested", &TraceWriter::free_requested, "object"_a, "thread"_a = 0, "device"_a = 0,
           "stream"_a = 0, "site"_a = kNoSite)
      .def("address", &TraceWriter::address, "object"_a, "address"_a, "device"_a = 0, "stream"_a = 0,
           "pool"_a = 0)
      .def("segment", &TraceWriter::segment, "kind"_a, "address"_a, "size"_a, "device"_a = 0, "stream"_a = 0,
           "site"_a = kNoSite, "pool"_a = 0)
      .def("out_of_memory", &TraceWriter::out_of_memory, "asked"_a, "free"_a, "device"_a = 0, "stream"_a = 0,
           "site"_a = kNoSite, "pool"_a = 0)
      .def("define_pool", &TraceWriter::define_pool, "pool"_a, "first"_a, "second"_a)
      .def("set_start", &TraceWriter::set_start, "nanoseconds"_a,
           "Nanoseconds since 1970-01-01 UTC at time 0.")
      .def("set_time", &TraceWriter::set_time, "time"_a,
           "From now on records bear this time, in nanoseconds, and no clock is read.")
      .def("pass_begin", &TraceWriter::pass_begin, "number"_a, "thread"_a = 0)
      .def("pass_end", &TraceWriter::pass_end, "number"_a, "thread"_a = 0)
      .def("define_site", &TraceWriter::define_site, "site"_a, "parent"_a, "name"_a)
      .def("meta", &TraceWriter::meta, "key"_a, "value"_a)
      .def(
          "bytes",
          [](const TraceWriter& writer) {
            const std::span<const std::byte> bytes = writer.bytes();
            return nb::bytes(bytes.data(), bytes.size());
          },
          "The trace so far, as the bytes of a file.")
      .def("close", &TraceWriter::close)
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](TraceWriter& writer, nb::args) { writer.close(); });

  module.def("child_site", &child_site, "parent"_a, "name"_a,
             "The id of the site reached from `parent` (0 at the bottom) through a frame of that name.");
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "bind.h"
#include "memoir/base/error.h"
#include "memoir/base/site.h"
#include "memoir/trace/read/stack_cut.h"
#include "memoir/trace/read/trace.h"
#include "memoir/trace/write/add_process_facts.h"
#include "memoir/trace/write/add_symbols.h"
#include "memoir/trace/write/finish_trace.h"
#include "memoir/trace/write/trace_writer.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {

namespace {

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

nb::dict losses_of(const Trace& trace) {
  const Losses& losses = trace.losses();
  nb::dict result;
  result["torn_bytes"] = losses.bytes;
  result["cut_bytes"] = losses.cut_bytes;
  result["blocks"] = losses.blocks;
  result["no_room"] = losses.no_room;
  result["interrupted"] = losses.interrupted;
  result["other"] = losses.other;
  result["deep_frames"] = losses.deep_frames;
  result["unread_frames"] = losses.unread_frames;
  result["unknown_frees"] = losses.unknown_frees;
  result["missed_frees"] = losses.missed_frees;
  result["unknown_unmaps"] = losses.unknown_unmaps;
  return result;
}

nb::object maybe(const std::optional<Tick>& time) { return time ? nb::cast(*time) : nb::none(); }

const char* name_of(ProcessRecord::Moment moment) {
  constexpr const char* kNames[] = {"regular", "start", "regular", "peak", "end"};
  return kNames[static_cast<unsigned>(moment) % 5];
}

const char* name_of(ProcessRecord::Region region) {
  constexpr const char* kNames[] = {"other",      "heap", "anonymous", "thread stack",
                                    "main stack", "file", "shared",    "recorder"};
  return kNames[static_cast<unsigned>(region) % 8];
}

nb::list recorded_threads(const Trace& trace) {
  nb::list rows;
  for (const ProcessRecord::Thread& thread : trace.process().threads) {
    nb::dict row;
    row["thread"] = thread.number;
    row["system_id"] = thread.system_id;
    row["name"] = to_str(thread.name);
    row["begin_ns"] = thread.begin;
    row["end_ns"] = maybe(thread.end);
    rows.append(row);
  }
  return rows;
}

nb::list modules_of(const Trace& trace) {
  nb::list rows;
  for (const ProcessRecord::Module& module : trace.process().modules) {
    nb::list ranges;
    for (const ProcessRecord::Module::Range& range : module.ranges) {
      nb::dict one;
      one["begin"] = range.begin;
      one["size"] = range.size;
      one["file_offset"] = range.file_offset;
      one["protection"] = range.protection;
      ranges.append(one);
    }
    nb::dict row;
    row["id"] = module.id;
    row["path"] = to_str(module.path);
    row["build_id"] = to_str(module.build_id);
    row["base"] = module.base;
    row["ranges"] = ranges;
    row["loaded_ns"] = module.loaded;
    row["unloaded_ns"] = maybe(module.unloaded);
    rows.append(row);
  }
  return rows;
}

nb::list mappings_of(const Trace& trace) {
  nb::list rows;
  for (const ProcessRecord::Mappings& mappings : trace.process().mappings) {
    nb::list groups;
    for (const ProcessRecord::Mappings::Group& group : mappings.groups) {
      nb::dict one;
      one["region"] = name_of(group.region);
      one["name"] = to_str(group.name);
      one["count"] = group.count;
      one["mapped"] = group.mapped;
      one["resident"] = group.resident;
      one["dirty"] = group.dirty;
      one["swapped"] = group.swapped;
      groups.append(one);
    }
    nb::dict row;
    row["time_ns"] = mappings.time;
    row["moment"] = name_of(mappings.moment);
    row["resident"] = mappings.resident;
    row["groups"] = groups;
    rows.append(row);
  }
  return rows;
}

nb::list counters_of(const Trace& trace) {
  nb::list rows;
  for (const ProcessRecord::Counter& counter : trace.process().counters) {
    nb::dict row;
    row["time_ns"] = counter.time;
    row["name"] = to_str(counter.name);
    row["value"] = counter.value;
    rows.append(row);
  }
  return rows;
}

nb::object end_of(const Trace& trace) {
  if (!trace.process().end) return nb::none();
  nb::dict row;
  row["time_ns"] = trace.process().end->time;
  row["by_exec"] = trace.process().end->by_exec;
  row["status"] = trace.process().end->status;
  return row;
}

nb::list rows_of(const std::vector<StackFrame>& frames) {
  nb::list rows;
  for (const StackFrame& frame : frames) {
    nb::dict row;
    row["kind"] = nb::cast(frame.kind);
    row["function"] = to_str(frame.function);
    row["file"] = to_str(frame.file);
    row["line"] = frame.line;
    row["module"] = to_str(frame.module);
    row["offset"] = frame.offset;
    row["is_inlined"] = frame.is_inlined;
    rows.append(row);
  }
  return rows;
}

/// Of thousands of frames one stands for those that nobody looks at.
std::vector<StackFrame> without_middle(std::vector<StackFrame> frames, std::string& text) {
  const StackCut cut(frames.size(), [&](std::size_t i) {
    return frames[i].function.size() + frames[i].file.size() + frames[i].module.size();
  });
  if (cut.left_out == 0) return frames;
  text = cut.text();
  const auto first = frames.begin() + static_cast<std::ptrdiff_t>(cut.outer);
  *first = {.kind = FrameKind::kOperator, .function = text};
  frames.erase(first + 1, first + static_cast<std::ptrdiff_t>(cut.left_out));
  return frames;
}

nb::object copied(const std::vector<std::uint32_t>& numbers) {
  auto* const copy = new std::vector<std::uint32_t>(numbers);
  const nb::capsule owner(copy,
                          [](void* at) noexcept { delete static_cast<std::vector<std::uint32_t>*>(at); });
  return nb::cast(
      nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<1>>(copy->data(), {copy->size()}, owner));
}

nb::tuple forest_of(const Trace& trace, const nb::ndarray<const SiteId, nb::ndim<1>, nb::c_contig>& sites) {
  const SiteForest forest = trace.forest({sites.data(), sites.shape(0)});
  return nb::make_tuple(copied(forest.row), copied(forest.parent), copied(forest.frame),
                        rows_of(forest.frames));
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
  nb::enum_<Family>(module, "Family", nb::is_arithmetic(), "Which function served an allocation.")
      .value("kTensor", Family::kTensor)
      .value("kMalloc", Family::kMalloc)
      .value("kNew", Family::kNew)
      .value("kOther", Family::kOther);
  nb::enum_<FrameKind>(module, "FrameKind", nb::is_arithmetic(), "What a frame of a stack is.")
      .value("kNone", FrameKind::kNone)
      .value("kOperator", FrameKind::kOperator)
      .value("kModulePath", FrameKind::kModulePath)
      .value("kCut", FrameKind::kCut)
      .value("kOther", FrameKind::kOther)
      .value("kNative", FrameKind::kNative)
      .value("kPython", FrameKind::kPython);
  nb::enum_<Only>(module, "Only", "Which allocations of a trace are wanted.")
      .value("kBoth", Only::kBoth)
      .value("kTensors", Only::kTensors)
      .value("kMallocs", Only::kMallocs);

  nb::class_<Trace>(module, "Trace", "A recording read back: checked once, then an array of events.")
      .def_static(
          "open",
          [](nb::object path, Only only) {
            const std::string name = to_path(path);
            const nb::gil_scoped_release free;  // the budget of a command has a thread that looks on
            return Trace::open(name, only);
          },
          "path"_a, "only"_a = Only::kBoth,
          "Reads and checks a trace file. Raises Error, which names the place, when it is none.")
      .def_static(
          "open_plannable",
          [](nb::object path) {
            const std::string name = to_path(path);
            const nb::gil_scoped_release free;
            return Trace::open_plannable(name);
          },
          "path"_a, "The tensors alone, each at the site of its operators alone: what plans are matched by.")
      .def_static(
          "open_chosen",
          [](nb::object path, bool plannable) {
            bool has_tensors = false;
            const std::string name = to_path(path);
            Trace trace = [&] {
              const nb::gil_scoped_release free;
              return Trace::open_chosen(name, plannable, has_tensors);
            }();
            return nb::make_tuple(nb::cast(std::move(trace)), has_tensors);
          },
          "path"_a, "plannable"_a = false,
          "Its tensors where it has any, else everything; and which of the two: whether it has tensors. "
          "`plannable`: its tensors as open_plannable() has them.")
      .def_static(
          "follow", [](nb::object path, Only only) { return Trace::follow(to_path(path), only); }, "path"_a,
          "only"_a = Only::kBoth, "A trace that is still written: what it holds now. poll() gives more.")
      .def("poll", &Trace::poll,
           "Reads what a followed file has gained; how many events are new. `events` is another array then.")
      .def_static(
          "from_bytes",
          [](nb::bytes bytes, const FileName& name, Only only) {
            return Trace::from_bytes({static_cast<const std::byte*>(bytes.data()), bytes.size()}, name, only);
          },
          "bytes"_a, "name"_a = "<memory>", "only"_a = Only::kBoth,
          "The same over what TraceWriter.bytes() gave.")
      .def_prop_ro(
          "events", &events_of,
          "Every record but text, in order: a read-only numpy array with the fields of the format (times in "
          "nanoseconds, sizes in bytes). A view; it keeps the trace alive.")
      .def_prop_ro(
          "event_count", [](const Trace& trace) { return trace.events().size(); },
          "How many events there are; 0 when all were forgotten. Does without numpy.")
      .def_prop_ro(
          "allocates",
          [](const Trace& trace) {
            return std::ranges::any_of(trace.events(),
                                       [](const Event& event) { return event.kind == EventKind::kAllocate; });
          },
          "Whether any event is an allocation.")
      .def_prop_ro("version", &Trace::version, "Of the file's format. Its events are those of today's.")
      .def_prop_ro("complete", &Trace::complete, "The writer closed it, and nothing was cut off since.")
      .def_prop_ro("lost_bytes", &Trace::lost_bytes,
                   "Bytes known to be lost: written but torn, or cut off a closed file.")
      .def_prop_ro("dropped", &Trace::dropped, "Events that the writer could not write.")
      .def_prop_ro("losses", &losses_of, "What else is missing, as far as the file tells: counts by name.")
      .def_prop_ro("threads", &recorded_threads, "Threads of a recorded process; times in nanoseconds.")
      .def_prop_ro("modules", &modules_of, "The program and the libraries that it loaded.")
      .def_prop_ro("mappings", &mappings_of,
                   "Summaries of the process's mappings at some moments; sizes in bytes.")
      .def_prop_ro("counters", &counters_of, "Numbers that the recorder took at some moments.")
      .def_prop_ro("end", &end_of, "How the program ended; None when the file does not say.")
      .def_prop_ro("start", &Trace::start, "Nanoseconds since 1970-01-01 UTC at time 0 of the events.")
      .def(
          "site_name", [](const Trace& trace, SiteId site) { return to_str(trace.site_name(site)); },
          "site"_a, "The name of the site's innermost frame, or ''.")
      .def("site_kind", &Trace::site_kind, "site"_a, "What the site's innermost frame is.")
      .def_prop_ro("has_symbols", &Trace::has_symbols, "Whether it has names for native frames.")
      .def("forest", &forest_of, "sites"_a,
           "The chains of an array of sites as one forest with a row for each function: (of each site the "
           "row of its "
           "innermost function, of each row the row that called it, a smaller number, of each row its frame, "
           "the "
           "frames as site_frames() has them). 2^32 - 1: none.")
      .def(
          "site_frames",
          [](const Trace& trace, SiteId site, bool cut) {
            std::string text;
            return rows_of(cut ? without_middle(trace.site_frames(site), text) : trace.site_frames(site));
          },
          "site"_a, "cut"_a = false,
          "The site's chain, outermost first, with what is known of each frame: kind, function, file, line, "
          "module, offset, is_inlined. cut: of more than 512 frames, or 32 KiB of text, one stands for those "
          "between, for who reads many stacks.")
      .def(
          "own_frames", [](const Trace& trace, SiteId site) { return rows_of(trace.own_frames(site)); },
          "site"_a, "Of these the site's own, those that its parent has not: stacks are a tree.")
      .def("innermost", &Trace::innermost, "site"_a, "kind"_a,
           "The innermost site of the chain whose frame is of that kind; 0 when none is.")
      .def(
          "site_module", [](const Trace& trace, SiteId site) { return to_str(trace.site_module(site)); },
          "site"_a, "The path of the library or program that the site's own, native frame lies in; or ''.")
      .def_prop_ro(
          "native_addresses",
          [](const Trace& trace) {
            std::vector<std::tuple<std::uint32_t, std::uint64_t>> rows;
            for (const NativeAddress& address : trace.native_addresses())
              rows.emplace_back(address.module, address.offset);
            return rows;
          },
          "Of each return address the number of its module, 0 for code that lies in none, and its offset "
          "from "
          "the module's base.")
      .def("site_parent", &Trace::site_parent, "site"_a,
           "The site it was reached from, 0 at the bottom; None if unknown.")
      .def(
          "site_chain", [](const Trace& trace, SiteId site) { return to_str(trace.site_chain(site)); },
          "site"_a, "'outer > inner', or ''. Of more than 512 frames, or 32 KiB, those between are left out.")
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
      .def("define_site", &TraceWriter::define_site, "site"_a, "parent"_a, "name"_a,
           "kind"_a = FrameKind::kOperator)
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

  module.def(
      "finish_trace",
      [](nb::object path, std::optional<std::uint32_t> status, bool compress) {
        const FinishedTrace done = finish_trace(to_path(path), {.status = status, .compress = compress});
        return nb::make_tuple(done.before, done.after);
      },
      "path"_a, "status"_a.none() = nb::none(), "compress"_a = true,
      "Seals and compresses the trace of a program that has ended; with its exit `status` when it ended by "
      "itself. Gives the file's bytes before and after.");
  module.def(
      "add_symbols",
      [](nb::object path,
         const std::vector<std::tuple<std::uint32_t, std::uint64_t,
                                      std::vector<std::tuple<std::string, std::string, std::uint32_t>>>>&
             rows) {
        std::vector<Symbol> symbols;
        for (const auto& [module, offset, lines] : rows) {
          Symbol& symbol = symbols.emplace_back(Symbol{module, offset, {}});
          for (const auto& [function, file, line] : lines) symbol.lines.push_back({function, file, line});
        }
        add_symbols(to_path(path), symbols);
      },
      "path"_a, "symbols"_a,
      "Adds names to a trace: rows of (module's number, offset, [(function, file, line), ...]), the "
      "innermost of "
      "inlined functions first.");
  module.def(
      "add_process_facts",
      [](nb::object path,
         const std::vector<std::tuple<
             Tick, std::uint32_t, Size,
             std::vector<std::tuple<std::uint32_t, std::string, std::uint64_t, Size, Size, Size, Size>>>>&
             rows,
         const std::vector<std::tuple<std::uint32_t, std::uint64_t, std::string>>& named) {
        std::vector<SeenMappings> mappings;
        for (const auto& [time, moment, resident, groups] : rows) {
          SeenMappings& seen = mappings.emplace_back(
              SeenMappings{time, static_cast<ProcessRecord::Moment>(moment), resident, {}});
          for (const auto& [region, name, count, mapped, held, dirty, swapped] : groups)
            seen.groups.push_back(
                {static_cast<ProcessRecord::Region>(region), name, count, mapped, held, dirty, swapped});
        }
        std::vector<SeenThread> threads;
        for (const auto& [number, system_id, name] : named) threads.push_back({number, system_id, name});
        add_process_facts(to_path(path), mappings, threads);
      },
      "path"_a, "mappings"_a, "threads"_a,
      "Adds to a trace what was seen of its process: mappings by time, rows of (nanoseconds, moment, "
      "resident "
      "bytes, [(region, name, count, mapped, resident, dirty, swapped), ...]) with the numbers of the "
      "format; "
      "threads, rows of (number, the kernel's number, name).");
  module.def("child_site", &child_site, "parent"_a, "name"_a,
             "The id of the site reached from `parent` (0 at the bottom) through a frame of that name.");
}

}  // namespace memoir

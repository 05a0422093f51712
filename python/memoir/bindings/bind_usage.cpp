// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bind.h"
#include "memoir/trace/objects/lives.h"
#include "memoir/trace/objects/usage.h"
#include "memoir/trace/read/trace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {

namespace {

/// Columns of 64-bit numbers (the first may be narrower) of structs that lie in a row.
class Columns {
 public:
  void add(const char* name, size_t offset, const char* format = "<u8") {
    names_.append(name);
    formats_.append(format);
    offsets_.append(offset);
  }
  void add_amount(const char* count, const char* bytes, size_t offset) {
    add(count, offset + offsetof(Amount, count));
    add(bytes, offset + offsetof(Amount, bytes));
  }
  nb::object dtype(size_t size) const {
    nb::dict layout;
    layout["names"] = names_;
    layout["formats"] = formats_;
    layout["offsets"] = offsets_;
    layout["itemsize"] = size;
    return nb::module_::import_("numpy").attr("dtype")(layout);
  }

 private:
  nb::list names_, formats_, offsets_;
};

template <class Row>
nb::object array_of(std::span<const Row> rows, const Columns& columns, nb::handle owner) {
  const nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>> raw(rows.data(), {rows.size_bytes()}, owner);
  return nb::cast(raw).attr("view")(columns.dtype(sizeof(Row)));
}

nb::object sites_of(nb::handle_t<Usage> self) {
  Columns columns;
  columns.add("site", offsetof(SiteUsage, site));
  columns.add_amount("allocations", "bytes", offsetof(SiteUsage, allocated));
  columns.add_amount("held", "held_bytes", offsetof(SiteUsage, held));
  columns.add_amount("kept", "kept_bytes", offsetof(SiteUsage, kept));
  columns.add_amount("temporary", "temporary_bytes", offsetof(SiteUsage, temporary));
  return array_of(nb::cast<const Usage&>(self).sites(), columns, self);
}

nb::object threads_of(nb::handle_t<Usage> self) {
  Columns columns;
  columns.add("thread", offsetof(ThreadUsage, thread), "<u4");
  columns.add_amount("allocations", "bytes", offsetof(ThreadUsage, allocated));
  columns.add_amount("held", "held_bytes", offsetof(ThreadUsage, held));
  columns.add_amount("kept", "kept_bytes", offsetof(ThreadUsage, kept));
  columns.add_amount("temporary", "temporary_bytes", offsetof(ThreadUsage, temporary));
  columns.add_amount("freed", "freed_bytes", offsetof(ThreadUsage, freed));
  columns.add_amount("freed_elsewhere", "freed_elsewhere_bytes", offsetof(ThreadUsage, freed_elsewhere));
  return array_of(nb::cast<const Usage&>(self).threads(), columns, self);
}

nb::object rates_of(nb::handle_t<Usage> self) {
  Columns columns;
  columns.add("allocations", offsetof(RateUsage, allocations));
  columns.add("frees", offsetof(RateUsage, frees));
  columns.add("bytes", offsetof(RateUsage, bytes));
  columns.add("peak_bytes", offsetof(RateUsage, peak_bytes));
  return array_of(nb::cast<const Usage&>(self).rates(), columns, self);
}

nb::dict amount(const Amount& of) {
  nb::dict row;
  row["count"] = of.count;
  row["bytes"] = of.bytes;
  return row;
}

nb::object columns_of(std::span<const std::uint32_t> numbers, nb::handle owner) {
  return nb::cast(
      nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<1>>(numbers.data(), {numbers.size()}, owner));
}

/// The lives of a trace's objects, with the trace's events.
struct TraceLives {
  explicit TraceLives(const Trace& trace) : events(trace.events()), lives(events) {}
  std::span<const Event> events;
  Lives lives;
};

nb::object curves_of(const Usage& usage,
                     const nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig>& group_of,
                     std::size_t groups, std::size_t points) {
  auto* const most =
      new std::vector<Size>(usage.curves({group_of.data(), group_of.shape(0)}, groups, points));
  const nb::capsule owner(most, [](void* at) noexcept { delete static_cast<std::vector<Size>*>(at); });
  return nb::cast(nb::ndarray<nb::numpy, const Size, nb::ndim<2>>(most->data(), {groups, points}, owner));
}

nb::object freed_at_end_of(const Usage& usage,
                           const nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig>& marked) {
  auto* const freed = new std::vector<FreedAtEnd>(usage.freed_at_end({marked.data(), marked.shape(0)}));
  const nb::capsule owner(freed, [](void* at) noexcept { delete static_cast<std::vector<FreedAtEnd>*>(at); });
  Columns columns;
  columns.add_amount("count", "bytes", offsetof(FreedAtEnd, amount));
  columns.add("byte_nanoseconds", offsetof(FreedAtEnd, byte_nanoseconds), "<f8");
  return array_of<FreedAtEnd>(*freed, columns, owner);
}

nb::object moment(std::uint32_t event) { return event == Usage::kNone ? nb::none() : nb::cast(event); }

nb::dict pages_of(const Usage& usage, Tick time) {
  const PageUsage pages = usage.pages(time);
  nb::list sites;
  for (const PageUsage::Pinned& pinned : pages.sites) {
    nb::dict row;
    row["site"] = pinned.site;
    row["free_bytes"] = pinned.free_bytes;
    row["held"] = amount(pinned.held);
    sites.append(row);
  }
  nb::dict result;
  result["held"] = amount(pages.held);
  result["rounding_bytes"] = pages.rounding;
  result["page_bytes"] = pages.pages;
  result["sites"] = sites;
  return result;
}

}  // namespace

void bind_usage(nb::module_& module) {
  nb::class_<TraceLives>(module, "Lives",
                         "Who lives when: the objects of a trace, in the order of their allocations.")
      .def(nb::init<const Trace&>(), "trace"_a, nb::keep_alive<1, 2>())
      .def("__len__", [](const TraceLives& self) { return self.lives.size(); })
      .def_prop_ro(
          "born",
          [](nb::handle_t<TraceLives> self) {
            return columns_of(nb::cast<const TraceLives&>(self).lives.begins(), self);
          },
          "The event that allocates each.")
      .def_prop_ro(
          "died",
          [](nb::handle_t<TraceLives> self) {
            return columns_of(nb::cast<const TraceLives&>(self).lives.ends(), self);
          },
          "The event that frees each; 2^32 - 1 when none does.")
      .def(
          "load",
          [](const TraceLives& self, const std::vector<std::uint32_t>& begins) {
            const LoadUsage load = load_of(self.events, self.lives, begins);
            nb::dict result;
            result["most"] = load.most;
            result["peak"] = moment(load.peak);
            result["held"] = amount(load.held);
            return result;
          },
          "begins"_a,
          "The most bytes live in each stretch of events, which begin at `begins`, from 0 on; the event that "
          "reaches the peak, and what lived then.");
  nb::class_<Usage>(module, "Usage",
                    "Who allocated how much, who held it at one moment, what stayed and what was short.")
      .def(
          "__init__",
          [](Usage* self, const Trace& trace, std::optional<Tick> at, std::size_t points) {
            new (self) Usage(trace.events(), at, points);
          },
          "trace"_a, "at"_a.none() = nb::none(), "points"_a = 200, nb::keep_alive<1, 2>(),
          "`at`: the moment in nanoseconds, instead of the peak. `points`: stretches of time.")
      .def_prop_ro(
          "moment", [](const Usage& usage) { return moment(usage.moment()); },
          "The event behind which the moment is; None when nothing came before it.")
      .def_prop_ro(
          "held", [](const Usage& usage) { return amount(usage.held()); },
          "What lived then: count and bytes.")
      .def_prop_ro("peak", [](const Usage& usage) { return moment(usage.peak()); })
      .def_prop_ro("held_at_peak", [](const Usage& usage) { return amount(usage.held_at_peak()); })
      .def_prop_ro("allocated", [](const Usage& usage) { return amount(usage.allocated()); })
      .def_prop_ro(
          "kept", [](const Usage& usage) { return amount(usage.kept()); }, "What was never freed.")
      .def_prop_ro(
          "temporary", [](const Usage& usage) { return amount(usage.temporary()); },
          "What was freed on its thread before that allocated again.")
      .def_prop_ro("sites", &sites_of,
                   "A row for each site: the most bytes held at the moment first, then the most allocated.")
      .def_prop_ro("threads", &threads_of, "A row for each thread.")
      .def_prop_ro("rates", &rates_of, "A row for each stretch of rate_step nanoseconds.")
      .def_prop_ro("rate_step", &Usage::rate_step)
      .def("freed_at_end", &freed_at_end_of, "marked"_a,
           "A row for each of sites: what lived after the last allocation of those that are marked, an array "
           "of bytes, "
           "and was freed later.")
      .def("curves", &curves_of, "group_of"_a, "groups"_a, "points"_a,
           "The most bytes of each group that lived in each of `points` equal stretches of time, a row for "
           "each group. "
           "`group_of`: of each row of sites, as 32-bit numbers; those from `groups` on count nowhere.")
      .def(
          "pages", &pages_of, "time"_a,
          "The pages of 4 KiB under live objects whose addresses are known, at that time in nanoseconds, and "
          "which sites pin the free space on them.");
}

}  // namespace memoir

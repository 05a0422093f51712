// SPDX-License-Identifier: Apache-2.0
//
// The PyTorch shim as a Python module; memoir/torch is its only user. Everything that holds addresses (slabs,
// recorders, the allocator) lives in this one shared object. Importing it puts memoir's allocator in place.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <optional>

#include "memoir/base/error.h"
#include "memoir/host/slab_set.h"
#include "memoir/shim/torch/allocator.h"

namespace nb = nanobind;
using namespace memoir;

namespace {

struct Layout {
  std::shared_ptr<const PlannedLayout> layout;

  explicit Layout(const RecordedPlan& plan) : layout(std::make_shared<const PlannedLayout>(plan)) {
    if (layout->ok()) return;
    throw Error("this plan cannot be followed: a range outside its arena, or no memory for its index");
  }
};

/// A trace in the making, in memory or in a file: allocations of the thread between begin() and end(), with
/// passes marked.
class Recording {
 public:
  explicit Recording(const std::optional<std::string>& path) {
    if (path) {
      recorder_.emplace(path->c_str());
      const int error = recorder_->writer().error();
      if (error != 0) throw Error(*path + ": cannot be written: " + std::string(std::strerror(error)));
    } else {
      recorder_.emplace();
    }
  }
  ~Recording() {
    if (recording_) end();
  }
  void begin(bool large_apart) {
    torch_shim::begin_recording(*recorder_, large_apart);
    recording_ = true;
  }
  void end() {
    torch_shim::end_recording();
    recording_ = false;
  }
  void pass_begin() { recorder_->pass_begin(++passes_); }
  void pass_end() { recorder_->pass_end(passes_); }
  void meta(const std::string& key, const std::string& value) { recorder_->meta(key, value); }
  nb::bytes bytes() {
    const auto bytes = recorder_->writer().bytes();
    return nb::bytes(bytes.data(), bytes.size());
  }
  std::uint64_t dropped() { return recorder_->writer().dropped(); }
  void close() { recorder_->writer().close(); }

 private:
  std::optional<Recorder> recorder_;
  std::uint64_t passes_ = 0;
  bool recording_ = false;
};

/// One pass that follows a plan: holds a slab from begin to end.
class PlannedPass {
 public:
  PlannedPass(std::shared_ptr<SlabSet> slabs, Slab* slab) : slabs_(std::move(slabs)), slab_(slab) {}
  nb::tuple end() {
    const auto result = torch_shim::end_planned();
    slabs_->give_back(slab_);
    const auto& counters = result.counters;
    return nb::make_tuple(counters.planned, counters.escaping, counters.unmatched, counters.occupied,
                          result.in_step, result.at_end);
  }

 private:
  std::shared_ptr<SlabSet> slabs_;
  Slab* slab_;
};

std::optional<PlannedPass> begin_planned(const std::shared_ptr<SlabSet>& slabs, const Layout& layout,
                                         bool scoped) {
  Slab* slab = nullptr;
  {
    nb::gil_scoped_release release;  // a new slab's pages are touched here
    slab = slabs->acquire(layout.layout);
  }
  if (slab == nullptr) return std::nullopt;
  torch_shim::begin_planned(*slab, scoped);
  return PlannedPass(slabs, slab);
}

}  // namespace

NB_MODULE(_torch, module) {
  nb::set_leak_warnings(false);  // what a program still holds as it ends is none of its reader's business
  nb::module_::import_("memoir._core");  // RecordedPlan and Error are known to Python from there
  torch_shim::install();
  module.def("in_pass", &torch_shim::in_pass,
             "True while the calling thread is inside a recorded or planned pass.");

  nb::class_<Layout>(module, "Layout")
      .def(nb::init<const RecordedPlan&>(), nb::arg("plan"))
      .def_prop_ro("arena_size", [](const Layout& self) { return self.layout->arena_size(); });

  nb::class_<SlabSet>(module, "SlabPool")
      .def(nb::new_([](size_t max_slabs, Size max_bytes, bool poison) {
             return std::make_shared<SlabSet>(SlabSetOptions{max_slabs, max_bytes, poison});
           }),
           nb::arg("max_slabs"), nb::arg("max_bytes"), nb::arg("poison"))
      .def_prop_ro("held_bytes", &SlabSet::held_bytes)
      .def_prop_ro("slabs", &SlabSet::size)
      .def("retire_all", &SlabSet::retire_all, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<PlannedPass>(module, "PlannedPass")
      .def("end", &PlannedPass::end,
           "Ends the pass of this thread: (planned, escaping, unmatched, occupied, in_step, at_end).");
  module.def("begin_planned", &begin_planned, nb::arg("pool"), nb::arg("layout"), nb::arg("scoped"),
             "Leases a slab and follows the layout on this thread, or None: no slab is to be had.");

  nb::class_<Recording>(module, "Recording")
      .def(nb::init<const std::optional<std::string>&>(), nb::arg("path") = nb::none())
      .def("begin", &Recording::begin, nb::arg("large_apart"))
      .def("end", &Recording::end)
      .def("pass_begin", &Recording::pass_begin)
      .def("pass_end", &Recording::pass_end)
      .def("meta", &Recording::meta, nb::arg("key"), nb::arg("value"))
      .def("bytes", &Recording::bytes)
      .def_prop_ro("dropped", &Recording::dropped)
      .def("close", &Recording::close);
}

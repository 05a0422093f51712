// SPDX-License-Identifier: Apache-2.0
//
// The door to PyTorch as a Python module; memoir/torch is its only user. Everything that holds addresses
// (slabs, recorders, the allocator) lives in this one shared object. The first use puts memoir's allocator in
// place: what only wants pools for GPUs leaves PyTorch's where it is.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "memoir/base/error.h"
#include "memoir/remember/slab/slab_set.h"
#include "memoir/remember/torch/allocator.h"
#include "torch_call_shape.h"
#include "torch_calls.h"

namespace nb = nanobind;
using namespace memoir;

namespace {

/// A trace in the making, in memory or in a file: allocations of the thread between begin() and end(), with
/// passes marked; or, everywhere, of all threads.
class Recording {
 public:
  explicit Recording(const std::optional<std::string>& path) {
    torch_door::install();
    if (path) {
      recorder_.emplace(path->c_str());
      const int error = recorder_->writer().error();
      if (error != 0) throw Error(*path + ": cannot be written: " + std::string(std::strerror(error)));
    } else {
      recorder_.emplace();
    }
  }
  ~Recording() { end(); }
  void begin(bool large_apart) {
    torch_door::begin_recording(*recorder_, large_apart);
    recording_ = true;
  }
  bool begin_everywhere() {
    return recording_ = everywhere_ = torch_door::begin_recording_everywhere(*recorder_);
  }
  void end() {
    if (!recording_) return;
    if (everywhere_) torch_door::end_recording_everywhere(*recorder_);
    else torch_door::end_recording();
    recording_ = false;
  }
  std::uint64_t pass_begin() {
    const std::uint64_t pass = passes_.fetch_add(1) + 1;
    recorder_->pass_begin(pass);
    return pass;
  }
  void pass_end(std::uint64_t pass) { recorder_->pass_end(pass); }
  void meta(const std::string& key, const std::string& value) { recorder_->meta(key, value); }
  nb::bytes bytes() {
    const auto bytes = recorder_->writer().bytes();
    return nb::bytes(bytes.data(), bytes.size());
  }
  std::uint64_t dropped() { return recorder_->writer().dropped(); }
  void close() { recorder_->writer().close(); }

 private:
  std::optional<Recorder> recorder_;
  std::atomic<std::uint64_t> passes_ = 0;
  bool recording_ = false, everywhere_ = false;
};

/// What memoir knows of PyTorch, told to the recorder of the whole program, which is preloaded.
class ProgramsRecording {
 public:
  ProgramsRecording() {
    const ProgramRecording* const found = ProgramRecording::find();
    if (found == nullptr || !found->is_on()) throw Error("nothing records this program");
    torch_door::install();
    recording_ = found;
  }
  bool begin_everywhere() { return torch_door::tell_program_recording(*recording_); }
  std::uint64_t pass_begin() {
    const std::uint64_t pass = passes_.fetch_add(1) + 1;
    recording_->pass(pass, true);
    return pass;
  }
  void pass_end(std::uint64_t pass) { recording_->pass(pass, false); }
  void module_begin(std::string_view path) { recording_->module_begins(path, __builtin_frame_address(0)); }
  void module_end() { recording_->module_ends(); }
  void meta(const std::string& key, const std::string& value) { recording_->meta(key, value); }

 private:
  const ProgramRecording* recording_ = nullptr;
  std::atomic<std::uint64_t> passes_ = 0;
};

}  // namespace

NB_MODULE(_torch, module) {
  nb::set_leak_warnings(false);  // what a program still holds as it ends is none of its reader's business
  nb::module_::import_("memoir._core");  // RecordedPlan and Error are known to Python from there
  if (!prepare_call_shapes()) nb::raise_python_error();
  module.def("in_pass", &torch_door::in_pass,
             "True while the calling thread is inside a recorded or planned pass.");

  nb::class_<SlabSet>(module, "SlabSet")
      .def(nb::new_([](size_t max_slabs, Size max_bytes, bool poison, double patience) {
             return std::make_shared<SlabSet>(
                 SlabSetOptions{max_slabs, max_bytes, poison, static_cast<unsigned>(patience * 1000)});
           }),
           nb::arg("max_slabs"), nb::arg("max_bytes"), nb::arg("poison"), nb::arg("patience") = 0.0)
      .def_static("of_process", &SlabSet::of_process,
                  "The one that callables share which have no limits of their own.")
      .def_prop_ro("held_bytes", &SlabSet::held_bytes)
      .def_prop_ro("slabs", &SlabSet::size)
      .def("retire_all", &SlabSet::retire_all, nb::call_guard<nb::gil_scoped_release>());

  bind_calls(module);

  nb::class_<Recording>(module, "Recording")
      .def(nb::init<const std::optional<std::string>&>(), nb::arg("path") = nb::none())
      .def("begin", &Recording::begin, nb::arg("large_apart"))
      .def("begin_everywhere", &Recording::begin_everywhere,
           "Records all threads; False while another recording does.")
      .def("end", &Recording::end)
      .def("pass_begin", &Recording::pass_begin, "Returns the pass's number.")
      .def("pass_end", &Recording::pass_end, nb::arg("pass_number"))
      .def("meta", &Recording::meta, nb::arg("key"), nb::arg("value"))
      .def("bytes", &Recording::bytes)
      .def_prop_ro("dropped", &Recording::dropped)
      .def("close", &Recording::close);

  nb::class_<ProgramsRecording>(module, "ProgramsRecording",
                                "Tells the recorder that is preloaded of tensors, operators and passes.")
      .def(nb::init<>())
      .def("begin_everywhere", &ProgramsRecording::begin_everywhere,
           "Tells it of all threads, to the end of the process; False while another recording does.")
      .def("pass_begin", &ProgramsRecording::pass_begin, "Returns the pass's number.")
      .def("pass_end", &ProgramsRecording::pass_end, nb::arg("pass_number"))
      .def("module_begin", &ProgramsRecording::module_begin, nb::arg("path"),
           "The thread calls a module: what it allocates until module_end() has that in its stacks.")
      .def("module_end", &ProgramsRecording::module_end)
      .def("meta", &ProgramsRecording::meta, nb::arg("key"), nb::arg("value"));
}

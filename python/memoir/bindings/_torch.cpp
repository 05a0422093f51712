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
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/remember/memory.h"
#include "memoir/remember/slab/slab_set.h"
#include "memoir/remember/torch/allocator.h"
#include "torch_call_shape.h"

namespace nb = nanobind;
using namespace memoir;

namespace {

/// What one callable remembers, and the way that each of its calls takes. Each pass is owned by one object in
/// C++, with no Python between its start and the callable's, nor between the callable's end and its own:
/// whatever a signal handler raises, the pass ends.
class CallableMemory {
 public:
  CallableMemory(size_t max_plans, double patience, std::shared_ptr<SlabSet> slabs, nb::object describe,
                 nb::object say_nothing_repeats)
      : memory_(MemoryOptions{max_plans, static_cast<unsigned>(patience * 1000)}, std::move(slabs)),
        describe_(std::move(describe)),
        say_nothing_repeats_(std::move(say_nothing_repeats)) {
    torch_door::install();
  }

  nb::object call(nb::handle function, nb::tuple args, nb::dict kwargs) {
    // An outer pass covers this one: one plan for all of it is the better plan.
    if (torch_door::in_pass()) return run(function, args, kwargs);
    static thread_local CallShape
        shape;  // a nested call that takes one comes before this one's, or is in its pass
    if (!take_call_shape(args.ptr(), kwargs.ptr(), shape)) {
      memory_.plain();
      return run(function, args, kwargs);
    }
    Memory::Decision decision = memory_.decide(shape);
    if (decision.way == Memory::Way::kSlow) [[unlikely]] {
      const nb::gil_scoped_release release;
      decision = memory_.decide_slowly(std::move(decision));
    }
    if (decision.is_new) [[unlikely]]
      look_at_new(decision, args, kwargs);
    switch (decision.way) {
      case Memory::Way::kFollow:
        return follow(decision, shape, function, args, kwargs);
      case Memory::Way::kRecord:
        return record(decision, function, args, kwargs);
      default:
        return run(function, args, kwargs);
    }
  }

  void give_plan(const RecordedPlan& plan, const std::string& words) {
    given_[without_dimensions(words)].push_back({dimensions_of(words), plan});
  }
  void forget() {
    const nb::gil_scoped_release release;
    memory_.forget();
  }
  nb::dict stats() const {
    const MemoryStats stats = memory_.stats();
    nb::dict all;
    all["calls"] = stats.calls;
    all["recorded_passes"] = stats.recorded_passes;
    all["plan_hits"] = stats.plan_hits;
    all["in_step_passes"] = stats.in_step_passes;
    all["derived_passes"] = stats.derived_passes;
    all["plain_passes"] = stats.plain_passes;
    all["planned"] = stats.planned;
    all["escaping"] = stats.escaping;
    all["fallen_back"] = stats.unmatched + stats.occupied;
    all["unmatched"] = stats.unmatched;
    all["occupied"] = stats.occupied;
    all["guests"] = stats.guests;
    all["plans"] = stats.plans;
    all["arena_size"] = stats.arena_size;
    all["peak_live_bytes"] = stats.peak_live_bytes;
    return all;
  }

 private:
  /// Null, with a Python error set, when the callable raised.
  static nb::object run_or_null(nb::handle function, const nb::tuple& args, const nb::dict& kwargs) noexcept {
    return nb::steal(PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr()));
  }
  static nb::object checked(nb::object result) {
    if (!result.is_valid()) nb::raise_python_error();
    return result;
  }
  static nb::object run(nb::handle function, const nb::tuple& args, const nb::dict& kwargs) {
    return checked(run_or_null(function, args, kwargs));
  }

  nb::object follow(const Memory::Decision& decision, const CallShape& shape, nb::handle function,
                    const nb::tuple& args, const nb::dict& kwargs) {
    Slab* slab = memory_.slabs().acquire_at_once(decision.layout);
    if (slab == nullptr) [[unlikely]] {
      const nb::gil_scoped_release release;  // a new slab's pages are touched here
      slab = memory_.slabs().acquire(decision.layout);
    }
    if (slab == nullptr) [[unlikely]]
      return follow_nothing(decision, function, args, kwargs);
    RequestLog log;
    FollowedPass pass;
    std::optional<Recorder> recorder;
    try {
      if (decision.records) [[unlikely]]
        recorder.emplace();
      torch_door::begin_planned(*slab, decision.scoped, decision.logged ? &log : nullptr,
                                recorder ? &*recorder : nullptr);
    } catch (...) {  // no memory to listen to operators with
      memory_.slabs().give_back(slab);
      return follow_nothing(decision, function, args, kwargs);
    }
    if (recorder) [[unlikely]]
      recorder->pass_begin(1);
    nb::object result = run_or_null(function, args, kwargs);
    if (recorder) [[unlikely]]
      recorder->pass_end(1);
    const torch_door::PassResult how = torch_door::end_planned();
    memory_.slabs().give_back(slab, &pass.kept);
    pass.counters = how.counters;
    pass.repeated = how.in_step && how.at_end;
    pass.finished = result.is_valid();
    memory_.followed(decision, shape, pass, log);
    if (recorder) [[unlikely]] {
      const nb::gil_scoped_release release;
      memory_.recorded(decision, *recorder, result.is_valid());
    }
    return checked(std::move(result));
  }

  /// It was to follow, and there is no slab.
  nb::object follow_nothing(const Memory::Decision& decision, nb::handle function, const nb::tuple& args,
                            const nb::dict& kwargs) {
    if (decision.records) return record(decision, function, args, kwargs);
    memory_.plain();
    return run(function, args, kwargs);
  }

  nb::object record(const Memory::Decision& decision, nb::handle function, const nb::tuple& args,
                    const nb::dict& kwargs) {
    Recorder recorder;
    try {
      torch_door::begin_recording(recorder, decision.large_apart);
    } catch (...) {
      memory_.recorded(decision, recorder, true);  // as a recording that failed
      return run(function, args, kwargs);
    }
    recorder.pass_begin(1);
    nb::object result = run_or_null(function, args, kwargs);
    recorder.pass_end(1);
    torch_door::end_recording();
    {
      const nb::gil_scoped_release release;
      memory_.recorded(decision, recorder, result.is_valid());
    }
    return checked(std::move(result));
  }

  void look_at_new(Memory::Decision& decision, const nb::tuple& args, const nb::dict& kwargs) noexcept {
    if (!given_.empty() && decision.plan != nullptr) {
      try {
        const auto found = given_.find(without_dimensions(nb::cast<std::string>(describe_(args, kwargs))));
        if (found != given_.end()) {
          memory_.give_plans(decision, found->second);
          given_.erase(found);
        }
      } catch (...) {  // it cannot be described, so it is not one of theirs
        PyErr_Clear();
      }
    }
    if (!decision.repeats_nothing) return;
    try {
      say_nothing_repeats_(args, kwargs);
    } catch (...) {  // a warning that was made an error: the call goes on
      PyErr_Clear();
    }
  }

  /// The words of a call less what is in brackets: `float32[1,3,128,130]` and `float32[1,3,64,64]` are one.
  static std::string without_dimensions(const std::string& words) {
    std::string rest;
    bool inside = false;
    for (const char letter : words) {
      if (letter == ']') inside = false;
      if (!inside) rest += letter;
      if (letter == '[') inside = true;
    }
    return rest;
  }
  /// The numbers in the brackets, as take_call_shape() has them.
  static std::vector<std::int64_t> dimensions_of(const std::string& words) {
    std::vector<std::int64_t> numbers;
    for (size_t at = words.find('['); at != std::string::npos; at = words.find('[', at)) {
      do {
        ++at;
        std::int64_t number = 0;
        const char* const end = words.data() + words.size();
        const auto read = std::from_chars(words.data() + at, end, number);
        if (read.ec != std::errc()) break;
        numbers.push_back(number);
        at = static_cast<size_t>(read.ptr - words.data());
      } while (at < words.size() && words[at] == ',');
    }
    return numbers;
  }

  Memory memory_;
  nb::object describe_, say_nothing_repeats_;
  std::unordered_map<std::string, std::vector<Memory::GivenPlan>>
      given_;  // plans from files, until a call of their form comes
};

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
      .def_prop_ro("held_bytes", &SlabSet::held_bytes)
      .def_prop_ro("slabs", &SlabSet::size)
      .def("retire_all", &SlabSet::retire_all, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<CallableMemory>(module, "Memory", "What is remembered of one callable.")
      .def(nb::init<size_t, double, std::shared_ptr<SlabSet>, nb::object, nb::object>(), nb::arg("max_plans"),
           nb::arg("patience"), nb::arg("slabs"), nb::arg("describe"), nb::arg("say_nothing_repeats"))
      .def("call", &CallableMemory::call, nb::arg("function"), nb::arg("args"), nb::arg("kwargs"),
           "What function(*args, **kwargs) returns or raises, out of planned memory where there is a plan.")
      .def("give_plan", &CallableMemory::give_plan, nb::arg("plan"), nb::arg("words"),
           "A plan of calls that describe() has these words for, and for those of other dimensions.")
      .def("forget", &CallableMemory::forget)
      .def("stats", &CallableMemory::stats);

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

// SPDX-License-Identifier: Apache-2.0
#include "torch_calls.h"

#include <structmember.h>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <array>
#include <new>
#include <vector>

#include "torch_callable.h"

namespace memoir {

namespace {

/// An object that is called as vectorcall has it, without a tuple and a dict in between.
struct Caller {
  PyObject_HEAD vectorcallfunc vectorcall;
  CallableMemory* memory;  // of memory.call
  PyObject* owner;         // keeps it
};

PyObject* call_remembered(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) noexcept
    try {
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  if (count == 0) {
    PyErr_SetString(PyExc_TypeError, "call(function, *args, **kwargs)");
    return nullptr;
  }
  // The place of the function is one that the callee may write to for the time of the call.
  const Arguments arguments{args[0], args + 1, (count - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, names, 0};
  return reinterpret_cast<Caller*>(self)->memory->call(arguments).release().ptr();
} catch (const std::bad_alloc&) {
  return PyErr_NoMemory();
}

void destroy_caller(PyObject* self) noexcept {
  PyTypeObject* const type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<Caller*>(self)->owner);
  type->tp_free(self);
  Py_DECREF(type);
}

/// torch.nn.Module.__call__ for a program whose outermost module calls are remembered. There is one in a
/// process: a class's attribute, for good.
struct ModuleCalls {
  PyObject *plain = nullptr, *memories = nullptr, *know = nullptr;
  PyObject* call = nullptr;        // what torch.nn.Module.__call__ is now
  ternaryfunc looks_up = nullptr;  // how classes are called that have their __call__ from Python
  bool from_second = true;
  std::uint64_t first_sights = 0;  // calls of modules that were not known, and were not called again yet
};
ModuleCalls g_modules;

/// The outermost call of a module in progress on this thread: what is called from there is a part of it.
thread_local std::optional<torch_door::Whereabouts> t_outermost;

PyObject* call_within(PyObject* const* args, size_t nargsf, PyObject* names, CallableMemory* memory) {
  t_outermost = whereabouts(__builtin_frame_address(0));
  const Arguments arguments{g_modules.plain, args, nargsf, names, 1};
  nb::object result = memory == nullptr ? arguments.run() : memory->call(arguments);
  t_outermost.reset();  // another greenlet's, perhaps: what that one calls is then looked at, and runs plain
  return result.release().ptr();
}

/// Whether the module is called for the first time, as far as is known: many are called once and dropped.
bool is_first_sight(PyObject* module) noexcept {
  static std::array<PyObject*, 1024> seen;  // weak references, by address
  PyObject*& slot = seen[(reinterpret_cast<std::uintptr_t>(module) >> 4) % seen.size()];
  bool known = false;
  if (slot != nullptr) {
#if PY_VERSION_HEX >= 0x030d0000
    PyObject* alive = nullptr;
    known = PyWeakref_GetRef(slot, &alive) == 1 && alive == module;
    Py_XDECREF(alive);
#else
    known = PyWeakref_GetObject(slot) == module;
#endif
  }
  PyObject* const before = std::exchange(slot, known ? nullptr : PyWeakref_NewRef(module, nullptr));
  Py_XDECREF(before);
  PyErr_Clear();
  known ? --g_modules.first_sights : ++g_modules.first_sights;
  return !known;
}

bool is_within_another() noexcept { return t_outermost && t_outermost->is_here(); }

/// Of a module that no other one calls.
PyObject* call_outermost(PyObject* const* args, size_t nargsf, PyObject* names) {
  PyObject* const module = args[0];
  const nb::object key = nb::steal(PyLong_FromVoidPtr(module));
  nb::object known = nb::borrow(PyDict_GetItemWithError(g_modules.memories, key.ptr()));
  if (!known.is_valid()) {
    PyErr_Clear();
    if (g_modules.from_second && is_first_sight(module)) return call_within(args, nargsf, names, nullptr);
    known = nb::steal(PyObject_CallOneArg(g_modules.know, module));
    if (!known.is_valid()) return nullptr;  // a signal handler's
  }
  // (weak reference, Memory, the core's memory): None for a module that is not remembered, and True for one
  // that the program remembers itself.
  if (!PyTuple_Check(known.ptr()) || PyTuple_GET_ITEM(known.ptr(), 2) == Py_None)
    return PyObject_Vectorcall(g_modules.plain, args, nargsf, names);
  const nb::object core = nb::borrow(PyTuple_GET_ITEM(known.ptr(), 2));
  return call_within(args, nargsf, names, core.ptr() == Py_True ? nullptr : nb::cast<CallableMemory*>(core));
}

/// A class's way to be called, in the place of the one that looks up __call__ each time. Python puts that one
/// back wherever __call__ is changed.
PyObject* call_slot(PyObject* module, PyObject* args, PyObject* kwargs) noexcept try {
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(args)) + 1;
  const size_t named = kwargs == nullptr ? 0 : static_cast<size_t>(PyDict_GET_SIZE(kwargs));
  std::array<PyObject*, 12> few;
  std::vector<PyObject*> many;
  if (1 + count + named > few.size()) many.resize(1 + count + named);
  PyObject** const all = (many.empty() ? few.data() : many.data()) + 1;
  all[0] = module;
  for (size_t i = 1; i < count; ++i) all[i] = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i - 1));
  const size_t nargsf = count | PY_VECTORCALL_ARGUMENTS_OFFSET;
  if (is_within_another()) return PyObject_VectorcallDict(g_modules.plain, all, nargsf, kwargs);
  nb::object names, values;  // the values are kept: the dict may change meanwhile
  if (named > 0) {
    names = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(named)));
    values = nb::steal(PyDict_Copy(kwargs));
    if (!names.is_valid() || !values.is_valid()) return nullptr;
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0, i = 0; PyDict_Next(values.ptr(), &at, &key, &value); ++i) {
      if (!PyUnicode_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "keywords must be strings");
        return nullptr;
      }
      PyTuple_SET_ITEM(names.ptr(), i, Py_NewRef(key));
      all[count + static_cast<size_t>(i)] = value;
    }
  }
  return call_outermost(all, nargsf, names.ptr());
} catch (const std::bad_alloc&) {
  return PyErr_NoMemory();
}

/// Of a class that is called through the __call__ of the program's.
void shorten_way(PyTypeObject* type) noexcept {
  if (type->tp_call != g_modules.looks_up || !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return;
  PyObject* const call = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__call__");
  if (call == g_modules.call) type->tp_call = call_slot;
  Py_XDECREF(call);
  PyErr_Clear();
}

PyObject* call_module(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) noexcept try {
  if (PyVectorcall_NARGS(nargsf) == 0) return PyObject_Vectorcall(g_modules.plain, args, nargsf, names);
  shorten_way(Py_TYPE(args[0]));
  return is_within_another() ? PyObject_Vectorcall(g_modules.plain, args, nargsf, names)
                             : call_outermost(args, nargsf, names);
} catch (const std::bad_alloc&) {
  return PyErr_NoMemory();
}

PyObject* make_caller_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Caller, vectorcall), READONLY, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_members, members},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy_caller)},
                                {}};
  static PyType_Spec spec = {"memoir._torch.Caller", sizeof(Caller), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  return PyType_FromSpec(&spec);
}

nb::object make_caller(vectorcallfunc function, CallableMemory* memory, PyObject* owner) {
  static PyObject* const type = make_caller_type();
  if (type == nullptr) nb::raise_python_error();
  Caller* const made = PyObject_New(Caller, reinterpret_cast<PyTypeObject*>(type));
  if (made == nullptr) nb::raise_python_error();
  made->vectorcall = function;
  made->memory = memory;
  made->owner = Py_XNewRef(owner);
  return nb::steal(reinterpret_cast<PyObject*>(made));
}

nb::object caller_of(nb::handle memory) {
  return make_caller(call_remembered, nb::cast<CallableMemory*>(memory), memory.ptr());
}

nb::object call_modules(nb::object plain, nb::dict memories, nb::object know, bool from_second) {
  g_modules.plain = plain.release().ptr();
  g_modules.memories = memories.release().ptr();
  g_modules.know = know.release().ptr();
  g_modules.from_second = from_second;
  return make_caller(call_module, nullptr, nullptr);
}

}  // namespace

void bind_calls(nb::module_& module) {
  nb::class_<Ledger>(module, "Ledger", "What learning may cost, of one callable or of several together.")
      .def(nb::new_([] { return std::make_shared<Ledger>(); }))
      .def_prop_ro(
          "share",
          [](const Ledger& ledger) {
            const Ledger::Figures all = ledger.figures();
            return static_cast<double>(all.learning + all.looks) /
                   static_cast<double>(std::max<Ledger::Nanoseconds>(all.passes, 1));
          },
          "What was spent on learning and looking, of the time of passes.");

  nb::class_<CallableMemory>(module, "Memory", "What is remembered of one callable.")
      .def(nb::init<size_t, double, std::shared_ptr<SlabSet>, std::shared_ptr<Ledger>, nb::object,
                    nb::object>(),
           nb::arg("max_plans"), nb::arg("patience"), nb::arg("slabs"), nb::arg("ledger").none(),
           nb::arg("describe"), nb::arg("say_nothing_repeats"))
      .def_prop_ro("call", &caller_of,
                   "call(function, *args, **kwargs) is what function(*args, **kwargs) returns or raises, out "
                   "of planned "
                   "memory where there is a plan.")
      .def("give_plan", &CallableMemory::give_plan, nb::arg("plan"), nb::arg("words"),
           "A plan of calls that describe() has these words for, and for those of other dimensions.")
      .def("forget", &CallableMemory::forget)
      .def("stats", &CallableMemory::stats);

  module.def(
      "modules_are_called_by",
      [](nb::type_object type, nb::object call) {
        g_modules.looks_up = reinterpret_cast<PyTypeObject*>(type.ptr())->tp_call;
        g_modules.call = call.release().ptr();
      },
      nb::arg("type"), nb::arg("call"),
      "type.__call__ is `call` now, which passes on to what call_modules() returned: classes that have it "
      "from there are "
      "called without it, as long as that is so.");
  module.def(
      "called_once", [] { return g_modules.first_sights; },
      "Modules that call_modules() was called with once.");
  module.def("call_modules", &call_modules, nb::arg("plain"), nb::arg("memories"), nb::arg("know"),
             nb::arg("from_second"),
             "What torch.nn.Module.__call__ does from now on: outermost calls are remembered, plain(module, "
             "*args, **kwargs) "
             "is what they do. `memories`, by the module's id, has what know(module) returns: a weak "
             "reference, a memory of "
             "its class, and that one's core; None for a module that is not remembered, True for one that "
             "the program "
             "remembers. `from_second`: know() is asked at the second call of a module, not at its first.");
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// The shape of a call from Python: what its arguments are, as far as one can see in a microsecond.
#pragma once

#include <Python.h>

#include <cstddef>

#include "memoir/remember/call_shape.h"

namespace memoir {

/// Once, with torch imported. False, with a Python error set, when this torch is not as we know it.
bool prepare_call_shapes();

/// Of the arguments as vectorcall has them: `count` in order, then one for each of `names` (null: none).
///
/// Tensors by dtype, device, layout, requires_grad and their dimensions; integers and strings as values;
/// lists, tuples, dicts and the attributes of objects by their lengths and what is in them, level by level,
/// up to 256 parts in all; everything else by type; and the state of the calling thread that changes what
/// operators allocate (grad and inference mode, intra-op threads, autocast). False: there is no saying (a
/// tensor that has no sizes, or a compiler's trace), and nothing is known of the call.
bool take_call_shape(PyObject* const* args, std::size_t count, PyObject* names, CallShape& shape) noexcept;

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// Refusals as PyTorch's own exceptions. It lets an allocator's exceptions through, and turns
// c10::OutOfMemoryError, but no other, into torch.OutOfMemoryError.
#include <c10/util/Exception.h>

#include "memoir/device/torch/pluggable.h"

namespace memoir::device_door {

void throw_refusal(bool out_of_memory, const std::string& text) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  if (out_of_memory) throw c10::OutOfMemoryError(here, text);
  throw c10::Error(here, text);
}

}  // namespace memoir::device_door

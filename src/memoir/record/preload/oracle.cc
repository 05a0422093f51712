// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/preload/oracle.h"

#include <dlfcn.h>
#include <unwind.h>

namespace memoir::record {

namespace {

using Backtrace = _Unwind_Reason_Code (*)(_Unwind_Trace_Fn, void*);
using GetAddress = _Unwind_Word (*)(struct _Unwind_Context*, int*);
Backtrace backtrace_of_gcc = nullptr;
GetAddress address_of_gcc = nullptr;

struct Answer {
  stacks::Frame first;
  stacks::Frame* frames;
  unsigned most, count;
};

_Unwind_Reason_Code visit(struct _Unwind_Context* context, void* data) {
  auto& answer = *static_cast<Answer*>(data);
  int before = 0;
  const stacks::Frame pc = address_of_gcc(context, &before);
  if (answer.count == 0 && pc != answer.first) return _URC_NO_REASON;
  if (answer.count == answer.most) return _URC_END_OF_STACK;
  if (pc != 0) answer.frames[answer.count++] = before != 0 ? pc + 1 : pc;
  return _URC_NO_REASON;
}

unsigned ask(stacks::Frame first, stacks::Frame* frames, unsigned most) {
  Answer answer{first, frames, most, 0};
  backtrace_of_gcc(visit, &answer);
  return answer.count;
}

}  // namespace

StackOracle find_oracle() noexcept {
  void* const library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  backtrace_of_gcc = reinterpret_cast<Backtrace>(dlsym(library, "_Unwind_Backtrace"));
  address_of_gcc = reinterpret_cast<GetAddress>(dlsym(library, "_Unwind_GetIPInfo"));
  return backtrace_of_gcc == nullptr || address_of_gcc == nullptr ? nullptr : ask;
}

}  // namespace memoir::record

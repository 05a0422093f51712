// SPDX-License-Identifier: Apache-2.0
//
// What memoir's part in PyTorch tells the recorder, where it is preloaded: record/program_recording.h has
// these functions by their names. For any thread; without a recording they do nothing.
#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "memoir/record/preload/control.h"

using namespace memoir::record;

namespace {

ThreadRecord* recording_thread() noexcept {
  return mode() != Mode::kEverything || thread_state.ended ? nullptr : own_record();
}

}  // namespace

/// Whether everything is recorded now.
MEMOIR_EXPORT int memoir_record_is_on(void) { return mode() == Mode::kEverything ? 1 : 0; }
/// After malloc served a tensor's memory, and before that is freed.
MEMOIR_EXPORT void memoir_record_tensor_begins(const void* address, size_t size, unsigned alignment_log2) {
  const auto entry = MEMOIR_ENTRY;
  if (ThreadRecord* const thread = recording_thread())
    recorder.tensor_begins(*thread, address, size, alignment_log2, entry);
}
MEMOIR_EXPORT void memoir_record_tensor_ends(const void* address) {
  if (ThreadRecord* const thread = recording_thread()) recorder.tensor_ends(*thread, address);
}
/// `place`: an object of the function that runs the operator, on its stack.
MEMOIR_EXPORT void memoir_record_operator_begins(const char* name, size_t length, const void* place) {
  if (ThreadRecord* const thread = recording_thread())
    recorder.scope_begins(*thread, memoir::stacks::FrameKind::kOperator, {name, length}, place);
}
MEMOIR_EXPORT void memoir_record_operator_ends(void) {
  if (ThreadRecord* const thread = recording_thread()) recorder.scope_ends(*thread);
}
/// The same of the call of an nn.Module, by its path in the model.
MEMOIR_EXPORT void memoir_record_module_begins(const char* name, size_t length, const void* place) {
  if (ThreadRecord* const thread = recording_thread())
    recorder.scope_begins(*thread, memoir::stacks::FrameKind::kModulePath, {name, length}, place);
}
MEMOIR_EXPORT void memoir_record_module_ends(void) {
  if (ThreadRecord* const thread = recording_thread()) recorder.scope_ends(*thread);
}
MEMOIR_EXPORT void memoir_record_pass(uint64_t number, int begins) {
  if (ThreadRecord* const thread = recording_thread()) recorder.pass(*thread, number, begins != 0);
}
MEMOIR_EXPORT void memoir_record_meta(const char* key, size_t key_length, const char* value, size_t length) {
  if (ThreadRecord* const thread = recording_thread())
    recorder.meta(*thread, std::string_view(key, key_length), std::string_view(value, length));
}

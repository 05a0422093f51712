// SPDX-License-Identifier: Apache-2.0
//
// Any text as the JSON of an allocator's settings (a trace from a stranger may hold it): refused, and then
// nothing is written; or written as a pickle that the reader takes, whose own JSON comes back the same.
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

#include "memoir/base/error.h"
#include "memoir/formats/pickle/pickle_machine.h"
#include "memoir/formats/pickle/settings_json.h"

using namespace memoir;

namespace {

constexpr size_t kMost = 1 << 20;  // bytes of JSON

void must(bool holds) {
  if (!holds) std::abort();
}

/// The text as a pickle and back. nullopt when it is not JSON, or says what a setting does not hold.
std::optional<std::string> through_a_pickle(std::string_view json, bool& accepted) {
  Output output;
  PickleWriter writer(output);
  const size_t before = output.text().size();
  accepted = write_json(json, writer);
  if (!accepted) {
    must(output.text().size() == before);
    return std::nullopt;
  }
  writer.stop();
  PickleInput input(std::as_bytes(std::span(output.text())));
  PickleValues values;
  return to_json(values, run_pickle(input, values, "x.pickle"), kMost);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  bool accepted;
  const auto first = through_a_pickle({reinterpret_cast<const char*>(data), size}, accepted);
  if (!first) return 0;
  const auto second = through_a_pickle(*first, accepted);
  must(accepted && second == first);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// An allocator's settings: a few nested dicts of plain values, kept in a trace as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "memoir/formats/pickle/pickle_values.h"
#include "memoir/formats/pickle/pickle_writer.h"

namespace memoir {

/// The value as JSON, tuples as arrays. nullopt: more than `most` bytes, nested deeper than 16, or with a key
/// that is not a string.
std::optional<std::string> to_json(const PickleValues& values, Value value, std::size_t most);

/// The other way: writes what the JSON text says as one value. False, and nothing is written, when it is no
/// JSON, or nested deeper than 32.
bool write_json(std::string_view json, PickleWriter& writer);

}  // namespace memoir

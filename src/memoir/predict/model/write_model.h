// SPDX-License-Identifier: Apache-2.0
//
// Puts a .model file together from its sections. docs/reference/formats-model.md says what each holds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memoir/predict/model/model_format.h"

namespace memoir {

/// By kind - 1; those without a value are left out.
using ModelSections = std::array<std::optional<std::string_view>, model_format::kKinds>;

/// The whole file, with header, table, padding and checksum. `key`: of the hashes of a private model, else 0.
/// Throws Error, which says what is wrong, for sections that no reader takes.
std::string write_model(const ModelSections& sections, std::uint64_t key);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// For messages about names that do not exist: the known one that was probably meant.
#pragma once

#include <span>
#include <string_view>

namespace memoir {

/// The known word that takes the fewest edits (insert, leave out, replace, swap two neighbours; Damerau 1964,
/// restricted) from `word`, ignoring case, the first of several; empty when none is near: more than 2 edits
/// and more than a third of the word. Not for use inside malloc.
std::string_view nearest_spelling(std::string_view word, std::span<const std::string_view> known);

}  // namespace memoir

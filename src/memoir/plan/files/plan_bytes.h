// SPDX-License-Identifier: Apache-2.0
//
// What the readers of all versions of the plan file share.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "memoir/plan/files/plan_proof.h"

namespace memoir {

/// The element of that number in a table of them. The caller has checked that it is there.
template <class Element>
Element element_at(std::string_view table, std::size_t index) {
  Element element;
  std::memcpy(&element, table.data() + index * sizeof element, sizeof element);
  return element;
}

template <std::size_t N>
std::string_view zero_padded(const char (&field)[N]) {
  const std::string_view text(field, N);
  // a zero within is not a letter, which the proof sees
  return text.substr(0, text.find_last_not_of('\0') + 1);
}

[[noreturn]] void refuse_cut_off(std::string_view bytes, const PlanProof& proof);
void check_checksum(std::string_view bytes, std::uint64_t checksum, const PlanProof& proof);
/// (key size, value size: 4 bytes each; key; value) for each.
void read_metas(std::string_view bytes, std::uint64_t count, ProgramPlan& plan, const PlanProof& proof);

/// The whole of a file whose header says version 1; not proven yet.
ProgramPlan read_plan_v1(std::string_view bytes, const PlanProof& proof);

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
//
// A plan file that is accepted is a plan, and is written back byte for byte, unless it has
// sections that were passed over: then what is written reads as the same. The checksum is made to match, or
// no mutation would get past it. With a skeleton it also takes other sizes.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/plan/files/plan_file.h"

namespace {

void place_on_other_sizes(const memoir::ProgramPlan& plan) {
  std::vector<memoir::Size> sizes, alignments;
  for (const memoir::PlannedAllocation& allocation : plan.sequence) {
    sizes.push_back(allocation.planned() ? (allocation.size * 7 + 3) % 1000 : 0);
    alignments.push_back(1);
  }
  const std::vector<memoir::Offset> offsets = memoir::place_on(*plan.skeleton, sizes, alignments);
  for (size_t i = 0; i < offsets.size(); ++i)
    MEMOIR_CHECK((offsets[i] == memoir::kNoOffset) == !plan.sequence[i].planned(),
                 "all that is planned is placed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= sizeof(memoir::plan_format::Header)) {
    const std::uint64_t checksum = memoir::plan_format::checksum(bytes);
    std::memcpy(bytes.data() + offsetof(memoir::plan_format::Header, checksum), &checksum, sizeof checksum);
  }
  try {
    const memoir::ProgramPlan plan = memoir::read_plan(bytes, "fuzz");
    const std::string written = memoir::write_plan(plan);
    MEMOIR_CHECK(memoir::read_plan(written, "fuzz") == plan, "what is written reads as what was read");
    memoir::plan_format::Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.version == memoir::plan_format::kVersion && header.sections == (plan.skeleton ? 4 : 3))
      MEMOIR_CHECK(written == bytes, "what is read is written back");
    if (plan.skeleton) place_on_other_sizes(plan);
  } catch (const memoir::Error&) {
  }
  return 0;
}

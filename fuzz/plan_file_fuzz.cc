// SPDX-License-Identifier: Apache-2.0
//
// A plan file that is accepted is a plan, and is written back byte for byte. The checksum is made to match,
// or no mutation would get past it.
#include <cstdint>
#include <cstring>
#include <string>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/plan/files/plan_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= sizeof(memoir::plan_format::Header)) {
    const std::uint64_t checksum = memoir::plan_format::checksum(bytes);
    std::memcpy(bytes.data() + offsetof(memoir::plan_format::Header, checksum), &checksum, sizeof checksum);
  }
  try {
    const memoir::RecordedPlan plan = memoir::read_plan(bytes, "fuzz");
    MEMOIR_CHECK(memoir::write_plan(plan) == bytes, "what is read is written back");
  } catch (const memoir::Error&) {
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a lifetime profile: refused with an Error, or read, and then it is written back as the same
// bytes unless it has sections that were passed over; its canonical form is one; it merges and exports. The
// checksum is made to match, or no mutation would get past it.
#include <cstring>
#include <string>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/formats/pprof/export_lifetimes.h"
#include "memoir/predict/profile/profile_file.h"
#include "memoir/predict/profile/profile_merger.h"

namespace {

using namespace memoir;

void read_as_file(std::string bytes) {
  if (bytes.size() >= sizeof(lifetimes_format::Header)) {
    const std::uint64_t checksum = lifetimes_format::checksum(bytes);
    std::memcpy(bytes.data() + offsetof(lifetimes_format::Header, checksum), &checksum, sizeof checksum);
  }
  const LifetimeProfile profile = read_lifetimes(bytes, "fuzz");
  lifetimes_format::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string written = write_lifetimes(profile);
  if (header.sections == lifetimes_format::kSections)
    MEMOIR_CHECK(written == bytes, "what is read is written back");
  const std::string once = write_lifetimes(canonical(profile));
  MEMOIR_CHECK(write_lifetimes(canonical(read_lifetimes(once, "canonical"))) == once,
               "canonical is canonical");
  for (const char* const format : {"pprof", "folded"}) {
    Output output;
    export_lifetimes(profile, format, output);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  try {
    read_as_file({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    MEMOIR_CHECK(std::strlen(error.what()) > 10, "an error says something");
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// Gives libFuzzer the options of driver.cc, so that a caller need not know which of the two a fuzzer was
// linked with:
//
//   --seconds N  -max_total_time=N        --dictionary F  -dict=F
//   --rounds N   -runs=N                  --seed N        -seed=N + 1 (0 would mean a random one)
#include <cstdlib>
#include <cstring>
#include <string>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  struct Option {
    const char* ours;
    const char* theirs;
  };
  static constexpr Option kOptions[] = {
      {"--seconds", "-max_total_time="}, {"--rounds", "-runs="}, {"--dictionary", "-dict="}};
  int to = 1;
  for (int from = 1; from < *argc; ++from) {
    std::string text = (*argv)[from];
    if (text == "--seed" && from + 1 < *argc) {
      text = "-seed=" + std::to_string(std::strtoul((*argv)[++from], nullptr, 10) + 1);
    }
    for (const Option& option : kOptions) {
      if (text == option.ours && from + 1 < *argc) text = option.theirs + std::string((*argv)[++from]);
    }
    (*argv)[to++] = ::strdup(text.c_str());  // libFuzzer keeps it until the process ends
  }
  *argc = to;
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzzer without libFuzzer: every file named (or every file in a folder named) as it is, then
// `--rounds N` mutations of them from a fixed seed. A crash or a sanitizer report is the failure; there is
// nothing to assert here.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

void mutate(Bytes& bytes, std::mt19937_64& random) {
  static constexpr std::uint8_t kTelling[] = {0, 1, 0x7f, 0x80, 0xff, ',', '-', '\n', '9'};
  for (auto edits = 1 + random() % 8; edits > 0; --edits) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (bytes.empty() ? 3 : random() % 6) {
      case 0:
        bytes[at] ^= static_cast<std::uint8_t>(1u << random() % 8);
        break;
      case 1:
        bytes[at] = kTelling[random() % std::size(kTelling)];
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(bytes.begin() + at, static_cast<std::uint8_t>(random()));
        break;
      case 4:
        bytes.erase(bytes.begin() + at);
        break;
      default:  // all ones over up to eight bytes: sizes near 2^64
        for (size_t i = at; i < bytes.size() && i < at + 8; ++i) bytes[i] = 0xff;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Bytes> seeds;
  unsigned long rounds = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--rounds" && i + 1 < argc) {
      rounds = std::strtoul(argv[++i], nullptr, 10);
      continue;
    }
    std::vector<std::filesystem::path> paths{argv[i]};
    if (std::filesystem::is_directory(argv[i])) {
      paths.assign(std::filesystem::directory_iterator(argv[i]), {});
    }
    for (const auto& path : paths) {
      std::ifstream file(path, std::ios::binary);
      seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: %s [--rounds N] SEED_FILE_OR_FOLDER...\n", argv[0]);
    return 2;
  }
  for (const Bytes& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());
  std::mt19937_64 random(1);
  for (unsigned long round = 0; round < rounds; ++round) {
    Bytes bytes = seeds[random() % seeds.size()];
    mutate(bytes, random);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu seeds, %lu mutations, no crash\n", seeds.size(), rounds);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzzer without libFuzzer: every file named (or every file in a folder named) as it is, then
// mutations of them until `--rounds N` or `--seconds N` (of the clock) are over, whichever comes first;
// without both, none. The mutations follow from `--seed N` alone (1 unless given). `--dictionary FILE` names
// words to put in, one "..." a line, as libFuzzer has them. A crash or a sanitizer report is the failure;
// there is nothing to assert here. The input that does it is written to ./crash-SEED-ROUND; the same fuzzer
// with that file as its only argument runs it again.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr size_t kLargest = 64 << 10;  // bytes of an input

// What a crash writes down.
const Bytes* current = nullptr;
char crash_name[64];

void keep_current() {
  if (current == nullptr) return;
  const int file = ::open(crash_name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
  if (file < 0 || ::write(file, current->data(), current->size()) < 0) return;
  ::close(file);
  for (const char* const text : {"the input is in ./", static_cast<const char*>(crash_name), "\n"}) {
    if (::write(2, text, std::char_traits<char>::length(text)) < 0) return;
  }
  current = nullptr;  // a sanitizer that dies of its own report comes by twice
}

void on_signal(int number) {
  keep_current();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void mutate(Bytes& bytes, std::mt19937_64& random, const std::vector<Bytes>& seeds,
            const std::vector<Bytes>& words) {
  static constexpr std::uint8_t kTelling[] = {0, 1, 0x7f, 0x80, 0xff, ',', '-', '\n', '9'};
  for (auto edits = 1 + random() % 8; edits > 0; --edits) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (bytes.empty() ? 3 : random() % 9) {
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
      case 5:  // all ones over up to eight bytes: sizes near 2^64
        for (size_t i = at; i < bytes.size() && i < at + 8; ++i) bytes[i] = 0xff;
        break;
      case 6: {  // a stretch of itself again, elsewhere
        const Bytes stretch(bytes.begin() + at, bytes.begin() + at + random() % (bytes.size() - at) % 256);
        bytes.insert(bytes.begin() + random() % bytes.size(), stretch.begin(), stretch.end());
        break;
      }
      case 7: {  // goes on as another seed does
        const Bytes& other = seeds[random() % seeds.size()];
        if (other.empty()) break;
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + random() % other.size(), other.end());
        break;
      }
      default:
        if (words.empty()) break;
        const Bytes& word = words[random() % words.size()];
        if (random() % 2 == 0)
          bytes.erase(bytes.begin() + at, bytes.begin() + std::min(at + word.size(), bytes.size()));
        bytes.insert(bytes.begin() + std::min(at, bytes.size()), word.begin(), word.end());
    }
  }
  if (bytes.size() > kLargest) bytes.resize(kLargest);
}

/// The words of a dictionary: what stands between the first and the last quote of each line; a backslash
/// stands before a quote, before another one, or before xNN.
std::vector<Bytes> read_dictionary(const char* path) {
  std::vector<Bytes> words;
  std::ifstream file(path);
  if (!file) std::fprintf(stderr, "%s: cannot be read\n", path), std::exit(2);
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find('"'), end = line.rfind('"');
    if (line.starts_with('#') || begin == end) continue;
    Bytes word;
    for (size_t i = begin + 1; i < end; ++i) {
      if (line[i] == '\\' && i + 3 < end && line[i + 1] == 'x') {
        word.push_back(static_cast<std::uint8_t>(std::stoul(line.substr(i + 2, 2), nullptr, 16)));
        i += 3;
      } else {
        i += line[i] == '\\';
        word.push_back(static_cast<std::uint8_t>(line[i]));
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

void run(const Bytes& bytes) {
  current = &bytes;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  current = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Bytes> seeds, words;
  unsigned long rounds = 0, seed = 1;
  double seconds = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option.starts_with("--") && i + 1 < argc) {
      const char* const value = argv[++i];
      if (option == "--rounds") rounds = std::strtoul(value, nullptr, 10);
      if (option == "--seconds") seconds = std::strtod(value, nullptr);
      if (option == "--seed") seed = std::strtoul(value, nullptr, 10);
      if (option == "--dictionary") words = read_dictionary(value);
      continue;
    }
    std::vector<std::filesystem::path> paths{argv[i]};
    if (std::filesystem::is_directory(argv[i])) {
      paths.assign(std::filesystem::directory_iterator(argv[i]), {});
      std::sort(paths.begin(), paths.end());  // the mutations of a seed are the same on every machine
    }
    for (const auto& path : paths) {
      std::ifstream file(path, std::ios::binary);
      seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  if (seeds.empty()) {
    std::fprintf(stderr,
                 "usage: %s [--rounds N] [--seconds N] [--seed N] [--dictionary F] SEED_FILE_OR_FOLDER...\n",
                 argv[0]);
    return 2;
  }
  std::signal(SIGABRT, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(keep_current);
  std::snprintf(crash_name, sizeof crash_name, "crash-%lu-seed", seed);
  for (const Bytes& bytes : seeds) run(bytes);
  std::mt19937_64 random(seed);
  timespec begin, now;
  ::clock_gettime(CLOCK_MONOTONIC, &begin);
  unsigned long round = 0;
  for (; rounds != 0 ? round < rounds : seconds > 0; ++round) {
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const double gone = static_cast<double>(now.tv_sec - begin.tv_sec) +
                        1e-9 * static_cast<double>(now.tv_nsec - begin.tv_nsec);
    if (seconds > 0 && gone >= seconds) break;
    Bytes bytes = seeds[random() % seeds.size()];
    mutate(bytes, random, seeds, words);
    std::snprintf(crash_name, sizeof crash_name, "crash-%lu-%lu", seed, round);
    run(bytes);
  }
  std::printf("%zu seeds, %lu mutations, no crash\n", seeds.size(), round);
  return 0;
}

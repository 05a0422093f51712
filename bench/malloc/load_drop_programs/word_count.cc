// SPDX-License-Identifier: Apache-2.0
//
// A data pipeline: threads cut lines into words and count them, hand their counts to others by the word's
// hash, and those add them up. `word_count [THREADS]`; the load is in the environment, as marks.py has it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

using Counts = std::unordered_map<std::string, long>;

double setting(const char* name, double usual) {
  const char* const text = std::getenv(name);
  return text == nullptr ? usual : std::atof(text);
}

void mark(const char* name, int cycle) {
  std::printf("phase %s%d\n", name, cycle);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

void on_threads(int count, auto work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

std::string line(std::mt19937_64& random) {
  std::string text;
  for (int words = 8; words > 0; --words) {
    // Few words are frequent, many are rare and long.
    const auto shape = random();
    const auto rank =
        static_cast<unsigned long>(shape % 1000 * (shape >> 10 & 1023) * (shape >> 20 & 1023) >> 12);
    text +=
        "word" + std::to_string(rank) + (rank > 1000 ? "-of-some-length-beyond-a-short-string" : "") + " ";
  }
  return text;
}

struct Shard {
  std::mutex mutex;
  std::vector<Counts> waiting;
  std::map<std::string, long> total;
};

}  // namespace

int main(int words, char** word) {
  const int threads = words > 1 ? std::atoi(word[1]) : 64;
  const int cycles = static_cast<int>(setting("LOAD_DROP_CYCLES", 3));
  const auto lines = static_cast<int>(setting("LOAD_DROP_SCALE", 1) * 400000 / threads);
  const auto seed = static_cast<unsigned>(setting("LOAD_DROP_SEED", 0));
  std::vector<Shard> shards(static_cast<std::size_t>(threads));
  for (int cycle = 1; cycle <= cycles; ++cycle) {
    on_threads(threads, [&](int id) {
      std::mt19937_64 random(seed * 1000003 + static_cast<unsigned>(cycle * 1000 + id));
      std::vector<Counts> parts(shards.size());
      for (int i = 0; i < lines; ++i) {
        const std::string text = line(random);
        for (std::size_t begin = 0, end; (end = text.find(' ', begin)) != std::string::npos;
             begin = end + 1) {
          const std::string found = text.substr(begin, end - begin);
          ++parts[std::hash<std::string>()(found) % shards.size()][found];
        }
        if (i % 500 != 499 && i + 1 != lines) continue;
        for (std::size_t to = 0; to < shards.size(); ++to) {
          const std::lock_guard lock(shards[to].mutex);
          shards[to].waiting.push_back(std::move(parts[to]));
          parts[to] = {};
        }
      }
    });
    on_threads(threads, [&](int id) {
      Shard& mine = shards[static_cast<std::size_t>(id)];
      for (const Counts& counts : mine.waiting) {
        for (const auto& [text, count] : counts) mine.total[text] += count;
      }
    });
    mark("full", cycle);
    for (Shard& shard : shards) {
      shard.waiting = {};
      std::erase_if(shard.total, [](const auto& one) { return one.second < 20; });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(setting("LOAD_DROP_SETTLE", 6)));
    mark("settled", cycle);
  }
}

// SPDX-License-Identifier: Apache-2.0
//
// Small programs that do little but allocate, in the manner of those that allocators are commonly compared
// by, written for this comparison: `malloc_programs NAME [SCALE]`. Each prints a checksum that no allocator
// may change. bench/malloc/malloc.py runs them.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

struct Random {
  std::uint64_t state = 88172645463325252ull;
  std::uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 2685821657736338717ull >> 11;
  }
};

constexpr int kThreads = 2;
std::atomic<std::uint64_t> checksum{0};

void* filled(std::size_t size, std::uint64_t mark) {
  auto* block = static_cast<unsigned char*>(std::malloc(size));
  if (block == nullptr) std::abort();
  block[0] = static_cast<unsigned char>(mark);
  block[size - 1] = static_cast<unsigned char>(mark);
  return block;
}

template <class Work>
void on_threads(int count, Work work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

// Numbers of a few digits, each in a block of its own, multiplied and reduced: a factoriser's pattern of tiny
// blocks that live for an operation.
struct Number {
  std::uint16_t length;
  std::uint16_t digit[1];
};
Number* number(std::size_t length) {
  auto* made = static_cast<Number*>(std::malloc(sizeof(Number) + 2 * length));
  made->length = static_cast<std::uint16_t>(length);
  return made;
}
Number* product(const Number* a, const Number* b) {
  Number* result = number(a->length + b->length);
  std::fill_n(result->digit, result->length, 0);
  for (int i = 0; i < a->length; ++i) {
    std::uint32_t carry = 0;
    for (int j = 0; j < b->length; ++j) {
      carry += result->digit[i + j] + std::uint32_t{a->digit[i]} * b->digit[j];
      result->digit[i + j] = static_cast<std::uint16_t>(carry);
      carry >>= 16;
    }
    result->digit[i + b->length] = static_cast<std::uint16_t>(carry);
  }
  return result;
}
Number* reduced(const Number* a, std::size_t length) {
  Number* result = number(length);
  for (std::size_t i = 0; i < length; ++i)
    result->digit[i] =
        static_cast<std::uint16_t>(a->digit[i] ^ (i + length < a->length ? a->digit[i + length] : 0)) | 1;
  return result;
}
void factor(int scale) {
  Random random;
  Number* value = number(4);
  for (auto i = 0; i < 4; ++i) value->digit[i] = static_cast<std::uint16_t>(random() | 1);
  for (long i = 0; i < 2000000l * scale; ++i) {
    Number* square = product(value, value);
    std::free(value);
    value = reduced(square, 3 + i % 6);
    std::free(square);
  }
  checksum += value->digit[0];
  std::free(value);
}

// Sets of cubes (bit vectors) that are copied, joined, sorted and thrown away: lists of many small vectors.
void cubes(int scale) {
  Random random;
  for (int round = 0; round < 60 * scale; ++round) {
    std::vector<std::vector<std::uint32_t>> cover;
    for (int i = 0; i < 2000; ++i)
      cover.emplace_back(1 + random() % 12, static_cast<std::uint32_t>(random()));
    for (int pass = 0; pass < 6; ++pass) {
      std::vector<std::vector<std::uint32_t>> next;
      for (std::size_t i = 0; i + 1 < cover.size(); ++i) {
        auto joined = cover[i];
        for (std::size_t k = 0; k < joined.size() && k < cover[i + 1].size(); ++k)
          joined[k] &= cover[i + 1][k];
        if (joined[0] % 4 != 0) next.push_back(std::move(joined));
        else next.push_back(cover[i]);
      }
      std::sort(next.begin(), next.end());
      cover = std::move(next);
    }
    checksum += cover[0][0];
  }
}

// Random sizes into random places of a table.
void table(int threads, int scale, std::size_t places, std::size_t most) {
  on_threads(threads, [=](int id) {
    Random random{88172645463325252ull + id};
    std::vector<std::pair<void*, std::size_t>> slots(places);
    std::uint64_t sum = 0;
    for (long i = 0; i < 3000000l * scale; ++i) {
      auto& [block, size] = slots[random() % places];
      if (block != nullptr) sum += static_cast<unsigned char*>(block)[size - 1];
      std::free(block);
      const std::uint64_t shape = random();
      size = 16 + (shape & 1023) * (shape >> 10 & 1023) * most / (1 << 20);
      block = filled(size, shape);
    }
    for (auto& [block, size] : slots) std::free(block);
    checksum += sum;
  });
}

// One size at a time: as many as fit, then all freed, in order and in reverse.
void simple(int threads, int scale) {
  on_threads(threads, [=](int) {
    std::vector<void*> blocks(1600);
    for (int round = 0; round < 250 * scale; ++round) {
      for (const std::size_t size : {24, 56, 120, 200, 400, 1000}) {
        for (void*& block : blocks) block = filled(size, size);
        if (round % 2 != 0) std::reverse(blocks.begin(), blocks.end());
        for (void* block : blocks) std::free(block);
        for (int k = 0; k < 400; ++k) std::free(filled(size, k));
      }
    }
  });
}

// A server's workers: each replaces random blocks of its own table, and hands the table to the next worker,
// who is a new thread.
void server(int scale) {
  constexpr std::size_t kBlocks = 2000;
  std::vector<std::vector<void*>> tables(kThreads, std::vector<void*>(kBlocks));
  Random fill;
  for (auto& one : tables)
    for (void*& block : one) block = filled(16 + fill() % 500, 1);
  for (int round = 0; round < 30 * scale; ++round) {
    on_threads(kThreads, [&](int id) {
      Random random{static_cast<std::uint64_t>(round * 100 + id + 1)};
      auto& mine = tables[static_cast<std::size_t>(id + round) % kThreads];
      for (int i = 0; i < 100000; ++i) {
        void*& block = mine[random() % kBlocks];
        std::free(block);
        block = filled(16 + random() % 500, i);
      }
    });
  }
  for (auto& one : tables)
    for (void* block : one) std::free(block);
}

// One thread allocates, another frees, a batch at a time.
void pipe(int scale) {
  constexpr int kBatch = 256;
  struct Batch {
    void* blocks[kBatch];
    Batch* next;
  };
  std::mutex mutex;
  Batch* queue = nullptr;
  std::atomic<int> queued{0};
  std::atomic<bool> done{false};
  std::thread consumer([&] {
    for (;;) {
      Batch* batch;
      {
        const std::lock_guard lock(mutex);
        batch = queue;
        if (batch != nullptr) queue = batch->next;
      }
      if (batch == nullptr) {
        if (done && queued == 0) return;
        std::this_thread::yield();
        continue;
      }
      --queued;
      for (void* block : batch->blocks) std::free(block);
      std::free(batch);
    }
  });
  Random random;
  for (int i = 0; i < 25000 * scale; ++i) {
    while (queued > 200) std::this_thread::yield();
    auto* batch = static_cast<Batch*>(std::malloc(sizeof(Batch)));
    for (void*& block : batch->blocks) block = filled(8 + random() % 250, i);
    ++queued;
    const std::lock_guard lock(mutex);
    batch->next = queue;
    queue = batch;
  }
  done = true;
  consumer.join();
}

// Threads in waves: each makes blocks, keeps some, swaps some with the others, and ends.
void stress(int scale) {
  static std::atomic<void*> shared[1000];
  for (int round = 0; round < 12 * scale; ++round) {
    on_threads(kThreads * 2, [&](int id) {
      Random random{static_cast<std::uint64_t>(round * 64 + id + 1)};
      std::vector<void*> kept;
      for (int i = 0; i < 60000; ++i) {
        const std::uint64_t shape = random();
        void* block = filled(8u << (shape % 8), shape);
        if (shape % 128 == 0) {
          std::free(block);
          block = filled(shape % 60000 + 1, shape);
        }
        if (shape >> 20 & 1) kept.push_back(block);
        else std::free(shared[shape >> 24 & 511].exchange(block));
        if (kept.size() > 3000) {
          for (int k = 0; k < 2000; ++k) std::free(kept[static_cast<std::size_t>(k)]);
          kept.erase(kept.begin(), kept.begin() + 2000);
        }
      }
      for (void* block : kept) std::free(block);
    });
  }
  for (auto& block : shared) std::free(block.exchange(nullptr));
}

// Phases that fill with one size and leave holes for the next.
void phases(int scale) {
  on_threads(kThreads, [=](int id) {
    Random random{static_cast<std::uint64_t>(id + 9)};
    std::vector<void*> live;
    for (int phase = 0; phase < 60 * scale; ++phase) {
      const std::size_t size = 16 + random() % 2000;
      while (live.size() < 20000) live.push_back(filled(size + random() % 64, phase));
      for (std::size_t i = 0; i < live.size(); ++i) std::swap(live[i], live[random() % live.size()]);
      for (int i = 0; i < 10000; ++i) {
        std::free(live.back());
        live.pop_back();
      }
    }
    for (void* block : live) std::free(block);
  });
}

// Threads that allocate, end, and are followed by others.
void mortal(int scale) {
  for (int round = 0; round < 1500 * scale; ++round) {
    std::vector<void*> left(200);
    on_threads(2, [&](int id) {
      for (int i = 0; i < 2000; ++i) std::free(filled(16 + i % 400, i));
      for (int i = id; i < 200; i += 2) left[static_cast<std::size_t>(i)] = filled(64 + i, i);
    });
    for (void* block : left) std::free(block);
  }
}

// Blocks of many MiB.
void large(int scale) {
  Random random;
  std::vector<void*> blocks(16);
  for (int i = 0; i < 400 * scale; ++i) {
    void*& block = blocks[random() % blocks.size()];
    std::free(block);
    const std::size_t size = (5u << 20) + random() % (20u << 20);
    block = filled(size, i);
    std::memset(block, i, 1 << 20);
  }
  for (void* block : blocks) std::free(block);
}

// Containers of strings, as programs have them.
void strings(int scale) {
  for (int round = 0; round < 4 * scale; ++round) {
    std::unordered_map<std::string, std::list<std::string>> index;
    Random random;
    for (int i = 0; i < 200000; ++i) {
      auto& list = index["key of some length " + std::to_string(random() % 20000)];
      list.push_back(std::string(random() % 100, 'x'));
      if (list.size() > 8) list.pop_front();
    }
    checksum += index.size();
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string name = count > 1 ? words[1] : "";
  const int scale = count > 2 ? std::atoi(words[2]) : 1;
  if (name == "factor") factor(scale);
  else if (name == "cubes") cubes(scale);
  else if (name == "table") table(1, scale, 10000, 1000);
  else if (name == "table-threads") table(kThreads, scale, 10000, 4000);
  else if (name == "simple") simple(1, scale * 2);
  else if (name == "simple-threads") simple(kThreads, scale);
  else if (name == "server") server(scale);
  else if (name == "pipe") pipe(scale);
  else if (name == "stress") stress(scale);
  else if (name == "phases") phases(scale);
  else if (name == "mortal") mortal(scale);
  else if (name == "large") large(scale);
  else if (name == "strings") strings(scale);
  else return 2;
  std::printf("checksum: %llu\n", static_cast<unsigned long long>(checksum.load()));
}

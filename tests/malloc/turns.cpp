// SPDX-License-Identifier: Apache-2.0
//
// Programs whose load comes and goes, to be recorded by test_simulated.py: turns buffers|pipe|tree|servers.
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Random {
  std::uint64_t state = 88172645463325252ull;
  std::size_t operator()(std::size_t end) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 2685821657736338717ull >> 11) % end;
  }
};

void rest(long milliseconds) {
  const timespec time{milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, nullptr);
}

char* block(std::size_t size) {
  auto* const made = static_cast<char*>(std::malloc(size));
  if (made == nullptr) std::abort();
  made[0] = made[size - 1] = 1;
  return made;
}

// Buffers of 1 KiB to 3 MiB in a loop of steps, of which some stay: a network's tensors, a proxy's pages.
void buffers() {
  Random random;
  for (int wave = 0; wave < 3; ++wave) {
    std::deque<char*> kept;
    for (int step = 0; step < 40; ++step) {
      std::vector<char*> now;
      for (int i = 0; i < 24; ++i) {
        const std::size_t kind = random(100);
        const std::size_t most = kind < 50 ? 32 << 10 : kind < 92 ? 512 << 10 : 3 << 20;
        (random(6) == 0 ? kept.push_back(block(1024 + random(most))),
         0              : (now.push_back(block(1024 + random(most))), 0));
      }
      for (; kept.size() > 40; kept.pop_front()) std::free(kept.front());
      for (std::size_t i = now.size(); i-- > 0;) std::free(now[i]);
      rest(10);
    }
    for (char* one : kept) std::free(one);
    rest(500);
  }
}

// One thread makes messages, the other answers them, keeps a few and frees the rest.
void pipe() {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::vector<char*>> queue;
  bool done = false;
  std::thread worker([&] {
    Random random{99};
    std::deque<char*> sessions;
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done || !queue.empty(); });
      if (queue.empty()) break;
      const std::vector<char*> batch = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      changed.notify_all();
      for (char* one : batch) {
        if (random(20) == 0) sessions.push_back(block(100 + random(2000)));
        std::free(one);
      }
      for (; sessions.size() > 1000; sessions.pop_front()) std::free(sessions.front());
    }
    for (char* one : sessions) std::free(one);
  });
  Random random{7};
  for (int wave = 0; wave < 3; ++wave) {
    for (int i = 0; i < 100; ++i) {
      std::vector<char*> batch;
      for (int one = 0; one < (wave == 1 ? 140 : 90); ++one)
        batch.push_back(block(16 + (random(10) == 0 ? random(12000) : random(600))));
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return queue.size() < 40; });
      queue.push_back(std::move(batch));
      changed.notify_all();
    }
    rest(500);
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  worker.join();
}

// A map that grows, is thinned out at random, and grows again, beside strings that live for an operation.
void tree() {
  Random random;
  std::map<std::size_t, std::string> map;
  std::size_t sum = 0;
  for (int wave = 0; wave < 3; ++wave) {
    for (int i = 0; i < 9000; ++i) {
      const std::string key(20 + random(80), 'k');
      sum += key.size();
      map.emplace(random(~std::size_t{0}), std::string(30 + random(300), 'v'));
    }
    for (auto one = map.begin(); one != map.end();) one = random(10) != 0 ? map.erase(one) : std::next(one);
    rest(800);
  }
  if (sum == 0) std::abort();
}

// Two threads, each with sessions that come, and go at random: spans of both are given back side by side.
void servers() {
  std::vector<std::thread> threads;
  for (std::uint64_t id = 1; id <= 2; ++id) {
    threads.emplace_back([id] {
      Random random{id * 7919};
      std::vector<char*> sessions;
      for (int wave = 0; wave < 3; ++wave) {
        for (int i = 0; i < 30000; ++i) sessions.push_back(block(16 + random(900)));
        std::size_t kept = 0;
        for (char* one : sessions) {
          if (random(12) == 0) sessions[kept++] = one;
          else std::free(one);
        }
        sessions.resize(kept);
        for (int i = 0; i < 100; ++i) {
          for (int k = 0; k < 60; ++k) std::free(block(16 + random(900)));
          rest(10);
        }
      }
      for (char* one : sessions) std::free(one);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int count, char** given) {
  const std::string name = count == 2 ? given[1] : "";
  if (name == "buffers") buffers();
  else if (name == "pipe") pipe();
  else if (name == "tree") tree();
  else if (name == "servers") servers();
  else return 2;
}

// SPDX-License-Identifier: Apache-2.0
//
// Every form of operator new and delete, one case a name: `operators NAME`.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      std::fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

namespace {

constexpr std::align_val_t kAligned{256};
volatile std::size_t too_much = SIZE_MAX - 100, far_too_much = std::size_t{1} << 60;

bool aligned(void* block, std::size_t to) { return reinterpret_cast<std::uintptr_t>(block) % to == 0; }

template <class Allocate>
bool throws(Allocate allocate) {
  try {
    allocate();
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

void plain() {
  void* block = ::operator new(0);
  CHECK(block != nullptr);
  ::operator delete(block);
  ::operator delete (::operator new(100), std::size_t{100});
  ::operator delete[](::operator new[](100));
  ::operator delete[](::operator new[](100), std::size_t{100});
  ::operator delete(nullptr);
  CHECK(throws([] { return ::operator new(too_much); }));
  CHECK(throws([] { return ::operator new[](too_much); }));
  CHECK(throws([] { return ::operator new(far_too_much); }));
}

void nothrow() {
  void* block = ::operator new(100, std::nothrow);
  CHECK(block != nullptr);
  ::operator delete(block, std::nothrow);
  ::operator delete[](::operator new[](100, std::nothrow), std::nothrow);
  CHECK(::operator new(too_much, std::nothrow) == nullptr);
  CHECK(::operator new[](too_much, std::nothrow) == nullptr);
  CHECK(::operator new(far_too_much, kAligned, std::nothrow) == nullptr);
}

void aligned_forms() {
  for (std::size_t alignment = 1; alignment <= 65536; alignment *= 2) {
    const std::align_val_t wanted{alignment};
    void* block = ::operator new(100, wanted);
    CHECK(aligned(block, alignment));
    std::memset(block, 1, 100);
    ::operator delete(block, wanted);
    block = ::operator new[](100, wanted, std::nothrow);
    CHECK(aligned(block, alignment));
    ::operator delete[](block, 100, wanted);
  }
  CHECK(throws([] { return ::operator new(too_much, kAligned); }));
}

int calls = 0;
void gives_up() {
  if (++calls == 3) std::set_new_handler(nullptr);
}
void refuses() {
  ++calls;
  throw std::bad_alloc();
}

void handler() {
  std::set_new_handler(gives_up);
  CHECK(throws([] { return ::operator new(far_too_much); }));
  CHECK(calls == 3);
  std::set_new_handler(refuses);
  calls = 0;
  CHECK(throws([] { return ::operator new(far_too_much); }));
  CHECK(calls == 1);
  CHECK(::operator new(far_too_much, std::nothrow) == nullptr);
  CHECK(::operator new[](far_too_much, kAligned, std::nothrow) == nullptr);
  CHECK(calls == 3);
}

struct alignas(128) Wide {
  char bytes[128];
};

void containers() {
  std::map<std::string, std::vector<std::unique_ptr<Wide>>> all;
  for (int i = 0; i < 2000; ++i) {
    auto& list = all[std::to_string(i % 100) + std::string(i % 50, 'x')];
    list.push_back(std::make_unique<Wide>());
    CHECK(aligned(list.back().get(), 128));
  }
  std::thread([moved = std::move(all)] {}).join();  // freed by another thread
}

}  // namespace

int main(int, char** words) {
  const std::string name = words[1];
  if (name == "new") plain();
  else if (name == "nothrow") nothrow();
  else if (name == "aligned") aligned_forms();
  else if (name == "handler") handler();
  else if (name == "containers") containers();
  else return 2;
}

// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/foresight.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "memoir/process/control/sandbox.h"

namespace memoir::malloc_ {

namespace {

constexpr size_t kMostPath = 4096;

void complain(const char* library, const char* why) noexcept {
  char line[kMostPath + 100];
  const int length =
      std::snprintf(line, sizeof line, "memoir: %s: %s; the program runs without a model\n", library, why);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, static_cast<size_t>(length));
}

bool expect(ContextKey key, LifetimeClass predicted, double share, unsigned samples) noexcept {
  return central().sampler().expect(key, predicted, share, samples);
}

/// The library lies beside this one. In a program that has the malloc from an archive it may lie where the
/// dynamic loader looks.
void* load() noexcept {
  char path[kMostPath] = "";
  Dl_info own{};
  if (::dladdr(reinterpret_cast<void*>(&expect), &own) != 0 && own.dli_fname != nullptr) {
    const char* const slash = std::strrchr(own.dli_fname, '/');
    const size_t folder = slash == nullptr ? 0 : static_cast<size_t>(slash + 1 - own.dli_fname);
    if (folder != 0 && folder + sizeof kModelLibrary <= sizeof path) {
      std::memcpy(path, own.dli_fname, folder);
      std::memcpy(path + folder, kModelLibrary, sizeof kModelLibrary);
    }
  }
  void* library = path[0] == '\0' ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen(kModelLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) complain(path[0] == '\0' ? kModelLibrary : path, "cannot be loaded");
  return library;
}

}  // namespace

void Foresight::begin_slowly(const char* path) noexcept {
  begun_ = true;
  if (!host_control::may_open_files()) return;
  loading_.store(true, std::memory_order_release);
  void* const library = load();
  loading_.store(false, std::memory_order_release);
  if (library == nullptr) return;
  const auto* const door = static_cast<const ModelDoor*>(::dlsym(library, kModelDoorName));
  if (door == nullptr || door->version != kModelDoorVersion) {
    complain(kModelLibrary, "is of another version of memoir");
  } else {
    static constexpr ModelHost kHost = {&expect, &host_control::may_call_all, &host_control::may_open_files};
    if (door->begin(kHost, path)) return door_.store(door, std::memory_order_release);
  }
  ::dlclose(library);
}

void Foresight::wait_for_loading() noexcept {
  constexpr int kMost = 50;  // who forks inside of the loader would wait for itself
  for (int waits = 0; loading_.load(std::memory_order_acquire) && waits < kMost; ++waits)
    pass_time(1'000'000);
}

void Foresight::prepare_fork() noexcept {
  locked_ = door_.load(std::memory_order_acquire);
  if (locked_ != nullptr) locked_->lock();
}

void Foresight::after_fork(bool child) noexcept {
  if (locked_ != nullptr) locked_->unlock();
  if (child && locked_ != nullptr && !locked_->after_fork()) door_.store(nullptr, std::memory_order_release);
}

}  // namespace memoir::malloc_

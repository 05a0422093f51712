// SPDX-License-Identifier: Apache-2.0
//
// What the malloc finds in the library of models.
#include "memoir/malloc/learning/model_door.h"
#include "memoir/malloc/model/predictor.h"

namespace memoir::malloc_ {

namespace {

constinit Lasting<Predictor> storage;

}  // namespace

}  // namespace memoir::malloc_

extern "C"
    __attribute__((visibility("default"), used)) constexpr memoir::malloc_::ModelDoor memoir_model_door = {
        .version = memoir::malloc_::kModelDoorVersion,
        .begin = [](const memoir::malloc_::ModelHost& host,
                    const char* path) noexcept { return memoir::malloc_::storage.value.begin(host, path); },
        .sampled =
            [](memoir::ContextKey key, memoir::Size size, std::uintptr_t stack_base) noexcept {
              return memoir::malloc_::storage.value.sampled(key, size, stack_base);
            },
        .answer = []() noexcept { return memoir::malloc_::storage.value.answer(); },
        .figures =
            [](memoir::malloc_::Foreseen& now) noexcept { now = memoir::malloc_::storage.value.figures(); },
        .lock = []() noexcept { memoir::malloc_::storage.value.lock().lock(); },
        .unlock = []() noexcept { memoir::malloc_::storage.value.lock().unlock(); },
        .after_fork = []() noexcept { return memoir::malloc_::storage.value.after_fork(); },
};

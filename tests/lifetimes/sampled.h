// SPDX-License-Identifier: Apache-2.0
//
// A sampler over memory of this test, with stacks that the test says.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "memoir/base/check.h"
#include "memoir/record/sample/sampler.h"

namespace memoir {

class Sampled {
 public:
  /// `memory`: steps of the image that there is memory for.
  explicit Sampled(Size every, std::uint64_t seed = 1, Size memory = ~Size{0}) : left_(memory) {
    image_ = ::mmap(nullptr, sample_image::kSize, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MEMOIR_CHECK(image_ != MAP_FAILED, "addresses for an image");
    started_ = sampler->start(image_, &take, this, &capture, {every, seed});
  }
  ~Sampled() {
    sampler->stop();
    ::munmap(image_, sample_image::kSize);
  }
  Sampled(const Sampled&) = delete;
  Sampled& operator=(const Sampled&) = delete;

  bool started() const { return started_; }
  /// As the door does it. `stack`: innermost first.
  void allocate(SamplerThread& thread, std::uintptr_t address, Size size, std::vector<std::uintptr_t> stack) {
    if (!Sampler::due(thread, size)) return;
    stack_ = std::move(stack);
    sampler->allocated(thread, reinterpret_cast<void*>(address), size, &stack_);
  }
  void free(SamplerThread& thread, std::uintptr_t address) {
    void* const block = reinterpret_cast<void*>(address);
    if (sampler->maybe_sampled(block)) sampler->freed(thread, block);
  }
  std::string_view bytes() const { return {static_cast<const char*>(image_), sample_image::kSize}; }
  LifetimeProfile profile() const { return sample_image::read_image(bytes(), "test", "image", 0); }

  std::unique_ptr<Sampler> sampler = std::make_unique<Sampler>();

 private:
  static bool take(void* owner, Size begin, Size end) noexcept {
    Sampled& self = *static_cast<Sampled*>(owner);
    if (self.left_ < end - begin) return false;
    self.left_ -= end - begin;
    return true;
  }
  static void capture(const void* entry, SampledStack& stack) noexcept {
    const auto& frames = *static_cast<const std::vector<std::uintptr_t>*>(entry);
    stack.count = std::min(frames.size(), SampledStack::kMost);
    stack.cut = stack.count < frames.size();
    stack.height = 8 * frames.size();
    std::copy_n(frames.begin(), stack.count, stack.frames);
  }

  static thread_local inline std::vector<std::uintptr_t> stack_;
  void* image_;
  Size left_;
  bool started_;
};

}  // namespace memoir

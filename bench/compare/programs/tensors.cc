// SPDX-License-Identifier: Apache-2.0
// Tensors: a network's steps. Forward, every layer allocates an output and a scratch buffer, 64-byte aligned,
// from 100 KiB to 16 MiB, and frees the scratch at once; backward, outputs are freed in reverse while
// gradients come and go. Every page is written. Sizes are those of a small ResNet's activations at batch 4:
// the same in every step, as PyTorch on a CPU asks for them (c10 calls posix_memalign(64) for every tensor;
// Paszke et al., NeurIPS 2019, section 5.3, on why repeated sizes should be cached). What it shows: blocks
// beyond an allocator's large-object threshold, returned to the kernel at every free and faulted in again
// page by page.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPage = 4096;

void* tensor(size_t size) {
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, size) != 0) std::exit(3);
  for (size_t i = 0; i < size; i += kPage) static_cast<char*>(block)[i] = static_cast<char>(i / kPage + 1);
  return block;
}

void release(void* block, size_t size) {
  for (size_t i = 0; i < size; i += kPage) {
    if (static_cast<char*>(block)[i] != static_cast<char>(i / kPage + 1)) std::exit(4);
  }
  std::free(block);
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  // channels x height x width of four stages of four layers, float32; one large input buffer first
  std::vector<size_t> sizes{16u << 20};
  const size_t batch = 4;
  for (const auto& [channels, side] : {std::pair<size_t, size_t>{64, 56}, {128, 28}, {256, 14}, {512, 7}}) {
    for (int layer = 0; layer < 4; ++layer) sizes.push_back(batch * channels * side * side * 4 + kAlignment);
  }
  const uint64_t steps = workload.operations(30);
  const double start = seconds();
  run_threads(workload.threads, [&](int) {
    for (uint64_t step = 0; step < steps; ++step) {
      std::vector<void*> outputs;
      for (size_t size : sizes) {
        outputs.push_back(tensor(size));
        release(tensor(size / 2), size / 2);  // scratch, such as a convolution's workspace
      }
      void* gradient = tensor(sizes.back());
      size_t gradient_size = sizes.back();
      for (size_t layer = sizes.size(); layer-- > 0;) {
        void* next = tensor(sizes[layer]);
        release(gradient, gradient_size);
        release(outputs[layer], sizes[layer]);
        gradient = next;
        gradient_size = sizes[layer];
      }
      release(gradient, gradient_size);
    }
  });
  report(steps * (3 * sizes.size() + 1) * static_cast<uint64_t>(workload.threads), seconds() - start);
}

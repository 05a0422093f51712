// SPDX-License-Identifier: Apache-2.0
//
// The functions of libcudart that PyTorch calls, over the fake driver: PyTorch's own code for GPUs (its
// allocators, its hooks for other allocators, graphs, streams, autograd) runs without a GPU, and against the
// same checks. Preloaded as libcuda.so.1; needs the headers of CUDA 13 to be built.
//
// Kernels do nothing, but for fills. Copies are real. So what is tested is who gets which memory and when;
// numbers that a program computes mean nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "support/fake_cuda/fake_cuda.h"
#include "support/fake_cuda/state.h"

extern "C" {
// The fake driver's own, where the runtime needs them.
fake::Result cuInit(unsigned);
fake::Result cuGetErrorName(fake::Result, const char**);
fake::Result cuDevicePrimaryCtxRetain(memoir::cuda::Context*, int);
fake::Result cuCtxPushCurrent_v2(memoir::cuda::Context);
fake::Result cuCtxPopCurrent_v2(memoir::cuda::Context*);
fake::Result cuCtxSynchronize();
fake::Result cuMemAlloc_v2(fake::Address*, size_t);
fake::Result cuMemFree_v2(fake::Address);
fake::Result cuMemGetInfo_v2(size_t*, size_t*);
}

namespace fake {

/// The error that cudaGetLastError() will tell, kept for this thread.
cudaError_t fail(Result result);
/// The device of this thread, as cudaSetDevice chose it.
int& current_device();
/// The stream behind a handle, which may be one of the special ones; nullptr when there is none.
Stream* stream_of(cudaStream_t stream);

/// The device of this thread is current in the driver for as long as this lives.
class Current {
 public:
  Current();
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

}  // namespace fake

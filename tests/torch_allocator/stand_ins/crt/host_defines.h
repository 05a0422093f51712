// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the CUDA compiler's header, which the runtime's package lacks: what plain C++ needs of it.
#pragma once
#define __host__
#define __device__
#define __no_return__ __attribute__((noreturn))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI

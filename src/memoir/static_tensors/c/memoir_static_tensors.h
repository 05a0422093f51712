/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors over host memory without malloc, for a tensor library in C; static_tensors/static_tensors.h is the
 * same for C++, and says how it works. A pool takes all its memory when it is created. No function prints,
 * throws or aborts. Not thread-safe.
 *
 *   const char* why;
 *   memoir_static_tensors_sizes sizes = {.pool = 64 << 20};
 *   memoir_static_tensors* pool = memoir_static_tensors_create(&sizes, &why);
 *   memoir_tensor* tensor = memoir_tensor_new(pool, 4096);
 *   memoir_tensor* row = memoir_tensor_new_view(pool, tensor, 1024, 1024);
 *   memoir_tensor_release(pool, tensor);       the bytes stay: the row has them
 *   memoir_tensor_release(pool, row);
 *   memoir_static_tensors_destroy(pool);
 */
#ifndef MEMOIR_STATIC_TENSORS_H
#define MEMOIR_STATIC_TENSORS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMOIR_STATIC_TENSORS_API __attribute__((visibility("default")))

typedef struct memoir_static_tensors memoir_static_tensors;
typedef struct memoir_tensor memoir_tensor;

/* 0 in a field is its default. */
typedef struct memoir_static_tensors_sizes {
  size_t pool;      /* bytes for the data of all tensors; 64 MiB */
  size_t tensors;   /* most tensors at once, views included; 1,000 */
  size_t buffers;   /* most data buffers at once; 1,000 */
  size_t alignment; /* bytes: of every tensor's data, a power of two up to 4096; 64 */
} memoir_static_tensors_sizes;

/* A pool, or NULL: then `why` (may be NULL) is one line that says what was missing. `sizes` may be NULL. */
MEMOIR_STATIC_TENSORS_API memoir_static_tensors* memoir_static_tensors_create(
    const memoir_static_tensors_sizes* sizes, const char** why);
/* Ends every tensor of the pool as well. Does nothing for NULL. */
MEMOIR_STATIC_TENSORS_API void memoir_static_tensors_destroy(memoir_static_tensors* pool);
/* Why the last tensor was refused: one line, never NULL. */
MEMOIR_STATIC_TENSORS_API const char* memoir_static_tensors_why(const memoir_static_tensors* pool);
/* Bytes of the pool that tensors hold, and of the largest tensor that there is room for. */
MEMOIR_STATIC_TENSORS_API size_t memoir_static_tensors_used(const memoir_static_tensors* pool);
MEMOIR_STATIC_TENSORS_API size_t memoir_static_tensors_largest_free(const memoir_static_tensors* pool);

/* A tensor of `size` bytes (> 0) with one reference, or NULL. Its contents are undefined. */
MEMOIR_STATIC_TENSORS_API memoir_tensor* memoir_tensor_new(memoir_static_tensors* pool, size_t size);
/* A tensor over bytes [offset, offset + size) of another one, which keeps them alive, or NULL. */
MEMOIR_STATIC_TENSORS_API memoir_tensor* memoir_tensor_new_view(memoir_static_tensors* pool,
                                                                const memoir_tensor* of, size_t offset,
                                                                size_t size);
/* Adds or removes one reference. Returns 0, or -1 and changes nothing if it is not a live tensor of the pool.
 */
MEMOIR_STATIC_TENSORS_API int memoir_tensor_retain(memoir_static_tensors* pool, memoir_tensor* tensor);
MEMOIR_STATIC_TENSORS_API int memoir_tensor_release(memoir_static_tensors* pool, memoir_tensor* tensor);
/* Of a live tensor. */
MEMOIR_STATIC_TENSORS_API void* memoir_tensor_data(const memoir_tensor* tensor);
MEMOIR_STATIC_TENSORS_API size_t memoir_tensor_size(const memoir_tensor* tensor);

#ifdef __cplusplus
}
#endif

#endif

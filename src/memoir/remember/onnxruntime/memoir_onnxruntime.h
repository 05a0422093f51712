/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator for ONNX Runtime that remembers. It records what the first runs of a model allocate. Later
 * runs follow a plan, in one slab. It also plans input shapes that it never saw, from those that it did.
 *
 *   OrtMemoryInfo* info;    api->CreateMemoryInfo("Cpu", OrtDeviceAllocator, 0, OrtMemTypeDefault, &info);
 *   memoir_onnxruntime* memory = memoir_onnxruntime_create(info);
 *   api->RegisterAllocator(env, memoir_onnxruntime_allocator(memory));
 *   api->AddSessionConfigEntry(options, "session.use_env_allocators", "1");
 *   api->DisableMemPattern(options);       its own planning of runs
 *   ...
 *   int64_t numbers[] = {1, 3, 224, 224};  all dimensions of all inputs
 *   memoir_onnxruntime_begin(memory, model, numbers, 4);
 *   OrtStatus* status = api->Run(...);
 *   memoir_onnxruntime_end(memory, status == NULL);
 *
 * What no plan serves comes from malloc: weights, outputs, and runs of threads without a begin. Thread-safe.
 * No function throws or prints.
 */
#ifndef MEMOIR_ONNXRUNTIME_H
#define MEMOIR_ONNXRUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMOIR_ONNXRUNTIME_API __attribute__((visibility("default")))

struct OrtAllocator; /* onnxruntime_c_api.h */
struct OrtMemoryInfo;
typedef struct memoir_onnxruntime memoir_onnxruntime;

/* NULL when there is no memory. `info` belongs to the caller and must live longer. */
MEMOIR_ONNXRUNTIME_API memoir_onnxruntime* memoir_onnxruntime_create(const struct OrtMemoryInfo* info);
/* Call it when ONNX Runtime no longer has the allocator: after ReleaseEnv(). Does nothing for NULL. */
MEMOIR_ONNXRUNTIME_API void memoir_onnxruntime_destroy(memoir_onnxruntime* memory);
/* The allocator to register, as long as `memory` lives. */
MEMOIR_ONNXRUNTIME_API struct OrtAllocator* memoir_onnxruntime_allocator(memoir_onnxruntime* memory);

/* Until end(), the calling thread runs `model` (any number that tells models apart) on inputs of these
 * dimensions. Runs do not nest on a thread: within a run, another begin() and its end() do nothing. */
MEMOIR_ONNXRUNTIME_API void memoir_onnxruntime_begin(memoir_onnxruntime* memory, uint64_t model,
                                                     const int64_t* numbers, size_t count);
/* `finished`: 0 when the run failed. */
MEMOIR_ONNXRUNTIME_API void memoir_onnxruntime_end(memoir_onnxruntime* memory, int finished);
/* Drops every plan, and gives the slabs back. */
MEMOIR_ONNXRUNTIME_API void memoir_onnxruntime_forget(memoir_onnxruntime* memory);

typedef struct memoir_onnxruntime_stats {
  uint64_t runs, recorded, followed, derived,
      plain;                      /* derived: of followed, those of shapes never recorded */
  uint64_t planned, fallen_back;  /* allocations */
  uint64_t arena_size, peak_live; /* bytes: of the plan followed last */
  uint64_t slab_bytes;            /* held now */
} memoir_onnxruntime_stats;
MEMOIR_ONNXRUNTIME_API memoir_onnxruntime_stats
memoir_onnxruntime_get_stats(const memoir_onnxruntime* memory);

#ifdef __cplusplus
}
#endif
#endif

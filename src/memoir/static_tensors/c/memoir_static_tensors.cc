// SPDX-License-Identifier: Apache-2.0
#include "memoir/static_tensors/c/memoir_static_tensors.h"

#include <new>

#include "memoir/base/metadata.h"
#include "memoir/static_tensors/static_tensors.h"

using memoir::StaticTensors;

namespace {

using Tensor = StaticTensors::Tensor;

StaticTensors& of(memoir_static_tensors* pool) { return *reinterpret_cast<StaticTensors*>(pool); }
const StaticTensors& of(const memoir_static_tensors* pool) {
  return *reinterpret_cast<const StaticTensors*>(pool);
}
Tensor* of(memoir_tensor* tensor) { return reinterpret_cast<Tensor*>(tensor); }
const Tensor* of(const memoir_tensor* tensor) { return reinterpret_cast<const Tensor*>(tensor); }
memoir_tensor* as_c(Tensor* tensor) { return reinterpret_cast<memoir_tensor*>(tensor); }

}  // namespace

memoir_static_tensors* memoir_static_tensors_create(const memoir_static_tensors_sizes* sizes,
                                                    const char** why) {
  memoir::StaticTensorsSizes wanted;
  if (sizes != nullptr) {
    if (sizes->pool != 0) wanted.pool = sizes->pool;
    if (sizes->tensors != 0) wanted.tensors = sizes->tensors;
    if (sizes->buffers != 0) wanted.buffers = sizes->buffers;
    if (sizes->alignment != 0) wanted.alignment = sizes->alignment;
  }
  // Not from malloc, which the library may want to do without.
  void* const room = memoir::map_metadata(sizeof(StaticTensors));
  const char* reason = "no memory for the pool's own record";
  if (room != nullptr) {
    auto* const made = new (room) StaticTensors(wanted);
    if (made->ok()) return reinterpret_cast<memoir_static_tensors*>(made);
    reason = made->why();  // a literal: it outlives the pool
    made->~StaticTensors();
    memoir::unmap_metadata(room, sizeof(StaticTensors));
  }
  if (why != nullptr) *why = reason;
  return nullptr;
}

void memoir_static_tensors_destroy(memoir_static_tensors* pool) {
  if (pool == nullptr) return;
  of(pool).~StaticTensors();
  memoir::unmap_metadata(pool, sizeof(StaticTensors));
}

const char* memoir_static_tensors_why(const memoir_static_tensors* pool) { return of(pool).why(); }
size_t memoir_static_tensors_used(const memoir_static_tensors* pool) { return of(pool).used(); }
size_t memoir_static_tensors_largest_free(const memoir_static_tensors* pool) {
  return of(pool).largest_free();
}

memoir_tensor* memoir_tensor_new(memoir_static_tensors* pool, size_t size) {
  return as_c(of(pool).create(size));
}
memoir_tensor* memoir_tensor_new_view(memoir_static_tensors* pool, const memoir_tensor* tensor, size_t offset,
                                      size_t size) {
  return as_c(of(pool).view(of(tensor), offset, size));
}
int memoir_tensor_retain(memoir_static_tensors* pool, memoir_tensor* tensor) {
  return of(pool).retain(of(tensor)) ? 0 : -1;
}
int memoir_tensor_release(memoir_static_tensors* pool, memoir_tensor* tensor) {
  return of(pool).release(of(tensor)) ? 0 : -1;
}
void* memoir_tensor_data(const memoir_tensor* tensor) { return of(tensor)->data; }
size_t memoir_tensor_size(const memoir_tensor* tensor) { return of(tensor)->size; }

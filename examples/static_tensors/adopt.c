/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that a tensor library in C does to adopt static tensors: its own tensor holds one of memoir's,
 * and new, view and free go there. Exits with 0 when all is as it should be.
 */
#include <stdio.h>
#include <string.h>

#include "memoir_static_tensors.h"

typedef struct matrix {
  size_t rows, columns;
  memoir_tensor* memory;
} matrix;

static memoir_static_tensors* pool;

static int make(matrix* out, size_t rows, size_t columns) {
  *out = (matrix){rows, columns, memoir_tensor_new(pool, rows * columns * sizeof(float))};
  if (out->memory == NULL) fprintf(stderr, "%zu x %zu: %s\n", rows, columns, memoir_static_tensors_why(pool));
  return out->memory != NULL;
}
static matrix row_of(const matrix* of, size_t row) {
  const size_t bytes = of->columns * sizeof(float);
  return (matrix){1, of->columns, memoir_tensor_new_view(pool, of->memory, row * bytes, bytes)};
}
static void drop(matrix* what) { memoir_tensor_release(pool, what->memory); }
static float* data(const matrix* of) { return memoir_tensor_data(of->memory); }

int main(void) {
  const char* why = "";
  const memoir_static_tensors_sizes sizes = {.pool = 1 << 20};
  pool = memoir_static_tensors_create(&sizes, &why);
  if (pool == NULL) {
    fprintf(stderr, "%s\n", why);
    return 1;
  }
  matrix a;
  if (!make(&a, 64, 128)) return 1;
  memset(data(&a), 0, memoir_tensor_size(a.memory));
  data(&a)[3 * 128 + 5] = 42;
  matrix row = row_of(&a, 3);
  drop(&a); /* the row keeps the bytes */
  const int kept = data(&row)[5] == 42 && memoir_static_tensors_used(pool) == 64 * 128 * sizeof(float);
  drop(&row);
  const int released = memoir_tensor_release(pool, row.memory) == -1 && memoir_static_tensors_used(pool) == 0;
  matrix huge;
  const int refused = !make(&huge, 1 << 20, 1 << 10);
  memoir_static_tensors_destroy(pool);
  printf("kept by the view: %d, given back and a second release seen: %d, refused in words: %d\n", kept,
         released, refused);
  return kept && released && refused ? 0 : 1;
}

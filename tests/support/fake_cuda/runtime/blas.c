// SPDX-License-Identifier: Apache-2.0
//
// What of cuBLAS and cuBLASLt PyTorch's matrix products call: handles, and products that compute nothing. In
// C without prototypes, so that the arguments that are not looked at need not be spelled out.
#include <stdlib.h>
#include <string.h>

#define NOTHING(name) \
  int name() { return 0; }
#define MAKES(name) \
  int name(void** made) { return (*made = calloc(1, 64)) == NULL; }
#define DESTROYS(name) \
  int name(void* made) { return free(made), 0; }

MAKES(cublasCreate_v2)
DESTROYS(cublasDestroy_v2)
NOTHING(cublasSetStream_v2)
NOTHING(cublasSetWorkspace_v2)
NOTHING(cublasSetMathMode)
NOTHING(cublasSetPointerMode_v2)
NOTHING(cublasSetSmCountTarget)
int cublasGetMathMode(void* handle, int* mode) { return (void)handle, *mode = 0; }
int cublasGetPointerMode_v2(void* handle, int* mode) { return (void)handle, *mode = 0; }
NOTHING(cublasSdot_v2)
NOTHING(cublasSgemm_v2)
NOTHING(cublasSgemmEx)
NOTHING(cublasGemmEx)
NOTHING(cublasSgemmStridedBatched)
NOTHING(cublasGemmStridedBatchedEx)
NOTHING(cublasSgemv_v2)

MAKES(cublasLtMatmulDescCreate)
DESTROYS(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescSetAttribute)
MAKES(cublasLtMatmulPreferenceCreate)
DESTROYS(cublasLtMatmulPreferenceDestroy)
NOTHING(cublasLtMatmulPreferenceSetAttribute)
MAKES(cublasLtMatrixLayoutCreate)
DESTROYS(cublasLtMatrixLayoutDestroy)
NOTHING(cublasLtMatrixLayoutSetAttribute)
NOTHING(cublasLtMatmul)
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* description, void* a, void* b, void* c, void* d,
                                   void* preference, int wanted, void* results, int* found) {
  (void)handle, (void)description, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
  memset(results, 0, 96);  // one cublasLtMatmulHeuristicResult_t: it is good, and needs no workspace
  *found = 1;
  return 0;
}

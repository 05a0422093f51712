// SPDX-License-Identifier: Apache-2.0
//
// What PyTorch asks NVIDIA's management library (libnvidia-ml.so.1) before it maps memory, and when there is
// none left: no fabric, no other processes.

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) { return (void)id, *device = 0, 0; }
int nvmlDeviceGetGpuFabricInfoV(void* device, void* info) { return (void)device, (void)info, 0; }
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, void* processes) {
  return (void)device, (void)processes, *count = 0;
}

// Looked up with the others, and not called.
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return 3; }
int nvmlSystemGetCudaDriverVersion_v2(void) { return 3; }

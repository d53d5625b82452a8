// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// A driver's library with two GPUs, of which the second is not this process's to see. The first has
// 40 processes, more than a first question has room for; the last one's bytes are not known.
#include <cstring>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakeProcess {
  unsigned int pid;
  unsigned long long bytes;
  unsigned int instance, compute_instance;
};
static_assert(sizeof(FakeProcess) == 24, "as the driver's");

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int /*result*/) { return "a fault"; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  static int first = 0;
  *device = &first;
  return index == 0 ? 0 : 4;  // no permission
}
int nvmlDeviceGetName(void* /*device*/, char* text, unsigned int length) {
  std::strncpy(text, "Fake GPU", length);
  return 0;
}
int nvmlDeviceGetUUID(void* /*device*/, char* text, unsigned int length) {
  std::strncpy(text, "GPU-fake", length);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* /*device*/, FakeMemory* memory) {
  *memory = {.total = 1000, .free = 600, .used = 400};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* /*device*/, unsigned int* count,
                                            FakeProcess* processes) {
  constexpr unsigned int kProcesses = 40;
  const bool room = *count >= kProcesses;
  *count = kProcesses;
  if (!room) return 7;  // insufficient size
  for (unsigned int i = 0; i < kProcesses; ++i) {
    processes[i] = {.pid = 100 + i, .bytes = i, .instance = 0, .compute_instance = 0};
  }
  processes[kProcesses - 1].bytes = ~0ULL;
  return 0;
}

}  // extern "C"

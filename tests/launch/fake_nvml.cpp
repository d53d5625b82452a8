// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// A driver's library with five GPUs. The first has 40 processes, more than a first question has
// room for; the last one's bytes are not known. The second is not this process's to see, the third
// has no memory of its own, the fourth is cut into parts, of which numbers 0 and 2 are there, and
// the fifth is lost.
#include <array>
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

constexpr unsigned int kGpus = 5;
constexpr unsigned int kParts = 3;
static std::array<int, kGpus> gpus;
static std::array<int, kParts> parts;
static bool is_part(const void* device) {
  return device == &parts[0] || device == &parts[1] || device == &parts[2];
}

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int result) { return result == 3 ? "Not Supported" : "GPU is lost"; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = kGpus;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = &gpus.at(index);
  if (index == 4) return 15;  // lost
  return index == 1 ? 4 : 0;  // no permission
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned int* count) {
  *count = device == &gpus[2] ? 0 : kParts;  // the first could be cut
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned int index, void** part) {
  *part = &parts.at(index);
  return device == &gpus[3] && index != 1 ? 0 : 6;  // not found
}
int nvmlDeviceGetName(void* device, char* text, unsigned int length) {
  std::strncpy(text, is_part(device) ? "Fake GPU MIG 1g.5gb" : "Fake GPU", length);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned int length) {
  std::strncpy(text, is_part(device) ? "MIG-fake" : "GPU-fake", length);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, FakeMemory* memory) {
  if (device == &gpus[2]) return 3;  // not supported
  *memory = is_part(device) ? FakeMemory{.total = 100, .free = 90, .used = 10}
                            : FakeMemory{.total = 1000, .free = 600, .used = 400};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count,
                                            FakeProcess* processes) {
  if (device != &gpus[0]) {
    *count = 0;
    return 0;
  }
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

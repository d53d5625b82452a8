// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The CUDA runtime's functions that the project calls, on the emulated machine.

#include <emulated_cuda.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/cuda/emulator/grid.h"
#include "tests/cuda/emulator/runtime.h"

namespace zero::cuda::emulated {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

Runtime& machine() { return Runtime::instance(); }

/// Keeps an error for cudaGetLastError.
cudaError_t ended(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) last_error = status;
  return status;
}

/// A whole call: an error that was asked for, or what `body` returns.
template <class Body>
cudaError_t call(const char* function, const Body& body) {
  const cudaError_t status = machine().enter(function);
  return ended(status == cudaSuccess ? body() : status);
}

cudaError_t queue(const char* name, cudaStream_t stream, std::function<void()> work,
                  bool opens_memory = true) {
  QueuedItem item;
  item.work = std::move(work);
  item.opens_memory = opens_memory;
  return machine().enqueue(stream, name, std::move(item));
}

cudaError_t device_count_error() {
  const Settings settings = machine().settings();
  if (settings.devices == 0) return cudaErrorNoDevice;
  return settings.driver_version < CUDART_VERSION / 1000 * 1000 ? cudaErrorInsufficientDriver
                                                                : cudaSuccess;
}

bool is_device(int device) { return device >= 0 && device < machine().settings().devices; }

}  // namespace

cudaError_t launch(const Shape& shape, cudaStream_t stream, std::function<void()> thread) {
  return call("cudaLaunchKernel", [&] {
    if (shape.threads == 0 || shape.threads > 1024 || shape.blocks.y > 65535 ||
        shape.blocks.z > 65535 || shape.blocks.x > 2147483647U) {
      return cudaErrorInvalidConfiguration;
    }
    if (shape.shared_bytes > 227U << 10) return cudaErrorInvalidValue;
    return queue(shape.name, stream,
                 [shape, thread = std::move(thread)] { run_grid(shape, thread); });
  });
}

}  // namespace zero::cuda::emulated

using namespace zero::cuda::emulated;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  thread_local std::string text;
  text = machine().broken_text();
  return text.empty() ? cudaGetErrorName(error) : text.c_str();
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().settings().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&] {
    const cudaError_t error = device_count_error();
    *count = error == cudaSuccess ? machine().settings().devices : 0;
    return error;
  });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&] {
    *device = current_device;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "Emulated GPU");
    std::memset(properties->uuid.bytes, device + 1, sizeof properties->uuid.bytes);
    properties->totalGlobalMem = machine().settings().memory;
    const Settings& settings = machine().settings();
    const bool other = device + 1 == settings.devices && settings.last_capability != 0;
    const int capability = other ? settings.last_capability : settings.capability;
    properties->major = capability / 10;
    properties->minor = capability % 10;
    properties->multiProcessorCount = 4;
    properties->pciBusID = device + 1;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerBlockOptin = std::size_t{227} << 10;
    properties->l2CacheSize = 1 << 20;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&] {
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess) return error;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        return cudaSuccess;
      case cudaDevAttrIntegrated:
        *value = machine().settings().memory_is == Settings::Memory::hosts ? 1 : 0;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(properties.sharedMemPerBlockOptin);
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call("cudaDeviceGetPCIBusId", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", device + 1);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return call("cudaDeviceGetByPCIBusId", [&] {
    *device = static_cast<int>(std::strtol(text + 5, nullptr, 16)) - 1;
    return is_device(*device) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize",
              [&] { return machine().synchronize_device(current_device); });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call("cudaDeviceCanAccessPeer", [&] {
    *can = is_device(device) && is_device(peer) && device != peer ? 1 : 0;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned /*flags*/) {
  return call("cudaDeviceEnablePeerAccess",
              [&] { return is_device(peer) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return call("cudaMalloc", [&] { return machine().allocate(current_device, bytes, data); });
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t status = machine().refuse_unsafe("cudaFree"); status != cudaSuccess) {
    return ended(status);
  }
  return ended(machine().release(data));  // also with a broken context: tests look for leaks
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return call("cudaMallocHost", [&] {
    *data = machine().allocate_pinned(bytes);
    return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}
cudaError_t cudaFreeHost(void* data) {
  return data == nullptr ? cudaSuccess : ended(machine().release_pinned(data));
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("cudaMemGetInfo", [&] {
    machine().memory_info(current_device, free, total);
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&] {
    if (kind != cudaMemcpyDefault || !machine().may_touch(to, bytes) ||
        !machine().may_touch(from, bytes)) {
      return cudaErrorInvalidValue;
    }
    // Pageable memory is read by the call itself, whatever the stream has yet to write there.
    std::shared_ptr<std::vector<std::byte>> staged;
    if (machine().is_pageable(from)) {
      const auto* const bytes_of_host = static_cast<const std::byte*>(from);
      staged = std::make_shared<std::vector<std::byte>>(bytes_of_host, bytes_of_host + bytes);
    }
    const cudaError_t status = queue("memcpy", stream, [=] {
      if (!staged) touch(from, bytes, Access::read);
      touch(to, bytes, Access::write);
      std::memmove(to, staged ? staged->data() : from, bytes);
    });
    if (status != cudaSuccess || !machine().is_pageable(to)) return status;
    return machine().synchronize(stream);  // CUDA returns from such a copy once it is done
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&] {
    if (!machine().may_touch(to, bytes)) return cudaErrorInvalidValue;
    return queue("memset", stream, [=] {
      touch(to, bytes, Access::write);
      std::memset(to, value, bytes);
    });
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", [&] {
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = machine().create_stream(current_device, priority);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return ended(machine().destroy_stream(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", [&] { return machine().synchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [&] { return machine().query(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return call("cudaStreamWaitEvent", [&] { return machine().wait(stream, event); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", [&] {
    return queue(
        "host function", stream, [=] { function(data); }, false);
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&] {
    // The others have threads of the process disturb each other.
    if (mode != cudaStreamCaptureModeThreadLocal) return cudaErrorInvalidValue;
    return machine().begin_capture(stream);
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", [&] { return machine().end_capture(stream, graph); });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return call("cudaGraphGetNodes", [&] {
    if (nodes != nullptr) return cudaErrorInvalidValue;
    return machine().graph_nodes(graph, count);
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  return call("cudaGraphInstantiate", [&] { return machine().instantiate(graph, executable); });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphUpload", [&] { return machine().upload(executable, stream); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&] { return machine().launch(executable, stream); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return ended(machine().destroy_executable(executable));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return ended(machine().destroy_graph(graph)); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] {
    *event = machine().create_event((flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return ended(machine().destroy_event(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&] { return machine().record(event, stream); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] { return machine().query(event); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&] { return machine().synchronize(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  return call("cudaEventElapsedTime", [&] { return machine().elapsed(milliseconds, start, stop); });
}

}  // extern "C"

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

namespace zero::cuda {

/// Owns one handle of a C library, a pointer type, and gives it back with `destroy`, whose status
/// is dropped: a destructor has nobody to tell. Move-only.
template <class T, auto destroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (value_ != nullptr) static_cast<void>(destroy(value_));
  }

  T get() const { return value_; }
  /// Where a create function writes a new handle; only while this one is empty.
  T* put() { return &value_; }

 private:
  T value_ = nullptr;
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;

}  // namespace zero::cuda

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

/// The memory and the streams that the fake of NCCL works on: the host's and none
/// (fake_stream.cpp), or those of the emulated GPU (tests/cuda/emulated_nccl.cpp).
namespace zero::test::fake_nccl {

/// Bytes that a piece of work reads or writes.
struct Touched {
  enum class How { read, written };
  const void* data = nullptr;
  std::size_t bytes = 0;
  How how = How::read;
};
/// Runs `work`, which touches so much, when the stream comes to it.
void put(cudaStream_t stream, const std::string& name, const Touched& touched,
         std::function<void()> work);

/// A point of a stream for which another can wait.
using Point = std::shared_ptr<void>;
Point record(cudaStream_t stream);
void wait(cudaStream_t stream, const Point& point);

/// Memory as ncclMemAlloc gives it.
void* allocate(std::size_t bytes);
void release(void* memory);

}  // namespace zero::test::fake_nccl

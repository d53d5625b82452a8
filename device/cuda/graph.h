// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device/cuda/handles.h"
#include "device/stream.h"

namespace zero::cuda {

/// The number of pieces of work that a body submitted, and a hash of their names.
struct Submissions {
  std::int64_t count = 0;
  std::size_t names = 0;

  void add(std::string_view name) {
    ++count;
    names = names * 31 + std::hash<std::string_view>{}(name);
  }
  friend bool operator==(const Submissions&, const Submissions&) = default;
};

/// The graph of a repeated body. The first call runs the body without capture: libraries choose
/// their kernels, modules are loaded. The second captures the work that the body submits as a
/// graph, which that call and all later ones launch. If CUDA refuses the capture, every call runs
/// the body.
class CudaGraph final : public CapturedGraph {
 public:
  enum class State : std::uint8_t { fresh, seen, captured, refused };

  /// The graph in `graph`; creates one if `graph` is null. Throws zero::Error if it belongs to
  /// another kind of device.
  static CudaGraph& of(std::unique_ptr<CapturedGraph>& graph);

  std::int64_t nodes() const override { return nodes_; }
  std::string_view refusal() const override { return refusal_; }

  State state() const { return state_; }
  cudaGraphExec_t graph() const { return executable_.get(); }
  void see(const Submissions& submissions) {
    submissions_ = submissions;
    state_ = State::seen;
  }
  /// Throws zero::Error if a later call of `what` submitted different work than the first.
  void compare(std::string_view what, const Submissions& now) const;
  /// Instantiates `graph` for launches on `stream`; refuses if the driver has no memory for it.
  void keep(std::string_view what, cudaGraph_t graph, cudaStream_t stream);
  void refuse(std::string reason) {
    refusal_ = std::move(reason);
    state_ = State::refused;
  }

 private:
  State state_ = State::fresh;
  Submissions submissions_;
  GraphExecHandle executable_;
  std::int64_t nodes_ = 0;
  std::string refusal_;
};

/// Whether a status means that a capture is not possible, rather than that work failed.
bool refuses_capture(cudaError_t status);

}  // namespace zero::cuda

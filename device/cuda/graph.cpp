// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/graph.h"

#include "base/error.h"
#include "device/cuda/check.h"

namespace zero::cuda {

bool refuses_capture(cudaError_t status) {
  return status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
}

CudaGraph& CudaGraph::of(std::unique_ptr<CapturedGraph>& graph) {
  if (graph == nullptr) graph = std::make_unique<CudaGraph>();
  auto* const own = dynamic_cast<CudaGraph*>(graph.get());
  ZERO_CHECK(own != nullptr, "cuda: work that another device keeps cannot be repeated");
  return *own;
}

void CudaGraph::compare(std::string_view what, const Submissions& now) const {
  ZERO_CHECK(now == submissions_,
             "cuda: \"{}\" is repeated, but has submitted other work than the first time: {} "
             "piece(s), {}; expected {}: the same every time",
             what, now.count, now.count == submissions_.count ? "of other names" : "another number",
             submissions_.count);
}

void CudaGraph::keep(std::string_view what, cudaGraph_t graph, cudaStream_t stream) {
  cudaError_t status = cudaGraphInstantiate(executable_.put(), graph, 0);
  if (status == cudaSuccess) status = cudaGraphUpload(executable_.get(), stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    executable_ = {};
    return refuse("the driver has no memory left for a graph");
  }
  check(status, what);
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(graph, nullptr, &nodes), what);
  nodes_ = static_cast<std::int64_t>(nodes);
  state_ = State::captured;
}

}  // namespace zero::cuda

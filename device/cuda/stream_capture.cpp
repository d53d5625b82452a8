// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Graph capture: captures work of a CUDA stream as a graph and launches the graph.
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/stream.h"

namespace zero::cuda {
namespace {

/// Why CUDA ended a capture: the error in the body, or the status of the end.
std::string reason_of(cudaError_t status, const std::exception_ptr& error) {
  if (error == nullptr) {
    return fmt::format("CUDA cannot capture it: {} ({})", cudaGetErrorName(status),
                       cudaGetErrorString(status));
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an error without a text";
  }
}

}  // namespace

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

void CudaStream::refuse_in_capture(std::string_view call) const {
  ZERO_CHECK(repeating_ == nullptr,
             "cuda: {} inside \"{}\", which is repeated: that is work of one stream, without "
             "events and host code; call it before or behind",
             call, repeating_->what);
}

/// Calls a body and records its submitted work; stores an error in `now`.
void CudaStream::call_body(Repeating& now, const Work& body) {
  repeating_ = &now;
  try {
    body();
  } catch (...) {
    now.error = std::current_exception();
  }
  repeating_ = nullptr;
}

/// Submits the work of a body; returns the names of that work.
Submissions CudaStream::submit_body(std::string_view what, const Work& body) {
  Repeating now{what};
  call_body(now, body);
  if (now.error) std::rethrow_exception(now.error);
  return now.submissions;
}

/// Captures the work that a body submits, without running it.
CudaStream::Captured CudaStream::capture(std::string_view what, const Work& body) {
  Captured captured;
  Repeating now{.what = what, .captures = true};
  cudaError_t status = cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal);
  if (status == cudaSuccess) {
    call_body(now, body);
    status = cudaStreamEndCapture(stream_.get(), captured.graph.put());
  }
  if (refuses_capture(status)) {
    cudaGetLastError();
    captured.refusal = reason_of(status, now.error);
    return captured;
  }
  // An error in the work fails the stream, as without a capture.
  if (now.of_work) take_error(now.of_work);
  rethrow();
  if (now.error) std::rethrow_exception(now.error);
  check(status, what);
  captured.submissions = now.submissions;
  return captured;
}

void CudaStream::keep(CudaGraph& work, std::string_view what, const Work& body) {
  Captured captured = capture(what, body);
  if (!captured.refusal.empty()) return work.refuse(std::move(captured.refusal));
  work.compare(what, captured.submissions);
  work.keep(what, captured.graph.get(), stream_.get());
}

void CudaStream::do_repeat(std::unique_ptr<CapturedGraph>& graph, std::string_view what,
                           CapturedGraph::Check again, const Work& body) {
  refuse_in_capture("repeat");
  rethrow();
  activate();
  CudaGraph& work = CudaGraph::of(graph);
  if (work.state() == CudaGraph::State::fresh) return work.see(submit_body(what, body));
  if (work.state() == CudaGraph::State::seen) {
    keep(work, what, body);
  } else if (work.state() == CudaGraph::State::captured && again == CapturedGraph::Check::always) {
    const Captured captured = capture(what, body);
    ZERO_CHECK(captured.refusal.empty(), "cuda: \"{}\" is repeated, but submits what cannot be: {}",
               what, captured.refusal);
    work.compare(what, captured.submissions);
  }
  if (work.state() == CudaGraph::State::refused) {
    submit_body(what, body);
    return;
  }
  do_submit(what, [&] { check(cudaGraphLaunch(work.graph(), native(*this)), what); });
}

}  // namespace zero::cuda

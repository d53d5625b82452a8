// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/events.h"
#include "device/cuda/graph.h"
#include "device/stream.h"

namespace zero::cuda {

/// The native queue behind a stream of a CUDA device, with that device made current on the calling
/// thread. Throws zero::Error when `stream` belongs to another kind of device.
cudaStream_t native(Stream& stream);

/// The first error of a stream, of submitted work or of host code that ran in the stream's order.
/// Items are numbered as they were submitted. Thread-safe.
class Failure;

/// A stream that another waited for, up to one of its items.
struct Upstream {
  std::shared_ptr<Failure> failure;
  std::int64_t item;
};

/// A CUDA stream. Errors of CUDA come from whatever call meets them first; host code that throws is
/// reported by the next call on the stream, or on a stream that waited for it.
class CudaStream final : public Stream {
 public:
  struct Pools {
    std::shared_ptr<EventPool> points;  ///< without timing
    std::shared_ptr<EventPool> clocks;  ///< with timing
  };

  CudaStream(int device, int priority, Pools pools);
  ~CudaStream() override { drain(); }

  bool enqueues() const override { return true; }
  Event record() override;
  /// By the GPU's clock, of about half a microsecond, in single precision.
  Mark mark() override;
  void synchronize() override;
  /// Of what has run so far: the time between two events around each wait whose event was not
  /// complete when wait() was called. Never blocks.
  double waited_seconds() const override;
  /// Waits for what was submitted, drops its errors.
  void drain() noexcept { static_cast<void>(cudaStreamSynchronize(stream_.get())); }

 private:
  void do_submit(std::string_view what, Work work) override;
  void do_submit_host(std::string_view what, Work work) override;
  /// As graphs (CudaGraph).
  void do_repeat(std::unique_ptr<CapturedGraph>& kept, std::string_view what,
                 CapturedGraph::Check check, const Work& body) override;
  void do_wait(const Event& event) override;

  friend cudaStream_t native(Stream& stream);

  struct Span {
    Mark begin;
    Mark end;
  };

  /// The body of a repeat that is being called.
  struct Repeating {
    std::string_view what;
    bool captures = false;
    Submissions submissions{};
    std::exception_ptr of_work{};  // an error of captured work
    std::exception_ptr error{};    // with which the body ended
  };
  struct Captured {
    GraphHandle graph;
    Submissions submissions;
    std::string refusal{};  // why there is no graph
  };

  void refuse_in_capture(std::string_view call) const;
  void call_body(Repeating& now, const Work& body);
  Submissions submit_body(std::string_view what, const Work& body);
  Captured capture(std::string_view what, const Work& body);
  void keep(CudaGraph& work, std::string_view what, const Work& body);
  void take_error(std::exception_ptr error);

  void activate() const;
  void rethrow();
  void fold() const;
  void remember(const std::shared_ptr<Failure>& failure, std::int64_t item);

  int device_;
  Pools pools_;
  StreamHandle stream_;
  std::shared_ptr<Failure> failure_;
  std::int64_t submitted_ = 0;
  std::vector<Upstream> upstream_;
  Repeating* repeating_ = nullptr;
  Event latest_;                    // the point that record() gave last
  bool behind_ = true;              // nothing was queued after latest_
  mutable std::deque<Span> waits_;  // that have not been added up
  mutable double waited_seconds_ = 0;
};

}  // namespace zero::cuda

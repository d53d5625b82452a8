// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// A pool of CUDA events, so that no event is created on the hot path after the first step. Events
/// may be returned from any thread.
class EventPool {
 public:
  /// `flags`: of cudaEventCreateWithFlags. `ready` events are created immediately, on the calling
  /// thread's device, others on demand.
  EventPool(unsigned flags, int ready);

  EventHandle take();
  void give_back(EventHandle event) noexcept;

 private:
  unsigned flags_;
  std::mutex mutex_;
  std::vector<EventHandle> idle_;
};

/// The native queue of a CUDA device's stream; makes that device current on the calling thread.
/// Throws zero::Error if `stream` belongs to another kind of device.
cudaStream_t native(Stream& stream);

/// The first error of a stream, from submitted work or from host code in the stream. Items are
/// numbered in submission order. Thread-safe.
class Failure;

/// A stream that another stream waited for, up to one of its items.
struct Upstream {
  std::shared_ptr<Failure> failure;
  std::int64_t item;
};

/// A CUDA stream. The first call that meets an error of CUDA throws it; an exception of host code
/// is reported by the next call on the stream, or on a stream that waited for it.
class CudaStream final : public Stream {
 public:
  struct Pools {
    std::shared_ptr<EventPool> points;  ///< without timing
    std::shared_ptr<EventPool> clocks;  ///< with timing
  };

  CudaStream(int device, int priority, Pools pools);
  ~CudaStream() override { drain(); }

  bool enqueues() const override { return true; }
  bool captures() const override { return true; }
  Event record() override;
  /// By the GPU's clock, with a resolution of about 0.5 us, in single precision.
  Mark mark() override;
  void synchronize() override;
  /// The total, over the waits that have run, of the time between two events around each wait whose
  /// event was not complete when wait() was called. Never blocks.
  double waited_seconds() const override;
  /// Waits for all submitted work; drops errors.
  void drain() noexcept { static_cast<void>(cudaStreamSynchronize(stream_.get())); }

 private:
  void do_submit(std::string_view what, Work work) override;
  void do_submit_host(std::string_view what, Work work) override;
  /// Captures and launches a CudaGraph.
  void do_repeat(std::unique_ptr<CapturedGraph>& graph, std::string_view what,
                 CapturedGraph::Check check, const Work& body) override;
  void do_wait(const Event& event) override { enqueue_wait(event, std::nullopt); }
  void do_wait_metered(const Event& event, const WaitMeter& meter) override {
    enqueue_wait(event, meter);
  }
  void enqueue_wait(const Event& event, const std::optional<WaitMeter>& meter);

  friend cudaStream_t native(Stream& stream);

  struct PendingWait {
    Mark begin;
    Mark end;
    std::optional<WaitMeter> meter;
  };

  /// The running body of a repeat.
  struct Repeating {
    std::string_view what;
    bool captures = false;
    Submissions submissions{};
    std::exception_ptr of_work{};  // an error of captured work
    std::exception_ptr error{};    // thrown by the body
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
  Event latest_;                           // the last point that record() returned
  bool behind_ = true;                     // no work was queued after latest_
  mutable std::deque<PendingWait> waits_;  // not yet added to the total
  mutable double waited_seconds_ = 0;
};

}  // namespace zero::cuda

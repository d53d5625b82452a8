// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace zero {

/// A point in the work of one stream: complete once everything submitted to that stream before it
/// is. A value; copies share the point. A default-constructed Event is complete. Backends derive
/// State.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
    /// True once the work before the point has run. Never blocks.
    virtual bool complete() = 0;
    /// Blocks the calling thread until complete; rethrows the error of a failed stream.
    virtual void synchronize() = 0;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool complete() const { return !state_ || state_->complete(); }
  void synchronize() const {
    if (state_) state_->synchronize();
  }
  State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

/// A point in the work of one stream that tells afterwards when the stream came to it, by the
/// device's own clock. A value; copies share the point. Backends derive State.
class Mark {
 public:
  class State {
   public:
    virtual ~State() = default;
    /// See Mark::seconds_since().
    virtual std::optional<double> seconds_since(const State& earlier) const = 0;
  };

  Mark() = default;  ///< of no stream, which none comes to
  explicit Mark(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Seconds from `earlier`, of any stream of the same device, to this point; nothing as long as
  /// one of the two is ahead. Never blocks. Throws zero::Error where the two have no clock in
  /// common.
  std::optional<double> seconds_since(const Mark& earlier) const {
    if (!state_ || !earlier.state_) return std::nullopt;
    return state_->seconds_since(*earlier.state_);
  }

 private:
  std::shared_ptr<State> state_;
};

/// Work of a stream that its device keeps, to submit all of it again at once (Stream::repeat).
/// Backends derive it. It may end while its work runs.
class Repeat {
 public:
  /// When the work is made anew to be compared with what is kept.
  enum class Check : std::uint8_t { at_first, always };

  virtual ~Repeat() = default;
  Repeat() = default;
  Repeat(const Repeat&) = delete;
  Repeat& operator=(const Repeat&) = delete;

  /// How many pieces of work are kept; 0: none yet, or none for good.
  virtual std::int64_t pieces() const = 0;
  /// Why they are submitted one by one for good; empty where they are not.
  virtual std::string_view refusal() const = 0;
};

/// An ordered queue of work on a device, as in CUDA: work of one stream runs in submission order;
/// between streams only events order it. Used by one host thread at a time. Work that throws fails
/// its stream: later work is dropped and the first error is rethrown by submit, wait, synchronize
/// and by waits on the stream's events.
class Stream {
 public:
  using Work = std::function<void()>;

  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Queues `work`, a device's own: kernels, copies, collectives. Everything it touches must live
  /// until the stream has passed it; `what` (for traces and errors) is copied. On the inline CPU
  /// stream the work has run when submit returns. Where enqueues(), submit calls `work` at once, on
  /// the caller, and it puts commands into the device's queue.
  virtual void submit(std::string_view what, Work work) = 0;
  /// Queues host code, which runs on some host thread when the stream comes to it. It touches host
  /// memory only, and calls no device, stream or communicator. For code that belongs to no device.
  virtual void submit_host(std::string_view what, Work work) { submit(what, std::move(work)); }
  /// Whether the device has a queue of its own that submitted work fills (CUDA); otherwise the work
  /// itself is what the stream runs.
  virtual bool enqueues() const { return false; }
  /// Submits what `body` does: to this stream alone, every time the same work on the same memory,
  /// without events and host code. Where the device can keep that (CUDA: as a graph) it does so in
  /// `kept`, null before the first call, and from the third call on leaves `body` out; at the
  /// second it may call it twice. `check` has it called every time, and throws zero::Error where
  /// the work is another (its names and number are compared). Other devices call `body` and leave
  /// `kept` null.
  virtual void repeat(std::unique_ptr<Repeat>& /*kept*/, std::string_view /*what*/,
                      Repeat::Check /*check*/, const Work& body) {
    body();
  }
  /// The point after all work submitted so far.
  virtual Event record() = 0;
  /// The same point, with the time at which the stream comes to it: for instruments.
  virtual Mark mark();
  /// Later work of this stream runs only after `event`. Does not block the host, except on the
  /// inline CPU stream, where the caller is the stream.
  virtual void wait(const Event& event) = 0;
  /// Blocks the host until all submitted work has run.
  virtual void synchronize() = 0;
  /// Seconds this stream has spent in wait() for events of other streams since it was made: on the
  /// compute stream this is the exposed communication.
  virtual double waited_seconds() const = 0;
  /// The stream that runs the work: another one where this passes all on to it (ObservedStream).
  virtual Stream& undecorated() { return *this; }
};

}  // namespace zero

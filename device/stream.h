// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace zero {

/// A point in the work of one stream: complete once all work submitted to that stream before it is
/// complete. A value; copies share the point. A default-constructed Event is complete. Backends
/// derive State.
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

/// A point in the work of one stream with a timestamp: the device clock's time at which the stream
/// reaches the point. A value; copies share the point. Backends derive State.
class Mark {
 public:
  class State {
   public:
    virtual ~State() = default;
    /// See Mark::seconds_since().
    virtual std::optional<double> seconds_since(const State& earlier) const = 0;
  };

  Mark() = default;  ///< belongs to no stream; never reached
  explicit Mark(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Seconds from `earlier`, of any stream of the same device, to this point; nothing until both
  /// are reached. Never blocks. Throws zero::Error if the two have no common clock.
  std::optional<double> seconds_since(const Mark& earlier) const {
    if (!state_ || !earlier.state_) return std::nullopt;
    return state_->seconds_since(*earlier.state_);
  }

 private:
  std::shared_ptr<State> state_;
};

/// Adds up the seconds of those waits of a stream that it is passed to (Stream::wait). A wait
/// counts once it counts in the stream's waited_seconds(), so that is asked first. A value; copies
/// share the sum. Used by the host thread of the stream.
class WaitMeter {
 public:
  WaitMeter() = default;
  /// `what` the waits are for, in the words of a listener.
  explicit WaitMeter(std::string what) : what_(std::move(what)) {}

  const std::string& what() const { return what_; }
  double seconds() const { return *seconds_; }
  void add(double seconds) const { *seconds_ += seconds; }

 private:
  std::string what_;
  std::shared_ptr<double> seconds_ = std::make_shared<double>(0);
};

/// Work of a stream captured as a graph, which is submitted again as a whole (Stream::repeat).
/// Backends derive from this class. May be destroyed while its work runs.
class CapturedGraph {
 public:
  /// When the body is called and its work compared with the graph's: until there is a graph, or
  /// every time.
  enum class Check : std::uint8_t { at_first, always };

  virtual ~CapturedGraph() = default;
  CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// The number of pieces of work in the graph; 0: no graph, yet or for good.
  virtual std::int64_t nodes() const = 0;
  /// Why the work will never be captured; empty if it can be.
  virtual std::string_view refusal() const = 0;
};

class StreamListener;

/// An ordered queue of work on a device, as in CUDA: work of one stream runs in submission order;
/// between streams only events order it. Used by one host thread at a time. Work that throws fails
/// its stream: later work is dropped and the first error is rethrown by submit, wait, synchronize
/// and by waits on the stream's events. Backends implement the functions that begin with do_.
class Stream {
 public:
  using Work = std::function<void()>;

  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Queues `work` of the device: kernels, copies, collectives. All that `work` uses must live
  /// until the stream has passed it; `what` (for traces and errors) is copied. On the inline CPU
  /// stream the work has run when submit returns. If enqueues(), submit calls `work` immediately on
  /// the caller, and `work` puts commands into the device's queue.
  void submit(std::string_view what, Work work);
  /// Queues host code, which runs in stream order on some host thread. The code may access host
  /// memory only, and must not call any device, stream or communicator.
  void submit_host(std::string_view what, Work work);
  /// As submit_host(), of an observer: the stream's listener is not told.
  void note(Work work) { do_submit_host("note", std::move(work)); }
  /// Whether submitted work fills a native queue of the device (CUDA); otherwise the stream runs
  /// the work itself.
  virtual bool enqueues() const { return false; }
  /// Whether repeat() captures graphs. A stream that implements do_repeat() returns true.
  virtual bool captures() const { return false; }
  /// Submits the work of `body`: to this stream only, the same work on the same memory every time,
  /// without events and host code. A device with graph capture (CUDA) captures the work in `graph`,
  /// null before the first call, and from the third call on replays it without `body`; the second
  /// call may call `body` twice. With Check::always every call calls `body`, and throws zero::Error
  /// if the work differs (names and number are compared). Other devices call `body` and leave
  /// `graph` null; so does a stream with a listener, whose pieces of work are marked one by one.
  void repeat(std::unique_ptr<CapturedGraph>& graph, std::string_view what,
              CapturedGraph::Check check, const Work& body) {
    if (listener_ != nullptr) return body();
    do_repeat(graph, what, check, body);
  }
  /// The point after all work submitted so far.
  virtual Event record() = 0;
  /// The same point with a timestamp, for measurements.
  virtual Mark mark();
  /// Later work of this stream runs only after `event`. Does not block the host, except on the
  /// inline CPU stream, where the caller is the stream.
  void wait(const Event& event);
  /// The same, of a wait that `meter` counts too.
  void wait(const Event& event, const WaitMeter& meter);
  /// Blocks the host until all submitted work has run.
  virtual void synchronize() = 0;
  /// Total seconds this stream has waited for events of other streams: on the compute stream, the
  /// exposed communication.
  virtual double waited_seconds() const = 0;
  /// Notifies `listener` of each later piece of work and wait; it must outlive the stream or stay
  /// valid until replaced. Null: none, which costs nothing. Work that replaces its stream's
  /// listener is reported to neither.
  void listen(StreamListener* listener) { listener_ = listener; }

 private:
  virtual void do_submit(std::string_view what, Work work) = 0;
  virtual void do_submit_host(std::string_view what, Work work) {
    do_submit(what, std::move(work));
  }
  virtual void do_repeat(std::unique_ptr<CapturedGraph>& /*graph*/, std::string_view /*what*/,
                         CapturedGraph::Check /*check*/, const Work& body) {
    body();
  }
  virtual void do_wait(const Event& event) = 0;
  /// This default suits streams whose waited_seconds() has a wait once do_wait() returns.
  virtual void do_wait_metered(const Event& event, const WaitMeter& meter) {
    const double before = waited_seconds();
    do_wait(event);
    meter.add(waited_seconds() - before);
  }

  /// The listener, if it wants a report of the next piece of work or wait; else null.
  StreamListener* active_listener() const;
  /// A piece of work: the listener that wants a report of it, if any, and the mark before it.
  struct Begun {
    StreamListener* listener = nullptr;
    Mark begin{};
  };
  Begun begin_work();
  /// Reports it, unless the work replaced the listener.
  void end_work(std::string_view what, const Begun& begun);
  template <typename Wait>
  void run_wait(const Event& event, std::string_view meter, const Wait& wait);

  StreamListener* listener_ = nullptr;
};

/// Is notified of the work submitted to a stream, on the submitting host thread; must not throw.
/// The marks later give the times at which the work ran.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  /// Whether to mark the next piece of work or wait; called before each.
  virtual bool listens() const noexcept = 0;
  /// The work submitted as `what` runs between two marks.
  virtual void ran(std::string_view what, Mark begin, Mark end) noexcept = 0;
  /// The stream waits for another stream's event; `meter` is WaitMeter::what() of the meter that
  /// counts the wait, empty if there is none.
  virtual void waited(std::string_view meter, Mark begin, Mark end) noexcept = 0;
};

}  // namespace zero

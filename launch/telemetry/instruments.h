// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "collectives/listener.h"
#include "device/stream.h"
#include "launch/telemetry/profile.h"
#include "launch/telemetry/trace.h"
#include "model/op_listener.h"

namespace zero {

/// A device's time on the host's clock, between two points at which the host waits for a stream:
/// the two clocks meet there, and in between the device's runs evenly. Used by one host thread.
class HostClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The first meeting. Blocks until all work of the stream has run.
  explicit HostClock(Stream& stream);
  /// The second.
  void stop(Stream& stream);

  /// Seconds of the device from the first meeting to a mark of one of its streams; nothing as long
  /// as the stream is not there.
  std::optional<double> seconds_to(const Mark& mark) const {
    return mark.seconds_since(begin_.mark);
  }
  /// The host's time so many seconds of the device after the first meeting. After stop().
  Time at(double seconds) const;
  double seconds() const { return seconds_; }  ///< of the device, between the meetings
  /// The error of at(), beside the grain of the device's clock: each meeting lies between
  /// two looks at the host's.
  double error_seconds() const;

 private:
  struct Meeting {
    Mark mark;
    Time time;
    double error = 0;  // seconds
  };
  static Meeting meet(Stream& stream);

  Meeting begin_;
  Meeting end_;
  double seconds_ = 0;
};

/// Which steps of a run are looked at, and how.
struct InstrumentOptions {
  bool profile = false;  ///< all steps but the first, which warms up
  bool trace = false;    ///< steps trace_from .. trace_from + trace_steps - 1
  std::int64_t trace_from = 1;
  std::int64_t trace_steps = 1;
  std::int64_t trace_events = 1;  ///< of each stream; the newest are kept
};

/// Observes one rank's run: hears of work submitted to its streams, operations and collectives, by
/// marks on the streams, and keeps a profile and a trace of the steps it is asked for. Marks are
/// read once the streams have passed them: the host waits for its device at the begin and the end
/// of a step that is looked at, and never in between. A run without it is not slowed down. Used by
/// the host thread.
class Instruments final : public StreamObserver, public OpListener, public CollectiveListener {
 public:
  using Time = HostClock::Time;

  explicit Instruments(const InstrumentOptions& options);

  /// `compute`: of the device that reports here; must live until end_step().
  void begin_step(std::int64_t step, Stream& compute);
  void end_step(std::int64_t step);
  /// Keeps the communication that steps left to its stream. With the streams at rest.
  void stop();

  void ran(std::string_view what, Mark begin, Mark end) noexcept override;
  void waited(Mark begin, Mark end) noexcept override;
  void begin(const OpCost& cost) override;
  void end() noexcept override;
  void unit(std::string_view name, Phase phase) override;
  bool listens() const noexcept override { return step_ != nullptr; }
  void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept override;

  /// Time of the compute stream by kind of work. After stop(), as for the others.
  Profile& profile() { return profile_; }
  /// The collectives of the profiled steps; they run beside the compute stream.
  const Profile& collectives() const { return collectives_; }
  const RankTrace& trace() const { return trace_; }
  /// When the first traced step began.
  Time origin() const { return origin_; }

 private:
  /// A step that is looked at.
  struct Step {
    HostClock clock;
    bool profiled;
    bool traced;
    bool over = false;
  };
  /// Work of a stream between two marks.
  struct Span {
    std::string name;
    std::string kind{};  // its name in a profile; empty: `name`
    Mark begin;
    Mark end;
    std::int64_t bytes = 0;
    bool of_operation = false;  // whose calls are counted apart
    std::shared_ptr<Step> step{};
    std::optional<std::pair<double, double>> seconds{};  // of the step's clock, once read
  };
  /// The spans of one stream, in order.
  struct Lane {
    TraceTrack& track;
    Profile* profile;  // null: none
    std::deque<Span> spans{};
    std::size_t read = 0;  // spans of which seconds are known
  };

  void add(Lane& lane, Span span);
  static void read(Lane& lane);
  /// Passes on the spans of steps that are over.
  static void settle(Lane& lane);
  static void keep(const Span& span, Lane& lane);
  void settle_all();
  /// Ends the unit that runs, if any.
  void leave_unit();
  /// Observers must not fail: spans that cannot be kept are lost.
  template <typename Body>
  void try_to(const Body& body) noexcept;

  InstrumentOptions options_;
  std::shared_ptr<Step> step_;  // null: not looked at
  Stream* compute_ = nullptr;
  Time origin_{};
  std::string unit_{};  // that runs; empty: none
  Mark unit_began_;
  std::optional<OpCost> operation_{};
  Profile profile_;
  Profile collectives_;
  RankTrace trace_;
  Lane work_{trace_.compute, &profile_};
  Lane units_{trace_.units, nullptr};
  Lane communication_{trace_.communication, &collectives_};
};

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "collectives/listener.h"
#include "device/memory_ledger.h"
#include "device/stream.h"
#include "launch/telemetry/profile.h"
#include "launch/telemetry/trace.h"
#include "model/unit_listener.h"

namespace zero {

/// Maps a device's time to the host's clock: compares both clocks at two points at which the host
/// waits for a stream, and interpolates linearly between them. Used by one host thread.
class HostClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Whose seconds at() counts: the host's, or the device's own if its clock is virtual.
  enum class Seconds : std::uint8_t { of_host, of_device };

  /// Makes the first comparison. Blocks until all work of the stream has run.
  explicit HostClock(Stream& stream, Seconds seconds = Seconds::of_host);
  /// Makes the second comparison, in the same way.
  void stop(Stream& stream);

  /// Device seconds from the first comparison to a mark on one of its streams; nothing while the
  /// stream has not reached the mark.
  std::optional<double> seconds_to(const Mark& mark) const {
    return mark.seconds_since(begin_.mark);
  }
  /// The host's time `seconds` of the device after the first comparison. Call after stop().
  Time at(double seconds) const;
  double seconds() const { return seconds_; }  ///< of the device, between the comparisons
  /// The error of at(), apart from the resolution of the device's clock: each comparison lies
  /// between two reads of the host's clock.
  double error_seconds() const;

 private:
  struct Comparison {
    Mark mark;
    Time time;
    double error = 0;  // seconds
  };
  static Comparison compare(Stream& stream);

  Seconds counted_;
  Comparison begin_;
  Comparison end_;
  double seconds_ = 0;
};

/// The steps of a run to profile and to trace, counted from the first that this process does.
struct InstrumentOptions {
  bool profile = false;  ///< all steps but the first, which warms up
  bool trace = false;    ///< steps trace_from .. trace_from + trace_steps - 1
  std::int64_t trace_from = 1;
  std::int64_t trace_steps = 1;
  std::int64_t trace_events = 1;  ///< kept for each stream: the newest
  HostClock::Seconds seconds = HostClock::Seconds::of_host;
};

/// Observes one rank's run: records work submitted to its streams, operations and collectives by
/// marks on the streams, and keeps a profile and a trace of the requested steps. Marks are read
/// once the streams have passed them: the host waits for its device at the beginning and the end of
/// an observed step, and never in between. Runs without instruments are not slowed down. Used by
/// the host thread.
class Instruments final : public StreamListener, public UnitListener, public CollectiveListener {
 public:
  using Time = HostClock::Time;

  explicit Instruments(const InstrumentOptions& options);

  /// Steps up to `step` were done by an earlier process. Call before begin_step().
  void begin_after(std::int64_t step) { before_ = step; }
  /// `compute` is a stream of the device that reports here and must live until end_step().
  void begin_step(std::int64_t step, Stream& compute);
  void end_step(std::int64_t step);
  /// Collects the communication that the steps left on its stream. Call with idle streams.
  void stop();

  void ran(std::string_view what, Mark begin, Mark end) noexcept override;
  void waited(std::string_view meter, Mark begin, Mark end) noexcept override;
  void begin(const OpCost& cost) override;
  void end() noexcept override;
  void unit(std::string_view name, Phase phase) override;
  /// The device's memory from now on, for the counters of the trace. Any thread may call it, one at
  /// a time.
  void memory(const BytesByClass& bytes) noexcept;
  bool listens() const noexcept override { return step_ != nullptr; }
  void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept override;

  /// Time of the compute stream by kind of work. Call after stop(), like the accessors below.
  Profile& profile() { return profile_; }
  /// The collectives of the profiled steps, which run concurrently with the compute stream.
  const Profile& collectives() const { return collectives_; }
  const RankTrace& trace() const { return trace_; }
  /// The start of the first traced step.
  Time origin() const { return origin_; }

 private:
  /// A step that is profiled or traced.
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
    bool of_operation = false;  // the operation's calls are counted separately
    std::shared_ptr<Step> step{};
    std::optional<std::pair<double, double>> seconds{};  // on the step's clock, once read
  };
  /// The spans of one stream, in order.
  struct Lane {
    TraceTrack& track;
    Profile* profile;  // null: none
    std::deque<Span> spans{};
    std::size_t read = 0;  // spans with known seconds
  };

  void add(Lane& lane, Span span);
  static void read(Lane& lane);
  /// Passes the spans of finished steps to the profile and the trace.
  static void flush(Lane& lane);
  static void keep(const Span& span, Lane& lane);
  void settle_all();
  void count_memory(bool counts);
  /// Ends the current unit, if any.
  void leave_unit();
  /// Observers must not fail: spans that cannot be kept are lost.
  template <typename Body>
  void try_to(const Body& body) noexcept;

  InstrumentOptions options_;
  std::int64_t before_ = 0;     // steps of earlier processes
  std::shared_ptr<Step> step_;  // null: the current step is not observed
  Stream* compute_ = nullptr;
  Time origin_{};
  std::string unit_{};  // the current unit; empty: none
  Mark unit_began_;
  std::optional<OpCost> operation_{};
  std::mutex memory_mutex_;  // of the two below and trace_.memory, while steps run
  bool counts_memory_ = false;
  BytesByClass memory_{};
  Profile profile_;
  Profile collectives_;
  RankTrace trace_;
  Lane work_{trace_.compute, &profile_};
  Lane units_{trace_.units, nullptr};
  Lane communication_{trace_.communication, &collectives_};
};

}  // namespace zero

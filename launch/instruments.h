// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "device/stream_observer.h"
#include "launch/profile.h"
#include "launch/trace.h"
#include "launch/traced_communicator.h"
#include "model/observed_ops.h"

namespace zero {

/// Which steps of a run are looked at, and how.
struct InstrumentOptions {
  bool profile = false;  ///< all steps but the first, which warms up
  bool trace = false;    ///< steps trace_from .. trace_from + trace_steps - 1
  std::int64_t trace_from = 1;
  std::int64_t trace_steps = 1;
  std::int64_t trace_events = 1;  ///< of each stream; the newest are kept
};

/// The eyes of one rank's run: hears what its streams, operations and collectives do and keeps a
/// profile and a trace of the steps it is asked for. A run without it is not slowed down. Begin and
/// end of steps are told by the host thread, which is the compute stream.
class Instruments final : public StreamObserver, public OpListener, public CollectiveListener {
 public:
  explicit Instruments(const InstrumentOptions& options);

  void begin_step(std::int64_t step);
  void end_step(std::int64_t step);
  /// From now on nothing is kept. With the streams at rest.
  void stop();

  void ran(std::string_view what, Time begin, Time end) noexcept override;
  void waited(Time begin, Time end) noexcept override;
  void begin(const OpCost& cost) override;
  void end() noexcept override;
  void unit(std::string_view name, Phase phase) override;
  unsigned keeps() const noexcept override;
  void collective(const CollectiveRun& run) noexcept override;

  /// What the compute stream's time went to.
  Profile& profile() { return profile_; }
  /// The collectives of the profiled steps; they run beside the compute stream. With the streams at
  /// rest.
  const Profile& collectives() const { return collectives_; }
  /// With the streams at rest.
  const RankTrace& trace() const { return trace_; }
  /// When the first traced step began.
  Time origin() const { return origin_; }

 private:
  /// Ends the unit that runs, if any.
  void leave_unit();
  /// Observers must not fail: what cannot be kept is lost.
  template <typename Body>
  void keep(const Body& body) noexcept;

  InstrumentOptions options_;
  std::atomic<bool> profiling_{false};  // also read by the communication thread
  std::atomic<bool> tracing_{false};
  Time step_began_{};
  Time origin_{};
  std::string unit_{};  // that runs; empty: none
  Time unit_began_{};
  std::optional<OpCost> operation_{};
  double operation_seconds_ = 0;
  Profile profile_;
  Profile collectives_;  // of the communication thread
  RankTrace trace_;
};

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/listener.h"
#include "collectives/operation.h"
#include "launch/faults/fault_actions.h"
#include "launch/faults/fault_marks.h"
#include "launch/faults/fault_options.h"
#include "launch/flight/run_phases.h"
#include "model/unit_listener.h"

namespace zero {

class Communicator;
struct TrainConfig;

/// Makes one rank fail as run.faults asks, for tests of what happens then. Hears the trainer's
/// phases, the model's units and the rank's collectives on the rank's host thread, and acts there
/// before they begin; alters collectives through with_faults(). Each fault acts once (FaultMarks).
/// Says which fault acts and, when the run is over, which did not.
class FaultInjector final : public CollectiveListener,
                            public UnitsOnlyListener,
                            public PhaseListener {
 public:
  /// A collective that this rank gives to its backend.
  struct Collective {
    Operation operation = Operation::barrier;
    std::string_view purpose{};
    std::int64_t given = 0;    ///< elements that this rank gives
    std::int64_t brought = 0;  ///< elements that it gets from others
  };
  /// What is to be done to the collective.
  enum class Answer : std::uint8_t { pass, skip, resize, flip_given, flip_brought };

  FaultInjector(const FaultOptions& options, int rank, int world,
                FaultActions actions = process_actions());
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;
  ~FaultInjector() override;

  void phase(std::int64_t step, std::string_view name) override;
  void unit(std::string_view name, Phase phase) override;
  /// Whether a fault waits for a collective, or slows them.
  bool listens() const noexcept override { return hears_collectives_; }
  void submitting(const CollectiveRecord& record, const CollectiveBackend& group,
                  Stream& stream) override;
  void collective(const CollectiveRecord& /*record*/, Mark /*begin*/,
                  Mark /*end*/) noexcept override {}
  /// Call before the backend gets a collective of several ranks.
  Answer alter(const Collective& collective);

  /// Whether a fault of this rank may need alter(); if none does, with_faults() changes no backend.
  bool alters_collectives() const { return alters_collectives_; }
  /// The disk for checkpoints and tiers; null if no fault fills it.
  files::FileSystem* disk() { return disk_.get(); }

 private:
  struct Armed {
    Fault fault;
    std::string mark;
    std::int64_t number = 0;                               // of a drawn one
    std::optional<FaultActions::Clock::time_point> due{};  // likewise; nothing: it is listed
    bool done = false;
  };
  /// Where the rank is.
  struct Place {
    std::optional<FaultPhase> phase{};
    bool both = false;  // forward and backward at once
    std::string_view unit{};
    const Collective* collective = nullptr;
    bool alters = false;  // in alter(); else in submitting()
  };
  void arm_drawn(std::int64_t from);
  void forget_earlier_steps();
  void tell_missed(const Fault& fault) const;
  bool matches(const Armed& armed, const Place& place) const;
  bool matches_collective(const Fault& fault, const Place& place) const;
  Place place_of(const Collective& collective) const;
  Answer meet(const Place& place);
  Answer act(Armed& armed, const Place& place);
  std::string where(const Place& place) const;
  void slow_down();
  FaultActions::Clock::time_point end_of(const Fault& fault) const;

  int rank_;
  int world_;
  FaultActions actions_;
  FaultMarks marks_;
  std::vector<std::string> units_;
  std::optional<DrawnFaults> drawn_;
  std::int64_t first_drawn_ = 0;  // number of the attempt's first
  FaultActions::Clock::time_point began_;
  std::vector<Armed> armed_;  // this rank's
  bool hears_collectives_ = false;
  bool alters_collectives_ = false;
  std::unique_ptr<FullDisk> disk_;

  std::int64_t step_ = -1;
  std::string phase_{};  // the trainer's
  bool trains_ = false;  // a step has begun
  double slowness_ = 1;
  double link_delay_ = 0;
  FaultActions::Clock::time_point slow_until_ = FaultActions::Clock::time_point::min();
  FaultActions::Clock::time_point slow_link_until_ = FaultActions::Clock::time_point::min();
  FaultActions::Clock::time_point worked_from_{};
};

/// Makes the injector of a run's rank; checkpoints and tiers of `config` get its disk. Null if no
/// faults are asked for. `host` is the communicator through which the ranks met. Throws zero::Error
/// if a fault would end a process that has several ranks.
std::unique_ptr<FaultInjector> make_fault_injector(TrainConfig& config, const Communicator& host);

}  // namespace zero

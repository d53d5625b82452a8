// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/listener.h"
#include "launch/faults/flight_file.h"
#include "launch/train/phase_listener.h"
#include "model/unit_listener.h"

namespace zero {

class Mesh;

/// Writes what a rank does to its flight file: collectives of all groups, units of compute, phases
/// and steps. Register with Listening, TrainerParts::unit_listeners and phase_listeners. Used by
/// the rank's host thread, but for poll(). Streams that run their work themselves stamp the begin
/// and end of a collective as it happens; of streams that enqueue (CUDA) marks are read by later
/// calls and by poll().
class FlightRecorder final : public CollectiveListener, public UnitListener, public PhaseListener {
 public:
  /// `file` must outlive this object and all work of the streams whose collectives it hears of.
  explicit FlightRecorder(FlightFile& file) : file_(file) {}
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Collectives of this communicator are of the group `name` with these ranks of the world. The
  /// first name of a group stays. Groups of one rank move nothing and are left out.
  void know_group(const Communicator& communicator, std::string name, std::vector<int> world_ranks);
  /// know_group() for the world and the axes of a mesh.
  void know_mesh(Mesh& mesh);

  /// Reads marks that streams have passed. Any thread; a watchdog calls it now and then, so that
  /// the file is true while the host thread is stuck.
  void poll() noexcept;

  bool listens() const noexcept override { return true; }
  void submitting(const CollectiveRecord& record, const CollectiveBackend& group,
                  Stream& stream) override;
  void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept override;
  void host_call(const CollectiveBackend& group, std::string_view name) noexcept override;
  void host_call_ended(const CollectiveBackend& group) noexcept override;

  void unit(std::string_view name, Phase phase) override;
  bool hears_operations() const override { return false; }
  void begin(const OpCost& /*cost*/) override {}
  void end() noexcept override {}

  void phase(std::int64_t step, std::string_view name) override;

 private:
  /// A collective on a stream that enqueues.
  struct Marked {
    FlightFile::Ticket ticket = 0;
    Mark begin;
    Mark end;
    bool started = false;
  };
  /// A mark of a device with the host's time at which its stream passed it, as far as known.
  struct Anchor {
    Mark mark;
    std::int64_t time = 0;
  };
  std::uint32_t group_of(const CollectiveBackend& group);
  std::uint16_t number_of(const Stream& stream);
  void read_marks();
  std::int64_t time_of(const Mark& mark);

  FlightFile& file_;
  std::map<const CollectiveBackend*, std::uint32_t> groups_{};
  std::vector<const Stream*> streams_{};
  FlightFile::Ticket submitted_ = 0;  // of the collective being submitted; 0: none
  Stream* stream_ = nullptr;          // its stream
  FlightFile::Ticket host_call_ = 0;

  std::int64_t step_ = -1;
  std::int64_t step_began_ = 0;  // 0: no step is under way
  std::int64_t steps_ = 0;       // timed
  double mean_step_ = 0;         // seconds

  std::vector<Marked> fresh_{};  // not yet in marked_, which another thread was reading
  std::mutex mutex_;             // of the two below
  std::deque<Marked> marked_{};
  std::optional<Anchor> anchor_{};
};

}  // namespace zero

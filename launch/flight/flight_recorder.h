// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/listener.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/run_phases.h"
#include "model/unit_listener.h"

namespace zero {

class Mesh;

/// Writes what a rank does to its flight file: collectives of all groups, units of compute, phases
/// and steps. A part that a split makes of a known group is "part of" that group's name, unless
/// know_group() gives it another. Groups of one name and the same ranks, in one order, are one in
/// the file, and their collectives are counted together: parts that come and go take one place.
/// Register it with Listening, TrainerParts::unit_listeners and phase_listeners. Used by
/// the rank's host thread, except poll().
///
/// Streams that run their work themselves stamp a collective's begin and end as they happen. Of
/// streams that enqueue (CUDA), later calls and poll() read marks.
class FlightRecorder final : public CollectiveListener,
                             public UnitsOnlyListener,
                             public PhaseListener {
 public:
  /// `file` must outlive this object and all work of the streams whose collectives this hears of.
  explicit FlightRecorder(FlightFile& file) : file_(file) {}
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Collectives of this communicator belong to the group `name` of these ranks of the world, in
  /// its order. The first name given to a group stays. One rank alone is no group.
  void know_group(const Communicator& communicator, const std::string& name,
                  std::vector<int> world_ranks);
  /// know_group() for the world and the axes of the mesh.
  void know_mesh(const Mesh& mesh);

  /// Reads the marks that streams have passed. Any thread: a watchdog's calls keep the file true
  /// while the host thread is stuck.
  void poll() noexcept;

  bool listens() const noexcept override { return true; }
  void submitting(const CollectiveRecord& record, const CollectiveBackend& group,
                  Stream& stream) override;
  void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept override;
  void host_call(const CollectiveBackend& group, std::string_view name) noexcept override;
  void host_call_ended(const CollectiveBackend& group) noexcept override;
  void split(const CollectiveBackend& group, const CollectiveBackend& part) noexcept override;

  void unit(std::string_view name, Phase phase) override { file_.compute(name, phase); }

  void phase(std::int64_t step, std::string_view name) override;

 private:
  struct Group {
    std::optional<std::uint32_t> number{};  // in the file; nothing: no call of the group yet
    std::string name{};                     // empty: unknown, as are the ranks
    std::vector<int> ranks{};               // of the world
    bool given = false;                     // the name, by know_group()
  };
  /// A collective on a stream that enqueues.
  struct Marked {
    const Stream* stream = nullptr;
    FlightFile::Ticket ticket = 0;
    Mark begin;
    Mark end;
    bool started = false;
  };
  /// A point on the device's clock with the host's time of it, as far as known.
  struct Anchor {
    Mark mark;
    std::int64_t time = 0;
  };

  std::uint32_t group_of(const CollectiveBackend& group);
  /// The group's number in the file, where it is added if it is new there.
  std::uint32_t number_of(const Group& group);
  void read_marks();
  /// The host's time of a point; nothing while its stream has not passed it.
  std::optional<std::int64_t> time_of(const Mark& mark, FlightFile::Ticket ticket);
  /// Stamps the collective as far as it has come; whether it has ended.
  bool settle(Marked& marked);

  FlightFile& file_;
  std::map<std::uint64_t, Group> groups_{};  // by CollectiveBackend::id()
  std::map<std::pair<std::string, std::vector<int>>, std::uint32_t> named_{};  // in the file
  FlightFile::Ticket submitted_ = 0;  // of the collective that is being submitted; 0: none
  Stream* stream_ = nullptr;          // its stream
  FlightFile::Ticket host_call_ = 0;

  std::int64_t timed_step_ = -1;
  std::int64_t step_began_ = 0;  // 0: no step is being timed
  std::int64_t steps_ = 0;       // timed so far
  double mean_step_ = 0;         // seconds
  bool validated_ = false;

  std::mutex fresh_mutex_;       // held for moments
  std::vector<Marked> fresh_{};  // submitted, and not in marked_ yet
  std::mutex mutex_;             // of the two below; the host thread never waits for it
  std::map<const Stream*, std::deque<Marked>> marked_{};  // by stream
  std::optional<Anchor> anchor_{};
};

}  // namespace zero

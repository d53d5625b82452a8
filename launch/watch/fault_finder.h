// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "launch/flight/visible_ranks.h"
#include "launch/watch/run_time.h"

namespace zero {

/// What one look at the ranks that are seen has found.
struct Finding {
  enum class What : std::uint8_t {
    nothing,
    told,   ///< a rank has ended that has told of the fault itself, in its last words
    death,  ///< ranks have ended without having told why
    hang,   ///< ranks wait for others that do not go on
  };
  What what = What::nothing;
  /// Whether this rank tells of the fault: one rank of a host does.
  bool speaks = false;
  std::vector<int> culprits{};  ///< indices; of a hang maybe none: nobody is to blame alone
  std::vector<int> stopped{};   ///< the indices of those culprits that a signal has stopped
  /// Whether others have waited for this rank for half of the limit, and its stack is worth a look.
  bool self_suspected = false;
};

/// Who holds up others (WaitGraph::blamed()), by index in the states of some ranks: of a host, or
/// of all that are seen. Ascending.
struct Blame {
  std::vector<int> blamed{};  ///< without ranks that have ended in good order
  std::vector<int> inside{};  ///< the ranks that are in collectives of known groups
  bool elsewhere = false;     ///< whether ranks without a state are to blame
};
Blame find_blame(std::span<const FlightState> ranks);

/// Whether a disk decides how long ranks take in such a phase.
bool is_disk_phase(std::string_view phase);

/// A hang is noticed within so many seconds: five mean steps, three seconds at least.
double noticed_within(double mean_step_seconds);

/// A rank for which others wait so many seconds hangs: noticed_within() less three looks. One sees
/// that the rank publishes nothing more, one begins to count what the rank runs, and one finds that
/// the time is over.
double hang_limit(double mean_step_seconds);

/// The least that people may give in place of hang_limit(): looks are 0.2 s apart, and a wait is
/// looked into from a quarter of it on.
inline constexpr double kLeastHangSeconds = 1;

/// The least limit of a rank that loads, saves or ends. Between two calls to the disk it copies and
/// verifies a few blocks of a MiB, parses an index or ends a step: parts of a second, and on a slow
/// or busy host not this long.
inline constexpr double kLeastDiskHangSeconds = 10;

/// Shorter waits, in nanoseconds, belong to every run and are not looked into: a quarter of
/// `hang_seconds`, or, where that is 0, of the least hang_limit().
std::int64_t suspicious_wait(double hang_seconds);

/// Whether the rank is in no pass of the model and in no collective. There a wait is looked into
/// from the first look on that finds nothing published: if the rank loops, no other time counts.
bool is_between_passes(const FlightState& state);

/// Decides, look by look, whether ranks have died or hang. Has no clock of its own.
///
/// A rank hangs if others wait for it in a collective, or are in one with it while its process is
/// stopped, and it publishes nothing for hang_limit(). Ranks that are in collectives together for
/// as long, with nobody to blame, hang too. Time does not count
/// - in which this process did not look either: a job that is stopped as a whole;
/// - in which the rank's threads wait for a core, on a busy machine: the time that they run counts;
/// - between two looks, if the rank is in a call to the disk (files::DiskCall) at the second or has
///   begun or ended one since the first, and is blamed;
/// - outside of forward, backward, update, validation and decode, and before a mean step is known.
/// The last two do not hold for a stopped process. The lowest rank that lives and is not stopped
/// decides for its host.
///
/// Where that time does not count, a rank for which others wait hangs if it does nothing but
/// compute (LoopEvidence) for the same limit, hang_limit(0) at least: it has no call to the disk,
/// gives no sign of life and has submitted no collective that has not ended. A pass of the model
/// whose time is unknown, in the first steps, the first validation or of a prompt, may compute for
/// long, and is left out.
///
/// Another rule holds for a rank for which others wait where a disk decides, without a timeout
/// (WaitLimits::disk_phase), in load, save and end too: it hangs if for kLeastDiskHangSeconds and
/// hang_limit() it publishes nothing, begins and ends no call to the disk and is in none, none of
/// its threads waits for a device, and it is in no collective. A call to a disk that never answers
/// is no hang.
///
/// A rank of this host that others wait for, and that has crashed, is dead before its process ends:
/// a core dump takes its time.
///
/// A host that answers no more (VisibleRanks::is_cut_off) may be there, and only the network of
/// the heartbeats gone. It is dead once a rank that is seen has waited for kForLostHost in a
/// collective with ranks of it, and nobody that is seen is to blame for that; or, if such a
/// collective has ended since the loss, for hang_limit() in forward, backward, update, validation
/// and decode.
///
/// If ranks of other hosts are seen too, each host tells of the faults that its own ranks alone
/// show, and the host that decides for all tells of the rest. Others tell kForSpeaker later if
/// nobody has.
class FaultFinder {
 public:
  /// `hang_seconds`: as in suspicious_wait(). `ranks` must outlive this object.
  FaultFinder(const VisibleRanks& ranks, double hang_seconds);

  /// At `now`, nanoseconds, later than the last. Look every kBetweenLooks.
  Finding look(std::int64_t now);

  static constexpr std::int64_t kBetweenLooks = RunTime::kBetweenLooks;
  /// The time since a caller's last look, if any, as far as it counts: time in which the caller did
  /// not look either does not. Makes `now` the last look.
  static std::int64_t counted_since(std::optional<std::int64_t>& looked, std::int64_t now);
  /// A rank that does not speak does so after all if the one that should has not ended by then.
  static constexpr std::int64_t kForSpeaker = 2'000'000'000;
  static constexpr std::int64_t kForLostHost = 1'000'000'000;

 private:
  /// Ranks of a host, or of all.
  struct RankSet {
    std::vector<int> indices{};
    std::vector<FlightState> states{};
    Blame blame{};  ///< by index in `states`

    /// Whether they are in collectives together, with nobody to blame.
    bool is_stuck() const {
      return blame.blamed.empty() && !blame.elsewhere && !blame.inside.empty();
    }
  };
  /// How the time counts for which others wait for a rank.
  enum class Rule : std::uint8_t {
    none,     ///< not at all
    stopped,  ///< always: its process is stopped
    step,     ///< to the limit of steps
    disk,     ///< to that of disks
  };
  struct Watched {
    std::int64_t changed = -1;
    std::int64_t quiet = 0;  // behind `changed`, as far as it counts
    std::int64_t held = 0;   // others have waited for it, as far as it counts
    RunTime run_time{};      // while they did
    LoopEvidence loop{};
    files::DiskCalls disk_calls{};
    bool by_disk = false;                // `held` is time in which it should have used its disk
    bool left = false;                   // ended in good order
    bool crashed = false;                // its core is dumped, and then its process ends
    std::optional<std::int64_t> lost{};  // when its host, of which it is the first, was first seen
                                         // to answer no more
  };
  void count(std::int64_t passed);
  Finding find_deaths(std::int64_t passed);
  /// Whether the rank is the first of a host that is dead, as far as others notice.
  bool is_of_dead_host(int index);
  Finding find_hangs(std::int64_t passed);
  RankSet read_all() const;
  /// hang_limit() of the ranks, or what people have given in its place.
  std::int64_t usual_limit(const RankSet& all) const;
  /// Adds the culprits, and what this rank is suspected of.
  void find_culprits(const RankSet& all, std::int64_t passed, std::int64_t usual, Finding& found);
  /// Whether ranks that are in collectives together have been for too long.
  bool is_stuck(const RankSet& all, std::int64_t limit) const;
  /// `disk_may_decide`: the rank is blamed, and others wait where a disk decides.
  static Rule rule_for(const FlightState& state, bool stopped, bool disk_may_decide);
  /// Adds to the rank's `held` what counts of `passed`.
  void hold(int index, const std::optional<host::Activity>& activity, std::int64_t passed);
  /// Whether the rank is in a call to the disk, or has begun or ended one since this was asked
  /// last.
  bool calls_disk(int index, const FlightState& state);
  void forget(int index);
  void forget_held(int index);
  bool first_that_lives() const;
  /// How much longer than the limit this rank lets others tell of the rank.
  std::int64_t patience_with(int index, bool stopped, const RankSet& all) const;
  RankSet only(int host, const RankSet& all) const;
  bool all_held(const RankSet& ranks, std::int64_t time) const;
  /// Whether the rank's host is not silent, and the rank has published nothing for so long.
  bool is_seen_quiet(int index, std::int64_t time) const;
  bool is_first_of_host(int index) const;
  Watched& at(int index) { return watched_[static_cast<std::size_t>(index)]; }
  const Watched& at(int index) const { return watched_[static_cast<std::size_t>(index)]; }

  const VisibleRanks& ranks_;
  double hang_seconds_;
  std::int64_t suspicious_;
  std::vector<Watched> watched_;
  std::optional<std::int64_t> looked_{};
  std::int64_t since_death_ = 0;
};

}  // namespace zero

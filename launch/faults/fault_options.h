// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// What a rank is made to do.
enum class FaultKind : std::uint8_t {
  kill,           ///< SIGKILL to itself
  stop,           ///< SIGSTOP to itself
  segv,           ///< SIGSEGV to the thread that computes
  error,          ///< "throw": a zero::Error
  loop,           ///< computes for ever
  skip,           ///< leaves a collective out
  resize,         ///< calls a collective with one element less
  slow,           ///< computes `factor` times as long
  cut,            ///< shuts its TCP connections down
  slow_link,      ///< waits for `delay` before each collective
  disk_full,      ///< finds no room for new files
  out_of_memory,  ///< takes memory until the system kills it
  flip_memory,    ///< flips a bit of the values that it gives to a collective: shard, gradient
  flip_wire,      ///< flips a bit of the values that a collective brings
};
inline constexpr std::array<std::string_view, 14> kFaultKinds{
    "kill", "stop", "segv",      "throw",     "loop",          "skip",        "resize",
    "slow", "cut",  "slow_link", "disk_full", "out_of_memory", "flip_memory", "flip_wire"};

/// Where in a run a fault acts. A gather is an all_gather, a reduction a reduce_scatter or an
/// all_reduce of a unit, as the rank submits it; forward and backward are a unit's; the others are
/// the run's.
enum class FaultPhase : std::uint8_t {
  start,
  load,
  gather,
  forward,
  backward,
  reduce,
  update,
  save,
  validation,
  end,
};
inline constexpr std::array<std::string_view, 10> kFaultPhases{
    "start",  "load",   "gather", "forward",    "backward",
    "reduce", "update", "save",   "validation", "end"};

constexpr std::string_view name_of(FaultKind kind) {
  return kFaultKinds[static_cast<std::size_t>(kind)];
}
constexpr std::string_view name_of(FaultPhase phase) {
  return kFaultPhases[static_cast<std::size_t>(phase)];
}

/// Whether the kind acts on a collective, and nowhere else.
constexpr bool needs_collective(FaultKind kind) {
  using enum FaultKind;
  return kind == skip || kind == resize || kind == flip_memory || kind == flip_wire;
}
/// Whether the kind goes on for a time.
constexpr bool lasts(FaultKind kind) {
  using enum FaultKind;
  return kind == slow || kind == slow_link || kind == disk_full;
}
/// Whether the phase comes once in a run, and not in each step.
constexpr bool comes_once(FaultPhase phase) {
  using enum FaultPhase;
  return phase == start || phase == load || phase == end;
}

/// One fault of one rank.
struct Fault {
  FaultKind kind = FaultKind::kill;
  int rank = 0;
  std::int64_t step = 0;  ///< from 1; a save's or validation's: the first from that step on; 0: any
  std::optional<FaultPhase> phase{};  ///< nothing: `collective` says where
  std::string unit{};                 ///< "h.7"; empty: the first that comes
  std::string collective{};           ///< "reduce_scatter(h.7)"; empty: any of the phase
  double factor = 2;                  ///< of slow
  double delay = 0.01;                ///< of slow_link, seconds
  double seconds = 0;                 ///< for which it lasts; 0: to the end of the attempt
};

/// Faults that follow from a seed: number n, from 0, is due n + 1 times `every` seconds behind the
/// start of an attempt without earlier ones.
struct DrawnFaults {
  std::uint64_t seed = 0;
  double every = 0;                ///< seconds, > 0
  std::vector<FaultKind> kinds{};  ///< to draw from; not empty
  bool saves = false;              ///< whether the phase "save" comes
};

/// The faults of a run: run.faults and run.fault_marks.
struct FaultOptions {
  std::vector<Fault> listed{};
  std::optional<DrawnFaults> drawn{};
  /// A folder in which a fault leaves a mark when it acts; empty: none, and each attempt meets it.
  std::string marks{};
  /// The model's units, of which a gather is; empty: a gather is any all_gather.
  std::vector<std::string> units{};

  bool empty() const { return listed.empty() && !drawn; }
};

/// Number `number` of the drawn faults: the same on all ranks. Its place is one that every step has
/// (or every save), and it has no step.
Fault drawn_fault(const DrawnFaults& drawn, std::int64_t number, int world);

/// "kill", "slow x10", "slow_link by 10 ms for 5 s": for people.
std::string text_of(const Fault& fault);

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/state_home.h"
#include "engine/unit.h"
#include "engine/waits.h"

namespace zero {

/// A part of the trainable states of a unit that is used together, with its compute copy.
struct StatePiece {
  int unit = 0;
  FlatRange range;    ///< of the extent of its trainable segment
  bool away = false;  ///< some of it lives in a StateHome
};

/// The pieces that cover the trainable states of `units`, those in `order`: of states in memory
/// one, of those in `home` as many as it takes for at most `most` elements each, rounded down to
/// whole StateWindowOptions::kGrain.
std::vector<StatePiece> cut_states(std::span<const Unit> units, std::span<const int> order,
                                   const StateHome& home, std::int64_t most);

/// The states of a piece, in memory. Views of what the optimizer does not keep are empty.
struct PieceStates {
  FlatRange range;  ///< of the segment's extent
  View master;
  std::array<View, 2> moments;
  std::array<View, 2> scales;
  View copy;  ///< the compute copy; empty if that is the master itself
};

/// Some of the states of a piece. A pass writes the compute copy with its masters, and reads it
/// never.
enum class StateFields : std::uint8_t { none, masters, all };

/// Makes passes over the trainable states of all units, piece by piece. Those that are away come
/// into a ring of windows ahead of use, and go back behind it: work of the transfer stream, which
/// events order against compute, so the host never waits for the disk (but on the inline CPU
/// stream, where it is the compute stream). A pass: begin(), then for each piece next(), compute on
/// it, changed(); or drop(). Used by the engine's host thread; all arguments must outlive this.
class StateWindows {
 public:
  StateWindows(Device& device, Waits& waits, std::span<const Unit> units,
               std::span<const int> order, StateHome& home, const StateWindowOptions& options);

  /// Bytes of the ring, for StateHome::open(), which must come before the first pass.
  std::int64_t ring_bytes() const { return slot_bytes_ * std::ssize(slots_); }

  /// What a pass reads from the home of states, and writes to it.
  struct Pass {
    StateFields read = StateFields::none;
    StateFields write = StateFields::none;
  };
  /// Starts to read the first windows.
  void begin(const Pass& pass);
  /// Whether the next piece is one of `unit`. The units of a pass come in their order.
  bool more(int unit) const { return at_ < pieces_.size() && pieces_[at_].unit == unit; }
  /// The next piece: later work of compute runs behind its read. Of a piece that is away, compute
  /// copies and masters that the pass does not read are zeros, moments that it does not read are
  /// undefined.
  PieceStates next();
  /// After the last compute on that piece: starts to write it, and to read another. Of a shard
  /// that is away also sets this rank's part of Segment::tail, from which it is published.
  void changed();
  /// Ends a pass in which no piece was taken.
  void drop();
  /// The point behind the last pass: its writes are over, failed or not.
  const Event& ended() const { return ended_; }

 private:
  static constexpr std::size_t kFields = 4;  // master, moments, compute copy
  /// A window: of one piece at a time, with one transfer of each field in flight.
  struct Slot {
    std::vector<StateHome::Ticket> moving;
    Event over;  ///< behind the transfers that are in order, or finished
  };

  const Segment& segment_of(const StatePiece& piece) const {
    return *units_[static_cast<std::size_t>(piece.unit)].trainable();
  }
  /// Of piece `number` of those that are away.
  const StatePiece& away(std::size_t number) const { return pieces_[away_[number]]; }
  Slot& slot(std::size_t number) { return slots_[number % slots_.size()]; }
  View field(std::size_t number, std::size_t index) const;
  void refresh_tail();
  void lay_out(int buffers);
  void start(std::size_t number, StateFields fields, bool write);
  void finish(std::size_t number);
  void read_ahead();

  Device& device_;
  Waits& waits_;
  std::span<const Unit> units_;
  StateHome& home_;
  StateWindowOptions options_;
  std::vector<StatePiece> pieces_;
  std::vector<std::size_t> away_;                    // indices of the pieces that are
  std::array<std::int64_t, kFields + 1> offsets_{};  // of the fields in a slot
  std::int64_t slot_bytes_ = 0;
  std::vector<Slot> slots_;

  Pass pass_;
  std::size_t at_ = 0;       // the piece that comes next, or is used
  std::size_t number_ = 0;   // the same among those that are away
  std::size_t read_ = 0;     // of those: begun to be read
  std::size_t written_ = 0;  // of those: writes are over, so that their slots are free
  Event ready_;              // the next one is in its window
  Event ended_;
};

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_windows.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"

namespace zero {

static_assert(StateWindowOptions::kGrain % TierFile::kBlock == 0);

namespace {

constexpr std::size_t kMaster = 0;
constexpr std::size_t kCopy = 3;

std::array<View, 4> fields_of(const Segment& segment) {
  const bool is_master = segment.own.data() == segment.master.data();
  return {segment.master, segment.moments[0], segment.moments[1], is_master ? View() : segment.own};
}

/// Whether a transfer of `fields` moves the field.
bool moves(std::size_t field, StateFields fields, bool write) {
  if (field == kCopy) return write && fields != StateFields::none;
  return field == kMaster ? fields != StateFields::none : fields == StateFields::all;
}

bool is_away(const Segment& segment, const StateHome& home) {
  return std::ranges::any_of(fields_of(segment),
                             [&](const View& field) { return home.holds(field); });
}

}  // namespace

std::vector<StatePiece> cut_states(std::span<const Unit> units, std::span<const int> order,
                                   const StateHome& home, std::int64_t most) {
  const std::int64_t window = most / StateWindowOptions::kGrain * StateWindowOptions::kGrain;
  std::vector<StatePiece> pieces;
  for (const int unit : order) {
    const Segment* segment = units[static_cast<std::size_t>(unit)].trainable();
    if (segment == nullptr) continue;
    const bool away = is_away(*segment, home);
    const std::int64_t all = segment->own.count();
    const std::int64_t length = away ? window : all;
    for (std::int64_t begin = 0; begin < all; begin += length)
      pieces.push_back({unit, {begin, std::min(length, all - begin)}, away});
  }
  return pieces;
}

StateWindows::StateWindows(Device& device, Waits& waits, std::span<const Unit> units,
                           std::span<const int> order, StateHome& home,
                           const StateWindowOptions& options)
    : device_(device),
      waits_(waits),
      units_(units),
      home_(home),
      options_(options),
      pieces_(cut_states(units, order, home, options.buffer_elements)) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].away) away_.push_back(i);
  }
  lay_out(options.buffers);
  at_ = pieces_.size();
}

/// The fields of a slot have room for those of every piece, in whole blocks.
void StateWindows::lay_out(int buffers) {
  std::array<std::int64_t, kFields> room{};
  for (std::size_t number = 0; number < away_.size(); ++number) {
    const std::array<View, kFields> fields = fields_of(segment_of(away(number)));
    for (std::size_t i = 0; i < kFields; ++i) {
      if (!home_.holds(fields[i])) continue;
      const std::int64_t bytes = away(number).range.count * size_of(fields[i].dtype());
      room[i] = std::max(room[i], round_up(bytes, TierFile::kBlock));
    }
  }
  for (std::size_t i = 0; i < kFields; ++i) offsets_[i + 1] = offsets_[i] + room[i];
  slot_bytes_ = offsets_[kFields];
  slots_.resize(std::min(static_cast<std::size_t>(buffers), away_.size()));
}

/// A field of a piece that is away: in its window, or where it lives in the device's memory.
View StateWindows::field(std::size_t number, std::size_t index) const {
  const StatePiece& piece = away(number);
  const View whole = fields_of(segment_of(piece))[index];
  if (!home_.holds(whole))
    return whole.empty() ? whole : whole.slice(piece.range.begin, piece.range.count);
  const auto slot = static_cast<std::int64_t>(number % slots_.size());
  return home_.ring()
      .slice(slot * slot_bytes_ + offsets_[index], offsets_[index + 1] - offsets_[index])
      .reinterpret(whole.dtype(), piece.range.count);
}

/// Starts to move fields of a piece between its home and its window.
void StateWindows::start(std::size_t number, StateFields fields, bool write) {
  const StatePiece& piece = away(number);
  const std::array<View, kFields> wholes = fields_of(segment_of(piece));
  for (std::size_t i = 0; i < kFields; ++i) {
    if (!moves(i, fields, write) || !home_.holds(wholes[i])) continue;
    const View there = wholes[i].slice(piece.range.begin, piece.range.count);
    const View window = field(number, i);
    slot(number).moving.push_back(write ? home_.start_write(window, there)
                                        : home_.start_read(there, window));
  }
  if (home_.in_order()) slot(number).over = device_.transfer().record();
}

void StateWindows::finish(std::size_t number) {
  for (const TierFile::Ticket ticket : std::exchange(slot(number).moving, {})) home_.finish(ticket);
  if (!home_.in_order()) slot(number).over = device_.transfer().record();
}

/// Starts the reads for which windows are free.
void StateWindows::read_ahead() {
  const std::size_t ahead = options_.pipeline_read ? away_.size() : number_ + 1;
  const std::size_t end = std::min({ahead, written_ + slots_.size(), away_.size()});
  for (; read_ < end; ++read_) start(read_, pass_.read, false);
}

void StateWindows::begin(const Pass& pass) {
  pass_ = pass;
  at_ = number_ = read_ = written_ = 0;
  if (away_.empty()) return;
  read_ahead();
  finish(0);
  ready_ = slot(0).over;
}

PieceStates StateWindows::next() {
  const StatePiece& piece = pieces_[at_];
  const Segment& segment = segment_of(piece);
  const FlatRange& range = piece.range;
  std::array<View, kFields> fields = fields_of(segment);
  if (piece.away) {
    waits_.wait_for_tier(device_.compute(), ready_, WaitSite::states_before_update);
    for (const std::size_t i : {kMaster, kCopy}) {  // padding too
      const bool begins_anew = !moves(i, pass_.read, false) && home_.holds(fields[i]);
      if (begins_anew) device_.kernels().zero(device_.compute(), field(number_, i));
    }
    for (std::size_t i = 0; i < kFields; ++i) fields[i] = field(number_, i);
  }
  PieceStates states{range, fields[kMaster], {fields[1], fields[2]}, {}, fields[kCopy]};
  for (std::size_t i = 0; i < states.scales.size(); ++i) {
    if (!segment.scales[i].empty())
      states.scales[i] = segment.coded(i).slice(range.begin, range.count).scales;
  }
  return states;
}

/// Copies the small parameters of the piece in use from the compute copy in its window.
void StateWindows::refresh_tail() {
  const StatePiece& piece = away(number_);
  const Segment& segment = segment_of(piece);
  if (!segment.shard_away) return;
  const View copy = field(number_, home_.holds(fields_of(segment)[kCopy]) ? kCopy : kMaster);
  const FlatRange range{segment.own_begin + piece.range.begin, piece.range.count};
  const FlatRange small = range.within(segment.small());
  if (small.count == 0) return;
  device_.kernels().convert(device_.compute(), copy.slice(small.begin - range.begin, small.count),
                            segment.tail_of(small));
}

/// One window is written while the next one is updated, and all others are read. Copies are work of
/// one stream: a window is read into behind its write, without waiting for that of the next.
void StateWindows::changed() {
  if (!pieces_[at_].away) {
    ++at_;
    return;
  }
  refresh_tail();
  ++at_;
  Stream& transfer = device_.transfer();
  waits_.wait(transfer, device_.compute().record(), WaitSite::update_before_write);
  start(number_++, pass_.write, true);
  const bool last = number_ == away_.size();
  const bool overlap = options_.pipeline_write && slots_.size() > 1 && !last;
  const std::size_t in_flight = overlap && !home_.in_order() ? 1 : 0;
  while (written_ + in_flight < number_) finish(written_++);
  read_ahead();
  if (!last) finish(number_);
  (last ? ended_ : ready_) = overlap ? slot(number_).over : transfer.record();
}

void StateWindows::drop() {
  at_ = pieces_.size();
  if (away_.empty()) return;
  for (std::size_t number = number_; number < read_; ++number) finish(number);
  ended_ = device_.transfer().record();
}

}  // namespace zero

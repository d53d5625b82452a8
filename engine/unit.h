// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/buffer.h"
#include "device/device.h"
#include "optim/optimizer.h"
#include "optim/optimizer_config.h"
#include "partition/flat_layout.h"
#include "partition/parameter_spec.h"

namespace zero {

class StateAccess;

/// A run of elements of a segment's optimizer extent that one call of the optimizer updates.
struct UpdateRun {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  double learning_rate_scale = 1;
  double weight_decay = 0;
  LogicalElements elements{};  ///< of bf16 moments

  /// What of the run is within `part`: runs with the same settings and logical elements, at most
  /// two.
  std::vector<UpdateRun> within(const FlatRange& part) const;
};

/// A partial sum of a gradient: of 2^level micro-batches.
struct PartialSum {
  int level = 0;
  std::size_t buffer = 0;  ///< index in Segment::partials
};

/// The trainable, or the frozen, parameters of a unit: one flat layout and the storage that the
/// strategy gave it. Views of storage that a stage does not keep are empty.
struct Segment {
  Segment(FlatLayout flat, std::vector<int> members, bool is_trainable)
      : layout(std::move(flat)), parameters(std::move(members)), trainable(is_trainable) {}

  FlatLayout layout;
  std::vector<int> parameters;  ///< indices in the unit's list, in layout order
  bool trainable;

  View full;   ///< compute dtype, padded(): stages 0 to 2
  View shard;  ///< compute dtype, shard(): this rank's part, within `full` if there is one
  bool shard_away = false;  ///< `shard`, and so `own`, is of the StateHome
  View own;   ///< compute dtype: the part this rank initialises and updates, `full` or `shard`
  View tail;  ///< compute dtype, tail(): every rank's whole copy of the small parameters, stage 3
  std::int64_t own_begin = 0;  ///< flat element at which `own` and the states start
  View master;  ///< fp32, the extent of `own`, updated by the optimizer; `own` itself if that
                ///< is fp32
  std::array<View, 2> moments;  ///< in their format, the extent of `own`
  std::array<View, 2> scales;   ///< fp32: of 8-bit moments, one for kMomentBlock elements
  View gradient;        ///< finished gradient dtype: padded() at stages 0 and 1, else shard()
  View gradient_shard;  ///< this rank's shard of it
  /// The part of the gradient that the optimizer reads: the extent of `own`.
  View finished_gradient() const {
    return gradient.count() == own.count() ? gradient : gradient_shard;
  }
  std::vector<View> partials;    ///< fp32, shard(): room for sums of earlier micro-batches
  std::vector<PartialSum> sums;  ///< the sums that `partials` hold, highest level first
  std::vector<UpdateRun> runs;   ///< over the extent of master
  /// Elements of this rank's shard that other ranks of the tensor axis hold too and count in the
  /// norm; null: none.
  std::shared_ptr<const std::vector<ElementRange>> excluded;

  std::vector<Buffer> buffers;  ///< the memory of the views above

  /// The codes and scales of an 8-bit moment.
  CodedMoment coded(std::size_t moment) const {
    return {static_cast<int>(moment), moments[moment], scales[moment]};
  }
  /// The flat elements that `own` and the states hold.
  FlatRange extent() const { return {own_begin, own.count()}; }
  /// The flat elements of `tail`.
  FlatRange small() const { return {layout.tail_begin(), layout.tail()}; }
  /// The copies of the flat elements `part`, of small(), in `tail`.
  View tail_of(const FlatRange& part) const {
    return tail.slice(part.begin - layout.tail_begin(), part.count);
  }
  /// Index in the unit's list of the parameter that was placed.
  int parameter(const Placement& placement) const {
    return parameters[static_cast<std::size_t>(placement.index)];
  }
};

/// Indices along the sliced dimension of a parameter that several ranks of the tensor axis hold.
struct SharedRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<int> holders;  ///< ranks of the tensor axis, two or more, ascending
};

/// A registered unit.
struct Unit {
  std::string name;
  std::vector<ParameterSpec> specs;
  std::vector<std::string> full_names;
  std::vector<std::vector<SharedRange>> shared_ranges;  ///< per parameter
  std::vector<Segment> segments;  ///< trainable first; a unit of one kind has one
  bool sums_uses = false;  ///< several backward uses in a micro-batch add to its gradient, in fp32
  std::vector<char> requested;  ///< per parameter: the gradient was asked for in this micro-batch
  Event ready;                  ///< the newest published values are in `full` or `tail`
  Event reduced;  ///< the reduce that reads the memory of the finished gradient, if one does

  /// Where a parameter is laid out.
  struct Location {
    int segment = 0;    ///< index in `segments`
    int placement = 0;  ///< index in the placements of its layout
  };
  std::vector<Location> locations;  ///< per parameter

  /// Throws zero::Error on invalid names and shapes; `tensor` is the size of the tensor axis.
  static Unit make(std::string name, std::vector<ParameterSpec> parameters, int tensor);
  /// Cuts the segments; `small` is the largest size of a parameter that stays whole.
  void lay_out(int world, std::int64_t small, MomentFormat moments = MomentFormat::fp32);
  /// Cuts the extent of the trainable segment into its `runs`.
  void plan_updates(const std::vector<ParameterGroup>& groups, const OptimizerConfig& optimizer);
  /// Writes the initial values of elements of a segment's extent, from `begin` on, to `masters`
  /// (fp32) and to as many elements of `copy` (compute dtype; empty: none), on the compute stream.
  /// Leaves padding as it is.
  void initialise(const Segment& segment, std::int64_t begin, const View& masters, const View& copy,
                  Device& device, std::uint64_t seed) const;
  /// All those of frozen parameters that this rank owns. Blocks the host.
  void initialise_frozen(StateAccess& access, Device& device, std::uint64_t seed) const;

  int parameters() const { return static_cast<int>(specs.size()); }
  const ParameterSpec& spec(int parameter) const {
    return specs[static_cast<std::size_t>(parameter)];
  }
  const std::string& full_name(int parameter) const {
    return full_names[static_cast<std::size_t>(parameter)];
  }
  /// Throws zero::Error if there is no parameter of that index.
  const Location& location(int parameter) const;
  const Placement& placement(int parameter) const;
  const Segment& segment_of(int parameter) const;
  /// Index of the parameter `name`; throws zero::Error listing all names if there is none.
  int find(std::string_view parameter) const;
  /// The trainable segment, or null.
  Segment* trainable();
  const Segment* trainable() const;
};

}  // namespace zero

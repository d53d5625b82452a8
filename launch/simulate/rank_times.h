// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "device/planning/clock.h"
#include "launch/plan/machine.h"
#include "launch/simulate/operation_rates.h"
#include "model/unit_listener.h"

namespace zero {

/// A rank's share of the cores of its host, if it computes on a CPU. Compute, and the thread that
/// communicates, of all ranks share them.
struct CoreShare {
  /// `ranks` of a host with `cores` (0: enough), each with `threads` for compute.
  static CoreShare of(int cores, int ranks, int threads);
  double compute_slowdown = 1;  ///< of compute, because ranks take turns
  double copy_slowdown = 1;     ///< of the communicating thread
  double compute_share = 1;     ///< of compute's speed that is left while collectives work

  /// Of a transfer's rate, what it keeps while the rank computes: `reached` of it if the
  /// communicating thread has to share a core with compute, all if a core is left for it.
  double transfer_share(double reached) const { return 1 - (1 - reached) * (1 - compute_share); }
  /// Of compute's speed, what is left while the threads that communicate wait for the network. Each
  /// looks for messages, then pauses; `polling` is the part of looks if it is alone on a core. A
  /// look behind those of others begins later.
  double waiting_share(double polling) const {
    const double looks = polling * copy_slowdown;
    return looks > 0 ? 1 - looks / (1 - polling + looks) * (1 - compute_share) : 1;
  }
};

/// The durations of a rank's work: measured rates of operations where there are some, else the
/// larger of FLOP over a rate and bytes over a bandwidth. Hears the model's operations.
class RankTimes final : public planning::WorkTimes, public UnitListener {
 public:
  /// `machine` and `rates` must outlive this.
  RankTimes(const Machine& machine, const OperationRates& rates, DType compute, CoreShare cores);

  double seconds(Lane lane, std::string_view what, std::int64_t bytes) override;
  void begin(const OpCost& cost) override;
  void end() noexcept override;
  void unit(std::string_view name, Phase phase) override;
  /// Notifies `also`, which must outlive this, of operations and units; null: nobody.
  void tell(UnitListener* also) { also_ = also; }

  /// Of work on the compute stream.
  struct Totals {
    double flop = 0;        ///< without that of recompute
    double repeated = 0;    ///< FLOP of recompute
    double arithmetic = 0;  ///< seconds of operations whose FLOP take longer than their bytes
    double memory = 0;      ///< seconds of all other work
    double measured = 0;    ///< seconds by measured rates, part of the two above
    Totals since(const Totals& earlier) const;
  };
  const Totals& totals() const { return totals_; }

 private:
  double operation_seconds(const OpCost& cost);

  const Machine& machine_;
  const OperationRates& rates_;
  DType compute_;
  CoreShare cores_;
  UnitListener* also_ = nullptr;
  bool in_operation_ = false;
  double pending_ = 0;  // seconds of the operation that its first piece of work takes
  Phase phase_ = Phase::forward;
  Totals totals_;
};

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/unit_listener.h"

namespace zero {

/// A range of a model's activation memory that holds values which work of the micro-batch still
/// reads: from the moment at which they are written to the one that reads them last.
struct LiveRange {
  std::string_view name;    ///< of the tensor, as in DecoderMemory; static
  std::int64_t layer = -1;  ///< -1: of no block
  std::int64_t offset = 0;  ///< bytes into Model::activations()
  std::int64_t bytes = 0;
  int first = 0;  ///< moment that writes them; -1: they were there before the micro-batch
  int last = 0;   ///< moment that reads them last; the number of moments: the next micro-batch does

  /// Whether they must be kept while moment `moment` runs, which may write or read them.
  bool alive_at(int moment) const { return first <= moment && moment <= last; }
  /// Whether they must be kept between moment `moment` - 1 and `moment`.
  bool alive_before(int moment) const { return first < moment && moment <= last; }
};

/// Listens to one micro-batch of a Model and tells which bytes of its activations are alive when.
/// Nothing about a model is known here: the calls of the operations, copies and collectives say
/// what they read and write, in the order of the run, on any device, a planning device too.
class ActivationTrace : public UnitListener {
 public:
  /// One piece of work.
  struct Moment {
    int lease = 0;  ///< number of the unit's use in the micro-batch, from 0 on
    std::string unit;
    Phase phase = Phase::forward;
    std::string work;  ///< operation, "fill", "copy" or "collective"
  };

  /// Begins a trace of what is done with `memory`, Model::activations(). Call before a micro-batch.
  void start(const View& memory);

  const std::vector<Moment>& moments() const { return moments_; }
  /// The uses of units so far; unit() has told of one more than leases() - 1.
  int leases() const { return lease_ + 1; }
  /// Every range ever alive, in no order. Ranges of one moment do not overlap.
  std::vector<LiveRange> ranges() const;

  void begin(const OpCost& cost) override;
  void end() noexcept override { in_operation_ = false; }
  void touches(const View& values, Access access) override;
  void copies(const View& from, const View& to) override;
  void moves(const View& from, const View& to) override;
  void unit(std::string_view name, Phase phase) override;
  void tensor(std::string_view name, std::int64_t layer, const View& values) override;

 protected:
  /// Called for each moment, when it is the last of moments(), before its work is submitted.
  virtual void moment_begins() {}

 private:
  /// Bytes of the memory.
  struct Bytes {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool meets(const Bytes& other) const { return begin < other.end && other.begin < end; }
  };
  struct Named {
    std::string_view name;
    std::int64_t layer = -1;
    Bytes bytes;
    friend bool operator==(const Named& a, const Named& b) {
      return a.name == b.name && a.layer == b.layer;
    }
  };
  struct Touch {
    int moment = 0;
    Bytes bytes;
    Access access = Access::read;
    Named tensor;
  };
  /// A collective whose result no work has used yet.
  struct Transfer {
    Bytes from, to;
  };

  void add_moment(std::string work);
  void touch(const Bytes& bytes, Access access);
  /// Empty if the view is of other memory.
  Bytes bytes_of(const View& view) const;
  Named named(const Bytes& bytes) const;

  View memory_;
  std::vector<Moment> moments_;
  std::vector<Touch> touches_;
  std::vector<Named> told_;  ///< by tensor(), the newest last
  std::vector<Transfer> transfers_;
  int lease_ = -1;
  std::string unit_;
  Phase phase_ = Phase::forward;
  bool in_operation_ = false;
};

}  // namespace zero

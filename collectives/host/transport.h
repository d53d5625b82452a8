// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call.h"
#include "collectives/collective_backend.h"
#include "collectives/host/control_block.h"
#include "collectives/host/memory.h"
#include "collectives/long_wait.h"

namespace zero::host {

/// Collectives of processes of one host by accessing each other's memory. In each call every rank
/// writes a header (its call, the place of its values), all pass a barrier, and each rank reads its
/// peers' values or writes to their memory. If peers access a rank's own memory, a second barrier
/// follows, after which that memory may be overwritten. The owner of a gathered slice or of a sum
/// reads its inputs once and writes the result to all; in other calls the receiver reads its peers'
/// values. Small values travel behind the header, with one barrier; values outside a Region are
/// copied to a staging area part by part. Calls that disagree, a rank that fails and a process that
/// ends are errors on every rank, and end the group. Blocks the caller; one thread at a time.
class HostTransport final : public Transport {
 public:
  /// Returns every rank's line of text, in rank order. Collective.
  using AllGatherTexts = std::function<std::vector<std::string>(const std::string& mine)>;
  /// Either a transport or, the same on all ranks, why there is none.
  struct Joined {
    std::unique_ptr<HostTransport> transport;
    std::string refusal;
  };
  struct Membership {
    int rank = 0;
    int size = 1;
    std::vector<int> names{};  ///< of the ranks, in errors; empty: 0, 1, ...

    int name_of(int one) const {
      return names.empty() ? one : names[static_cast<std::size_t>(one)];
    }
    int name() const { return name_of(rank); }
  };
  /// The properties of a call that ranks compare before its values travel, here or by other means.
  struct CallSignature {
    Operation operation = Operation::barrier;
    std::string_view purpose;
    DType dtype = DType::fp32;
    int detail = 0;  ///< the ReduceOp, the root
    std::span<const Slices::Range> counts{};

    static CallSignature of(Operation operation, const Slices& slices, std::string_view purpose) {
      return {operation, purpose, slices.buffer.dtype(), 0, slices.ranges};
    }
    /// For all of `values`, whose range is `all`; `all` and `purpose` must outlive this.
    static CallSignature of(Operation operation, const View& values, const Slices::Range& all,
                            int detail, std::string_view purpose) {
      return {operation, purpose, values.dtype(), detail, {&all, 1}};
    }
  };
  /// Joins as rank `membership.rank`; collective through `all_gather_texts`. If `memory` is null,
  /// `reason` says why.
  static Joined join(const std::shared_ptr<Memory>& memory, const std::string& reason,
                     const Membership& membership, const AllGatherTexts& all_gather_texts);

  ~HostTransport() override;

  /// The longest sleep of a waiting rank by default.
  static constexpr std::chrono::milliseconds kLongestNap{250};
  /// `idle` is called repeatedly while this rank waits for others, for work that must go on
  /// meanwhile, such as progress of messages sent by other means. A sleeping rank wakes for it
  /// every `nap`.
  void set_idle(std::function<void()> idle, std::chrono::milliseconds nap = kLongestNap) {
    idle_ = std::move(idle);
    longest_nap_ = nap;
  }

  /// The ranks, by their names, for which this one waits in a call. For `idle`.
  std::vector<int> absent() const;

  /// Asked at the timeout of a wait, and again and again from then on, with the time since: the
  /// ranks to blame if these, by their names, are absent; nothing: this rank waits on. The absent
  /// ones may wait themselves, for ranks of other groups.
  using Blame = std::function<std::optional<std::vector<AbsentRank>>(
      const std::vector<int>& absent, std::chrono::steady_clock::duration since)>;
  void set_blame(Blame blame) { blame_ = std::move(blame); }

  /// Later calls wait within the limits of `context`.
  void set_context(std::shared_ptr<const CallContext> context) { context_ = std::move(context); }
  void set_step(std::int64_t step) override { step_ = step; }
  /// The number of waits of other transports that may have to end before those of later calls
  /// (LongWait).
  void set_behind(int waits) { behind_ = waits; }

  /// Returns once all ranks have arrived with equal signatures. `purpose` and `counts` must live
  /// until then.
  void compare(const CallSignature& signature);
  static Call call_of(const CallSignature& signature);
  /// Ends the group because this rank failed elsewhere; `what` says why. The first failure is kept.
  void give_up(std::string_view what) { control_.fail(what); }

  /// `bytes` of zeroed memory that all ranks map and that lives until its last user frees it; null,
  /// on all ranks alike, if the system refuses it or a rank gives a `refusal`. Collective through
  /// `all_gather_texts`, while no call is under way. Throws zero::Error if sizes differ.
  std::shared_ptr<Mapping> allocate_shared(std::int64_t bytes, const std::string& refusal,
                                           const AllGatherTexts& all_gather_texts);

  void all_gather(View mine, const Slices& full, std::string_view purpose) override;
  /// Needs no workspace: peers are read in place.
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view purpose) override;
  void all_reduce(View values, ReduceOp op, std::string_view purpose) override;
  void all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) override;
  void broadcast(View values, int root, std::string_view purpose) override;
  void barrier(std::string_view purpose) override;

 private:
  /// One call of this rank: its signature, and the values it gives: one view for all, or a slice
  /// for each rank.
  struct CallArguments {
    CallSignature signature;
    View whole{};
    const Slices* slices = nullptr;
    const Slices* receive = nullptr;  ///< only all_to_all, which agrees pairwise
    const Slices* target = nullptr;   ///< only all_gather: destination of all values

    int index(int rank) const { return slices != nullptr ? rank : 0; }
  };
  /// Memory of allocate_shared().
  struct SharedMemory {
    std::uint32_t number = 0;  ///< from 1 on, the same on all ranks
    Mapping* mapping = nullptr;
    std::weak_ptr<Mapping> user{};
  };

  HostTransport(std::shared_ptr<Memory> memory, std::vector<std::shared_ptr<Peer>> peers,
                ControlBlock control, const Membership& membership, SpinPolicy spin_policy);

  /// Begins the call and runs `body`; if that throws, the group has failed.
  template <typename Body>
  void guarded(const CallArguments& call, Body body);
  /// Runs body(begin, count) for ranges that cover the longest slice, each while peers can read it.
  template <typename Body>
  void in_parts(const CallArguments& call, Body body);

  void begin_call(const CallArguments& call);
  void pass_barrier(const CallArguments& call);
  void check_limits(LongWait& wait, const CallArguments& call,
                    std::optional<std::chrono::steady_clock::time_point>& overdue);
  Waiting waiting(const CallArguments& call) const;
  DataPath write_values(const CallArguments& call, CallHeader& header);
  DataPath write_table(const CallArguments& call);
  DataPath write_destination(const CallArguments& call);
  void stage(const CallArguments& call, std::int64_t begin, std::int64_t count);
  const SharedMemory* shared_memory_of(const View& view) const;
  Destination& destination(int rank) const {
    return *reinterpret_cast<Destination*>(control_.body(rank) + ControlBlock::kInlineBytes);
  }
  TableEntry* table(int rank) const { return reinterpret_cast<TableEntry*>(control_.body(rank)); }
  std::int64_t longest(const CallArguments& call) const;
  bool exceeds_caches(const CallArguments& call) const;
  bool in_step(const CallArguments& call) const;

  /// Elements [begin, begin + count) of the values that `peer` gives this rank, readable at the
  /// time.
  View part(const CallArguments& call, int peer, std::int64_t begin, std::int64_t count);
  void copy_part(const CallArguments& call, int peer, std::int64_t begin, View to);
  /// Writes part of this rank's values to every peer, at the place that `to` returns for it.
  template <typename To>
  void push_block(const CallArguments& call, View from, To to);
  void gather_in_shared(const CallArguments& call);
  bool can_push() const;
  void push_slices(const CallArguments& call);
  void copy_slices(const CallArguments& call, const Slices& to, std::int64_t begin,
                   std::int64_t count);
  void reduce_part(const CallArguments& call, const ReduceEpilogue& epilogue, std::int64_t begin,
                   std::int64_t count);
  void all_reduce_inlined(const CallArguments& call, ReduceOp op);
  void all_reduce_pushed(const CallArguments& call, ReduceOp op);
  void all_reduce_staged(const CallArguments& call, ReduceOp op);
  std::string staging_offset() const;
  std::byte* staging_of(int rank, int half, std::int64_t offset, std::int64_t bytes);

  // Failures (mismatch.cpp).
  void report_failure(const CallArguments& call, std::string_view what);
  std::string error_prefix(const CallArguments& call) const;
  [[noreturn]] void throw_mismatch(const CallArguments& call);
  void check_pairs(const CallArguments& call);
  [[noreturn]] void throw_failure(const CallArguments& call) const;
  void check_peers(const CallArguments& call);

  std::shared_ptr<Memory> memory_;
  std::vector<std::shared_ptr<Peer>> peers_;  // null for this rank
  ControlBlock control_;
  Membership membership_;
  SpinPolicy spin_policy_;
  std::function<void()> idle_ = [] {};
  Blame blame_{};
  std::chrono::milliseconds longest_nap_ = kLongestNap;
  std::shared_ptr<const CallContext> context_ = std::make_shared<const CallContext>();
  std::int64_t step_ = CallContext::kNoStep;
  int behind_ = 0;
  std::int64_t half_;                   // bytes of half a staging area
  std::byte* staging_;                  // two halves, in the region
  std::vector<std::int64_t> stagings_;  // offsets, of all ranks
  std::vector<SharedMemory> shared_;
  std::uint32_t shared_made_ = 0;      // of allocate_shared()
  std::vector<View> inputs_;           // of a reduction, one per rank
  std::int64_t longest_pair_ = 0;      // elements that any rank sends to any, in all_to_all
  DataPath path_ = DataPath::inlined;  // the longest of any rank, in this call
  std::int64_t part_begin_ = 0;        // staged: elements of each slice in the current half
  std::int64_t part_count_ = 0;
  int part_half_ = 0;
};

/// The arguments of Communicator::allocate.
struct BufferRequest {
  Device& device;
  std::int64_t count = 0;
  DType dtype = DType::fp32;
  MemoryClass memory_class = MemoryClass::other;
  std::string_view label;
};

/// A buffer that the host's other ranks can read; a buffer of the device's own if sharing does not
/// pay at this size, `memory` is null or has no room, or the device is not the CPU.
Buffer region_buffer(const std::shared_ptr<Memory>& memory, const BufferRequest& request);

/// One buffer that all ranks of `transport` map; empty, on all of them alike, if no memory could be
/// shared. Collective like HostTransport::allocate_shared.
std::optional<Buffer> shared_buffer(HostTransport& transport,
                                    const HostTransport::AllGatherTexts& all_gather_texts,
                                    const BufferRequest& request);

}  // namespace zero::host

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/checked_backend.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "collectives/forwarding_backend.h"
#include "collectives/store.h"
#include "device/cpu/primitives.h"
#include "device/exact_sum.h"

namespace zero {
namespace {

using Checksums = std::vector<std::int64_t>;

constexpr std::int64_t kMemory = std::int64_t{4} << 20;  // bytes of the values summed at once

std::int64_t checksum_of(const View& values) {
  return static_cast<std::int64_t>(
      XXH3_64bits(values.data(), static_cast<std::size_t>(values.bytes())));
}

std::string store_key(int rank) { return fmt::format("checked_collectives/rank_{}", rank); }

/// The ranks of a group by name. Lives as long as work that may have to name one.
class Names {
 public:
  /// `who`: this rank in the world, with its host.
  Names(std::shared_ptr<CollectiveBackend> group, std::string who)
      : group_(std::move(group)), who_(std::move(who)) {
    group_->store().set(store_key(group_->rank()), who_);
  }

  const std::string& who() const { return who_; }

  /// Throws ValuesChanged unless the checksum of `values`, which rank `sender` of the group sent,
  /// is `sent`. On any thread.
  void compare(const std::string& call, int sender, const View& values, std::int64_t sent) const {
    const std::int64_t found = checksum_of(values);
    if (found == sent) return;
    const std::int64_t step = group_->context()->step();
    throw ValuesChanged(fmt::format(
        "{}{}: {} {} values of {} had checksum {:016x} when they were sent, and have {:016x} on "
        "{}: memory, or the way between the two, has changed them; start again from the newest "
        "checkpoint, and test both hosts (run.check_collectives)",
        call, step == CallContext::kNoStep ? "" : fmt::format(" in step {}", step), values.count(),
        name_of(values.dtype()), name_of_rank(sender), static_cast<std::uint64_t>(sent),
        static_cast<std::uint64_t>(found), who_));
  }

 private:
  std::string name_of_rank(int rank) const {
    if (rank == group_->rank()) return who_;
    try {
      return group_->store().get(store_key(rank), std::chrono::seconds(5));
    } catch (const std::exception&) {  // a peer that is gone has no name to give
      return fmt::format("rank {} of the group", rank);
    }
  }

  std::shared_ptr<CollectiveBackend> group_;
  std::string who_;
};

class CheckedBackend final : public ForwardingBackend {
 public:
  CheckedBackend(const std::shared_ptr<CollectiveBackend>& inner, std::string who)
      : ForwardingBackend(inner), names_(std::make_shared<const Names>(inner, std::move(who))) {}

  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    const auto part = ForwardingBackend::split(color, key);
    return part ? std::make_shared<CheckedBackend>(part, names_->who()) : nullptr;
  }

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    gather(Operation::all_gather, mine, full, stream, tag);
  }

  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override {
    exchange(Operation::all_to_all, send, receive, stream, tag);
  }

  void broadcast(View values, int root, Stream& stream, const Tag& tag) override {
    if (size() == 1) return ForwardingBackend::broadcast(values, root, stream, tag);
    const auto sum = std::make_shared<Checksums>(1);
    if (rank() == root) {
      stream.submit_host("checksum", [sum, values] { (*sum)[0] = checksum_of(values); });
    }
    ForwardingBackend::broadcast(values, root, stream, tag);
    ForwardingBackend::broadcast(View::of(std::span(*sum)), root, stream, of_checksums(tag));
    stream.submit_host(
        "checksum", [names = names_, sum, values, root, call = call_of(Operation::broadcast, tag)] {
          names->compare(call, root, values, (*sum)[0]);
        });
  }

  /// Parts of the slices, each exchanged, compared and summed before the next.
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override {
    if (size() == 1) {
      return ForwardingBackend::reduce_scatter(full, epilogue, workspace, stream, tag);
    }
    const DType dtype = full.buffer.dtype();
    const std::int64_t length = round_up(length_of_part(dtype), kNormBlock);
    for (std::int64_t begin = 0; begin < full.largest(); begin += length) {
      const Slices part = full.part(begin, length);
      const std::int64_t count = part.ranges[static_cast<std::size_t>(rank())].count;
      const Received received = room_for(count, dtype);
      exchange(Operation::reduce_scatter, part, received.slices, stream, tag);
      if (count == 0) continue;
      stream.submit_host("sum of slices", [received, to = epilogue.slice(begin, count)] {
        cpu::tree_reduce(received.views(), to);
      });
    }
  }

  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override {
    if (size() == 1) return ForwardingBackend::all_reduce(values, op, stream, tag);
    const std::int64_t length = length_of_part(values.dtype());
    for (std::int64_t begin = 0; begin < values.count(); begin += length) {
      const View part = values.slice(begin, std::min(length, values.count() - begin));
      const Received received = room_for(part.count(), values.dtype());
      gather(Operation::all_reduce, part, received.slices, stream, tag);
      stream.submit_host("sum of values",
                         [received, op, part] { cpu::combine(received.views(), op, part); });
    }
  }

 private:
  /// Values of all ranks in memory of this backend.
  struct Received {
    Slices slices;
    std::shared_ptr<std::vector<std::int64_t>> memory;

    std::vector<View> views() const {
      std::vector<View> all;
      for (int rank = 0; rank < slices.world(); ++rank) all.push_back(slices.of(rank));
      return all;
    }
  };

  static Tag of_checksums(const Tag& tag) { return {tag.purpose + ", checksums", {}}; }
  /// "[rank 3] all_gather(h.3)": this rank is the world's, as those in the error, of any group.
  std::string call_of(Operation operation, const Tag& tag) const {
    const std::string& who = names_->who();
    return fmt::format("[{}] {}", who.substr(0, who.find(" (")), call_name(operation, tag.purpose));
  }
  std::int64_t length_of_part(DType dtype) const {
    return std::max<std::int64_t>(1, kMemory / size_of(dtype) / size());
  }

  /// Room for `count` values of each rank. Collectives of a stream run one after the other, so all
  /// have the same memory; calls in flight keep a smaller one that it replaces.
  Received room_for(std::int64_t count, DType dtype) {
    const std::int64_t bytes = checked_mul(checked_mul(count, size()), size_of(dtype));
    const auto words =
        static_cast<std::size_t>(div_ceil(bytes, std::int64_t{sizeof(std::int64_t)}));
    if (!memory_ || memory_->size() < words) {
      memory_ = std::make_shared<std::vector<std::int64_t>>(words);
    }
    const View all(memory_->data(), count * size(), dtype, nullptr);
    return {Slices::even(all, size()), memory_};
  }

  /// As all_gather(); errors name `operation`, of which this is a part.
  void gather(Operation operation, View mine, const Slices& full, Stream& stream, const Tag& tag) {
    if (size() == 1) return ForwardingBackend::all_gather(mine, full, stream, tag);
    const auto sums = std::make_shared<Checksums>(static_cast<std::size_t>(size()));
    const Slices travelling = Slices::even(View::of(std::span(*sums)), size());
    stream.submit_host("checksum", [sums, mine, self = static_cast<std::size_t>(rank())] {
      (*sums)[self] = checksum_of(mine);
    });
    ForwardingBackend::all_gather(mine, full, stream, tag);
    ForwardingBackend::all_gather(travelling.of(rank()), travelling, stream, of_checksums(tag));
    compare(operation, sums, full, stream, tag);
  }

  /// As all_to_all(); likewise.
  void exchange(Operation operation, const Slices& send, const Slices& receive, Stream& stream,
                const Tag& tag) {
    if (size() == 1) return ForwardingBackend::all_to_all(send, receive, stream, tag);
    const auto sums = std::make_shared<Checksums>(2 * static_cast<std::size_t>(size()));
    const View both = View::of(std::span(*sums));  // of what is sent, then of what is received
    stream.submit_host("checksum", [sums, send] {
      for (int to = 0; to < send.world(); ++to) {
        (*sums)[static_cast<std::size_t>(to)] = checksum_of(send.of(to));
      }
    });
    ForwardingBackend::all_to_all(send, receive, stream, tag);
    ForwardingBackend::all_to_all(Slices::even(both.slice(0, size()), size()),
                                  Slices::even(both.slice(size(), size()), size()), stream,
                                  of_checksums(tag));
    compare(operation, sums, receive, stream, tag);
  }

  /// Compares the slices of what arrived with the last of `sums`, one for each.
  void compare(Operation operation, const std::shared_ptr<Checksums>& sums, const Slices& arrived,
               Stream& stream, const Tag& tag) {
    stream.submit_host("checksum", [names = names_, sums, arrived, call = call_of(operation, tag)] {
      const std::size_t first = sums->size() - static_cast<std::size_t>(arrived.world());
      for (int from = 0; from < arrived.world(); ++from) {
        names->compare(call, from, arrived.of(from),
                       (*sums)[first + static_cast<std::size_t>(from)]);
      }
    });
  }

  std::shared_ptr<const Names> names_;
  std::shared_ptr<std::vector<std::int64_t>> memory_;
};

}  // namespace

std::shared_ptr<CollectiveBackend> checked_backend(const Communicator& communicator,
                                                   std::string_view host) {
  return std::make_shared<CheckedBackend>(
      communicator.implementation(), fmt::format("rank {} (host {})", communicator.rank(), host));
}

}  // namespace zero

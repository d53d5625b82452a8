// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>

#include "collectives/copy.h"
#include "collectives/host/transport.h"
#include "device/cpu/primitives.h"

namespace zero::host {
namespace {

/// Bytes copied between two checks of how much of the peers' memory is mapped.
constexpr std::int64_t kCopied = std::int64_t{2} << 20;
/// Bytes that a rank writes to all, peer after peer: few enough to stay in a cache meanwhile.
constexpr std::int64_t kPushed = std::int64_t{256} << 10;

/// Calls with more bytes than this, in all ranks' memory together, bypass the caches.
constexpr std::int64_t kCached = std::int64_t{32} << 20;

}  // namespace

template <typename Body>
void HostTransport::guarded(const CallArguments& call, Body body) {
  try {
    begin_call(call);
    body();
  } catch (const Error& error) {
    report_failure(call, error.what());
    if (std::string_view(error.what()).starts_with("[rank ")) throw;
    fail("{}: {}", error_prefix(call), error.what());
  } catch (const std::exception& error) {
    report_failure(call, error.what());
    throw;
  } catch (...) {
    report_failure(call, "an error without a message");
    throw;
  }
}

template <typename Body>
void HostTransport::in_parts(const CallArguments& call, Body body) {
  if (path_ != DataPath::staged) {
    body(0, std::numeric_limits<std::int64_t>::max());
    if (path_ == DataPath::direct) pass_barrier(call);
    return;
  }
  const std::int64_t all = longest(call);
  const int views = call.slices != nullptr ? membership_.size : 1;
  const std::int64_t most =
      half_ / (size_of(call.signature.dtype) * views) / kNormBlock * kNormBlock;
  for (std::int64_t begin = 0; begin < all; begin += most) {
    const std::int64_t count = std::min(most, all - begin);
    stage(call, begin, count);
    pass_barrier(call);
    body(begin, count);
  }
  pass_barrier(call);
}

std::int64_t HostTransport::longest(const CallArguments& call) const {
  std::int64_t most = 0;
  for (const auto& [begin, count] : call.signature.counts) most = std::max(most, count);
  return call.receive != nullptr ? longest_pair_ : most;
}

bool HostTransport::exceeds_caches(const CallArguments& call) const {
  std::int64_t count = call.receive != nullptr ? call.receive->total() : 0;
  for (const Slices::Range& range : call.signature.counts) count += range.count;
  return count * size_of(call.signature.dtype) * membership_.size > kCached;
}

void HostTransport::copy_part(const CallArguments& call, int peer, std::int64_t begin, View to) {
  const std::int64_t block = kCopied / size_of(call.signature.dtype);
  const bool around_caches = exceeds_caches(call);
  for (std::int64_t at = 0; at < to.count(); at += block) {
    const View from = part(call, peer, begin + at, std::min(block, to.count() - at));
    const View place = to.slice(at, from.count());
    if (around_caches && from.data() != place.data()) {
      copy_around_caches(static_cast<const std::byte*>(from.data()),
                         static_cast<std::byte*>(place.data()), place.bytes());
    } else {
      copy(from, place);
    }
    if (path_ != DataPath::inlined) memory_->unmap_excess();
    if (in_step(call)) pass_barrier(call);
  }
}

// All ranks copy the root's values in step, block by block, so that a block comes from memory once
// and from a cache for the other ranks.
bool HostTransport::in_step(const CallArguments& call) const {
  return path_ == DataPath::direct && call.signature.operation == Operation::broadcast &&
         membership_.size > 2 && exceeds_caches(call);
}

// Each rank begins with its neighbour, so that the ranks do not all read one rank's memory first.
void HostTransport::copy_slices(const CallArguments& call, const Slices& to, std::int64_t begin,
                                std::int64_t count) {
  for (int step = 0; step < membership_.size; ++step) {
    const int peer = (membership_.rank + step) % membership_.size;
    const View slice = to.of(peer);
    const std::int64_t there = std::clamp<std::int64_t>(slice.count() - begin, 0, count);
    if (there > 0) copy_part(call, peer, begin, slice.slice(begin, there));
  }
}

// All have arrived, so no rank uses the old contents, and each rank may write its slice. Slices
// already in place were written before their ranks arrived.
void HostTransport::gather_in_shared(const CallArguments& call) {
  const Destination& first = destination(0);
  bool in_place = true;
  for (int rank = 0; rank < membership_.size; ++rank) {
    const Destination& theirs = destination(rank);
    const bool same = control_.header(rank).path == DataPath::shared &&
                      theirs.memory == first.memory && theirs.offset == first.offset &&
                      theirs.layout == first.layout;
    ZERO_CHECK(same, "{}: {}", error_prefix(call), kTargetsApart);
    in_place = in_place && theirs.in_place != 0;
  }
  if (in_place) return;
  if (destination(membership_.rank).in_place == 0) {
    const View own = call.target->of(membership_.rank);
    if (call.target->total() * size_of(call.signature.dtype) > kCached) {
      copy_around_caches(static_cast<const std::byte*>(call.whole.data()),
                         static_cast<std::byte*>(own.data()), own.bytes());
    } else {
      copy(call.whole, own);
    }
  }
  pass_barrier(call);
}

bool HostTransport::can_push() const {
  if (path_ == DataPath::inlined) return false;
  for (int rank = 0; rank < membership_.size; ++rank) {
    const Destination& theirs = destination(rank);
    if (theirs.offset < 0 || theirs.layout != destination(0).layout) return false;
  }
  return true;
}

template <typename To>
void HostTransport::push_block(const CallArguments& call, View from, To to) {
  const bool around_caches = exceeds_caches(call);
  const auto* const values = static_cast<const std::byte*>(from.data());
  for (int step = 0; step < membership_.size; ++step) {
    std::byte* const place = to((membership_.rank + step) % membership_.size);
    if (place == values) continue;
    if (around_caches) {
      copy_around_caches(values, place, from.bytes());
    } else {
      std::memcpy(place, values, static_cast<std::size_t>(from.bytes()));
    }
  }
  memory_->unmap_excess();
}

// A rank that has arrived no longer uses its destination, so peers may write there: each rank reads
// its values once, block by block, and writes each block to all.
void HostTransport::push_slices(const CallArguments& call) {
  const std::int64_t element = size_of(call.signature.dtype);
  const std::int64_t block = kPushed / element;
  const View own = call.target->of(membership_.rank);
  const std::int64_t begin =
      call.target->ranges[static_cast<std::size_t>(membership_.rank)].begin * element;
  for (std::int64_t at = 0; at < own.count(); at += block) {
    const View from = call.whole.slice(at, std::min(block, own.count() - at));
    push_block(call, from, [&](int peer) {
      if (peer == membership_.rank) return static_cast<std::byte*>(own.data()) + at * element;
      return memory_->access(*peers_[static_cast<std::size_t>(peer)],
                             destination(peer).offset + begin + at * element, from.bytes());
    });
  }
  pass_barrier(call);
}

void HostTransport::all_gather(View mine, const Slices& full, std::string_view purpose) {
  const CallArguments call{.signature = CallSignature::of(Operation::all_gather, full, purpose),
                           .whole = mine,
                           .target = &full};
  guarded(call, [&] {
    if (path_ == DataPath::shared) return gather_in_shared(call);
    if (can_push()) return push_slices(call);
    in_parts(call, [&](std::int64_t begin, std::int64_t count) {
      copy_slices(call, full, begin, count);
    });
  });
}

void HostTransport::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                   View /*workspace*/, std::string_view purpose) {
  const CallArguments call{.signature = CallSignature::of(Operation::reduce_scatter, full, purpose),
                           .slices = &full};
  guarded(call, [&] {
    in_parts(call, [&](std::int64_t begin, std::int64_t count) {
      const std::int64_t own = epilogue.destination.count();
      reduce_part(call, epilogue, begin, std::clamp<std::int64_t>(own - begin, 0, count));
    });
  });
}

// In blocks, so that mapped memory of peers stays within its budget.
void HostTransport::reduce_part(const CallArguments& call, const ReduceEpilogue& epilogue,
                                std::int64_t begin, std::int64_t count) {
  const std::int64_t readers = std::max(1, membership_.size - 1);
  const std::int64_t block = std::max<std::int64_t>(64 << 10, Memory::kResident / readers) /
                             size_of(call.signature.dtype) / kNormBlock * kNormBlock;
  const auto gather_inputs = [&](std::int64_t at, std::int64_t length) {
    for (int peer = 0; peer < membership_.size; ++peer) {
      inputs_[static_cast<std::size_t>(peer)] = part(call, peer, at, length);
    }
  };
  if (path_ == DataPath::inlined) {
    gather_inputs(begin, count);
    return cpu::tree_reduce(inputs_, epilogue);
  }
  for (std::int64_t at = begin; at < begin + count; at += block) {
    const std::int64_t length = std::min(block, begin + count - at);
    gather_inputs(at, length);
    cpu::tree_reduce(inputs_, epilogue.slice(at, length));
    memory_->unmap_excess();
  }
}

void HostTransport::all_reduce(View values, ReduceOp op, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  const CallArguments call{.signature = CallSignature::of(Operation::all_reduce, values, all,
                                                          static_cast<int>(op), purpose),
                           .whole = values};
  guarded(call, [&] {
    if (path_ == DataPath::inlined) return all_reduce_inlined(call, op);
    if (path_ == DataPath::direct) return all_reduce_pushed(call, op);
    all_reduce_staged(call, op);
  });
}

// Every rank combines all values.
void HostTransport::all_reduce_inlined(const CallArguments& call, ReduceOp op) {
  for (int peer = 0; peer < membership_.size; ++peer) {
    inputs_[static_cast<std::size_t>(peer)] = part(call, peer, 0, call.whole.count());
  }
  cpu::combine(inputs_, op, call.whole);
}

// Each rank combines one share, which no other rank reads or writes, and writes it to all, block by
// block: a block is still in a cache when it goes out.
void HostTransport::all_reduce_pushed(const CallArguments& call, ReduceOp op) {
  const std::int64_t element = size_of(call.signature.dtype);
  const std::int64_t block = kPushed / element / kNormBlock * kNormBlock;
  const std::int64_t begin = call.whole.count() * membership_.rank / membership_.size;
  const View own = share(call.whole, membership_.rank, membership_.size);
  for (std::int64_t at = 0; at < own.count(); at += block) {
    const View sums = own.slice(at, std::min(block, own.count() - at));
    for (int peer = 0; peer < membership_.size; ++peer) {
      inputs_[static_cast<std::size_t>(peer)] = part(call, peer, begin + at, sums.count());
    }
    cpu::combine(inputs_, op, sums);
    push_block(call, sums, [&](int peer) {
      return static_cast<std::byte*>(inputs_[static_cast<std::size_t>(peer)].data());
    });
  }
  pass_barrier(call);
}

// Values go to one half of the staging area, combined shares to the other.
void HostTransport::all_reduce_staged(const CallArguments& call, ReduceOp op) {
  const std::int64_t element = size_of(call.signature.dtype);
  const std::int64_t block = half_ / element;
  const int world = membership_.size;
  for (std::int64_t begin = 0; begin < call.whole.count(); begin += block) {
    const View values = call.whole.slice(begin, std::min(block, call.whole.count() - begin));
    const auto staged = [&](int owner, int half, int rank) {
      const View there = share(values, rank, world);
      const std::int64_t offset = values.count() * rank / world * element;
      return View(staging_of(owner, half, offset, std::max<std::int64_t>(1, there.bytes())),
                  there.count(), call.signature.dtype, nullptr);
    };
    std::memcpy(staging_, values.data(), static_cast<std::size_t>(values.bytes()));
    pass_barrier(call);
    for (int peer = 0; peer < world; ++peer) {
      inputs_[static_cast<std::size_t>(peer)] = staged(peer, 0, membership_.rank);
    }
    cpu::combine(inputs_, op, staged(membership_.rank, 1, membership_.rank));
    pass_barrier(call);
    for (int peer = 0; peer < world; ++peer)
      copy(staged(peer, 1, peer), share(values, peer, world));
    memory_->unmap_excess();
  }
  pass_barrier(call);
}

void HostTransport::all_to_all(const Slices& send, const Slices& receive,
                               std::string_view purpose) {
  const CallArguments call{.signature = {Operation::all_to_all, purpose, send.buffer.dtype()},
                           .slices = &send,
                           .receive = &receive};
  guarded(call, [&] {
    in_parts(call, [&](std::int64_t begin, std::int64_t count) {
      copy_slices(call, receive, begin, count);
    });
  });
}

void HostTransport::broadcast(View values, int root, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  const CallArguments call{
      .signature = CallSignature::of(Operation::broadcast, values, all, root, purpose),
      .whole = membership_.rank == root ? values : values.slice(0, 0)};
  guarded(call, [&] {
    in_parts(call, [&](std::int64_t begin, std::int64_t count) {
      const std::int64_t there = std::min(count, values.count() - begin);
      copy_part(call, root, begin, values.slice(begin, there));
    });
  });
}

void HostTransport::compare(const CallSignature& signature) {
  guarded({.signature = signature}, [] {});
}

void HostTransport::barrier(std::string_view purpose) {
  guarded({.signature = {.operation = Operation::barrier, .purpose = purpose}}, [] {});
}

}  // namespace zero::host

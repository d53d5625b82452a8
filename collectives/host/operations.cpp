// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>

#include "collectives/copy.h"
#include "collectives/host/copy.h"
#include "collectives/host/group.h"
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
void Group::guarded(const CallArguments& offer, Body body) {
  try {
    open(offer);
    body();
  } catch (const Error& error) {
    tell_peers(offer, error.what());
    if (std::string_view(error.what()).starts_with("[rank ")) throw;
    fail("{}: {}", who(offer), error.what());
  } catch (const std::exception& error) {
    tell_peers(offer, error.what());
    throw;
  } catch (...) {
    tell_peers(offer, "an error without a message");
    throw;
  }
}

template <typename Body>
void Group::in_parts(const CallArguments& offer, Body body) {
  if (way_ != DataPath::staged) {
    body(0, std::numeric_limits<std::int64_t>::max());
    if (way_ == DataPath::direct) pass(offer);
    return;
  }
  const std::int64_t all = longest(offer);
  const int views = offer.slices != nullptr ? seat_.size : 1;
  const std::int64_t most = half_ / (size_of(offer.intent.dtype) * views) / kNormBlock * kNormBlock;
  for (std::int64_t begin = 0; begin < all; begin += most) {
    const std::int64_t count = std::min(most, all - begin);
    stage(offer, begin, count);
    pass(offer);
    body(begin, count);
  }
  pass(offer);
}

std::int64_t Group::longest(const CallArguments& offer) const {
  std::int64_t most = 0;
  for (const auto& [begin, count] : offer.intent.counts) most = std::max(most, count);
  return offer.receive != nullptr ? longest_pair_ : most;
}

bool Group::exceeds_caches(const CallArguments& offer) const {
  std::int64_t count = offer.receive != nullptr ? offer.receive->total() : 0;
  for (const Slices::Range& range : offer.intent.counts) count += range.count;
  return count * size_of(offer.intent.dtype) * seat_.size > kCached;
}

void Group::copy_part(const CallArguments& offer, int peer, std::int64_t begin, View to) {
  const std::int64_t block = kCopied / size_of(offer.intent.dtype);
  const bool around_caches = exceeds_caches(offer);
  for (std::int64_t at = 0; at < to.count(); at += block) {
    const View from = part(offer, peer, begin + at, std::min(block, to.count() - at));
    const View place = to.slice(at, from.count());
    if (around_caches && from.data() != place.data()) {
      copy_around_caches(static_cast<const std::byte*>(from.data()),
                         static_cast<std::byte*>(place.data()), place.bytes());
    } else {
      copy(from, place);
    }
    if (way_ != DataPath::posted) memory_->unmap_excess();
    if (in_step(offer)) pass(offer);
  }
}

// All ranks copy the root's values in step, block by block, so that a block comes from memory once
// and from a cache for the other ranks.
bool Group::in_step(const CallArguments& offer) const {
  return way_ == DataPath::direct && offer.intent.operation == Operation::broadcast &&
         seat_.size > 2 && exceeds_caches(offer);
}

// Each rank begins with its neighbour, so that the ranks do not all read one rank's memory first.
void Group::copy_slices(const CallArguments& offer, const Slices& to, std::int64_t begin,
                        std::int64_t count) {
  for (int step = 0; step < seat_.size; ++step) {
    const int peer = (seat_.rank + step) % seat_.size;
    const View slice = to.of(peer);
    const std::int64_t there = std::clamp<std::int64_t>(slice.count() - begin, 0, count);
    if (there > 0) copy_part(offer, peer, begin, slice.slice(begin, there));
  }
}

// All have arrived, so no rank uses the old contents, and each rank may write its slice. Slices
// already in place were written before their ranks arrived.
void Group::gather_in_shared(const CallArguments& offer) {
  read_destinations(offer);
  const Destination& first = destinations_[0];
  bool there = true;
  for (std::size_t rank = 0; rank < destinations_.size(); ++rank) {
    const Destination& theirs = destinations_[rank];
    const bool same = claims_[rank].reach == DataPath::shared && theirs.memory == first.memory &&
                      theirs.offset == first.offset && theirs.layout == first.layout;
    ZERO_CHECK(same, "{}: {}", who(offer), kTargetsApart);
    there = there && theirs.there != 0;
  }
  if (there) return;
  if (destinations_[static_cast<std::size_t>(seat_.rank)].there == 0) {
    const View own = offer.target->of(seat_.rank);
    if (offer.target->total() * size_of(offer.intent.dtype) > kCached) {
      copy_around_caches(static_cast<const std::byte*>(offer.whole.data()),
                         static_cast<std::byte*>(own.data()), own.bytes());
    } else {
      copy(offer.whole, own);
    }
  }
  pass(offer);
}

void Group::read_destinations(const CallArguments& offer) {
  std::int64_t extent = 0;
  for (const auto& [begin, count] : offer.target->ranges) extent = std::max(extent, begin + count);
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    destinations_[at] = read_once(destination(rank));
    if (!peers_[at] || claims_[at].reach == DataPath::shared) continue;
    check_destination(destinations_[at], seat_.name_of(rank), extent * size_of(offer.intent.dtype),
                      peers_[at]->capacity());
  }
}

bool Group::can_push(const CallArguments& offer) {
  if (way_ == DataPath::posted) return false;
  read_destinations(offer);
  return std::ranges::all_of(destinations_, [&](const Destination& theirs) {
    return theirs.offset >= 0 && theirs.layout == destinations_[0].layout;
  });
}

template <typename To>
void Group::push_block(const CallArguments& offer, View from, To to) {
  const bool around_caches = exceeds_caches(offer);
  const auto* const values = static_cast<const std::byte*>(from.data());
  for (int step = 0; step < seat_.size; ++step) {
    std::byte* const place = to((seat_.rank + step) % seat_.size);
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
void Group::push_slices(const CallArguments& offer) {
  const std::int64_t element = size_of(offer.intent.dtype);
  const std::int64_t block = kPushed / element;
  const View own = offer.target->of(seat_.rank);
  const std::int64_t begin =
      offer.target->ranges[static_cast<std::size_t>(seat_.rank)].begin * element;
  for (std::int64_t at = 0; at < own.count(); at += block) {
    const View from = offer.whole.slice(at, std::min(block, own.count() - at));
    push_block(offer, from, [&](int peer) {
      if (peer == seat_.rank) return static_cast<std::byte*>(own.data()) + at * element;
      return memory_->reach(
          *peers_[static_cast<std::size_t>(peer)],
          destinations_[static_cast<std::size_t>(peer)].offset + begin + at * element,
          from.bytes());
    });
  }
  pass(offer);
}

void Group::all_gather(View mine, const Slices& full, std::string_view purpose) {
  const CallArguments offer{.intent = CallSignature::of(Operation::all_gather, full, purpose),
                            .whole = mine,
                            .target = &full};
  guarded(offer, [&] {
    if (way_ == DataPath::shared) return gather_in_shared(offer);
    if (can_push(offer)) return push_slices(offer);
    in_parts(offer, [&](std::int64_t begin, std::int64_t count) {
      copy_slices(offer, full, begin, count);
    });
  });
}

void Group::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View /*workspace*/,
                           std::string_view purpose) {
  const CallArguments offer{.intent = CallSignature::of(Operation::reduce_scatter, full, purpose),
                            .slices = &full};
  guarded(offer, [&] {
    in_parts(offer, [&](std::int64_t begin, std::int64_t count) {
      const std::int64_t own = epilogue.destination.count();
      reduce_part(offer, epilogue, begin, std::clamp<std::int64_t>(own - begin, 0, count));
    });
  });
}

// In blocks, so that mapped memory of peers stays within its budget.
void Group::reduce_part(const CallArguments& offer, const ReduceEpilogue& epilogue,
                        std::int64_t begin, std::int64_t count) {
  const std::int64_t readers = std::max(1, seat_.size - 1);
  const std::int64_t block = std::max<std::int64_t>(64 << 10, Memory::kResident / readers) /
                             size_of(offer.intent.dtype) / kNormBlock * kNormBlock;
  const auto gather_inputs = [&](std::int64_t at, std::int64_t length) {
    for (int peer = 0; peer < seat_.size; ++peer) {
      inputs_[static_cast<std::size_t>(peer)] = part(offer, peer, at, length);
    }
  };
  if (way_ == DataPath::posted) {
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

void Group::all_reduce(View values, ReduceOp op, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  const CallArguments offer{.intent = CallSignature::of(Operation::all_reduce, values, all,
                                                        static_cast<int>(op), purpose),
                            .whole = values,
                            .result = values};
  guarded(offer, [&] {
    if (way_ == DataPath::posted) return all_reduce_posted(offer, op);
    if (way_ == DataPath::direct) return all_reduce_pushed(offer, op);
    all_reduce_staged(offer, op);
  });
}

// Every rank combines all values.
void Group::all_reduce_posted(const CallArguments& offer, ReduceOp op) {
  for (int peer = 0; peer < seat_.size; ++peer) {
    inputs_[static_cast<std::size_t>(peer)] = part(offer, peer, 0, offer.whole.count());
  }
  cpu::combine(inputs_, op, offer.whole);
}

// Each rank combines one share, which no other rank reads or writes, and writes it to all, block by
// block: a block is still in a cache when it goes out.
void Group::all_reduce_pushed(const CallArguments& offer, ReduceOp op) {
  const std::int64_t element = size_of(offer.intent.dtype);
  const std::int64_t block = kPushed / element / kNormBlock * kNormBlock;
  const std::int64_t begin = offer.whole.count() * seat_.rank / seat_.size;
  const View own = share(offer.whole, seat_.rank, seat_.size);
  for (std::int64_t at = 0; at < own.count(); at += block) {
    const View sums = own.slice(at, std::min(block, own.count() - at));
    for (int peer = 0; peer < seat_.size; ++peer) {
      inputs_[static_cast<std::size_t>(peer)] = part(offer, peer, begin + at, sums.count());
    }
    cpu::combine(inputs_, op, sums);
    push_block(offer, sums, [&](int peer) {
      return static_cast<std::byte*>(inputs_[static_cast<std::size_t>(peer)].data());
    });
  }
  pass(offer);
}

// Values go to one half of the staging area, combined shares to the other.
void Group::all_reduce_staged(const CallArguments& offer, ReduceOp op) {
  const std::int64_t element = size_of(offer.intent.dtype);
  const std::int64_t block = half_ / element;
  const int world = seat_.size;
  for (std::int64_t begin = 0; begin < offer.whole.count(); begin += block) {
    const View values = offer.whole.slice(begin, std::min(block, offer.whole.count() - begin));
    const auto staged = [&](int owner, int half, int rank) {
      const View there = share(values, rank, world);
      const std::int64_t offset = values.count() * rank / world * element;
      return View(staging_of(owner, half, offset, std::max<std::int64_t>(1, there.bytes())),
                  there.count(), offer.intent.dtype, nullptr);
    };
    std::memcpy(staging_, values.data(), static_cast<std::size_t>(values.bytes()));
    pass(offer);
    for (int peer = 0; peer < world; ++peer) {
      inputs_[static_cast<std::size_t>(peer)] = staged(peer, 0, seat_.rank);
    }
    cpu::combine(inputs_, op, staged(seat_.rank, 1, seat_.rank));
    pass(offer);
    for (int peer = 0; peer < world; ++peer)
      copy(staged(peer, 1, peer), share(values, peer, world));
    memory_->unmap_excess();
  }
  pass(offer);
}

void Group::all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) {
  const CallArguments offer{.intent = {Operation::all_to_all, purpose, send.buffer.dtype()},
                            .slices = &send,
                            .receive = &receive};
  guarded(offer, [&] {
    in_parts(offer, [&](std::int64_t begin, std::int64_t count) {
      copy_slices(offer, receive, begin, count);
    });
  });
}

void Group::broadcast(View values, int root, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  const CallArguments offer{
      .intent = CallSignature::of(Operation::broadcast, values, all, root, purpose),
      .whole = seat_.rank == root ? values : values.slice(0, 0),
      .result = values};
  guarded(offer, [&] {
    in_parts(offer, [&](std::int64_t begin, std::int64_t count) {
      const std::int64_t there = std::min(count, values.count() - begin);
      copy_part(offer, root, begin, values.slice(begin, there));
    });
  });
}

void Group::compare(const CallSignature& intent) {
  guarded({.intent = intent}, [] {});
}

void Group::barrier(std::string_view purpose) {
  guarded({.intent = {.operation = Operation::barrier, .purpose = purpose}}, [] {});
}

}  // namespace zero::host

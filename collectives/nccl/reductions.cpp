// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/checked_math.h"
#include "collectives/nccl/backend.h"

namespace zero::nccl {
namespace {

constexpr std::int64_t kAlignment = 64;  // of HalvingRoom, bytes
/// Most bytes of all ranks' values together for which each rank combines them all.
constexpr std::int64_t kWhole = std::int64_t{1} << 20;

// Elements of `dtype` at `offset` bytes of `bytes`.
View at(View bytes, std::int64_t offset, std::int64_t count, DType dtype) {
  return bytes.slice(offset, count * size_of(dtype)).reinterpret(dtype, count);
}

// The workspace from its first byte that is aligned for any element.
View aligned_bytes(View workspace) {
  const View bytes = workspace.reinterpret(DType::u8, workspace.bytes());
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(bytes.data()));
  const std::int64_t skipped = round_up(address, kAlignment) - address;
  return bytes.slice(skipped, bytes.count() - skipped);
}

}  // namespace

void NcclBackend::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                                 Stream& stream, const Tag& tag) {
  const Submission work = submission(stream, Operation::reduce_scatter, tag);
  ZERO_CHECK(full.buffer.device() != nullptr || full.buffer.empty(),
             "{}: the values are in host memory; NCCL sums those of {}", work.who,
             parts_.device.name());
  if (full.total() == 0) return;
  if (size() == 1) {
    return parts_.device.kernels().tree_reduce(stream, {full.of(0)}, epilogue);
  }
  if (parts_.options.sums == Sums::fast) return reduce_fast(work, full, epilogue, workspace);
  if (way_of(full) == Way::halving) return reduce_halving(work, full, epilogue, workspace);
  reduce_direct(work, full, epilogue, workspace);
}

void NcclBackend::reduce_direct(const Submission& submission, const Slices& full,
                                const Epilogue& epilogue, View workspace) {
  const std::int64_t count = full.of(rank()).count();
  std::vector<View> inputs;
  std::int64_t used = 0;
  for (int peer = 0; peer < size(); ++peer) {
    inputs.push_back(peer == rank() ? full.of(rank()) : workspace.slice(used, count));
    if (peer != rank()) used += count;
  }
  submit(submission, [full, inputs, self = rank()](const Calls& calls) {
    for (int peer = 0; peer < full.world(); ++peer) {
      if (peer == self) continue;
      calls.send(full.of(peer), peer);
      calls.receive(inputs[static_cast<std::size_t>(peer)], peer);
    }
  });
  if (count > 0)
    parts_.device.kernels().tree_reduce(submission.stream, std::move(inputs), epilogue);
}

// A rank first holds its own slices, then the sums of the slices it keeps.
void NcclBackend::reduce_halving(const Submission& submission, const Slices& full,
                                 const Epilogue& epilogue, View workspace) {
  const HalvingRoom room = halving_room(full);
  const View bytes = aligned_bytes(workspace);
  const auto count_of = [&](int slice) { return full.of(slice).count(); };
  const auto sum_of = [&](int slice) {  // every second slice has one
    const std::int64_t place = (slice / 2) * room.stride * size_of(DType::fp32);
    return at(bytes, place, count_of(slice), DType::fp32);
  };
  std::function<View(int)> held = [&](int slice) { return full.of(slice); };
  DType dtype = full.buffer.dtype();
  for (const HalvingRound& round : halving(rank(), size())) {
    std::vector<View> gives;
    std::vector<View> receives;
    std::int64_t offset = room.sums_bytes;
    for (const int slice : round.gives) gives.push_back(held(slice));
    for (const int slice : round.keeps) {
      receives.push_back(at(bytes, offset, count_of(slice), dtype));
      offset += room.stride * size_of(dtype);
    }
    submit(submission, [gives, receives, partner = round.partner](const Calls& calls) {
      for (const View& view : gives) calls.send(view, partner);
      for (const View& view : receives) calls.receive(view, partner);
    });
    for (std::size_t i = 0; i < round.keeps.size(); ++i) {
      const int slice = round.keeps[i];
      if (receives[i].empty()) continue;
      std::vector<View> inputs{held(slice), receives[i]};
      if (round.partner < rank()) std::swap(inputs[0], inputs[1]);
      const bool last = round.keeps.size() == 1;
      parts_.device.kernels().tree_reduce(
          submission.stream, std::move(inputs),
          last ? epilogue : ReduceEpilogue{{}, sum_of(slice), nullptr});
    }
    held = sum_of;
    dtype = DType::fp32;
  }
}

void NcclBackend::reduce_fast(const Submission& submission, const Slices& full,
                              const Epilogue& epilogue, View workspace) {
  const View sum = workspace.slice(0, full.of(rank()).count());
  if (are_one_block(full)) {
    const View all = full.buffer.slice(full.ranges.front().begin, full.total());
    submit(submission, [all, sum](const Calls& calls) { calls.reduce_scatter(all, sum); });
  } else {
    submit(submission, [full, sum, self = rank()](const Calls& calls) {
      for (int root = 0; root < full.world(); ++root) {
        calls.reduce(full.of(root), root == self ? sum : full.of(root), root);
      }
    });
  }
  if (!sum.empty()) parts_.device.kernels().tree_reduce(submission.stream, {sum}, epilogue);
}

void NcclBackend::all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  const Submission work = submission(stream, Operation::all_reduce, tag);
  if (size() == 1 || values.empty()) return;
  const bool here = values.device() != nullptr;
  const bool any_order =
      !is_floating(values.dtype()) || (op == ReduceOp::sum && parts_.options.sums == Sums::fast);
  if (here && any_order) {
    submit(work, [values, op](const Calls& calls) { calls.all_reduce(values, op); });
    return check_on(work);
  }
  const bool long_sum = here && op == ReduceOp::sum && values.dtype() == DType::fp32 &&
                        values.bytes() * size() > kWhole;
  const std::int64_t room = kScratch / (long_sum ? 1 : size() + 1);
  const std::int64_t most = room / size_of(values.dtype());
  for (std::int64_t begin = 0; begin < values.count(); begin += most) {
    const View part = values.slice(begin, std::min(most, values.count() - begin));
    if (long_sum) {
      sum_shares(work, part);
    } else {
      combine_whole(work, part, op);
    }
  }
  check_on(work);
}

// Every rank gets all values and combines them itself: one exchange.
void NcclBackend::combine_whole(const Submission& submission, View values, ReduceOp op) {
  const std::int64_t count = values.count();
  const View room = scratch(count * (size() + 1), values.dtype());
  const Slices all = Slices::even(room.slice(0, count * size()), size());
  const bool here = values.device() != nullptr;
  const View mine = here ? values : all.of(rank());
  const View result = here ? values : room.slice(count * size(), count);
  copy(submission, values, mine);
  submit(submission, [mine, to = all.buffer](const Calls& calls) { calls.all_gather(mine, to); });
  std::vector<View> inputs;
  for (int peer = 0; peer < size(); ++peer) inputs.push_back(all.of(peer));
  parts_.device.kernels().combine(submission.stream, std::move(inputs), op, result);
  copy(submission, result, values);
}

// Each rank sums a share of them, and all gather the shares.
void NcclBackend::sum_shares(const Submission& submission, View values) {
  Slices shares{.buffer = values, .ranges = {}};
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t begin = values.count() * peer / size();
    shares.ranges.push_back({begin, values.count() * (peer + 1) / size() - begin});
  }
  const View own = shares.of(rank());
  reduce_direct(submission, shares, {{}, own, nullptr},
                scratch(own.count() * (size() - 1), DType::fp32));
  all_gather_on_device(submission, own, shares);
}

}  // namespace zero::nccl

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/backend.h"

#include <algorithm>
#include <exception>

#include "base/checked_math.h"
#include "collectives/nccl/gpu.h"
#include "collectives/ranks_of_hosts.h"

namespace zero::nccl {
namespace {

bool on_host(View view) { return view.device() == nullptr && !view.empty(); }

}  // namespace

NcclBackend::NcclBackend(Parts parts)
    : CollectiveBackend(parts.context),
      parts_(std::move(parts)),
      store_(parts_.self.store, parts_.name + "/user"),
      exceptions_(std::uncaught_exceptions()),
      scratch_(take_scratch(parts_.device, parts_.self.size)) {
  parts_.comm->attend({.name = parts_.name, .rank = rank(), .hosts = parts_.hosts});
}

NcclBackend::~NcclBackend() {
  if (std::uncaught_exceptions() > exceptions_) {
    parts_.comm->session()->fail(fmt::format("rank {} ended its part with an error", rank()));
  }
}

int NcclBackend::local_rank() const { return rank_on_host(parts_.hosts, rank()); }

int NcclBackend::local_size() const { return ranks_on_host(parts_.hosts, rank()); }

BackendKind NcclBackend::kind() const {
  return parts_.options.sums == Sums::exact ? BackendKind::nccl : BackendKind::nccl_fast;
}

std::shared_ptr<CollectiveBackend> NcclBackend::split(int color, int key) {
  const std::string name = fmt::format("{}/split/{}", parts_.name, splits_++);
  const StoreSplit part = zero::split(parts_.self, name, color, key);
  auto comm = parts_.comm->split(color, key);
  if (!comm) return nullptr;
  std::vector<std::string> hosts;
  for (const int member : part.members) {
    hosts.push_back(parts_.hosts[static_cast<std::size_t>(member)]);
  }
  StoreRank self = parts_.self;
  self.rank = part.rank;
  self.size = static_cast<int>(part.members.size());
  auto backend =
      std::make_shared<NcclBackend>(Parts{.comm = std::move(comm),
                                          .device = parts_.device,
                                          .self = self,
                                          .name = fmt::format("{}/{}", name, part.members.front()),
                                          .options = parts_.options,
                                          .hosts = std::move(hosts),
                                          .description = parts_.description,
                                          .context = context()});
  backend->set_members(part.members);
  return backend;
}

Buffer NcclBackend::allocate(Device& device, std::int64_t count, DType dtype,
                             MemoryClass memory_class, std::string_view label) {
  if (&device == &parts_.device && gives_memory(size(), count, dtype)) {
    const std::int64_t bytes = checked_mul(count, size_of(dtype));
    if (auto memory = Comm::allocate_registered(parts_.comm, bytes)) {
      return device.adopt(std::move(memory), count, dtype, memory_class, label);
    }
  }
  return device.allocate(count, dtype, memory_class, label);
}

Buffer NcclBackend::allocate_symmetric(Device& device, std::int64_t count, DType dtype,
                                       MemoryClass memory_class, std::string_view label) {
  if (&device != &parts_.device || size() == 1) {
    return allocate(device, count, dtype, memory_class, label);
  }
  const std::string mine = fmt::format("{} x {}", count, name_of(dtype));
  const std::string key = fmt::format("{}/symmetric/{}", parts_.name, symmetric_made_++);
  const std::vector<std::string> all = all_gather_texts(parts_.self, key, mine);
  const auto other = std::ranges::find_if(all, [&](const auto& each) { return each != mine; });
  ZERO_CHECK(other == all.end(),
             "[rank {}] symmetric memory for \"{}\": {} here, {} on rank {}; ask for the same "
             "on every rank",
             rank(), label, mine, *other, other - all.begin());
  if (gives_memory(size(), count, dtype)) {
    const std::int64_t bytes = checked_mul(count, size_of(dtype));
    auto memory = Comm::allocate_window(parts_.comm, bytes);
    ZERO_CHECK(memory != nullptr, "[rank {}] NCCL: no room on {} for {} bytes of {}/{}", rank(),
               device.name(), bytes, name_of(memory_class), label);
    return device.adopt(std::move(memory), count, dtype, memory_class, label);
  }
  return device.allocate(count, dtype, memory_class, label);
}

NcclBackend::Submission NcclBackend::submission(Stream& stream, Operation operation,
                                                const Tag& tag) const {
  Submission submission{stream, call_name(rank(), operation, tag.purpose)};
  parts_.comm->session()->check(submission.who);
  return submission;
}

void NcclBackend::submit(const Submission& submission, std::function<void(const Calls&)> calls) {
  submission.stream.submit(
      submission.who, [comm = parts_.comm, who = submission.who, stream = native(submission.stream),
                       calls = std::move(calls)] { comm->group(who, stream, calls); });
}

// Host code on a stream must not destroy a communicator, because it may make no CUDA calls.
void NcclBackend::check_on(const Submission& submission) {
  submission.stream.submit_host(submission.who, [session = parts_.comm->session(),
                                                 who = submission.who] { session->check(who); });
}

void NcclBackend::copy(const Submission& submission, View from, View to) {
  if (from.empty() || from.data() == to.data()) return;
  parts_.device.kernels().convert(submission.stream, from, to);
}

View NcclBackend::scratch(std::int64_t count, DType dtype) const {
  return scratch_.view().reinterpret(dtype, count);
}

void NcclBackend::all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  const Submission work = submission(stream, Operation::all_gather, tag);
  if (size() == 1) return copy(work, mine, full.of(0));
  if (full.total() == 0) return;
  if (on_host(mine) || on_host(full.buffer)) return all_gather_on_host(work, mine, full);
  all_gather_on_device(work, mine, full);
}

void NcclBackend::all_gather_on_device(const Submission& submission, View mine,
                                       const Slices& full) {
  if (are_one_block(full)) {
    const View all = full.buffer.slice(full.ranges.front().begin, full.total());
    return submit(submission, [mine, all](const Calls& calls) { calls.all_gather(mine, all); });
  }
  submit(submission, [mine, full, self = rank()](const Calls& calls) {
    for (int root = 0; root < full.world(); ++root) {
      calls.broadcast(root == self ? mine : full.of(root), full.of(root), root);
    }
  });
}

// Gathers equal parts of the slices through scratch memory; shorter slices are padded with its old
// contents.
void NcclBackend::all_gather_on_host(const Submission& submission, View mine, const Slices& full) {
  const std::int64_t most = kScratch / size_of(mine.dtype()) / size();
  for (std::int64_t begin = 0; begin < full.largest(); begin += most) {
    const Slices part = full.part(begin, most);
    const std::int64_t count = part.largest();
    const Slices places = Slices::even(scratch(count * size(), mine.dtype()), size());
    const View place = places.of(rank());
    const Slices::Range own = part.ranges[static_cast<std::size_t>(rank())];
    if (own.count > 0) copy(submission, mine.slice(begin, own.count), place.slice(0, own.count));
    submit(submission,
           [place, all = places.buffer](const Calls& calls) { calls.all_gather(place, all); });
    for (int peer = 0; peer < size(); ++peer) {
      const View to = part.of(peer);
      copy(submission, places.of(peer).slice(0, to.count()), to);
    }
  }
  check_on(submission);
}

void NcclBackend::all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                             const Tag& tag) {
  const Submission work = submission(stream, Operation::all_to_all, tag);
  ZERO_CHECK(!on_host(send.buffer) && !on_host(receive.buffer),
             "{}: the values are in host memory; NCCL exchanges those of {}", work.who,
             parts_.device.name());
  copy(work, send.of(rank()), receive.of(rank()));
  if (size() == 1) return;
  submit(work, [send, receive, self = rank()](const Calls& calls) {
    for (int peer = 0; peer < send.world(); ++peer) {
      if (peer == self) continue;
      calls.send(send.of(peer), peer);
      calls.receive(receive.of(peer), peer);
    }
  });
}

void NcclBackend::broadcast(View values, int root, Stream& stream, const Tag& tag) {
  const Submission work = submission(stream, Operation::broadcast, tag);
  if (size() == 1 || values.empty()) return;
  if (!on_host(values)) {
    return submit(work,
                  [values, root](const Calls& calls) { calls.broadcast(values, values, root); });
  }
  const std::int64_t most = kScratch / size_of(values.dtype());
  for (std::int64_t begin = 0; begin < values.count(); begin += most) {
    const View part = values.slice(begin, std::min(most, values.count() - begin));
    const View place = scratch(part.count(), part.dtype());
    if (rank() == root) copy(work, part, place);
    submit(work, [place, root](const Calls& calls) { calls.broadcast(place, place, root); });
    if (rank() != root) copy(work, place, part);
  }
  check_on(work);
}

void NcclBackend::barrier(Stream& stream, const Tag& tag) {
  const Submission work = submission(stream, Operation::barrier, tag);
  if (size() == 1) return;
  const View token = scratch(1, DType::i32);
  submit(work, [token](const Calls& calls) { calls.all_reduce(token, ReduceOp::max); });
  check_on(work);
}

}  // namespace zero::nccl

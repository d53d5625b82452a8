// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/peer_ops.h"

#include "collectives/copy.h"
#include "device/cpu/primitives.h"

namespace zero::local {
namespace {

class ImmediateOps final : public PeerOps {
 public:
  using PeerOps::PeerOps;

  void copy(View from, View to) override { zero::copy(from, to); }
  void tree_reduce(std::vector<View> inputs, const ReduceEpilogue& epilogue) override {
    cpu::tree_reduce(inputs, epilogue);
  }
  void combine(std::vector<View> inputs, ReduceOp op, View to) override {
    cpu::combine(inputs, op, to);
  }
  void barrier() override { round_.barrier(); }
};

/// Enqueues on a device's queue. Peers wait for each rank's events: one recorded on arrival,
/// another at each barrier.
class EnqueuedOps final : public PeerOps {
 public:
  EnqueuedOps(Group::Round& round, Stream& stream) : PeerOps(round), stream_(stream) {
    wait_for_peers();
  }

  void copy(View from, View to) override {
    if (to.empty() || from.data() == to.data()) return;
    kernels_of(to).convert(stream_, from, to);
  }
  void tree_reduce(std::vector<View> inputs, const ReduceEpilogue& epilogue) override {
    if (epilogue.destination.empty()) return;
    kernels_of(epilogue.destination).tree_reduce(stream_, std::move(inputs), epilogue);
  }
  void combine(std::vector<View> inputs, ReduceOp op, View to) override {
    if (!to.empty()) kernels_of(to).combine(stream_, std::move(inputs), op, to);
  }
  void barrier() override {
    own().events->at(++reached_) = stream_.record();
    round_.barrier();
    wait_for_peers();
  }

 private:
  void wait_for_peers() {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) stream_.wait(of(peer).events->at(reached_));
    }
  }

  Kernels& kernels_of(const View& view) const {
    ZERO_CHECK(view.device() != nullptr,
               "[rank {}] {}: a view is of host memory, expected memory of the device whose stream "
               "it is; for values of the host there is host_all_reduce",
               rank(), own().name);
    return view.device()->kernels();
  }

  Stream& stream_;
  std::size_t reached_ = 0;
};

}  // namespace

void submit_round(Stream& stream, std::shared_ptr<Group> group, int rank, Call call, Body body) {
  if (stream.enqueues()) {
    call.events = std::make_shared<Call::Events>();
    call.events->front() = stream.record();
    return group->run_round(rank, std::move(call), [&](Group::Round& round) {
      EnqueuedOps ops(round, stream);
      body(ops);
      ops.barrier();  // peers may read this rank's memory until they are done
    });
  }
  const std::string name = call.name;
  stream.submit(name,
                [group = std::move(group), rank, call = std::move(call), body = std::move(body)] {
                  group->run_round(rank, call, [&](Group::Round& round) {
                    ImmediateOps ops(round);
                    body(ops);
                  });
                });
}

}  // namespace zero::local

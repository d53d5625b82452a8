// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "collectives/communicator.h"

namespace zero {

/// A backend that passes every call on to another: others derive from it to delay, fail or alter
/// some of them. A split gives a part of `inner`, about which this object knows nothing.
class ForwardingBackend : public CollectiveBackend {
 public:
  explicit ForwardingBackend(std::shared_ptr<CollectiveBackend> inner)
      : CollectiveBackend(inner->context()), inner_(std::move(inner)) {
    set_members(inner_->members());
  }
  explicit ForwardingBackend(const Communicator& inner)
      : ForwardingBackend(inner.implementation()) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int local_rank() const override { return inner_->local_rank(); }
  int local_size() const override { return inner_->local_size(); }
  BackendKind kind() const override { return inner_->kind(); }
  BackendKind run_kind() const override { return inner_->run_kind(); }
  std::string_view description() const override { return inner_->description(); }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    return inner_->split(color, key);
  }
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override {
    return inner_->allocate(device, count, dtype, memory_class, label);
  }
  Buffer allocate_symmetric(Device& device, std::int64_t count, DType dtype,
                            MemoryClass memory_class, std::string_view label) override {
    return inner_->allocate_symmetric(device, count, dtype, memory_class, label);
  }
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override {
    return inner_->allocate_shared(device, count, dtype, memory_class, label);
  }
  Store& store() override { return inner_->store(); }

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    inner_->all_gather(mine, full, stream, tag);
  }
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override {
    inner_->reduce_scatter(full, epilogue, workspace, stream, tag);
  }
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override {
    inner_->all_reduce(values, op, stream, tag);
  }
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override {
    inner_->all_to_all(send, receive, stream, tag);
  }
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override {
    inner_->broadcast(values, root, stream, tag);
  }
  void barrier(Stream& stream, const Tag& tag) override { inner_->barrier(stream, tag); }

 private:
  std::shared_ptr<CollectiveBackend> inner_;
};

}  // namespace zero

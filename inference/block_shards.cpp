// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/block_shards.h"

namespace zero {

BlockShards::BlockShards(Device& device, Communicator* group, const BlockFile::Size& size,
                         const TierFileOptions& file) {
  if (!file.folder.empty()) {
    file_.emplace(device, file, size);
    return;
  }
  const auto take = [&](auto& memory, auto&... of) {
    return memory.allocate(of..., size.bytes, DType::u8, MemoryClass::parameters, "matrices");
  };
  for (std::int64_t i = 0; i < size.blocks; ++i) {
    kept_.push_back(group == nullptr ? take(device) : take(*group, device));
  }
}

void BlockShards::open() {
  if (file_) file_->open();
}

void BlockShards::load(std::int64_t i, const std::function<void(const View& shard)>& fill) {
  if (file_) return file_->store(i, fill);
  fill(kept_[static_cast<std::size_t>(i)].view());
}

void BlockShards::finish_loading() {
  if (file_) file_->finish_storing();
}

void BlockShards::fetch() {
  if (file_) file_->fetch();
}

View BlockShards::use(std::int64_t i, Stream& user) {
  return file_ ? file_->use(i, user) : kept_[static_cast<std::size_t>(i)].view();
}

void BlockShards::release(Stream& user) noexcept {
  if (file_) file_->release(user);
}

}  // namespace zero

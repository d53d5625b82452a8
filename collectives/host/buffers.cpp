// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/buffers.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "base/checked_math.h"

namespace zero::host {
namespace {

/// Allocations from this size on are shared with the host's ranks; smaller values travel behind the
/// header of a call.
constexpr std::int64_t kShared = ControlBlock::kInlineBytes + 1;

std::int64_t bytes_of(const BufferRequest& request) {
  return checked_mul(std::max<std::int64_t>(request.count, 0), size_of(request.dtype));
}

Buffer buffer_at(void* data, const BufferRequest& r, std::function<void(void*)> free) {
  return {{data, r.count, r.dtype, &r.device},
          r.memory_class,
          std::string(r.label),
          r.device.ledger(),
          std::move(free)};
}

}  // namespace

Buffer region_buffer(const std::shared_ptr<Memory>& memory, const BufferRequest& request) {
  const std::int64_t bytes = bytes_of(request);
  if (memory && bytes >= kShared && request.device.name() == "cpu") {
    if (void* const data = memory->region().allocate(bytes)) {
      return buffer_at(data, request,
                       [memory, bytes](void* place) { memory->region().free(place, bytes); });
    }
  }
  return request.device.allocate(request.count, request.dtype, request.memory_class, request.label);
}

std::optional<Buffer> shared_buffer(Group& group, const Group::AllGatherTexts& all_gather_texts,
                                    const BufferRequest& request) {
  const std::int64_t bytes = bytes_of(request);
  if (bytes == 0) return std::nullopt;
  const std::string refusal =
      request.device.name() == "cpu" ? "" : "a rank's device is not the CPU";
  const auto mapping = group.allocate_shared(bytes, refusal, all_gather_texts);
  if (!mapping) return std::nullopt;
  return buffer_at(mapping->data(), request, [user = mapping](void*) { static_cast<void>(user); });
}

}  // namespace zero::host

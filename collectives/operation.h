// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

enum class Operation : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  barrier
};
inline constexpr std::size_t kOperations = 6;
std::string_view name_of(Operation operation);

/// What a collective is for. `purpose`, the name of a unit or a text as "gradient norm", stands in
/// errors, records and traces; `counted_as` is the kind of traffic that its bytes count as: stage
/// 0's reduce and gather of a gradient are one all-reduce.
struct Tag {
  std::string purpose;
  std::optional<Operation> counted_as{};
};

/// "all_gather(h.3)"
std::string call_name(Operation operation, std::string_view purpose);
/// "[rank 3] all_gather(h.3)": how errors name a call.
std::string call_name(int rank, Operation operation, std::string_view purpose);

/// Bytes one rank has sent, per kind of traffic.
class TrafficCounter {
 public:
  void add(Operation counted_as, std::int64_t bytes) {
    bytes_[static_cast<std::size_t>(counted_as)] += bytes;
  }
  void add(const TrafficCounter& other) {
    for (std::size_t i = 0; i < kOperations; ++i) bytes_[i] += other.bytes_[i];
  }
  std::int64_t of(Operation operation) const { return bytes_[static_cast<std::size_t>(operation)]; }
  std::int64_t total() const {
    return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
  }
  TrafficCounter since(const TrafficCounter& earlier) const {
    TrafficCounter difference = *this;
    for (std::size_t i = 0; i < kOperations; ++i) difference.bytes_[i] -= earlier.bytes_[i];
    return difference;
  }

 private:
  std::array<std::int64_t, kOperations> bytes_{};
};

}  // namespace zero

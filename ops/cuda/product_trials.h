// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace zero::cuda {

/// What one kernel for a product took, and the digest of all that it wrote.
struct ProductTrial {
  double seconds = 0;
  std::uint64_t bits = 0;
};

/// The fastest of `trials` among those with the bits of the first: the choice changes the time of a
/// product and never its result, so ranks and runs need not choose alike. The first, unless another
/// saves a fiftieth: less may be noise. There is at least one trial.
std::size_t fastest_of_equals(std::span<const ProductTrial> trials);

inline constexpr std::int64_t kDigestBytes = 2048;  ///< of scratch that digest() takes

/// A number of `bytes` bytes of device memory, a multiple of 2; others give another, but for
/// chance. `scratch`: kDigestBytes of device memory. Waits until `stream` has come to it; must not
/// be called while `stream` is captured.
std::uint64_t digest(cudaStream_t stream, const void* data, std::int64_t bytes, void* scratch);

}  // namespace zero::cuda

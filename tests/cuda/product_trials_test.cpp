// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Which of several kernels a product takes, and the digest that says which give the same bits: on
// an emulated GPU and on a real one.
#include "ops/cuda/product_trials.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <set>
#include <vector>

#include "device/cuda/stream.h"
#include "tests/cuda/on_device.h"
#include "tests/errors.h"

namespace zero::cuda {
namespace {

TEST(ProductTrials, TheFastestKernelWithTheBitsOfTheFirstIsTaken) {
  const std::array<ProductTrial, 4> trials{{{2.0, 7}, {0.5, 8}, {1.5, 7}, {1.4, 7}}};
  EXPECT_EQ(fastest_of_equals(trials), 3U) << "the second is faster, but gives other bits";
}

TEST(ProductTrials, TheFirstKernelStaysUnlessAnotherSavesAFiftieth) {
  EXPECT_EQ(fastest_of_equals(std::array<ProductTrial, 2>{{{2.0, 7}, {1.97, 7}}}), 0U);
  EXPECT_EQ(fastest_of_equals(std::array<ProductTrial, 2>{{{2.0, 7}, {1.95, 7}}}), 1U);
  EXPECT_EQ(fastest_of_equals(std::array<ProductTrial, 1>{{{2.0, 7}}}), 0U);
}

class ProductDigest : public OnDevice {
 protected:
  std::uint64_t digest_of(const HostValues& values) {
    const View there = upload(values.view);
    const Buffer scratch =
        device_->allocate(kDigestBytes, DType::u8, MemoryClass::other, "scratch of a digest");
    return digest(native(device_->compute()), there.data(), there.bytes(), scratch.view().data());
  }
};

TEST_F(ProductDigest, ChangesWithAnyBitAndWithThePlaceOfAnyElement) {
  for (const std::int64_t count : {1, 3, 256, 100003}) {
    HostValues values(count, DType::bf16);
    for (std::size_t i = 0; i < values.bytes.size(); ++i) {
      values.bytes[i] = static_cast<std::byte>(i * i % 251);
    }
    std::set<std::uint64_t> seen{digest_of(values)};
    EXPECT_EQ(digest_of(values), *seen.begin()) << "the same bytes";
    const std::size_t last = values.bytes.size() - 1;
    for (const std::size_t at : std::set<std::size_t>{0, last / 2, last}) {
      values.bytes[at] ^= std::byte{1};
      seen.insert(digest_of(values));
      values.bytes[at] ^= std::byte{1};
    }
    EXPECT_EQ(seen.size(), 1 + (std::set<std::size_t>{0, last / 2, last}).size()) << count;
    if (count < 256) continue;
    std::swap(values.bytes[10], values.bytes[20]);
    std::swap(values.bytes[11], values.bytes[21]);
    EXPECT_FALSE(seen.contains(digest_of(values))) << "two elements of " << count << " swapped";
  }
}

TEST_F(ProductDigest, OfAnOddNumberOfBytesIsRefused) {
  EXPECT_EQ(error_of([&] { digest(native(device_->compute()), nullptr, 3, nullptr); }),
            "cuda: a digest of 3 bytes; expected a multiple of 2");
}

}  // namespace
}  // namespace zero::cuda

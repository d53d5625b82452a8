// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "bench/product_probe.h"

namespace zero::bench {

struct ProductProbe::Operands {};

void limit_onednn(const Environment& /*environment*/) {}

bool ProductProbe::available(DType /*dtype*/) { return false; }

ProductProbe::ProductProbe(const ProbeShape& /*shape*/, DType /*dtype*/, Layout /*layout*/,
                           int /*threads*/)
    : threads_(0) {
  fail(
      "this build has no oneDNN to measure beside; launch/install_packages.sh test brings it, then "
      "configure with -DZERO_ONEDNN=ON");
}

ProductProbe::~ProductProbe() = default;

void ProductProbe::run() {}

}  // namespace zero::bench

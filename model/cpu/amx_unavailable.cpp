// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/amx_product.h"

namespace zero::cpu {

std::unique_ptr<Product> make_amx_product(const ProductShape& /*shape*/, int /*threads*/) {
  return nullptr;  // oneDNN's will do
}

}  // namespace zero::cpu

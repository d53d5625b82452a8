// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace zero::testing {

/// A value for every element of tensors, by the tensor's number.
using ElementValue = std::function<float(std::size_t tensor, std::int64_t element)>;

/// Parameters of these shapes, of which an engine has one unit.
struct Tensors {
  std::vector<ParameterSpec> specs;
  DType compute = DType::fp32;  ///< the dtype of frozen ones
};

/// Runs `body` on ranks as threads, each with a sealed engine of stage 3 with the tensors; gives
/// error_of() what each met.
std::vector<std::string> errors_of(int world, const Tensors& tensors,
                                   const std::function<void(Engine&)>& body);
/// Sets every element. Collective.
void fill(Engine& engine, const Tensors& tensors, const ElementValue& value);
/// Whether every element has that value, on all ranks. Collective.
bool holds(Engine& engine, const Tensors& tensors, const ElementValue& value);

/// A value for every element: some of any sign, exact in every dtype.
float some_value(std::size_t tensor, std::int64_t element);

}  // namespace zero::testing

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace zero {

/// A tensor's shape in messages: "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace zero

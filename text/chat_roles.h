// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace zero {

/// Roles that a template may make tokens of, as "<|" + role + "|>"; other roles are content.
inline constexpr std::array<std::string_view, 8> kChatRoles{
    "system", "user", "assistant", "tool", "developer", "function", "model", "ipython"};

}  // namespace zero

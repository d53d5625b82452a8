// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace zero {

/// Bytes of a digest, and of a nonce.
inline constexpr std::size_t kDigestBytes = 32;

/// HMAC-SHA256 of `text` under `key`: kDigestBytes bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Whether both are the same bytes. The time depends on the lengths alone.
bool same_digest(std::string_view one, std::string_view other);

/// kDigestBytes bytes that nobody can foretell, for use once. Throws zero::Error if the system has
/// no randomness.
std::string fresh_nonce();

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace zero {

/// HMAC-SHA256 of `text` under `key`: 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// A secret known only to the processes of one job. Keys follow from it by HMACs, so the
/// secret itself is never sent. No message shows it.
class JobSecret {
 public:
  static constexpr std::size_t kLeastBytes = 16;
  static constexpr std::size_t kMostBytes = 4096;

  /// `source` names the origin of the bytes in messages. Throws zero::Error unless there are
  /// kLeastBytes to kMostBytes.
  JobSecret(std::string bytes, std::string_view source);
  /// The content of a file, without the end of its last line (LF or CR LF). Throws zero::Error
  /// unless the file is a regular file of this user that nobody else may read or write.
  static JobSecret of_file(const std::string& path);
  /// Replaces the secret in a job that has none: proves nothing, because everybody knows it.
  static JobSecret known_to_all();

  /// HMAC-SHA256 of `text` under the secret.
  std::string hmac(std::string_view text) const;

 private:
  std::string bytes_;
};

/// The remedy for a missing secret, appended to messages.
inline constexpr std::string_view kMakeJobSecret =
    "make one once, export ZERO_JOB_SECRET=$(openssl rand -hex 32), and give all ranks the same "
    "value, or a file of it, of mode 0600, in ZERO_JOB_SECRET_FILE";

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {
namespace {

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string digest(kDigestBytes, '\0');
  const bool done = ::HMAC(::EVP_sha256(), key.data(), narrow<int>(std::ssize(key)), bytes_of(text),
                           text.size(), bytes_of(digest), nullptr) != nullptr;
  ZERO_CHECK(done, "OpenSSL computes no HMAC-SHA256 here; its configuration may forbid it");
  return digest;
}

bool same_digest(std::string_view one, std::string_view other) {
  return one.size() == other.size() && ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::string fresh_nonce() {
  std::string nonce(kDigestBytes, '\0');
  ZERO_CHECK(::RAND_bytes(bytes_of(nonce), narrow<int>(std::ssize(nonce))) == 1,
             "OpenSSL has no random bytes; check the system's random number generator");
  return nonce;
}

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace zero {
namespace {

namespace ssl = boost::asio::ssl;

constexpr const char* kIdentity = "zero-store";
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";  // of the hash that pre-shared keys have

/// Where a context keeps its StoreTls' key.
int key_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

unsigned copy_key(SSL* connection, unsigned char* to, unsigned most) {
  const auto* key = static_cast<const std::string*>(
      SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), key_index()));
  if (key == nullptr || key->size() > most) return 0;
  std::ranges::copy(*key, to);
  return static_cast<unsigned>(key->size());
}

unsigned server_key(SSL* connection, const char* identity, unsigned char* key, unsigned most) {
  return std::strcmp(identity, kIdentity) == 0 ? copy_key(connection, key, most) : 0;
}

unsigned client_key(SSL* connection, const char* /*hint*/, char* identity, unsigned most_identity,
                    unsigned char* key, unsigned most) {
  if (std::strlen(kIdentity) >= most_identity) return 0;
  std::strcpy(identity, kIdentity);
  return copy_key(connection, key, most);
}

ssl::context context_of(StoreTls::End end) {
  try {
    return ssl::context(end == StoreTls::End::server ? ssl::context::tls_server
                                                     : ssl::context::tls_client);
  } catch (const boost::system::system_error& error) {  // which a client would take for silence
    fail("OpenSSL cannot start: {}", error.code().message());
  }
}

}  // namespace

StoreTls::StoreTls(const JobSecret& secret, End end)
    : key_(secret.hmac("zero: the key of a store's TLS")), context_(context_of(end)) {
  SSL_CTX* const handle = context_.native_handle();
  const bool done = SSL_CTX_set_ex_data(handle, key_index(), &key_) == 1 &&
                    SSL_CTX_set_min_proto_version(handle, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(handle, kCipher) == 1 &&
                    SSL_CTX_set_num_tickets(handle, 0) == 1;  // a connection is not resumed
  ZERO_CHECK(done, "OpenSSL cannot do TLS 1.3 with {}", kCipher);
  SSL_CTX_set_session_cache_mode(handle, SSL_SESS_CACHE_OFF);
  if (end == End::server) {
    SSL_CTX_set_psk_server_callback(handle, server_key);
  } else {
    SSL_CTX_set_psk_client_callback(handle, client_key);
    // A server that passes the key over would have to show a certificate: none is trusted.
    context_.set_verify_mode(ssl::verify_peer);
  }
}

HandshakeFailure failure_of(const boost::system::error_code& error) {
  if (error.category() != boost::asio::error::get_ssl_category()) {
    return HandshakeFailure::connection;
  }
  // The server finds that the client's proof is wrong, and tells the client by this alert.
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  const bool proof = reason == SSL_R_BINDER_DOES_NOT_VERIFY ||
                     reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
                     reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR;  // from OpenSSL 3.4 on
  return proof ? HandshakeFailure::other_secret : HandshakeFailure::other_protocol;
}

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/handshake.h"

#include "base/error.h"
#include "launch/rendezvous/job_secret.h"

namespace zero::store_wire {
namespace {

constexpr std::string_view kProven = "proven";
constexpr std::string_view kUnproven = "unproven";

/// The values exchanged by both ends, covered by every HMAC of a handshake.
struct Transcript {
  const JobSecret& secret;
  Identity identity;
  std::string_view server_nonce;
  std::string_view client_nonce;

  // A length precedes each part, so two different transcripts never have the same bytes.
  std::string hmac(std::string_view purpose) const {
    return secret.hmac(
        body_of({std::string(purpose), std::string(kMagic), std::to_string(identity.rank),
                 std::to_string(identity.world), identity.job, std::string(server_nonce),
                 std::string(client_nonce)}));
  }
  std::string proof_of_server() const { return hmac("proof of the server"); }
  std::string proof_of_client() const { return hmac("proof of the client"); }
  std::string key_of_server() const { return hmac("key of what the server sends"); }
  std::string key_of_client() const { return hmac("key of what the client sends"); }
};

std::string tag(const std::string& key, std::uint64_t count, std::string_view body) {
  std::string text(reinterpret_cast<const char*>(&count), sizeof count);
  return hmac_sha256(key, text.append(body));
}

void check_nonce(const std::string& nonce) {
  ZERO_CHECK(nonce.size() == kDigestBytes, "a handshake with a nonce of {} bytes, expected {}",
             nonce.size(), kDigestBytes);
}

}  // namespace

std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most) {
  const auto value = whole_number(text, least, most);
  ZERO_CHECK(value.has_value(), "{} bytes that are no whole number from {} to {}", text.size(),
             least, most);
  return *value;
}

std::string Channel::sealed(const Message& message) {
  const std::string body = body_of(message);
  return framed_body(tag(sending_key_, sent_++, body) + body);
}

Message Channel::opened(std::string_view body) {
  ZERO_CHECK(body.size() >= kDigestBytes, "a message without its seal");
  const std::string_view text = body.substr(kDigestBytes);
  ZERO_CHECK(same_digest(body.substr(0, kDigestBytes), tag(receiving_key_, received_++, text)),
             "a message that was changed or put in on its way");
  return unframed(text);
}

std::string ServerHandshake::challenge() const { return framed({std::string(kMagic), nonce_}); }

std::optional<ServerHandshake::Accepted> ServerHandshake::verify(std::string_view body) const {
  const Message answer = unframed(body);
  ZERO_CHECK(answer.size() == 6 && answer[0] == kMagic,
             "not the handshake of a rank of this program");
  check_nonce(answer[4]);
  ZERO_CHECK(answer[3].size() <= kMostJobBytes,
             "a handshake of a job whose name has {} bytes, expected at most {}", answer[3].size(),
             kMostJobBytes);
  const int world = static_cast<int>(number(answer[2], 1, kMostRanks));
  const Identity identity{
      .rank = static_cast<int>(number(answer[1], 0, world - 1)), .world = world, .job = answer[3]};
  const Transcript transcript{secret_, identity, nonce_, answer[4]};
  if (!same_digest(answer[5], transcript.proof_of_client())) return std::nullopt;
  return Accepted{identity, framed({std::string(kProven), transcript.proof_of_server()}),
                  Channel(transcript.key_of_server(), transcript.key_of_client())};
}

std::string ServerHandshake::refusal() { return framed({std::string(kUnproven)}); }

std::string ClientHandshake::answer(std::string_view challenge) {
  const Message hello = unframed(challenge);
  ZERO_CHECK(hello.size() == 2 && hello[0] == kMagic,
             "found another protocol, expected {}; all ranks must run one version of the "
             "program",
             kMagic);
  check_nonce(hello[1]);
  server_nonce_ = hello[1];
  const Transcript transcript{secret_, identity_, server_nonce_, nonce_};
  return framed({std::string(kMagic), std::to_string(identity_.rank),
                 std::to_string(identity_.world), identity_.job, nonce_,
                 transcript.proof_of_client()});
}

std::optional<Channel> ClientHandshake::finish(std::string_view body) const {
  const Message verdict = unframed(body);
  if (verdict.size() == 1 && verdict[0] == kUnproven) return std::nullopt;
  ZERO_CHECK(verdict.size() == 2 && verdict[0] == kProven, "found no end of a handshake");
  const Transcript transcript{secret_, identity_, server_nonce_, nonce_};
  if (!same_digest(verdict[1], transcript.proof_of_server())) return std::nullopt;
  return Channel(transcript.key_of_client(), transcript.key_of_server());
}

}  // namespace zero::store_wire

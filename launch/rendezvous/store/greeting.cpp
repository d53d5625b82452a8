// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/greeting.h"

#include <charconv>

#include "base/error.h"
#include "launch/rendezvous/digest.h"

namespace zero::store_wire {
namespace {

constexpr std::string_view kProven = "proven";
constexpr std::string_view kUnproven = "unproven";

/// What one greeting has agreed on: the ground of all its HMACs.
struct Transcript {
  const JobSecret& secret;
  Caller caller;
  std::string_view server_nonce;
  std::string_view caller_nonce;

  // Every part stands behind its length: no two transcripts are the same bytes.
  std::string hmac(std::string_view purpose) const {
    return secret.hmac(body_of({std::string(purpose), std::string(kMagic),
                                std::to_string(caller.rank), std::to_string(caller.world),
                                caller.job, std::string(server_nonce), std::string(caller_nonce)}));
  }
  std::string proof_of_server() const { return hmac("proof of the server"); }
  std::string proof_of_caller() const { return hmac("proof of the caller"); }
  std::string key_of_server() const { return hmac("key of what the server sends"); }
  std::string key_of_caller() const { return hmac("key of what the caller sends"); }
};

std::string tag(const std::string& key, std::uint64_t count, std::string_view body) {
  std::string text;
  text.reserve(sizeof count + body.size());
  for (unsigned byte = 0; byte < sizeof count; ++byte) {
    text.push_back(static_cast<char>((count >> (8 * byte)) & 0xffU));
  }
  text += body;
  return hmac_sha256(key, text);
}

void check_nonce(const std::string& nonce) {
  ZERO_CHECK(nonce.size() == kDigestBytes, "a greeting with a nonce of {} bytes, expected {}",
             nonce.size(), kDigestBytes);
}

}  // namespace

std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  ZERO_CHECK(error == std::errc{} && end == last && value >= least && value <= most,
             "{} bytes that are no whole number from {} to {}", text.size(), least, most);
  return value;
}

std::string Session::sealed(const Message& message) {
  const std::string body = body_of(message);
  return framed_body(tag(sending_key_, sent_++, body) + body);
}

Message Session::opened(std::string_view body) {
  ZERO_CHECK(body.size() >= kDigestBytes, "a message without its seal");
  const std::string_view text = body.substr(kDigestBytes);
  ZERO_CHECK(same_digest(body.substr(0, kDigestBytes), tag(receiving_key_, received_++, text)),
             "a message that was changed or put in on its way");
  return unframed(text);
}

std::string ServerGreeting::banner() const { return framed({std::string(kMagic), nonce_}); }

std::optional<ServerGreeting::Welcome> ServerGreeting::judge(std::string_view body) const {
  const Message answer = unframed(body);
  ZERO_CHECK(answer.size() == 6 && answer[0] == kMagic, "not the greeting of a rank of ours");
  check_nonce(answer[4]);
  ZERO_CHECK(answer[3].size() <= kMostJobBytes,
             "a greeting of a job whose name has {} bytes, expected at most {}", answer[3].size(),
             kMostJobBytes);
  const int world = static_cast<int>(number(answer[2], 1, kMostRanks));
  const Caller caller{
      .rank = static_cast<int>(number(answer[1], 0, world - 1)), .world = world, .job = answer[3]};
  const Transcript transcript{secret_, caller, nonce_, answer[4]};
  if (!same_digest(answer[5], transcript.proof_of_caller())) return std::nullopt;
  return Welcome{caller, framed({std::string(kProven), transcript.proof_of_server()}),
                 Session(transcript.key_of_server(), transcript.key_of_caller())};
}

std::string ServerGreeting::refusal() { return framed({std::string(kUnproven)}); }

std::string CallerGreeting::answer(std::string_view banner) {
  const Message hello = unframed(banner);
  ZERO_CHECK(hello.size() == 2 && hello[0] == kMagic,
             "found a greeting that is none, expected {}; all ranks must run one version of the "
             "program",
             kMagic);
  check_nonce(hello[1]);
  server_nonce_ = hello[1];
  const Transcript transcript{secret_, caller_, server_nonce_, nonce_};
  return framed({std::string(kMagic), std::to_string(caller_.rank), std::to_string(caller_.world),
                 caller_.job, nonce_, transcript.proof_of_caller()});
}

std::optional<Session> CallerGreeting::conclude(std::string_view body) const {
  const Message verdict = unframed(body);
  if (verdict.size() == 1 && verdict[0] == kUnproven) return std::nullopt;
  ZERO_CHECK(verdict.size() == 2 && verdict[0] == kProven, "found no end of a greeting");
  const Transcript transcript{secret_, caller_, server_nonce_, nonce_};
  if (!same_digest(verdict[1], transcript.proof_of_server())) return std::nullopt;
  return Session(transcript.key_of_caller(), transcript.key_of_server());
}

}  // namespace zero::store_wire

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What clients that know the secret may ask of a job's store, and when: three connections, whose
// bytes come in pieces and in any order, of which some end. Each piece has two bytes before it: the
// connection and what becomes of it, and how many bytes come. Whatever they are, the store's
// answers are messages, a value is the one that was set last, and a rank is lost only if its
// connection ended without a goodbye.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "launch/rendezvous/store/state.h"
#include "launch/rendezvous/store/wire.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace zero;
using namespace zero::store_wire;

constexpr int kWorld = 3;

/// A store and what it must know.
struct Model {
  StoreState state{kWorld, "", 1U << 16U};
  std::map<std::string, std::string> values;
  bool may_have_lost = false;
};

void expect_words(const Message& answer, std::initializer_list<std::string_view> allowed) {
  fuzz::expect(std::ranges::find(allowed, answer.at(0)) != allowed.end(),
               "an answer is one of its request's");
}

/// One connection, as the server treats it: an introduction, then requests; a wait holds the next
/// one up.
class Session {
 public:
  explicit Session(Model& model) : model_(&model) {}

  /// Ends at what is no message or no request, as a connection does.
  void take(std::string_view bytes) {
    if (ended_) return;
    try {
      incoming_.append(bytes);
      while (!wait_) {
        const auto body = incoming_.next();
        if (!body) return;
        if (client_) {
          obey(unframed(*body));
        } else {
          meet(unframed(*body));
        }
      }
    } catch (const Error&) {
      end();
    }
  }

  /// A key has come, or the wait's time is over.
  void look(StoreState::Time time) {
    settle(time);
    take("");
  }

  void end() {
    if (ended_) return;
    ended_ = true;
    if (!client_) return;
    if (client_->is_rank) model_->may_have_lost = true;
    model_->state.gone(*client_, PeerLoss::ended);
  }

 private:
  void settle(StoreState::Time time) {
    if (ended_ || !wait_) return;
    const auto reply = model_->state.answer(*wait_, time);
    fuzz::expect(reply || (time == StoreState::Time::left && is_missing(wait_->missing())),
                 "a wait is answered once its keys are set or its time is over");
    if (!reply) return;
    check_wait(*reply);
    wait_.reset();
  }

  bool is_missing(const std::string& key) const { return !model_->values.contains(key); }

  void meet(const Message& message) {
    const Identity identity = introduced(message);
    fuzz::expect(identity.rank < identity.world, "a client is a rank of its world");
    const Identity again = introduced(introduction_of(identity));
    fuzz::expect(
        again.rank == identity.rank && again.world == identity.world && again.job == identity.job,
        "an introduction is read as it was written");
    client_ = StoreState::Client{.identity = identity};
    incoming_.allow(kLargest);
  }

  void obey(const Message& request) {
    auto outcome = model_->state.obey(request, *client_);
    if (auto* const wait = std::get_if<StoreState::Wait>(&outcome)) {
      wait_ = std::move(*wait);
      return settle(StoreState::Time::left);
    }
    const auto& answer = std::get<Message>(outcome);
    fuzz::expect(unframed(body_of(answer)) == answer, "an answer is a message");
    const std::string& verb = request[0];
    if (verb == "set") {
      expect_words(answer, {"ok", "refused"});
      if (answer[0] == "ok") model_->values.insert_or_assign(request[1], request[2]);
    } else if (verb == "hello") {
      expect_words(answer, {"ok", "refused"});
      fuzz::expect(answer[0] == "refused" || client_->is_rank, "a welcome client is a rank");
    } else if (verb == "lost?") {
      check_lost(answer, "ok");
    } else {
      fuzz::expect(verb == "bye" && answer == Message{"ok"} && !client_->is_rank,
                   "a rank that says goodbye is none");
    }
  }

  void check_lost(const Message& answer, std::string_view otherwise) const {
    expect_words(answer, {"lost", otherwise});
    fuzz::expect(answer[0] != "lost" || model_->may_have_lost,
                 "a rank is lost only if it left without a goodbye");
  }

  void check_wait(const Message& answer) const {
    fuzz::expect(unframed(body_of(answer)) == answer, "an answer to a wait is a message");
    const Message& keys = wait_->keys;
    if (std::ranges::none_of(keys, [&](const auto& key) { return is_missing(key); })) {
      if (!wait_->wants_values) return fuzz::expect(answer == Message{"ok"}, "a wait ends well");
      expect_words(answer, {"values"});
      fuzz::expect(answer.size() >= 2 && answer.size() - 1 <= keys.size(), "there are values");
      for (std::size_t i = 1; i < answer.size(); ++i) {
        fuzz::expect(answer[i] == model_->values.at(keys[i - 1]), "a value is the last one set");
      }
      return;
    }
    check_lost(answer, "missing");
    Message missing;
    std::ranges::copy_if(keys, std::back_inserter(missing),
                         [&](const auto& key) { return is_missing(key); });
    fuzz::expect(answer.size() == missing.size() + 2 &&
                     std::equal(missing.begin(), missing.end(), answer.begin() + 2),
                 "an answer names the keys that are missing");
  }

  Model* model_;
  FrameReader incoming_{kLargestIntroduction};
  std::optional<StoreState::Client> client_;
  std::optional<StoreState::Wait> wait_;
  bool ended_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kSessions = 3;
  std::string_view bytes = fuzz::text_of(data, size);
  Model model;
  std::vector<Session> sessions(kSessions, Session(model));
  while (bytes.size() >= 2) {
    const auto what = static_cast<unsigned char>(bytes[0]);
    const std::size_t length = static_cast<unsigned char>(bytes[1]);
    bytes.remove_prefix(2);
    Session& session = sessions[what % kSessions];
    session.take(bytes.substr(0, length));
    bytes.remove_prefix(std::min(length, bytes.size()));
    for (Session& other : sessions) other.look(StoreState::Time::left);
    switch (what / kSessions % 4) {
      case 0:
        session.look(StoreState::Time::over);
        break;
      case 1:
        session.end();
        break;
      default:
        break;
    }
  }
  for (Session& session : sessions) session.end();
  return 0;
}

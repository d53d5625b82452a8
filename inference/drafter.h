// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "inference/sampler.h"
#include "inference/scheduler.h"

namespace zero {

/// Guesses the next tokens of requests, so that the model reads several tokens of a request in one
/// pass (speculative decoding). A guess is kept only as far as it is what the model and the
/// request's sampling choose: no answer depends on it.
class Drafter {
 public:
  /// A request whose next tokens are guessed.
  struct Draft {
    RequestId request = 0;
    std::span<const std::uint32_t> tokens{};  ///< prompt and generated
    const Sampling* sampling = nullptr;
    std::int64_t most = 0;                 ///< tokens to guess, at most
    std::vector<std::uint32_t> guessed{};  ///< what propose() gives
  };
  virtual ~Drafter() = default;
  Drafter() = default;
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;

  /// Sets `guessed` of each, each request at most once; may leave it empty.
  virtual void propose(std::span<Draft> drafts) = 0;
  /// The request has ended.
  virtual void end(RequestId request) = 0;
};

/// Guesses what followed the last time that a request's last tokens stood in its prompt or answer
/// (prompt lookup decoding): worth its passes where answers repeat their prompts.
class NgramDrafter final : public Drafter {
 public:
  void propose(std::span<Draft> drafts) override;
  void end(RequestId /*request*/) override {}

 private:
  static constexpr std::size_t kLongest = 4;  // tokens that are looked for
};

/// Guesses what a smaller model of the same vocabulary would choose.
class ModelDrafter final : public Drafter {
 public:
  /// `model` must outlive the drafter, which alone uses its cache. Requests beyond its slots, its
  /// context or the free blocks of its cache get no guess.
  explicit ModelDrafter(InferenceModel& model) : model_(model), sampler_(model.vocabulary()) {}

  void propose(std::span<Draft> drafts) override;
  void end(RequestId request) override;

 private:
  /// A request in the model's cache.
  struct Sequence {
    std::int64_t slot = 0;
    std::vector<std::uint32_t> read{};  // tokens in the cache
  };
  /// A draft under way.
  struct Guess {
    Draft* draft = nullptr;
    Sequence* sequence = nullptr;
    std::vector<std::uint32_t> tokens{};  // the request's and those guessed
  };
  std::vector<Guess> begin(std::span<Draft> drafts);
  void extend(std::vector<Guess>& guesses);
  bool choose(Guess& guess, std::span<const float> logits);

  InferenceModel& model_;
  Sampler sampler_;
  std::map<RequestId, Sequence> sequences_;
};

}  // namespace zero

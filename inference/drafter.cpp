// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/drafter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zero {

void NgramDrafter::propose(std::span<Draft> drafts) {
  for (Draft& draft : drafts) {
    const std::span<const std::uint32_t> tokens = draft.tokens;
    for (std::size_t n = std::min(kLongest, tokens.size() - 1); n > 0; --n) {
      const auto last = tokens.last(n);
      const auto before = tokens.first(tokens.size() - 1);
      const auto found = std::find_end(before.begin(), before.end(), last.begin(), last.end());
      if (found == before.end()) continue;
      const auto next = static_cast<std::size_t>(found - before.begin()) + n;
      const std::size_t count =
          std::min(tokens.size() - next, static_cast<std::size_t>(draft.most));
      const auto guessed = tokens.subspan(next, count);
      draft.guessed.assign(guessed.begin(), guessed.end());
      break;
    }
  }
}

void ModelDrafter::end(RequestId request) {
  const auto at = sequences_.find(request);
  if (at == sequences_.end()) return;
  model_.cache().close(at->second.slot);
  sequences_.erase(at);
}

// What the cache holds of earlier guesses that were wrong is forgotten. Only once all have been
// opened and trimmed is it known how many blocks are left: requests beyond them get no guess.
std::vector<ModelDrafter::Guess> ModelDrafter::begin(std::span<Draft> drafts) {
  std::vector<Guess> guesses;
  KeyValueCache& cache = model_.cache();
  for (Draft& draft : drafts) {
    draft.most = std::min(draft.most, cache.tokens() - std::ssize(draft.tokens));
    if (draft.most <= 0) continue;
    auto at = sequences_.find(draft.request);
    if (at == sequences_.end()) {
      if (cache.free_slots() == 0) continue;
      const std::int64_t slot = cache.open(draft.tokens);
      const auto known = draft.tokens.first(static_cast<std::size_t>(cache.length(slot)));
      at = sequences_.emplace(draft.request, Sequence{slot, {known.begin(), known.end()}}).first;
    }
    Sequence& sequence = at->second;
    const auto known = std::ranges::mismatch(sequence.read, draft.tokens).in1;
    const auto length = std::min(known - sequence.read.begin(), std::ssize(draft.tokens) - 1);
    sequence.read.resize(static_cast<std::size_t>(length));
    cache.trim(sequence.slot, length);
    guesses.push_back({&draft, &sequence, {draft.tokens.begin(), draft.tokens.end()}});
  }
  std::int64_t claimed = 0;
  const auto beyond = std::ranges::find_if(guesses, [&](const Guess& guess) {
    claimed += cache.blocks_needed(
        guess.sequence->slot,
        std::ssize(guess.tokens) - std::ssize(guess.sequence->read) + guess.draft->most);
    return claimed > cache.available_blocks();
  });
  guesses.erase(beyond, guesses.end());
  return guesses;
}

bool ModelDrafter::choose(Guess& guess, std::span<const float> logits) {
  try {
    const SampledToken chosen =
        sampler_.choose(logits, guess.tokens, *guess.draft->sampling, guess.tokens.size());
    guess.tokens.push_back(chosen.id);
    guess.draft->guessed.push_back(chosen.id);
    return true;
  } catch (const Error&) {
    return false;  // no number: this model has no guess
  }
}

// One token more of each guess, by as many passes as their unread tokens take. Those that are
// complete leave.
void ModelDrafter::extend(std::vector<Guess>& guesses) {
  for (std::size_t done = 0; done < guesses.size();) {
    std::int64_t room = model_.options().rows;
    std::int64_t logits = model_.options().logit_rows;
    std::vector<InferenceModel::Part> parts;
    for (std::size_t i = done; i < guesses.size() && room > 0 && logits > 0; ++i, --logits) {
      Sequence& sequence = *guesses[i].sequence;
      const auto unread =
          std::span<const std::uint32_t>(guesses[i].tokens).subspan(sequence.read.size());
      const auto part = unread.first(std::min(unread.size(), static_cast<std::size_t>(room)));
      parts.push_back({sequence.slot, part, part.size() == unread.size() ? 1 : 0});
      room -= std::ssize(part);
    }
    model_.forward(parts);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Guess& guess = guesses[done];
      guess.sequence->read.insert(guess.sequence->read.end(), parts[i].tokens.begin(),
                                  parts[i].tokens.end());
      if (parts[i].logits == 0) break;  // the last part, cut
      if (!choose(guess, model_.logits(row++))) guess.draft->most = 0;
      ++done;
    }
  }
  std::erase_if(guesses, [](const Guess& guess) {
    return std::ssize(guess.draft->guessed) >= guess.draft->most;
  });
}

void ModelDrafter::propose(std::span<Draft> drafts) {
  for (std::vector<Guess> guesses = begin(drafts); !guesses.empty();) extend(guesses);
}

}  // namespace zero

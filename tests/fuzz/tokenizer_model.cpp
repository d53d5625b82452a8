// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const std::string text(fuzz::text_of(data, size));
    const auto tokenizer =
        make_sentencepiece_tokenizer("tokenizer.model", text, {.file = "", .legacy = false});
    // The model's own bytes are a text that has its pieces, and what its charsmap maps.
    const std::vector<PromptPiece> pieces{{text.substr(0, 2000), true}, {" a\u00c0\u00e9 b"}};
    const auto ids = tokenizer->encode_pieces(pieces);
    TextStream stream(*tokenizer);
    for (const std::uint32_t id : ids) {
      fuzz::expect(id < tokenizer->vocabulary(), "ids are of the vocabulary");
      stream.push(id);
    }
  });
}

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "text/bpe_tokenizer.h"
#include "text/text_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const std::string_view text = fuzz::text_of(data, size);
    const auto tokenizer = make_bpe_tokenizer("tokenizer.json", std::string(text), {.file = ""});
    const std::vector<PromptPiece> pieces{{std::string(text.substr(0, 150)), true},
                                          {std::string(text.substr(0, 50))},
                                          {std::string(text.substr(0, 50)), true}};
    const auto ids = tokenizer->encode_pieces(pieces);
    TextStream stream(*tokenizer);
    std::string shown;
    for (const std::uint32_t id : ids) {
      fuzz::expect(id < tokenizer->vocabulary(), "ids are of the vocabulary");
      shown += stream.push(id);
    }
    shown += stream.finish();
    fuzz::expect(shown == replace_invalid_utf8(tokenizer->decode(ids)),
                 "a stream shows what decode gives");
  });
}

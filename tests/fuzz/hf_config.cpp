// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "weights/hf/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const DecoderShape config = parse_hf_model("config.json", fuzz::text_of(data, size)).shape;
    const std::string written = hf_config_text(config);
    std::string again;
    try {
      again = hf_config_text(parse_hf_config("written.json", written));
    } catch (const Error& error) {
      fuzz::expect(false, error.what());
    }
    fuzz::expect(again == written, "a model that was read is read again as it was written");
  });
}

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "inference/text/byte_level.h"
#include "launch/generate/answer.h"
#include "launch/generate/prompt_encoder.h"
#include "tests/launch/temporary_folder.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

/// A folder of a Llama of 61 tokens whose tokenizer of bytes has a special token, id 60.
class SpecialTokens : public ::testing::Test {
 protected:
  SpecialTokens() {
    std::filesystem::copy(ZERO_RECORDED_FILES "/llama_tiny/config.json", folder_.path());
    std::string text = byte_tokenizer_json();
    text.replace(text.find("\"added_tokens\":[]"), 17,
                 R"("added_tokens":[{"id":60,"content":"\u0001x","special":true}])");
    folder_.write("tokenizer.json", text);
  }
  GenerationRequest request(const std::string& text, const PromptSettings& settings) const {
    return PromptEncoder(folder_.path(), "")
        .request({.where = "here", .content = text, .settings = settings});
  }

  static inline const std::string kToken = "\x01x";
  TemporaryFolder folder_;
};

TEST_F(SpecialTokens, ActInARenderedPromptAlone) {
  EXPECT_THAT(request("\t" + kToken + "\n", {.special = true}).prompt, ElementsAre(9, 60, 10));
  EXPECT_THAT(error_of([&] { (void)request("\t" + kToken, {}); }),
              HasSubstr("the prompt has token 120"));  // its x
}

TEST_F(SpecialTokens, EndAnAnswerThatIsToldToStopAtTheirNames) {
  const auto ends = [&](const std::vector<std::string>& stop) {
    return request("\t", {.stop = stop}).end_tokens;
  };
  EXPECT_THAT(ends({}), ElementsAre(2));  // config.json's
  EXPECT_THAT(ends({"a", kToken}), ElementsAre(2, 60));
  EXPECT_THAT(ends({kToken + "\n"}), ElementsAre(2));
}

TEST(Answer, ShowsThePromptsIdsWhereTheyAreAskedFor) {
  Answer answer({.prompt = {65, 66}, .shows_prompt = true});
  answer.end({.reason = FinishReason::length});
  EXPECT_THAT(answer.json(LogProbabilities::left_out), HasSubstr(R"("prompt_ids":[65,66])"));
}

}  // namespace
}  // namespace zero

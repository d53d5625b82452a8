// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "launch/generate/answer.h"
#include "launch/generate/prompt_encoder.h"
#include "launch/generate/sampling_choice.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "text/byte_level.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  Scratch folder_;
};

TEST_F(SpecialTokens, ActInARenderedPromptAlone) {
  EXPECT_THAT(request("\t" + kToken + "\n", {.special = true}).prompt, ElementsAre(9, 60, 10));
  EXPECT_THAT(error_of([&] { (void)request("\t" + kToken, {}); }),
              HasSubstr("the prompt has token 120"));  // its x
}

TEST_F(SpecialTokens, AreNamedWhereTheyStayWords) {
  const PromptEncoder encoder(folder_.path(), "");
  const auto note = [&](const std::string& text, bool special) {
    return encoder.words_note({.where = "here", .content = text, .settings = {.special = special}});
  };
  EXPECT_EQ(note("a" + kToken, false),
            "here: ?x in it stay words; with --special (\"special\": true in a file) they are the "
            "tokenizer's tokens");
  EXPECT_EQ(note("a", false), "");
  EXPECT_EQ(note("a" + kToken, true), "");
  const Prompt chat{.where = "here", .content = Prompt::Messages{{"user", kToken}}};
  EXPECT_EQ(encoder.words_note(chat), "");
  EXPECT_EQ(encoder.words_note({.where = "here", .content = Prompt::Ids{1}}), "");
}

TEST_F(SpecialTokens, EndAnAnswerThatIsToldToStopAtTheirNames) {
  const auto ends = [&](const std::vector<std::string>& stop) {
    return request("\t", {.stop = stop}).end_tokens;
  };
  EXPECT_THAT(ends({}), ElementsAre(2));  // config.json's
  EXPECT_THAT(ends({"a", kToken}), ElementsAre(2, 60));
  EXPECT_THAT(ends({kToken + "\n"}), ElementsAre(2));
}

TEST_F(SpecialTokens, EndTheAnswersOfAChatBesideTheModelsOwn) {
  folder_.write("tokenizer_config.json",
                R"({"eos_token": "\u0001x", "chat_template": "{{ messages[0].content }}"})");
  const PromptEncoder encoder(folder_.path(), "");
  const GenerationRequest chat = encoder.request(
      {.where = "here", .content = Prompt::Messages{{.role = "user", .content = "\t"}}});
  EXPECT_THAT(chat.end_tokens, ElementsAre(2, 60));
  EXPECT_EQ(encoder.end_note(chat), "");
  const GenerationRequest plain = request("\t", {});
  EXPECT_THAT(plain.end_tokens, ElementsAre(2));
  EXPECT_EQ(encoder.end_note(plain),
            "the tokenizer's eos_token ?x (60) ends no answer: the model's eos_token_id is 2; give "
            "--stop '?x' to end there, or --chat");
  EXPECT_EQ(encoder.end_note(request("\t", {.stop = {kToken}})), "");
  std::filesystem::remove(folder_.path("tokenizer_config.json"));
  EXPECT_EQ(PromptEncoder(folder_.path(), "").end_note(plain), "") << "there is no eos_token";
}

TEST_F(SpecialTokens, AChatThatRendersToNothingIsRefusedByItsName) {
  folder_.write("chat_template.jinja", "{% if false %}a{% endif %}");
  const Prompt chat{.where = "file:7",
                    .content = Prompt::Messages{{.role = "user", .content = "\t"}}};
  EXPECT_EQ(error_of([&] { (void)PromptEncoder(folder_.path(), "").request(chat); }),
            "file:7: the prompt has no token: the chat template makes nothing of these messages; "
            "expected one at least");
}

TEST(Answer, ShowsThePromptsIdsWhereTheyAreAskedFor) {
  Answer answer({.prompt = {65, 66}, .shows_prompt = true});
  answer.end({.reason = FinishReason::length});
  EXPECT_THAT(answer.json(LogProbabilities::left_out), HasSubstr(R"("prompt_ids":[65,66])"));
}

class SamplingOfAModel : public ::testing::Test {
 protected:
  ModelSampling read(const std::string& text) const {
    folder_.write("generation_config.json", text);
    return read_model_sampling(folder_.path());
  }
  std::vector<double> sampling(const std::string& text) const {
    Sampling all;
    read(text).choice.apply_to(all);
    return {all.temperature, static_cast<double>(all.top_k), all.top_p, all.min_p,
            all.repetition_penalty};
  }

  Scratch folder_;
};

TEST_F(SamplingOfAModel, IsReadAsTransformersDoes) {
  const ModelSampling none = read_model_sampling(folder_.path());
  EXPECT_FALSE(none.choice.temperature || none.choice.top_k);
  EXPECT_THAT(none.lines(), IsEmpty());
  EXPECT_THAT(sampling(R"({"do_sample": true})"), ElementsAre(1, 50, 1, 0, 1));
  EXPECT_THAT(sampling(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9,
                           "min_p": 0.05, "repetition_penalty": 1.1})"),
              ElementsAre(0.6, 20, 0.9, 0.05, 1.1));
  EXPECT_THAT(sampling(R"({"do_sample": false, "temperature": 0.6, "repetition_penalty": 2})"),
              ElementsAre(0, 0, 1, 0, 2));
  EXPECT_THAT(sampling(R"({"temperature": 0.6, "top_p": null})"), ElementsAre(0, 0, 1, 0, 1));
}

TEST_F(SamplingOfAModel, ComesWithTheTokensOfAnAnswer) {
  EXPECT_FALSE(read("{}").max_tokens);
  const ModelSampling sampling = read(R"({"max_new_tokens": 2048})");
  EXPECT_EQ(sampling.max_tokens, 2048);
  EXPECT_THAT(sampling.lines(), ElementsAre(folder_.path("generation_config.json") +
                                            ": max_new_tokens 2048, where no flag says otherwise"));
  EXPECT_EQ(
      error_of([&] { (void)read(R"({"max_new_tokens": 0})"); }),
      folder_.path("generation_config.json") + ": max_new_tokens: found 0, expected at least 1");
}

TEST_F(SamplingOfAModel, IsToldWithWhatIsNotKnown) {
  EXPECT_THAT(read(R"({"eos_token_id": 2, "typical_p": 1.0, "num_beams": 1, "min_length": 0,
                       "bad_words_ids": null, "suppress_tokens": []})")
                  .lines(),
              IsEmpty());
  const std::string file = folder_.path("generation_config.json");
  EXPECT_THAT(read(R"({"do_sample": true, "temperature": 0.6, "typical_p": 0.9,
                       "no_repeat_ngram_size": 3})")
                  .lines(),
              ElementsAre(file + ": temperature 0.6, top_k 50, where no flag says otherwise",
                          "warning: " + file +
                              ": typical_p 0.9, no_repeat_ngram_size 3 are not known here and left "
                              "out: answers may differ from those of programs that know them"));
  EXPECT_THAT(read(R"({"presence_penalty": 0.0, "frequency_penalty": 0, "use_cache": true,
                       "pad_token_id": 3, "transformers_version": "4.51.0", "odd": false})")
                  .lines(),
              IsEmpty());
  EXPECT_THAT(read(R"({"presence_penalty": 1.5, "odd": "field"})").lines(),
              ElementsAre("warning: " + file +
                          ": presence_penalty 1.5, odd \"field\" are not known here and left out: "
                          "answers may differ from those of programs that know them"));
  EXPECT_THAT(error_of([&] { (void)read(R"({"temperature": "hot"})"); }),
              HasSubstr(file + ": temperature: "));
}

TEST_F(SamplingOfAModel, ComesBehindTheFlags) {
  Sampling all;
  read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20})").choice.apply_to(all);
  SamplingChoice{.temperature = 0.0}.apply_to(all);
  EXPECT_EQ(all.temperature, 0);
  EXPECT_EQ(all.top_k, 20);
}

}  // namespace
}  // namespace zero::testing

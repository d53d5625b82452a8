// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "architecture/decoder_shape.h"
#include "inference/inference_options.h"
#include "inference/key_value_cache.h"
#include "launch/generate/answer.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/model_memory.h"
#include "launch/generate/prompt_encoder.h"
#include "tests/errors.h"
#include "tests/launch/saved_checkpoints.h"
#include "tests/scratch.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A folder with the config.json of a Llama of 61 tokens and a context of 64.
class Encoder : public ::testing::Test {
 protected:
  Encoder() { std::filesystem::copy(kLlama + "/config.json", folder_.path()); }

  static Prompt text(const std::string& text) { return {.where = "here", .content = text}; }
  static Prompt ids(std::size_t count, std::uint32_t last, std::int64_t max_tokens) {
    Prompt::Ids all(count, 1);
    all.back() = last;
    return {.where = "here", .content = all, .settings = {.max_tokens = max_tokens}};
  }
  std::string refusal(const Prompt& prompt, const std::string& tokenizer = "") const {
    return error_of([&] { (void)PromptEncoder(folder_.path(), tokenizer).request(prompt); });
  }

  static inline const std::string kLlama = ZERO_RECORDED_FILES "/llama_tiny";
  Scratch folder_;
};

TEST(ModelMemory, IsComparedWithWhatIsAvailable) {
  const std::string folder = ZERO_RECORDED_FILES "/llama_tiny";
  const InferenceOptions options{.requests = 4, .cache_tokens = 100};
  const PlannedModel planned = plan_model(folder, options, {});
  EXPECT_THAT(planned.line, HasSubstr("(7 blocks of 16 tokens: 1 request of 64 tokens at once)"));
  check_memory(planned.bytes, planned.bytes, folder, options, {});
  check_memory(planned.bytes, std::nullopt, folder, options, {});
  const std::string refusal =
      error_of([&] { check_memory(planned.bytes, planned.bytes - 1, folder, options, {}); });
  EXPECT_THAT(refusal, ::testing::MatchesRegex(
                           "out of memory before the start: [0-9.]+ .iB are needed, and [0-9.]+ "
                           ".iB are available; [0-9.]+ .iB with --weights int8, "
                           "[0-9.]+ .iB with --weights nf4, fewer --requests.*"));
}

TEST(ModelMemory, CountsTheHostBlocksOfTheCache) {
  const std::string folder = ZERO_RECORDED_FILES "/llama_tiny";
  InferenceOptions options{.requests = 4, .cache_tokens = 100};
  const PlannedModel without = plan_model(folder, options, {});
  options.host_tokens = 50;
  const KeyValueCache::Size size = cache_size(options, read_hf_config(folder));
  EXPECT_EQ(size.host_blocks, 4);
  const PlannedModel with = plan_model(folder, options, {});
  EXPECT_EQ(with.bytes - without.bytes, size.layers * 4 * size.shape.block_bytes());
  EXPECT_THAT(with.line, HasSubstr(" in host memory (4 blocks), activations"));
  const auto activations = [](const PlannedModel& planned) {
    return planned.line.substr(planned.line.rfind(", activations"));
  };
  EXPECT_EQ(activations(with), activations(without));
}

#if ZERO_BUILT_WITH_CUDA
TEST(ModelMemory, OfAGpuIsNotTakenByHostBlocks) {
  const auto planned = [](std::int64_t host_tokens) {
    return plan_model(ZERO_RECORDED_FILES "/llama_tiny",
                      {.requests = 4, .cache_tokens = 100, .host_tokens = host_tokens},
                      {.device = DeviceKind::cuda});
  };
  EXPECT_EQ(planned(50).reserve, planned(0).reserve);
  EXPECT_EQ(planned(0).host_bytes, 0);
  EXPECT_GT(planned(50).host_bytes, 0);
}
#endif

TEST_F(Encoder, MakesRequestsThatFitTheContext) {
  const PromptEncoder encoder(folder_.path(), "");
  const GenerationRequest request = encoder.request(ids(60, 60, 4));
  EXPECT_EQ(request.prompt.size(), 60U);
  EXPECT_EQ(request.max_tokens, 4);
  EXPECT_THAT(request.end_tokens, ElementsAre(2));  // config.json's
  EXPECT_EQ(encoder.request(ids(50, 0, 0)).max_tokens, 14);
  Prompt usual = ids(50, 0, 0);
  usual.settings.usual_tokens = 3;
  EXPECT_EQ(encoder.request(usual).max_tokens, 3);
  usual.settings.usual_tokens = 2048;
  EXPECT_EQ(encoder.request(usual).max_tokens, 14);
  EXPECT_EQ(encoder.tokenizer(), nullptr);
  EXPECT_EQ(refusal(ids(60, 0, 5)),
            "here: the prompt has 60 tokens, and 5 may follow; expected at most 64 together, the "
            "model's context; give a shorter prompt or fewer --max-tokens");
  EXPECT_THAT(refusal(ids(64, 0, 0)), HasSubstr("has 64 tokens, and 1 may follow"));
  EXPECT_EQ(refusal(ids(3, 61, 1)),
            "here: the prompt has token 61; expected 0 to 60, the model's vocabulary");
  EXPECT_EQ(refusal({.where = "here", .content = Prompt::Ids{}}),
            "here: the prompt has no token; expected one at least");
}

// A prompt of 200 MB would be encoded for half a minute before its tokens could be counted.
TEST_F(Encoder, RefusesTextsThatAreTooLongBeforeTheyAreEncoded) {
  const std::string expected =
      "here: the prompt has 65 bytes, of which a token covers 1 at most, and so more than 64 "
      "tokens, the model's context; give a shorter prompt";
  EXPECT_EQ(refusal(text(std::string(65, '0')), "bytes"), expected);
  EXPECT_THAT(refusal(text(std::string(64, '0')), "bytes"),
              HasSubstr("the prompt has 64 tokens, and 1 may follow"));
  const Prompt messages{
      .where = "here",
      .content = Prompt::Messages{{"user", std::string(30, '0')}, {"user", std::string(35, '0')}}};
  EXPECT_EQ(refusal(messages, "bytes"), expected);
  const Prompt values{
      .where = "here",
      .content = Prompt::Messages{{"user", std::string(30, '0')}},
      .settings = {.template_values = nlohmann::json::parse(R"({"ab": [")" + std::string(30, '0') +
                                                            R"(", {"c": true}, 1]})")}};
  EXPECT_EQ(refusal(values, "bytes"), expected);
}

TEST_F(Encoder, GivesValuesToAChatTemplateAlone) {
  folder_.write("tokenizer_config.json", R"({"chat_template": "{{ a }}"})");
  Prompt prompt{.where = "here",
                .content = Prompt::Messages{{"user", "b"}},
                .settings = {.template_values = nlohmann::json::parse(R"({"a": "\t"})")}};
  EXPECT_THAT(PromptEncoder(folder_.path(), "bytes").request(prompt).prompt, ElementsAre(9));
  for (const Prompt& other : {text("\t"), ids(1, 9, 0)}) {
    prompt.content = other.content;
    EXPECT_EQ(refusal(prompt, "bytes"),
              "here: chat_template_kwargs is for a chat template; expected it beside messages, or "
              "beside a prompt with --chat");
  }
}

TEST_F(Encoder, EncodesTextByTheTokenizer) {
  const PromptEncoder bytes(folder_.path(), "bytes");
  EXPECT_THAT(bytes.request(text("\t\n")).prompt, ElementsAre(9, 10));
  EXPECT_EQ(refusal(text(""), "bytes"),
            "here: the prompt is empty; expected one character at least");
  EXPECT_EQ(refusal(text("ab\xc3("), "bytes"),
            "here: byte 2 of the prompt is not UTF-8; expected a text in UTF-8");
  EXPECT_EQ(refusal(text("a")),
            "here: is text, and " + folder_.path() +
                " has no tokenizer.json and no tokenizer.model; give token ids with --prompt-ids, "
                "or --tokenizer with \"bytes\", a file or a folder");
  Prompt stops = ids(3, 1, 1);
  stops.settings.stop = {"a"};
  EXPECT_THAT(refusal(stops), HasSubstr("has no tokenizer.json"));
  EXPECT_EQ(refusal(stops, "bytes"), "no error");
  Prompt rendered = text("\t\n");
  rendered.settings.special = true;
  EXPECT_THAT(bytes.request(rendered).prompt, ElementsAre(9, 10));
  const Prompt chat{.where = "here", .content = Prompt::Messages{{"user", "a"}}};
  EXPECT_THAT(refusal(chat, "bytes"), HasSubstr("here: "));
  EXPECT_THAT(refusal(chat, "bytes"), HasSubstr("chat_template"));
}

TEST_F(Encoder, FindsTheFolderOfAModel) {
  const auto nothing = [](const std::string& line) { ADD_FAILURE() << line; };
  const auto found = [&](const std::string& path) {
    return find_model_folder(files::disk(), path, nothing);
  };
  EXPECT_EQ(found(folder_.path()), folder_.path());
  EXPECT_EQ(error_of([&] { found(folder_.path("none")); }),
            "--model " + folder_.path("none") +
                ": is not a folder; expected a Hugging Face folder, a checkpoint, or a folder of "
                "checkpoints");
  EXPECT_THAT(error_of([&] { found(folder_.path("config.json")); }),
              ::testing::AllOf(HasSubstr("is a file; expected the folder of a model"),
                               HasSubstr("; give its folder")));
  EXPECT_THAT(error_of([&] { find_model_folder(files::disk(), "none", nothing, "--draft"); }),
              ::testing::AllOf(HasSubstr("--draft none: is not a folder"),
                               HasSubstr("run hf download none --local-dir FOLDER")));
  std::filesystem::create_directory(folder_.path("empty"));
  EXPECT_THAT(error_of([&] { found(folder_.path("empty")); }),
              ::testing::AllOf(HasSubstr("has no config.json, as a Hugging Face folder has; "),
                               HasSubstr("checkpoint")));
}

TEST(ModelFolderOfCheckpoints, IsThatOfTheNewestWholeOneWhichIsSaid) {
  const Saved saved(3);
  std::vector<std::string> said;
  const auto found = [&](const std::string& path) {
    said.clear();
    return find_model_folder(files::disk(), path,
                             [&](const std::string& line) { said.push_back(line); });
  };
  const std::string of = "--model " + saved.folder() + ": the weights of ";
  EXPECT_EQ(found(saved.folder()), saved.at(3) + "/weights");
  EXPECT_THAT(said, ElementsAre(of + saved.at(3)));
  saved.damage(3, "index.json");
  EXPECT_EQ(found(saved.folder()), saved.at(2) + "/weights");
  EXPECT_THAT(said, ElementsAre(HasSubstr("warning: passed over a checkpoint: " + saved.at(3)),
                                of + saved.at(2)));
  EXPECT_EQ(found(saved.at(1)), saved.at(1) + "/weights");
  EXPECT_TRUE(said.empty());
}

TEST_F(Encoder, RefusesAConfigThatIsNoFileByItsName) {
  const std::string odd = folder_.path("odd");
  std::filesystem::create_directories(odd + "/config.json");
  EXPECT_EQ(find_model_folder(files::disk(), odd, [](const std::string&) {}), odd);
  EXPECT_THAT(error_of([&] { PromptEncoder(odd, "bytes"); }),
              ::testing::AllOf(HasSubstr("odd/config.json"), HasSubstr("is not a regular file")));
}

GeneratedToken token(char c) { return {.id = static_cast<std::uint32_t>(c)}; }

TEST(Answer, ShowsTextUpToAStopString) {
  const auto bytes = make_tokenizer("bytes");
  Answer answer({.number = 3, .prompt = {65}, .stop = {"END"}, .tokenizer = bytes.get()});
  EXPECT_EQ(answer.push(token('a')), Flow::more);
  EXPECT_EQ(answer.take_text(), "a");
  EXPECT_EQ(answer.push(token('E')), Flow::more);
  EXPECT_EQ(answer.push(token('N')), Flow::more);
  EXPECT_EQ(answer.take_text(), "");
  EXPECT_EQ(answer.push(token('D')), Flow::stop);
  EXPECT_FALSE(answer.ended());
  answer.end({.reason = FinishReason::stopped, .first_token = 0.25, .total = 0.5});
  EXPECT_EQ(answer.take_text(), "");
  EXPECT_EQ(answer.json(LogProbabilities::left_out),
            R"({"ids":[97,69,78,68],"text":"a","reason":"stop","seconds":0.5,)"
            R"("first_token_seconds":0.25,"prompt_tokens":1,"line":3})");
}

TEST(Answer, EndsWithWhatWasHeldBack) {
  const auto bytes = make_tokenizer("bytes");
  Answer answer({.prompt = {65}, .stop = {"END"}, .tokenizer = bytes.get()});
  for (const int byte : {0x45, 0x4e, 0xc3}) {
    answer.push({.id = static_cast<std::uint32_t>(byte), .log_probability = -0.5F});
  }
  answer.end({.reason = FinishReason::length});
  EXPECT_EQ(answer.take_text(), "EN\xef\xbf\xbd");
  const auto line = nlohmann::json::parse(answer.json(LogProbabilities::shown));
  EXPECT_EQ(line["text"], "EN\xef\xbf\xbd");
  EXPECT_EQ(line["log_probabilities"], nlohmann::json({-0.5, -0.5, -0.5}));
  EXPECT_EQ(line["reason"], "length");
}

TEST(Answer, IsIdsWithoutATokenizer) {
  Answer answer({.prompt = {65, 66}});
  answer.push({.id = 7});
  answer.push({.id = 12});
  EXPECT_EQ(answer.take_text(), "7 12");
  answer.end({.reason = FinishReason::failed, .error = "why"});
  const auto line = nlohmann::json::parse(answer.json(LogProbabilities::left_out));
  EXPECT_FALSE(line.contains("text"));
  EXPECT_EQ(line["reason"], "failed");
  EXPECT_EQ(line["error"], "why");
  EXPECT_EQ(line["prompt_tokens"], 2);
}

}  // namespace
}  // namespace zero::testing

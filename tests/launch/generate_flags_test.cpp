// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/generate_fixture.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GenerateFlagsOf : public Generate {};

TEST_F(GenerateFlagsOf, AModelsSamplingComesBehindTheCommandLine) {
  std::filesystem::copy(file("weights"), folder_.path("model"));
  const std::string usual = "--prompt The --max-tokens 30 ";
  const std::string greedy = text(usual);
  const std::string settings = R"({"do_sample": true, "temperature": 3, "top_k": 200})";
  folder_.write("model/generation_config.json", settings);
  const auto of_model = [&](const std::string& arguments) {
    return generate(usual + arguments, folder_.path("model"));
  };
  const Outcome sampled = of_model("");
  EXPECT_EQ(sampled.out, text(usual + "--temperature 3 --top-k 200"));
  EXPECT_NE(sampled.out, greedy);
  EXPECT_THAT(sampled.errors,
              HasSubstr("generation_config.json: temperature 3, top_k 200, where no flag says"));
  EXPECT_EQ(of_model("--temperature 0").out, greedy);
  EXPECT_EQ(of_model("--top-k 1").out, greedy);
  folder_.write("model/generation_config.json", R"({"do_sample": true, "top_p": 2})");
  const Outcome refused = of_model("");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.errors, HasSubstr("generation_config.json: top_p is 2; expected"));
  EXPECT_THAT(refused.errors, HasSubstr("give the flag, which counts before the file"));
  EXPECT_EQ(of_model("--top-p 0.0001").out, greedy);
}

TEST_F(GenerateFlagsOf, AModelsMaxNewTokensComeBehindTheCommandLine) {
  std::filesystem::copy(file("weights"), folder_.path("model"));
  const auto tokens = [&](const std::string& arguments) {
    const Outcome outcome = generate("--json --prompt The " + arguments, folder_.path("model"));
    return nlohmann::json::parse(outcome.out)["ids"].size();
  };
  folder_.write("model/generation_config.json", R"({"max_new_tokens": 5})");
  EXPECT_EQ(tokens(""), 5U);
  EXPECT_EQ(tokens("--max-tokens 7"), 7U);
  folder_.write("model/generation_config.json", R"({"max_new_tokens": 2048})");
  EXPECT_EQ(tokens(""), 93U) << "what the context of 96 leaves";
}

TEST_F(GenerateFlagsOf, AChatThatRendersToNothingIsRefusedAlone) {
  std::filesystem::copy(file("weights"), folder_.path("chat"));
  folder_.write("chat/chat_template.jinja",
                "{{ messages[0].content if messages[0].role == 'user' }}");
  const std::string prompts = folder_.write(
      "p.jsonl",
      "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"The cat \"}], \"max_tokens\": 3}\n");
  const Outcome outcome = generate("--file " + prompts, folder_.path("chat"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("sat"));
  EXPECT_THAT(outcome.errors, HasSubstr("p.jsonl:1: the prompt has no token: the chat template"));
}

TEST_F(GenerateFlagsOf, IdsOfPromptsAreToldOnDemand) {
  const std::string prompts = "--prompt The --prompt-ids 65,66 --max-tokens 1 ";
  const Outcome told = generate(prompts + "--print-ids");
  EXPECT_THAT(told.errors, HasSubstr("--prompt 1: ids 84,104,101\n"));
  EXPECT_THAT(told.errors, HasSubstr("--prompt-ids 1: ids 65,66\n"));
  EXPECT_THAT(generate(prompts).errors, Not(HasSubstr("84,104")));
  EXPECT_EQ(lines(prompts + "--print-ids --requests 1").at(0)["prompt_ids"],
            nlohmann::json({84, 104, 101}));
  EXPECT_FALSE(lines(prompts).at(0).contains("prompt_ids"));
}

TEST_F(GenerateFlagsOf, APlanTellsWhatWouldBeTakenAndAnswersNothing) {
  std::filesystem::create_directory(folder_.path("shape"));
  std::filesystem::copy(file("weights") + "/config.json", folder_.path("shape"));
  const auto plan = [&](const std::string& arguments) {
    return generate("--device cpu --plan " + arguments, folder_.path("shape"));
  };
  const Outcome fits = plan("--memory-limit 1GB --weights nf4 --keep head --local-ranks 2");
  EXPECT_EQ(fits.status, 0) << fits.errors;
  EXPECT_THAT(fits.out, HasSubstr("in nf4 beside fp32 (head in fp32); 8 requests of at most 96"));
  EXPECT_THAT(fits.out, HasSubstr("ranks 1 x 2 x 1"));
  EXPECT_THAT(fits.out, HasSubstr("\nfits 953.67 MiB, of which "));
  const Outcome larger = plan("--memory-limit 0.1MiB");
  EXPECT_EQ(larger.status, 1);
  EXPECT_THAT(larger.out, HasSubstr("does not fit: --memory-limit 102.40 KiB: a rank takes "));
  EXPECT_THAT(plan("--prompt-ids 84,104,101 --max-tokens 29").out,
              HasSubstr("1 request of at most 32"));
  EXPECT_THAT(refusal("--prompt The --memory-limit 0.1MiB"),
              HasSubstr("out of memory before the start: --memory-limit 102.40 KiB"));
  EXPECT_THAT(refusal("--prompt The --memory-limit 8"),
              HasSubstr("found \"8\" without a unit, expected a"));
  for (const char* const bad : {"24", "0", "16x"}) {
    EXPECT_THAT(
        refusal(std::string("--prompt The --block-tokens ") + bad),
        HasSubstr(std::string("--block-tokens: is ") + bad + "; expected a multiple of 16"));
  }
  EXPECT_THAT(refusal("--prompt The --windows 2"), HasSubstr("no two of 1 rank share any"));
  EXPECT_THAT(refusal("--prompt The --weights q4 --keep headd"), HasSubstr("did you mean head?"));
}

TEST_F(GenerateFlagsOf, APlanTakesAConfigurationOrAName) {
  const std::string plan = "--device cpu --plan --memory-limit 64GB ";
  const Outcome folder = generate(plan);
  EXPECT_EQ(folder.status, 0) << folder.errors;
  EXPECT_EQ(generate(plan, file("weights") + "/config.json").out, folder.out);
  std::filesystem::copy(file("weights") + "/config.json", folder_.path("Small-1B.json"));
  EXPECT_EQ(generate(plan, folder_.path("Small-1B.json")).out, folder.out);
  folder_.write("other.json", R"({"architectures": ["T5ForConditionalGeneration"]})");
  EXPECT_THAT(generate(plan, folder_.path("other.json")).errors,
              HasSubstr("other.json: architectures: found [\"T5ForConditionalGeneration\"]"));
  std::filesystem::create_directory(folder_.path("tmp"));
  const Outcome name =
      shell(folder_, "env TMPDIR=" + folder_.path("tmp") + " " + command("llama-7b") + plan);
  EXPECT_EQ(name.status, 0) << name.errors;
  EXPECT_THAT(name.out, HasSubstr("model of 6.74G parameters in fp32; 8 requests of at most 2048"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path("tmp")));
  EXPECT_THAT(shell(folder_, "env TMPDIR=/proc " + command("llama-7b") + plan).errors,
              AllOf(HasSubstr("zero_generate: /proc/zero_plan_"),
                    HasSubstr("; set TMPDIR to a folder that can be written to")));
  const Outcome none = generate(plan, "llama-7c");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.errors, HasSubstr("did you mean llama-7b?"));
}

TEST_F(GenerateFlagsOf, APlanNeedsNoGpu) {
  if (cuda::visible_devices() == 0) {
    EXPECT_THAT(refusal("--plan --device cuda"),
                HasSubstr("; or give --memory-limit, such as 80GB, to plan for a GPU elsewhere"));
  }
  const Outcome plan = generate("--plan --device cuda --memory-limit 80GB");
  EXPECT_EQ(plan.status, 0) << plan.errors;
  EXPECT_THAT(plan.out, HasSubstr("(replicate x shard x tensor), each of a GPU\n"));
  EXPECT_THAT(
      plan.out,
      HasSubstr("\nleft out: what CUDA's context, its libraries, kernels and graphs take, 1.00 "
                "GiB; leave that much of the GPU out of --memory-limit\n"));
}

TEST_F(GenerateFlagsOf, ThoseThatWouldDoNothingAreRefusedOrTold) {
  const Outcome more = generate("--prompt The --max-tokens 5 --cache-tokens 1000");
  EXPECT_EQ(more.status, 0);
  EXPECT_THAT(more.errors,
              HasSubstr("--cache-tokens 1000: requests need 16 at once; the rest keeps "
                        "beginnings that may come again"));
  EXPECT_THAT(more.errors, HasSubstr("(63 blocks of 16 tokens"));
  EXPECT_THAT(generate("--prompt The --max-tokens 5 --cache-tokens 8").errors,
              Not(HasSubstr("--cache-tokens")));
  EXPECT_THAT(refusal("--prompt The --context 50"),
              HasSubstr("--context 50 bounds prompts that are typed at a terminal, and none is; "
                        "leave it out"));
  for (const std::string flag : {"--chat", "--special"}) {
    const std::string expected = flag + " is for texts, and all prompts are ids or messages; leave";
    EXPECT_THAT(refusal("--prompt-ids 65 " + flag), HasSubstr(expected));
    EXPECT_THAT(refusal("--file " + folder_.write("p.jsonl", R"({"ids": [65]})") + " " + flag),
                HasSubstr(expected));
  }
  // A text with --chat is a message, and may have values for the template.
  std::filesystem::copy(file("weights"), folder_.path("chat"));
  folder_.write("chat/chat_template.jinja", "{{ before }}{{ messages[0].content }}");
  const std::string values =
      R"({"prompt": "cat ", "chat_template_kwargs": {"before": "The "}, "max_tokens": 3})";
  const std::string valued = "--file " + folder_.write("v.jsonl", values);
  EXPECT_EQ(generate("--chat " + valued, folder_.path("chat")).out,
            text("--prompt 'The cat ' --max-tokens 3"));
  EXPECT_THAT(refusal(valued), HasSubstr("v.jsonl:1: chat_template_kwargs is for a chat template"));
  // So have those of the command line, where a line has none.
  const std::string before = R"(--chat-template-kwargs '{"before": "The "}' )";
  EXPECT_EQ(generate("--chat --prompt 'cat ' --max-tokens 3 " + before, folder_.path("chat")).out,
            text("--prompt 'The cat ' --max-tokens 3"));
  EXPECT_EQ(generate("--chat " + valued + R"( --chat-template-kwargs '{"before": "A "}')",
                     folder_.path("chat"))
                .out,
            text("--prompt 'The cat ' --max-tokens 3"));
  const std::string no_chat = "--chat-template-kwargs is for a chat template, and no prompt is";
  EXPECT_THAT(refusal("--prompt The " + before), HasSubstr(no_chat));
  EXPECT_THAT(refusal("--prompt-ids 65 " + before), HasSubstr(no_chat));
  EXPECT_THAT(refusal("--chat --prompt The --chat-template-kwargs '[1]'"),
              HasSubstr("--chat-template-kwargs: found [1], expected an object"));
  EXPECT_THAT(refusal("--chat --prompt The --chat-template-kwargs thinking=false"),
              HasSubstr("--chat-template-kwargs: "));
  // A rendered prompt is no message, also beside --chat.
  const std::string rendered = R"({"prompt": "The", "special": true, "max_tokens": 3})";
  EXPECT_EQ(text("--chat --file " + folder_.write("r.jsonl", rendered)),
            text("--prompt The --max-tokens 3"));
}

}  // namespace
}  // namespace zero::testing

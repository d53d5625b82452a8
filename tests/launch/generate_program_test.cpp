// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/launch/generate_fixture.h"
#include "tests/launch/typed.h"

namespace zero {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

const std::string kLlama = ZERO_RECORDED_FILES "/llama_tiny";  // without a tokenizer

TEST_F(Generate, GoesOnWithATextByEitherCache) {
  const std::string usual = "--prompt 'The cat ' --max-tokens 40";
  for (const auto& [flag, size] : {std::pair("", "24.00"), {" --cache-dtype int8", "7.50"}}) {
    const Outcome outcome = generate(usual + flag);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_EQ(outcome.out, "sat on the mat. A dog ran to the sea. Th\n");
    EXPECT_THAT(
        outcome.errors,
        ContainsRegex(fmt::format(
            "^model of 3{0}k parameters: weights {0} KiB, cache {1} KiB \\(3 blocks of 16 tokens: "
            "1 request of 48 tokens at once\\), activations {0} [KM]iB\n40 tokens in {0} s "
            "\\({0} tokens/s\\), first token after {0} s \\(8 tokens of the prompt: {0} "
            "tokens/s\\)\nmemory: [0-9.]+ [KM]iB of [0-9.]+ [KM]iB planned \\(100 %\\); cache: at "
            "most 3 of 3 blocks used, {1} KiB of {1} KiB \\(100 %\\), and these on average [0-9]+ "
            "% "
            "full\n$",
            "[0-9.]+", size)));
  }
}

TEST_F(Generate, OpensCheckpointsToo) {
  const std::string usual = "--prompt 'A dog' --max-tokens 12";
  const std::string expected = text(usual);
  for (const char* path : {"checkpoints", "checkpoints/step_00000400",
                           "checkpoints/step_00000400/weights", "checkpoints/"}) {
    const Outcome outcome = generate(usual, file(path));
    EXPECT_EQ(outcome.out, expected) << path;
    if (std::string_view(path) == "checkpoints") {
      EXPECT_THAT(outcome.errors, ContainsRegex("zero_generate: --model .*checkpoints: the weights "
                                                "of .*/step_00000400\n"));
    }
  }
}

TEST_F(Generate, AnAnswerIsItsPromptsAlone) {
  std::string prompts;
  for (int i = 0; i < 12; ++i) {
    const nlohmann::json line{{"prompt", kSentence.substr(0, 1 + 3 * i)},
                              {"temperature", i % 3 == 0 ? 0.0 : 1.5},
                              {"max_tokens", 5 + 4 * i},
                              {"seed", i}};
    prompts += line.dump() + "\n";
  }
  const std::string file = "--file " + folder_.write("p.jsonl", prompts) + " --requests ";
  const std::string alone = text(file + "1");
  EXPECT_GT(alone.size(), 200U);
  EXPECT_EQ(text(file + "8"), alone);
  EXPECT_EQ(shell(folder_, command() + file + "5 --threads 2").out, alone);
  const auto find = [](const std::vector<nlohmann::json>& all, int line) {
    return *std::ranges::find_if(all, [&](const auto& one) { return one["line"] == line; });
  };
  const auto one = lines(file + "1 --log-probabilities");
  const auto several = lines(file + "8 --log-probabilities");
  ASSERT_EQ(several.size(), 12U);
  for (int line = 1; line <= 12; ++line) {
    for (const char* key : {"ids", "text", "log_probabilities", "reason", "prompt_tokens"}) {
      EXPECT_EQ(find(one, line)[key], find(several, line)[key]) << line << key;
    }
  }
}

TEST_F(Generate, ASeedGivesTheSameAnswerAgain) {
  const std::string usual = "--prompt The --max-tokens 60 --temperature 3 --seed ";
  EXPECT_EQ(text(usual + "1"), text(usual + "1"));
  EXPECT_NE(text(usual + "1"), text(usual + "2"));
  const std::string greedy = text("--prompt The --max-tokens 60");
  EXPECT_EQ(text("--prompt The --max-tokens 60 --temperature 0 --seed 5"), greedy);
  EXPECT_EQ(text(usual + "3 --top-k 1"), greedy);
  EXPECT_EQ(text(usual + "3 --top-p 0.0001"), greedy);
  EXPECT_EQ(text(usual + "3 --min-p 1"), greedy);
  EXPECT_NE(text("--prompt The --max-tokens 60 --repetition-penalty 100"), greedy);
}

TEST_F(Generate, EndsBeforeAStopStringAndAtAnEndToken) {
  EXPECT_EQ(text("--prompt 'The cat ' --stop ' dog' --stop 'the m'"), "sat on \n");
  const auto stopped = lines("--prompt 'The cat ' --stop 'the m'").at(0);
  EXPECT_EQ(stopped["reason"], "stop");
  EXPECT_EQ(stopped["text"], "sat on ");
  EXPECT_EQ(stopped["ids"].size(), 12U);
  std::filesystem::copy(file("weights"), folder_.path("ending"));
  folder_.write("ending/generation_config.json", R"({"eos_token_id": [46]})");
  const Outcome ending = generate("--json --prompt 'The cat '", folder_.path("ending"));
  EXPECT_EQ(nlohmann::json::parse(ending.out)["reason"], "end_token") << ending.errors;
  EXPECT_EQ(nlohmann::json::parse(ending.out)["ids"].size(), 15U);
}

TEST_F(Generate, PrintsALineOfJsonForEachAnswer) {
  const auto all = lines(
      "--prompt 'The cat' --prompt 'A' --prompt-ids 84,104 --max-tokens 4 "
      "--log-probabilities --requests 1");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2]["ids"], nlohmann::json({101, 32, 99, 97}));
  EXPECT_EQ(all[2]["text"], "e ca");
  EXPECT_EQ(all[2]["line"], 3);
  EXPECT_EQ(all[2]["prompt_tokens"], 2);
  EXPECT_EQ(all[2]["reason"], "length");
  EXPECT_GT(all[0]["seconds"], 0.0);
  EXPECT_GT(all[0]["first_token_seconds"], 0.0);
  for (const double value : all[0]["log_probabilities"]) EXPECT_LE(value, 0.0);
}

TEST_F(Generate, ReadsAPromptFromStandardInput) {
  const std::string prompt = folder_.write("prompt.txt", "The cat \n");
  EXPECT_EQ(generate("--max-tokens 3", file("weights"), prompt).out, "sat\n");
  const Outcome empty = generate("");
  EXPECT_EQ(empty.status, 1);
  EXPECT_THAT(empty.errors, HasSubstr("standard input: the prompt is empty"));
}

TEST_F(Generate, AnswersGoodLinesOfAFileBesideBadOnes) {
  const std::string prompts = folder_.write("p.jsonl",
                                            "{\"prompt\": \"The cat \", \"max_tokens\": 3}\n"
                                            "{\"prompt\": \"a\", \"max_token\": 3}\n"
                                            "{\"prompt\": \"" +
                                                std::string(97, 'a') +
                                                "\"}\n"
                                                "{\"prompt\": \"\xff\"}\n"
                                                "{\"ids\": [256]}\n"
                                                "{\"prompt\": \"The dog \", \"max_tokens\": 1}\n");
  const Outcome outcome = generate("--json --file " + prompts);
  EXPECT_EQ(outcome.status, 1);
  std::map<int, nlohmann::json> lines;
  std::istringstream out(outcome.out);
  for (std::string line; std::getline(out, line);) {
    const nlohmann::json one = nlohmann::json::parse(line);
    EXPECT_TRUE(lines.emplace(one["line"].get<int>(), one).second) << line;
  }
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[1]["reason"], "length");
  EXPECT_EQ(lines[6]["reason"], "length");
  for (const int line : {2, 3, 4, 5}) {
    EXPECT_EQ(lines[line].size(), 2U);
    EXPECT_THAT(lines[line]["error"], HasSubstr(fmt::format("p.jsonl:{}: ", line)));
  }
  const auto complaints = outcome.complaints("zero_generate");
  ASSERT_EQ(complaints.size(), 4U) << outcome.errors;
  EXPECT_THAT(complaints[0], HasSubstr("p.jsonl:2: unknown key \"max_token\""));
  EXPECT_THAT(complaints[1], HasSubstr("p.jsonl:4: byte 12 is not UTF-8"));
  EXPECT_THAT(complaints[2],
              HasSubstr("p.jsonl:3: the prompt has 97 bytes, of which a token covers 1 "
                        "at most, and so more than 96 tokens"));
  EXPECT_THAT(complaints[3], HasSubstr("p.jsonl:5: the prompt has token 256; expected 0 to 255"));
}

TEST_F(Generate, RefusesOneListOfIdsAlone) {
  const std::string usual = "--max-tokens 2 --prompt The --prompt-ids 84,x --prompt-ids 84,104";
  const Outcome outcome = generate(usual);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  const auto complaints = outcome.complaints("zero_generate");
  ASSERT_EQ(complaints.size(), 1U) << outcome.errors;
  EXPECT_THAT(complaints[0], HasSubstr("--prompt-ids 1: found \"84,x\"; expected token ids"));
  EXPECT_THAT(generate(usual + " --prompt-ids 256").errors,
              HasSubstr("--prompt-ids 3: the prompt"));
  EXPECT_THAT(generate("--json " + usual).out, HasSubstr("\"line\":3}\n"));
}

/// A copy of the model whose weights are NaN.
TEST_F(Generate, TellsOfAFailedAnswer) {
  const std::string model = folder_.path("nan");
  std::filesystem::copy(file("weights"), model);
  const std::string weights = folder_.read("nan/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof(header));
  const std::size_t tensors = sizeof(header) + header;
  folder_.write("nan/model.safetensors",
                weights.substr(0, tensors) + std::string(weights.size() - tensors, '\xff'));
  const std::string prompts = "--prompt The --prompt-ids 84 --max-tokens 3";
  const Outcome json = generate("--json " + prompts, model);
  EXPECT_EQ(json.status, 1);
  std::istringstream out(json.out);
  std::vector<int> numbers;
  for (std::string line; std::getline(out, line);) {
    const nlohmann::json one = nlohmann::json::parse(line);
    numbers.push_back(one["line"]);
    EXPECT_EQ(one["reason"], "failed") << line;
    EXPECT_NE(one["error"], "") << line;
    EXPECT_EQ(one["ids"], nlohmann::json::array());
  }
  EXPECT_THAT(numbers, ::testing::UnorderedElementsAre(1, 2)) << json.errors;
  EXPECT_EQ(json.complaints("zero_generate").size(), 2U);
  const Outcome plain = generate(prompts, model);
  EXPECT_EQ(plain.status, 1);
  EXPECT_EQ(plain.out, "");
}

TEST_F(Generate, AnswersEachLineThatSomebodyTypes) {
  const std::string lines = "The cat \n\nThe dog \n";
  const Outcome plain = generate("--max-tokens 3", file("weights"), Typed(lines).path());
  EXPECT_EQ(plain.status, 0) << plain.errors;
  EXPECT_THAT(plain.out, ContainsRegex("^sat\n[^>]+\n$"));
  EXPECT_THAT(plain.errors,
              ContainsRegex("1 request of 96 tokens at once.*\n> > > > \n6 tokens in"));
  const Outcome little = generate("--context 10", file("weights"), Typed(lines).path());
  EXPECT_THAT(little.errors, HasSubstr("1 request of 10 tokens at once"));
  EXPECT_THAT(little.out, ContainsRegex("^sa\n..\n$"));
  const Outcome none =
      generate("--context 10 --max-tokens 3", file("weights"), Typed("The cat \n").path());
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.errors,
              HasSubstr("3 may follow; expected at most 10 together, --context; give"));
  const Outcome json = generate("--json --max-tokens 3", file("weights"), Typed(lines).path());
  EXPECT_EQ(std::count(json.out.begin(), json.out.end(), '\n'), 2);
  EXPECT_THAT(json.out + json.errors, Not(HasSubstr("> ")));
}

TEST_F(Generate, PrintsIdsWhereThereIsNoTokenizer) {
  const Outcome plain = generate("--prompt-ids 1,5,7 --max-tokens 3", kLlama);
  EXPECT_THAT(plain.out, ContainsRegex("^[0-9]+ [0-9]+ [0-9]+\n$")) << plain.errors;
  const Outcome json = generate("--json --prompt-ids 1,5,7 --max-tokens 3", kLlama);
  EXPECT_FALSE(nlohmann::json::parse(json.out).contains("text"));
  const Outcome text = generate("--prompt a", kLlama);
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.errors, HasSubstr("--prompt 1: is text, and "));
}

// Whoever reads has seen enough: no message, no summary, but the line before the model is read.
TEST_F(Generate, EndsQuietlyWithItsReader) {
  const Outcome outcome = shell(folder_, "bash -c '" + command() + "--threads 1 --file " +
                                             long_file() + " | head -c 1; echo ${PIPESTATUS[0]}'");
  EXPECT_EQ(outcome.out, " 141\n");
  EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  const Outcome full = shell(folder_, "sh -c '" + command() + "--prompt T >/dev/full'");
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.errors, HasSubstr("standard output: cannot write: No space left"));
}

TEST_F(Generate, AnswersThoughNobodyReadsItsErrors) {
  const std::string prompts = folder_.write("prompts.jsonl",
                                            "{\"ids\": [999]}\n"
                                            "{\"prompt\": \"The\", \"max_tokens\": 5}\n");
  const std::string expected = text("--prompt The --max-tokens 5");
  for (const char* const errors : {"2>/dev/full", "2>&-"}) {
    const Outcome outcome =
        shell(folder_, "sh -c '" + command() + "--file " + prompts + " " + errors + "'");
    EXPECT_EQ(outcome.status, 1) << errors;
    EXPECT_EQ(outcome.out, expected) << errors;
  }
}

// The signal comes once the first text is there, which may be a few tokens of the first answer.
TEST_F(Generate, CtrlCEndsWithWhatIsThere) {
  const std::string whole = text("--prompt The --max-tokens 90");
  const Outcome outcome =
      shell(folder_, "bash -c 'env --default-signal=INT " + command() + "--threads 1 --file " +
                         long_file() + " & while [ ! -s " + folder_.path("stdout.txt") +
                         " ] && kill -0 $!; do sleep 0.05; done; kill -INT $!; wait $!; exit $?'");
  EXPECT_EQ(outcome.status, 130) << outcome.errors;
  const std::string first = outcome.out.substr(0, outcome.out.find('\n'));
  EXPECT_NE(first, "");
  EXPECT_THAT(whole, ::testing::StartsWith(first));
  EXPECT_THAT(outcome.errors, ContainsRegex("tokens in [0-9.]+ s"));
}

// SIGUSR1 asks for a line about the cache, and SIGTERM ends as Ctrl-C does.
TEST_F(Generate, TellsOfItsCacheAndEndsBySIGTERM) {
  const Outcome outcome =
      shell(folder_, "bash -c '" + command() +
                         "--device cpu --threads 1 --host-cache-tokens 150 --file " + long_file() +
                         " & while [ ! -s " + folder_.path("stdout.txt") +
                         " ] && kill -0 $!; do sleep 0.05; done; kill -USR1 $!; sleep 0.2; kill "
                         "-TERM $!; wait $!; exit $?'");
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.errors, ContainsRegex("[0-9]+ requests run, [0-9]+ wait; [0-9]+ of [0-9]+ "
                                            "cache blocks hold their [0-9]+ tokens"));
  EXPECT_THAT(outcome.errors,
              ContainsRegex("[0-9]+ of 10 host blocks are used; [0-9]+ moved there, "
                            "[0-9]+ moved back\n"));
}

TEST_F(Generate, RefusesWhatItCannotDo) {
  const std::string model = file("weights");
  const auto refusal = [&](const std::string& arguments, const std::string& folder) {
    const Outcome outcome = generate(arguments, folder);
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    const auto complaints = outcome.complaints("zero_generate");
    EXPECT_EQ(complaints.size(), 1U) << outcome.errors;
    return complaints.empty() ? "" : complaints[0];
  };
  const std::string prompt = "--prompt a ";
  EXPECT_THAT(refusal(prompt + "--temprature 1", model),
              HasSubstr("(--temprature: did you mean --temperature?); see zero_generate --help"));
  EXPECT_THAT(refusal(prompt + "--max-tokens 0", model), HasSubstr("--max-tokens"));
  EXPECT_THAT(refusal(prompt + "--host-cache-tokens -1", model), HasSubstr("--host-cache-tokens"));
  EXPECT_THAT(refusal(prompt + "--host-cache-tokens 268435457", model),
              HasSubstr("--host-cache-tokens"));
  EXPECT_THAT(refusal(prompt + "--draft-tokens 65", model), HasSubstr("--draft-tokens"));
  EXPECT_THAT(refusal(prompt + "--draft-tokens 5", model), HasSubstr("--draft"));
  EXPECT_THAT(refusal("--compare t.txt --weights nf4", model), HasSubstr("found --weights too"));
  EXPECT_THAT(refusal("--compare t.txt --host-cache-tokens 64", model),
              HasSubstr("found --host-cache-tokens too"));
  EXPECT_THAT(refusal("--compare t.txt --file f.jsonl", model), HasSubstr("--file"));
  EXPECT_THAT(refusal("--compare t.txt --requests 3", model), HasSubstr("found --requests too"));
  EXPECT_THAT(refusal("--compare ''", model), HasSubstr("--compare: expected a name"));
  EXPECT_THAT(refusal("--file ''", model), HasSubstr("--file: expected a name"));
  EXPECT_THAT(refusal(prompt + "--draft ''", model), HasSubstr("--draft: expected a name"));
  EXPECT_THAT(refusal(prompt + "--tensor 2", model),
              HasSubstr("need a multiple of 2 ranks, found 1"));
  EXPECT_THAT(refusal("--tokenizer bytes " + prompt + "--draft " + kLlama, model),
              HasSubstr("expected the model's 256"));
  EXPECT_THAT(refusal(prompt + "--temperature -1", model),
              HasSubstr("command line: temperature is -1; expected a number from 0"));
  for (const char* seed : {"-1", "18446744073709551616", "1.5"}) {
    EXPECT_THAT(refusal(prompt + "--seed " + seed, model),
                HasSubstr("--seed: is " + std::string(seed) + "; expected a whole number from 0"));
  }
  EXPECT_THAT(refusal(prompt + "--draft none", model), HasSubstr("--draft none: is not a folder"));
  EXPECT_THAT(refusal(prompt + "--top-p 0", model), HasSubstr("command line: top_p is 0"));
  EXPECT_THAT(refusal(prompt + "--stop ''", model), HasSubstr("stop is an empty text"));
  EXPECT_THAT(refusal(prompt + "--dtype int8", model), HasSubstr("--dtype"));
  EXPECT_THAT(refusal(prompt + "--cache-dtype q4", model), HasSubstr("--cache-dtype"));
  EXPECT_THAT(shell(folder_, command() + "--prompt a --threads two").errors,
              HasSubstr("--threads is two; expected auto, or 1 to 1024"));
  EXPECT_THAT(refusal(prompt + "--log-probabilities", model), HasSubstr("--json"));
  EXPECT_THAT(refusal(prompt + "--file x", model), HasSubstr("--file"));
  EXPECT_THAT(refusal("--file " + folder_.path("none"), model),
              HasSubstr("none: cannot read the prompts: No such file"));
  EXPECT_THAT(refusal("--prompt-ids 1,a", model), HasSubstr("expected token ids as 1,2,3"));
  EXPECT_THAT(refusal(prompt + "--max-tokens 96", model),
              HasSubstr("the prompt has 1 tokens, and 96 may follow; expected at most 96"));
  EXPECT_THAT(refusal(prompt, file("none")), HasSubstr("none: is not a folder"));
  EXPECT_THAT(refusal(prompt, folder_.path()), HasSubstr("has no config.json"));
  EXPECT_THAT(refusal(prompt + "--tokenizer " + folder_.path("none"), kLlama), HasSubstr("none"));
  EXPECT_THAT(generate("--version").out, HasSubstr("vector instructions"));
  EXPECT_THAT(generate("--help").out, HasSubstr("newest complete one"));
  for (const std::string flag : {"--help", "--version"}) {
    const Outcome lost = shell(folder_, "sh -c '" + command() + flag + " >/dev/full'");
    EXPECT_EQ(lost.status, 1) << flag;
    EXPECT_EQ(lost.errors,
              "zero_generate: standard output: cannot write: No space left on device\n");
  }
}

TEST_F(Generate, ComparesFormatsByAText) {
  std::string learned;
  for (int i = 0; i < 20; ++i) learned += kSentence;
  const std::string held = folder_.write("held.txt", learned);
  const std::string table = text("--compare " + held);
  std::istringstream words(table.substr(table.find("perplexity\n") + 11));
  EXPECT_THAT(
      table, HasSubstr("tokens of " + held +
                       "; perplexity by stretches of 96 tokens, each read without those before it\n"
                       "weights "));
  std::vector<double> bytes, perplexities;
  for (const char* const name : {"fp32 fp32", "fp32 int8", "int8 fp32", "nf4 fp32", "q4 fp32"}) {
    std::string weights, cache, difference, percent;
    double size = 0, token = 0, speed = 0, perplexity = 0;
    words >> weights >> cache >> size >> token >> speed >> perplexity >> difference >> percent;
    EXPECT_EQ(weights + " " + cache, name) << table;
    EXPECT_EQ(token, cache == "int8" ? 160 : 512);
    EXPECT_GT(speed, 0);
    bytes.push_back(size);
    perplexities.push_back(perplexity);
  }
  EXPECT_LT(2 * bytes[2], bytes[1]);
  EXPECT_LT(bytes[3], bytes[2]);
  EXPECT_LT(perplexities[0], 20);  // of 256 bytes: it has learned some
  EXPECT_NEAR(perplexities[1], perplexities[0], 0.005 * perplexities[0]);
  EXPECT_NEAR(perplexities[2], perplexities[0], 0.05 * perplexities[0]);

  const Outcome both = generate("--compare " + held + " --prompt The");
  EXPECT_NE(both.status, 0);
  EXPECT_THAT(both.errors, HasSubstr("--prompt excludes --compare"));
  EXPECT_THAT(generate("--compare " + folder_.write("short.txt", "The cat")).errors,
              HasSubstr("expected more than 17"));
  EXPECT_THAT(generate("--compare /nowhere").errors, HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace zero

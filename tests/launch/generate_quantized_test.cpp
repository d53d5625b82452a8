// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// zero_generate --save-quantized, and answers from what it writes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/generate_fixture.h"
#include "weights/hf/config.h"

namespace zero {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace testing;

class GenerateQuantized : public Generate {
 protected:
  Outcome save(const std::string& out, const std::string& arguments) const {
    return generate("--save-quantized " + out + " " + arguments);
  }
  std::string answer(const std::string& model, const std::string& arguments) const {
    const Outcome outcome = generate(
        "--json --log-probabilities --prompt 'The cat ' --max-tokens 30 " + arguments, model);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    nlohmann::json line = nlohmann::json::parse(outcome.out);
    line.erase("seconds");
    line.erase("first_token_seconds");
    return line.dump();
  }
};

TEST_F(GenerateQuantized, AnswersAsIfItHadQuantizedAtLoad) {
  for (const std::string format : {"int8", "nf4", "q4"}) {
    const std::string out = folder_.path(format);
    const Outcome saved = save(out, "--weights " + format);
    EXPECT_EQ(saved.status, 0) << saved.errors;
    EXPECT_THAT(saved.out, ContainsRegex("^" + out +
                                         ": weights of [0-9]+ bytes, [0-9.]+ a "
                                         "parameter\n$"));
    EXPECT_EQ(std::filesystem::exists(out + ".partial"), false);
    const std::string expected = answer(file("weights"), "--weights " + format);
    EXPECT_EQ(answer(out, ""), expected);
    EXPECT_EQ(answer(out, "--weights " + format), expected);
    EXPECT_EQ(answer(out, "--local-ranks 2"), expected);
    EXPECT_EQ(answer(out, "--dtype bf16"),
              answer(file("weights"), "--dtype bf16 --weights " + format));
  }
}

TEST_F(GenerateQuantized, HasTheSmallFilesOfTheModel) {
  std::filesystem::copy(file("weights"), folder_.path("model"));
  folder_.write("model/chat_template.jinja", "{{ messages }}");
  folder_.write("model/other.bin", "not of a tokenizer");
  const std::string out = folder_.path("codes");
  EXPECT_EQ(shell(folder_, command(folder_.path("model")) + "--weights q4 --dtype bf16 " +
                               "--save-quantized " + out + "/")
                .status,
            0);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    EXPECT_EQ(folder_.read(std::string("codes/") + name),
              folder_.read(std::string("model/") + name));
  }
  EXPECT_FALSE(std::filesystem::exists(out + "/other.bin"));
  const auto config = nlohmann::json::parse(folder_.read("codes/config.json"));
  EXPECT_EQ(config["quantization_config"],
            nlohmann::json({{"quant_method", "zero"}, {"format", "q4"}, {"version", 1}}));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
}

TEST_F(GenerateQuantized, RefusesWhatCannotBeWrittenAndLeavesNothing) {
  const std::string out = folder_.path("out");
  const auto refused = [&](const Outcome& outcome, const std::string& why) {
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.errors, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  refused(save(out, ""), "--save-quantized requires --weights");
  refused(save(out, "--weights dtype"), "--weights is dtype; expected int8, nf4 or q4");
  refused(save(out, "--weights int8 --prompt a"), "found --prompt too: leave it out");
  refused(save(out, "--weights int8 --temperature 1"), "found --temperature too");
  refused(save(out, "--weights int8 --local-ranks 2"), "found --local-ranks too");
  refused(shell(folder_,
                "env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=localhost "
                "MASTER_PORT=1 " +
                    command() + "--weights int8 --save-quantized " + out),
          "one process writes; found 2 ranks");
  refused(save(folder_.path("none/out"), "--weights int8"), "No such file");
  refused(save("''", "--weights int8"), "--save-quantized: expected a name");
  EXPECT_EQ(std::filesystem::exists(out + ".partial"), false);

  folder_.write("taken", "text");
  EXPECT_THAT(save(folder_.path("taken"), "--weights int8").errors,
              HasSubstr("taken: is there already; give a new name"));
  EXPECT_EQ(folder_.read("taken"), "text");
  std::filesystem::create_directory(out + ".partial");
  refused(save(out, "--weights int8"), "out.partial is there, of a save under way");
  std::filesystem::remove(out + ".partial");
  // A file that cannot grow leaves nothing behind.
  refused(shell(folder_, "sh -c 'trap \"\" XFSZ; ulimit -f 16; " + command() +
                             "--weights int8 --save-quantized " + out + "'"),
          "out.partial/model.safetensors");
  EXPECT_EQ(std::filesystem::exists(out + ".partial"), false);
}

TEST_F(GenerateQuantized, RefusesOtherFormatsThanTheFolderHas) {
  const std::string out = folder_.path("codes");
  EXPECT_EQ(save(out, "--weights nf4").status, 0);
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome outcome = generate(arguments, out);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.errors, HasSubstr(why));
  };
  const std::string why =
      out +
      ": its matrices are codes of nf4, of which no weights of {} can be made; expected "
      "--weights nf4, or none, or the folder from which the codes were made";
  refused("--prompt a --weights int8", fmt::format(fmt::runtime(why), "int8"));
  refused("--prompt a --weights dtype", fmt::format(fmt::runtime(why), "dtype"));
  refused("--weights q4 --save-quantized " + folder_.path("again"),
          "has codes of nf4 already; take the folder from which they were made");
  // A draft has its own format.
  const std::string prompt = "--prompt 'The cat ' --max-tokens 20 ";
  EXPECT_EQ(text(prompt + "--draft " + out), text(prompt));
  const Outcome compared =
      generate("--compare " + folder_.write("t.txt", kSentence + kSentence), out);
  EXPECT_EQ(compared.status, 0) << compared.errors;
  EXPECT_THAT(compared.out, ContainsRegex("\nnf4 +fp32 .*\nnf4 +int8 "));
}

TEST_F(GenerateQuantized, NamesWhoseCodesAFolderHas) {
  std::filesystem::copy(file("weights"), folder_.path("model"));
  auto config = nlohmann::json::parse(folder_.read("model/config.json"));
  config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  folder_.write("model/config.json", config.dump());
  EXPECT_THAT(generate("--prompt a", folder_.path("model")).errors,
              HasSubstr("config.json: quantization_config: found bitsandbytes"));
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  folder_.write("model/config.json", config.dump());
  const Outcome outcome = generate("--prompt a", folder_.path("model"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("config.json: quantization_config.group_size is missing"));
}

TEST_F(GenerateQuantized, AThresholdOfOutliersChangesNothing) {
  const Outcome outcome = generate("--prompt a --max-tokens 3 --llm-int8-threshold 6");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("--llm-int8-threshold: activations are never quantized "
                                        "here, so nothing is left to separate"));
  EXPECT_EQ(outcome.out, generate("--prompt a --max-tokens 3").out);
}

TEST_F(GenerateQuantized, APlanMakesNoOtherCodesOfThoseThatAFolderHas) {
  auto config = nlohmann::json::parse(file_bytes(file("weights") + "/config.json"));
  std::filesystem::create_directory(folder_.path("awq"));
  const auto plan = [&](const nlohmann::json& codes, const std::string& arguments) {
    config["quantization_config"] = codes;
    folder_.write("awq/config.json", config.dump());
    return generate("--device cpu --plan --memory-limit 1GB " + arguments, folder_.path("awq"));
  };
  const nlohmann::json awq{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}};
  for (const char* arguments : {"", "--weights auto"}) {
    const Outcome outcome = plan(awq, arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.out, HasSubstr(" in u4 beside fp32; "));
  }
  const Outcome others = plan(awq, "--weights nf4");
  EXPECT_EQ(others.status, 1);
  EXPECT_THAT(others.errors, HasSubstr("its matrices are codes of awq, of which no weights of nf4 "
                                       "can be made; expected no --weights"));
  EXPECT_THAT(
      plan({{"quant_method", "zero"}, {"format", "nf4"}, {"version", 1}}, "--weights int8").errors,
      HasSubstr("codes of nf4, of which no weights of int8 can be made; expected --weights "
                "nf4, or none"));
}

}  // namespace
}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launch/config/train_config.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

TrainConfig make(const std::string& model, const std::vector<std::string>& overrides = {}) {
  const std::string text = R"({"model": )" + model + R"(, "data": {"train": "a.bin"},
      "train_batch_size": 8})";
  return make_train_config(
      Configuration::from_json(parse_json_text(text, "c.json"), "c.json", overrides), 1);
}

const std::string kSmall =
    R"({"layers": 2, "width": 64, "heads": 4, "context": 32, "vocabulary": 256})";

TEST(WeightFolderFiles, AreTheArchitectureAloneWithoutATokenizer) {
  const TrainConfig config =
      make(R"({"layers": 2, "width": 64, "heads": 4, "context": 32, "vocabulary": 300})");
  EXPECT_EQ(weight_folder_files(config), (Files{{"config.json", hf_config_text(config.model)}}));
}

TEST(WeightFolderFiles, OpenAByteRunsFolderWithIdsThatAreBytes) {
  const Scratch folder;
  for (const auto& [name, content] : weight_folder_files(make(kSmall))) {
    folder.write(name, content);
  }
  const auto tokenizer = make_tokenizer(folder.path());
  const std::string text = "Bytes: \u00e9 's  \n\u4e16";
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->encode(text, {.begin_of_text = true}),
            make_tokenizer("bytes")->encode(text));
}

TEST(WeightFolderFiles, PassATokenizerOn) {
  const Scratch folder;
  const std::string model = folder.write("some.model", "SentencePiece");
  const Files files = weight_folder_files(make(kSmall, {"data.tokenizer=" + model}));
  EXPECT_EQ(files.at("tokenizer.model"), "SentencePiece");
  EXPECT_EQ(files.at("tokenizer_config.json"), "{\"tokenizer_class\": \"LlamaTokenizer\"}\n")
      << "which puts <s> before a text, as zero_prepare does";
  std::filesystem::create_directory(folder.path("hf"));
  std::string source = hf_config_text(make(kSmall).model);
  source.insert(1, "\n  \"eos_token_id\": 7,");
  folder.write("hf/config.json", source);
  folder.write("hf/generation_config.json", R"({"temperature": 0.6})");
  folder.write("hf/tokenizer.json", "{}");
  folder.write("hf/merges.txt", "a b");
  folder.write("hf/tokenizer.model", "its own");
  folder.write("hf/tokenizer_config.json", "{}");
  folder.write("hf/notes.txt", "are not passed on");
  const std::string hf = R"({"hf": ")" + folder.path("hf") + R"("})";
  EXPECT_THAT(source, HasSubstr("\"torch_dtype\": \"float32\""));
  EXPECT_EQ(saved_tokenizer(make(hf)).key, "model.hf");
  EXPECT_EQ(weight_folder_files(make(hf)),
            (Files{{"config.json", source},
                   {"generation_config.json", R"({"temperature": 0.6})"},
                   {"merges.txt", "a b"},
                   {"tokenizer.json", "{}"},
                   {"tokenizer.model", "its own"},
                   {"tokenizer_config.json", "{}"}}));
  EXPECT_EQ(saved_tokenizer(make(hf, {"data.tokenizer=" + model})).name, model);
  const Files given = weight_folder_files(make(hf, {"data.tokenizer=" + model}));
  EXPECT_EQ(given.at("tokenizer.model"), "SentencePiece");
  EXPECT_EQ(given.at("generation_config.json"), R"({"temperature": 0.6})");
  EXPECT_FALSE(given.contains("tokenizer.json") || given.contains("merges.txt"));
}

// A model of keys that begins with the weights of a folder, as an exported one.
TEST(WeightFolderFiles, CarryTheFieldsOfTheFolderWithTheFirstWeights) {
  const Scratch folder;
  const auto text_of = [&](const std::string& model) {
    return weight_folder_files(make(model, {"run.init=" + folder.path()})).at("config.json");
  };
  EXPECT_EQ(text_of(kSmall), hf_config_text(make(kSmall).model)) << "a folder without config.json";
  std::string source = hf_config_text(make(kSmall).model);
  source.insert(1, "\n  \"eos_token_id\": 7,\n  \"notes\": null,");
  folder.write("config.json", source);
  folder.write("generation_config.json", "{}");
  folder.write("tokenizer.json", "{}");
  EXPECT_EQ(text_of(kSmall), source);
  const Files files = weight_folder_files(make(kSmall, {"run.init=" + folder.path()}));
  EXPECT_EQ(files.at("tokenizer.json"), "{}");
  EXPECT_EQ(files.at("generation_config.json"), "{}");
  const std::string own = folder.write("own.json", "the data's");
  const Files given =
      weight_folder_files(make(kSmall, {"run.init=" + folder.path(), "data.tokenizer=" + own}));
  EXPECT_EQ(given.at("tokenizer.json"), "the data's");
  EXPECT_EQ(given.at("generation_config.json"), "{}");
  // A shorter context is the run's own; a width that is another makes nothing of the folder true.
  const std::string shorter =
      R"({"layers": 2, "width": 64, "heads": 4, "context": 16, "vocabulary": 256})";
  EXPECT_THAT(text_of(shorter),
              AllOf(HasSubstr("\"eos_token_id\": 7"), HasSubstr("\"n_positions\": 16")));
  folder.write("config.json", R"({"model_type": "other"})");
  EXPECT_EQ(text_of(kSmall), hf_config_text(make(kSmall).model)) << "not known here";
}

TEST(WeightFolderFiles, PassATokenizerJsonOn) {
  const Scratch folder;
  std::filesystem::create_directory(folder.path("some"));
  folder.write("some/merges.txt", "a b");
  const std::string json = folder.write("some/tokenizer.json", "its own");
  const auto files_of = [&](const std::string& tokenizer) {
    Files files = weight_folder_files(make(kSmall, {"data.tokenizer=" + tokenizer}));
    files.erase("config.json");
    return files;
  };
  EXPECT_EQ(files_of(json), (Files{{"tokenizer.json", "its own"}}));
  folder.write("some/tokenizer_config.json", "{}");
  EXPECT_EQ(files_of(json),
            (Files{{"tokenizer.json", "its own"}, {"tokenizer_config.json", "{}"}}));
  EXPECT_EQ(files_of(folder.path("some")), (Files{{"merges.txt", "a b"},
                                                  {"tokenizer.json", "its own"},
                                                  {"tokenizer_config.json", "{}"}}));
}

TEST(WeightFolderFiles, CarryTheChatTemplateOfAProcessor) {
  const Scratch folder;
  std::filesystem::create_directory(folder.path("hf"));
  folder.write("hf/config.json", hf_config_text(make(kSmall).model));
  folder.write("hf/tokenizer.json", "{}");
  const std::string own = R"({"chat_template": "a"})";
  folder.write("hf/chat_template.json", own);
  EXPECT_EQ(weight_folder_files(make(R"({"hf": ")" + folder.path("hf") + R"("})"))
                .at("chat_template.json"),
            own);
  for (const char* tokenizer : {"hf", "hf/tokenizer.json"}) {
    const Files files =
        weight_folder_files(make(kSmall, {"data.tokenizer=" + folder.path(tokenizer)}));
    EXPECT_EQ(files.at("chat_template.json"), own) << tokenizer;
  }
}

// A saved model's files lie in one folder: templates of a folder of their own come in a list.
TEST(WeightFolderFiles, CarryChatTemplatesOfFilesOfTheirOwn) {
  const Scratch folder;
  std::filesystem::create_directories(folder.path("hf/additional_chat_templates"));
  folder.write("hf/config.json", hf_config_text(make(kSmall).model));
  folder.write("hf/tokenizer.json", "{}");
  folder.write("hf/chat_template.jinja", "the first\n");
  folder.write("hf/additional_chat_templates/rag.jinja", "of \"documents\"");
  folder.write("hf/additional_chat_templates/notes.txt", "are not passed on");
  const auto carried = [&](const std::string& model, const std::vector<std::string>& overrides) {
    const Files files = weight_folder_files(make(model, overrides));
    EXPECT_FALSE(files.contains("chat_template.jinja"));
    const Scratch saved;
    for (const auto& [name, content] : files) saved.write(name, content);
    return read_tokenizer_config(saved.path()).chat_template;
  };
  const std::string hf = R"({"hf": ")" + folder.path("hf") + R"("})";
  EXPECT_EQ(carried(hf, {}).text, "the first\n");
  EXPECT_EQ(weight_folder_files(make(hf)).at("tokenizer_config.json"), R"({
  "chat_template": [
    {
      "name": "default",
      "template": "the first\n"
    },
    {
      "name": "rag",
      "template": "of \"documents\""
    }
  ]
}
)");
  // As they are read: the folder's default before the file, the files before the field.
  folder.write("hf/additional_chat_templates/default.jinja", "the folder's");
  folder.write("hf/tokenizer_config.json", R"({"eos_token": "<e>", "chat_template": "older"})");
  EXPECT_EQ(carried(hf, {}).text, "the folder's");
  EXPECT_THAT(weight_folder_files(make(hf)).at("tokenizer_config.json"),
              HasSubstr("{\n  \"eos_token\": \"<e>\",\n  \"chat_template\": [\n"));
  for (const char* tokenizer : {"hf", "hf/tokenizer.json"}) {
    EXPECT_EQ(carried(kSmall, {"data.tokenizer=" + folder.path(tokenizer)}).text, "the folder's");
  }
  std::filesystem::remove(folder.path("hf/additional_chat_templates/default.jinja"));
  std::filesystem::remove(folder.path("hf/chat_template.jinja"));
  const ChatTemplate alone = carried(hf, {});
  EXPECT_EQ(alone.text, "");
  EXPECT_EQ(alone.names, std::vector<std::string>{"rag"});
  folder.write("hf/tokenizer_config.json", "[]");
  EXPECT_THAT(error_of([&] { weight_folder_files(make(hf)); }),
              AllOf(HasSubstr("model.hf: "),
                    HasSubstr("hf/tokenizer_config.json is no JSON object, so that the chat "
                              "templates of "),
                    HasSubstr("cannot be carried in it; mend it, or remove that folder")));
}

TEST(WeightFolderFiles, NameTheOneThatCannotBePassedOn) {
  const Scratch folder;
  EXPECT_THAT(error_of([&] {
                weight_folder_files(make(kSmall, {"data.tokenizer=" + folder.path("none")}));
              }),
              AllOf(HasSubstr("data.tokenizer: "),
                    HasSubstr("none is copied, and cannot be read: "), HasSubstr("No such file")));
  const std::string large = folder.write("large", "");
  std::filesystem::resize_file(large, (64 << 20) + 1);
  EXPECT_THAT(error_of([&] { weight_folder_files(make(kSmall, {"data.tokenizer=" + large})); }),
              HasSubstr("has 67108865 bytes, expected at most 67108864"));
}

}  // namespace
}  // namespace zero::testing

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/errors.h"
#include "weights/text_file.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointReaderTest : public ::testing::Test {
 protected:
  CheckpointReaderTest() { save_checkpoint(files_, "runs", 7, layout_, 1); }

  std::string refusal() {
    return error_of([&] { CheckpointReader(files_, folder_); });
  }
  /// Writes index.json with a COMMIT that fits.
  void commit(const CheckpointIndex& index) {
    const std::string text = checkpoint_index_text(index);
    write_text(files_, folder_ + "/index.json", text);
    write_text(files_, folder_ + "/COMMIT", commit_line(text));
  }

  CheckpointLayout layout_ = large_layout();
  MemoryFiles files_;
  std::string folder_ = "runs/step_00000007";
};

TEST_F(CheckpointReaderTest, ReadsBlocksAsTheyWereWritten) {
  CheckpointReader reader(files_, folder_);
  EXPECT_EQ(reader.index().step, 7);
  EXPECT_EQ(reader.index().extra["seed"], 1);
  ASSERT_EQ(reader.blocks().count(), layout_.blocks().count());
  for (std::int64_t number = 0; number < reader.blocks().count(); ++number) {
    const Block block = reader.blocks().at(number);
    std::vector<std::byte> bytes(static_cast<std::size_t>(block.bytes));
    reader.read_block(number, bytes);
    EXPECT_EQ(bytes, block_bytes(layout_, block, 1)) << number;
  }
  EXPECT_THAT(verify_checkpoint(files_, folder_), IsEmpty());
}

TEST_F(CheckpointReaderTest, ReadsTensorsFromAnyElement) {
  CheckpointReader reader(files_, folder_);
  for (const LayoutTensor& tensor : layout_.tensors()) {
    const CheckpointIndex::Tensor* found = reader.find(tensor.name, tensor.kind);
    ASSERT_NE(found, nullptr);
    for (const std::int64_t first : {std::int64_t{0}, tensor.count() / 3, tensor.count()}) {
      std::vector<float> values(static_cast<std::size_t>(tensor.count() - first));
      reader.read(*found, first, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto element = first + static_cast<std::int64_t>(i);
        ASSERT_EQ(values[i], value_of(1, tensor, element)) << tensor.name << " " << element;
      }
    }
  }
  const CheckpointIndex::Tensor& bias = *reader.find("h.0.bias", StateKind::parameter);
  std::vector<float> many(1001);
  EXPECT_THAT(error_of([&] { reader.read(bias, 0, many); }),
              HasSubstr("tensor \"h.0.bias\": 1001 elements from 0 on are outside its 1000"));
  EXPECT_EQ(reader.find("h.9.bias", StateKind::parameter), nullptr);
  const std::int64_t size = reader.index().files[0].bytes;
  std::byte byte{};
  EXPECT_NO_THROW(reader.read_bytes(0, size - 1, std::span(&byte, 1)));
  for (const std::int64_t offset : {std::int64_t{-1}, size}) {
    EXPECT_THAT(error_of([&] { reader.read_bytes(0, offset, std::span(&byte, 1)); }),
                HasSubstr(fmt::format("offset {}: 1 bytes from there on are outside its {}", offset,
                                      size)));
  }
}

TEST_F(CheckpointReaderTest, TellsWhatABlockHolds) {
  const CheckpointReader reader(files_, folder_);
  EXPECT_EQ(reader.content_of(0), "elements 0 to 100002 of tensor \"embedding\" and 1 more");
  EXPECT_EQ(reader.first_tensor(0)->name, "embedding");
}

TEST_F(CheckpointReaderTest, OpensACopyOfAnotherName) {
  files_.rename(folder_, "runs/best");
  EXPECT_THAT(verify_checkpoint(files_, "runs/best"), IsEmpty());
  files_.rename("runs/best", "runs/step_00000008");
  EXPECT_EQ(error_of([&] { CheckpointReader(files_, "runs/step_00000008/"); }),
            "runs/step_00000008//index.json: step: found 7, expected 8 as the folder is called");
}

TEST_F(CheckpointReaderTest, NamesDamagedDataByFileOffsetAndTensor) {
  const LayoutTensor& tensor = layout_.tensors()[2];
  ASSERT_EQ(tensor.name, "h.0.weight");
  const std::string file = layout_.files()[tensor.file].name;
  const std::string path = folder_ + "/" + file;
  std::string data = files_.tree().at(*files_.tree().find(path)).data;
  const auto at = static_cast<std::size_t>(1 << 20) + 12;
  data[at] = static_cast<char>(data[at] ^ 1);
  files_.tree().set(path, data);
  const std::vector<CheckpointFault> faults = verify_checkpoint(files_, folder_);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].file, file);
  EXPECT_EQ(faults[0].offset, 1 << 20);
  EXPECT_EQ(faults[0].tensor, tensor.name);
  EXPECT_THAT(faults[0].reason,
              HasSubstr(path + ": offset 1048576: 231696 bytes, which hold elements 262076 to "
                               "299999 of tensor \"h.0.weight\" and 1 more, have the CRC32C "));
  EXPECT_THAT(faults[0].reason, HasSubstr(": the file was damaged or changed"));
  EXPECT_TRUE(faults[0].damaged);
}

TEST_F(CheckpointReaderTest, TellsWhatCannotBeReadFromDamage) {
  files_.refuse_reads(folder_ + "/weights/tokenizer.model");
  const std::vector<CheckpointFault> faults = verify_checkpoint(files_, folder_);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_FALSE(faults[0].damaged);
  EXPECT_THAT(faults[0].reason, HasSubstr(folder_ + "/weights/tokenizer.model: "));
  files_.refuse_reads("");
  files_.remove_file(folder_ + "/COMMIT");
  EXPECT_TRUE(verify_checkpoint(files_, folder_).at(0).damaged);
}

TEST_F(CheckpointReaderTest, ReadsABlockAgainAfterAFailure) {
  CheckpointReader reader(files_, folder_);
  const CheckpointIndex::Tensor& bias = *reader.find("h.0.bias", StateKind::parameter);
  const std::string path = folder_ + "/" + reader.index().files[bias.file].name;
  const std::string good = files_.tree().at(*files_.tree().find(path)).data;
  std::string bad = good;
  bad[static_cast<std::size_t>(bias.offset)] ^= 1;
  files_.tree().set(path, bad);
  std::vector<float> values(1000);
  EXPECT_THAT(error_of([&] { reader.read(bias, 0, values); }), HasSubstr("CRC32C"));
  EXPECT_THAT(error_of([&] { reader.read(bias, 0, values); }), HasSubstr("CRC32C"));
  files_.tree().set(path, good);
  EXPECT_NO_THROW(reader.read(bias, 0, values));
}

TEST_F(CheckpointReaderTest, RefusesWhatIsMissingOrOfAnotherSize) {
  const std::string config = folder_ + "/weights/config.json";
  files_.tree().set(config, "{\"a\": 1}");
  EXPECT_EQ(refusal(), config + ": has 8 bytes, expected 9 by index.json");
  files_.remove_file(config);
  EXPECT_EQ(refusal(), config + ": is missing; index.json lists it with 9 bytes");
  files_.tree().set(folder_ + "/COMMIT", std::string(2000, 'x'));
  EXPECT_EQ(refusal(), folder_ + "/COMMIT: has 2000 bytes, expected at most 1000");
  files_.remove_file(folder_ + "/index.json");
  EXPECT_THAT(refusal(), HasSubstr(folder_ + "/index.json: is missing; expected it in a"));
  EXPECT_EQ(error_of([&] { CheckpointReader(files_, "runs/none"); }),
            "runs/none: is no folder; expected a checkpoint");
}

// An index with a COMMIT that fits, and files of another content.
TEST_F(CheckpointReaderTest, HoldsHeadersAgainstTheIndex) {
  const CheckpointIndex good = CheckpointReader(files_, folder_).index();
  const std::string path = folder_ + "/" + good.files[0].name;
  CheckpointIndex index = good;
  index.tensors[0].name = "embedded";
  commit(index);
  EXPECT_THAT(refusal(), HasSubstr(path + ": the header has tensor \"embedding\" [100003] at "
                                          "offset"));
  EXPECT_THAT(refusal(), HasSubstr("expected tensor \"embedded\" [100003] at offset"));
  index = good;
  index.tensors[0].shape = {100003, 1};
  commit(index);
  EXPECT_THAT(refusal(), HasSubstr("expected tensor \"embedding\" [100003, 1] at offset"));
  index = good;
  index.tensors.erase(index.tensors.begin() + 1);
  commit(index);
  EXPECT_THAT(refusal(), HasSubstr(path + ": the header has tensor \"h.0.bias\""));
  index = good;
  index.tensors.pop_back();
  commit(index);
  EXPECT_THAT(refusal(), HasSubstr("expected no further tensor by index.json"));
}

}  // namespace
}  // namespace zero::testing

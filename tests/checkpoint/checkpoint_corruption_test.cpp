// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Seeded damages of a checkpoint: each is refused naming file and, for data, tensor and offset.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/support/long_tests.h"
#include "weights/checkpoint_reader.h"
#include "weights/file_blocks.h"
#include "weights/text_file.h"

namespace zero::testing {
namespace {

using nlohmann::ordered_json;

const std::string kDamaged = "runs/step_00000002";

/// A damage of the checkpoint of step 2, beside which that of step 1 is whole.
class Corruption {
 public:
  Corruption(MemoryFiles& files, std::uint64_t seed) : files_(files), random_(seed) {
    for (const auto& [path, data] : files.tree().contents(kDamaged)) {
      if (!path.ends_with('/')) paths_.push_back(path);
    }
  }

  void make() {
    path_ = paths_[below(paths_.size())];
    switch (below(9)) {
      case 0:
      case 1:
        return flip_bit();
      case 2:
        return truncate();
      case 3:
        return extend();
      case 4:
        return swap_files();
      case 5:
        return take_stale_file();
      case 6:
        return fill_with_zeros();
      case 7:
        return edit_index();
      default:
        return edit_index_and_commit();
    }
  }

  /// False if the damage left all bytes as they were: zeros over zeros, and the like.
  bool changed() const { return changed_; }
  const std::string& what() const { return what_; }
  /// The damaged file, in the folder; empty if there are two, or if a fresh COMMIT hides which one
  /// is wrong.
  const std::string& path() const { return path_; }
  /// Where the first damaged byte of that file is, if the file has its size; else -1.
  std::int64_t offset() const { return offset_; }

 private:
  // Not std::uniform_int_distribution, whose numbers differ between libraries.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_()) % count; }
  std::string full(const std::string& path) const { return kDamaged + "/" + path; }
  const std::string& data(const std::string& path, const std::string& step = kDamaged) const {
    return files_.tree().at(*files_.tree().find(step + "/" + path)).data;
  }

  void replace(std::string data, std::string what) {
    const std::string& before = this->data(path_);
    what_ = std::move(what);
    changed_ = data != before;
    if (data.size() == before.size()) {
      const auto at = std::mismatch(data.begin(), data.end(), before.begin()).first;
      offset_ = at == data.end() ? -1 : at - data.begin();
    }
    files_.tree().set(full(path_), std::move(data));
  }

  void flip_bit() {
    std::string text = data(path_);
    if (text.empty()) return extend();
    const std::size_t at = below(text.size());
    text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
    replace(text, "a bit");
  }
  void truncate() {
    std::string text = data(path_);
    if (text.empty()) return extend();
    text.resize(below(2) == 0 ? text.size() - 1 : below(text.size()));
    replace(text, "truncated");
  }
  void extend() { replace(data(path_) + std::string(1 + below(5000), '\0'), "extended"); }
  void swap_files() {
    const std::string other = paths_[below(paths_.size())];
    const std::string one = data(path_);
    changed_ = one != data(other);
    files_.tree().set(full(path_), data(other));
    files_.tree().set(full(other), one);
    what_ = "swapped with " + other;
    path_ = "";
  }
  void take_stale_file() { replace(data(path_, "runs/step_00000001"), "a file of another step"); }
  void fill_with_zeros() {
    std::string text = data(path_);
    const std::size_t begin = below(text.size() / 4096 + 1) * 4096;
    const std::size_t end = std::min(text.size(), begin + 4096 * (1 + below(4)));
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(begin),
              text.begin() + static_cast<std::ptrdiff_t>(end), '\0');
    replace(text, "zeros");
  }

  /// An index.json with another value in one field; `extra` is the trainer's own.
  std::string edited_index() {
    ordered_json index = ordered_json::parse(data("index.json"));
    const char* lists[] = {"tensors", "files"};
    const std::size_t which = below(10);
    if (which == 0) {
      index["step"] = below(2) == 0 ? 1 : below(1000) + 3;
    } else if (which == 1) {
      index["format"] = below(5) + 2;
    } else {
      ordered_json& list = index[lists[which % 2]];
      ordered_json& entry = list[below(list.size())];
      const ordered_json& other = list[below(list.size())];
      const auto field = std::next(entry.begin(), static_cast<std::ptrdiff_t>(below(entry.size())));
      what_ = std::string(lists[which % 2]) + "." + field.key();
      field.value() = below(2) == 0 ? other[field.key()] : changed(field.value());
    }
    return pretty(index);
  }
  ordered_json changed(ordered_json value) {
    if (value.is_number())
      return value.get<std::int64_t>() + static_cast<std::int64_t>(below(9)) - 4;
    if (value.is_string()) {
      auto text = value.get<std::string>();
      if (text.empty()) return "0";
      text[below(text.size())] = "0123456789abcdefg/."[below(19)];
      return text;
    }
    if (!value.empty() && below(2) == 0) {
      value[below(value.size())] = below(100);
    } else {
      value.push_back(below(3));
    }
    return value;
  }
  /// In the form in which indices are written.
  static std::string pretty(const ordered_json& index) {
    std::string text = "{\n\"format\": " + index["format"].dump();
    text += ",\n\"step\": " + index["step"].dump();
    for (const char* list : {"tensors", "files"}) {
      text += ",\n\"" + std::string(list) + "\": [";
      const char* separator = "\n";
      for (const ordered_json& entry : index[list]) {
        text += std::exchange(separator, ",\n") + entry.dump();
      }
      text += "\n]";
    }
    return text + ",\n\"extra\": " + index["extra"].dump() + "\n}\n";
  }

  void edit_index() {
    const std::string text = edited_index();
    const std::string edit = what_;
    path_ = "index.json";
    replace(text, "an edited index: " + edit);
  }
  void edit_index_and_commit() {
    edit_index();
    files_.tree().set(full("COMMIT"), commit_line(data("index.json")));
    what_ += ", with a fresh COMMIT";
    path_ = "";
  }

  MemoryFiles& files_;
  std::mt19937_64 random_;
  std::vector<std::string> paths_;
  std::string what_;
  std::string path_;
  std::int64_t offset_ = -1;
  bool changed_ = false;
};

class CorruptionTest : public ::testing::Test {
 protected:
  CorruptionTest() {
    save_checkpoint(files_, "runs", 1, layout_, 1);
    save_checkpoint(files_, "runs", 2, layout_, 2);
    good_ = files_.tree();
  }

  /// The file, tensors and offset of the block with byte `offset` of file `path`.
  void expect_named(const CheckpointFault& fault, const Corruption& damage) {
    const CheckpointReader reader(files_, "runs/step_00000001");
    for (std::size_t i = 0; i < reader.index().files.size(); ++i) {
      if (reader.index().files[i].name != damage.path()) continue;
      const std::int64_t number = reader.blocks().number(i, damage.offset());
      const CheckpointIndex::Tensor* tensor = reader.first_tensor(number);
      EXPECT_EQ(fault.file, damage.path());
      EXPECT_EQ(fault.offset, reader.blocks().at(number).begin);
      EXPECT_EQ(fault.tensor, tensor == nullptr ? "" : tensor->name);
      EXPECT_NE(fault.reason.find(reader.content_of(number)), std::string::npos);
      return;
    }
    ADD_FAILURE() << damage.path() << " is no file of the index";
  }

  void check(std::uint64_t seed) {
    files_.tree() = good_;
    Corruption damage(files_, seed);
    damage.make();
    if (!damage.changed()) return;
    ++made_;
    const std::vector<CheckpointFault> faults = verify_checkpoint(files_, kDamaged);
    ASSERT_FALSE(faults.empty()) << seed << ": " << damage.path() << ": " << damage.what();
    const std::string& reason = faults[0].reason;
    EXPECT_EQ(reason.find(kDamaged + "/"), 0U) << reason;
    EXPECT_NE(reason.find(damage.path()), reason.npos) << reason;
    if (!faults[0].file.empty() && !damage.path().empty() && damage.offset() >= 0) {
      expect_named(faults[0], damage);
    }
    ASSERT_FALSE(HasFailure()) << seed << ": " << damage.what() << ": " << reason;
  }

  CheckpointLayout layout_ = large_layout();
  MemoryFiles files_;
  Tree good_;
  int made_ = 0;
};

TEST_F(CorruptionTest, IsRefusedNamingTheFile) {
  const std::uint64_t count = long_tests() ? 10000 : 500;
  for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) check(seed);
  EXPECT_GT(made_, static_cast<int>(count) * 8 / 10);
  RecordProperty("made", made_);
}

// Every bit of the two files that everything hangs on.
TEST_F(CorruptionTest, OfAnyBitOfCommitOrIndexIsRefused) {
  for (const char* name : {"COMMIT", "index.json"}) {
    const std::string path = kDamaged + "/" + name;
    std::string text = read_text(files_, path, 1 << 20);
    for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
      const char before = text[bit / 8];
      text[bit / 8] = static_cast<char>(before ^ (1 << bit % 8));
      files_.tree().set(path, text);
      const std::vector<CheckpointFault> faults = verify_checkpoint(files_, kDamaged);
      ASSERT_EQ(faults.size(), 1U) << name << ", bit " << bit;
      text[bit / 8] = before;
    }
    files_.tree().set(path, text);
  }
}

TEST_F(CorruptionTest, OfAnyByteOfAHeaderIsRefused) {
  const LayoutFile& file = layout_.files()[0];
  const std::string path = kDamaged + "/" + file.name;
  const std::string good = files_.tree().contents(kDamaged)[file.name];
  for (std::size_t at = 0; at < file.head.size(); ++at) {
    std::string text = good;
    text[at] = static_cast<char>(text[at] ^ 1);
    files_.tree().set(path, text);
    const std::vector<CheckpointFault> faults = verify_checkpoint(files_, kDamaged);
    ASSERT_FALSE(faults.empty()) << "byte " << at;
    ASSERT_EQ(faults[0].reason.find(path), 0U) << faults[0].reason;
  }
}

}  // namespace
}  // namespace zero::testing

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Files: round trips, hostile ones, and files of Hugging Face's own library.
#include "weights/hf/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <map>

#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST(Safetensors, AFileOfThePythonLibraryReadsRight) {
  const SafetensorsReader file(recorded("reference.safetensors"));
  EXPECT_EQ(file.header().tensors.size(), 21U);
  EXPECT_EQ(file.header().metadata.at("format"), "pt");

  const FileTensor& ramp = *file.find("f32");
  EXPECT_EQ(ramp.shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<float> values(4);
  file.read(ramp, 2, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>{0.0F, 0.5F, 1.0F, 1.5F}));

  std::vector<std::int64_t> whole(5);
  file.read(*file.find("i64"), 0, std::as_writable_bytes(std::span(whole)));
  EXPECT_EQ(whole, (std::vector<std::int64_t>{0, 1, 2, 3, 100}));

  for (int i = 0; i < kFileTypes; ++i) {  // every type is in it
    const auto type = static_cast<FileType>(i);
    std::string name(name_of(type));
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    ASSERT_NE(file.find(name), nullptr) << name;
    EXPECT_EQ(file.find(name)->type, type);
    EXPECT_EQ(file_type_from_name(name_of(type)), type);
  }
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(file.find("scalar")->count(), 1);
  EXPECT_EQ(file.find("empty")->count(), 0);
  EXPECT_EQ(file.find("empty inside")->shape, (std::vector<std::int64_t>{2, 0, 3}));
  ASSERT_NE(file.find("quote \" and \\ and \n and \u00e9"), nullptr);
}

TEST(Safetensors, RewritingAFileOfThePythonLibraryGivesItsBytes) {
  for (const char* name : {"reference.safetensors", "gpt2_tiny.safetensors"}) {
    Scratch scratch;
    const SafetensorsReader original(recorded(name));
    std::map<std::string, std::vector<std::byte>> values;
    for (const FileTensor& tensor : original.header().tensors) {
      values[tensor.name] = bytes_of(original, tensor);
    }
    write_tensors(scratch.path("copy"),
                  lay_out(original.header().tensors, original.header().metadata), values);
    EXPECT_EQ(file_bytes(scratch.path("copy")), file_bytes(original.path())) << name;
  }
}

TEST(Safetensors, EveryTypeAndShapeComesBack) {
  const bool good = rc::check([] {
    Scratch scratch;
    std::vector<FileTensor> tensors;
    const int count = *rc::gen::inRange(0, 8);
    for (int i = 0; i < count; ++i) {
      const auto type = static_cast<FileType>(*rc::gen::inRange(0, kFileTypes));
      const auto shape = *rc::gen::container<std::vector<std::int64_t>>(
          *rc::gen::inRange<std::size_t>(0, 4), rc::gen::inRange<std::int64_t>(0, 5));
      tensors.push_back({fmt::format("{}{}", *rc::gen::inRange(0, 100),
                                     std::string(static_cast<std::size_t>(i), '\n')),
                         type, shape, 0, 0});
    }
    const FileHeader layout = lay_out(tensors, {});
    std::map<std::string, std::vector<std::byte>> written;
    for (const FileTensor& tensor : layout.tensors) {
      auto& data = written[tensor.name];
      for (std::int64_t i = tensor.begin; i < tensor.end; ++i) data.push_back(std::byte(i * 7 + 1));
    }
    write_tensors(scratch.path("file"), layout, written);
    const SafetensorsReader reader(scratch.path("file"));
    RC_ASSERT(reader.header().tensors.size() == tensors.size());
    for (const FileTensor& tensor : tensors) {
      const FileTensor* found = reader.find(tensor.name);
      RC_ASSERT(found != nullptr);
      RC_ASSERT(found->type == tensor.type);
      RC_ASSERT(found->shape == tensor.shape);
      RC_ASSERT(bytes_of(reader, *found) == written[tensor.name]);
    }
  });
  EXPECT_TRUE(good);
}

/// Throws anything but zero::Error only where the reader is wrong; a file that is accepted must be
/// readable to its last byte.
void read_hostile(const std::string& path, std::size_t size) {
  try {
    const SafetensorsReader reader(path);
    std::int64_t end = reader.header().data_begin;
    for (const FileTensor& tensor : reader.header().tensors) {
      RC_ASSERT(reader.offset_of(tensor, 0) == end);
      end += std::ssize(bytes_of(reader, tensor));
    }
    RC_ASSERT(end == static_cast<std::int64_t>(size));
  } catch (const Error& error) {
    RC_ASSERT(std::string_view(error.what()).starts_with(path));
  }
}

TEST(Safetensors, AMutatedFileIsRefusedOrReadsWhole) {
  const std::string original = file_bytes(recorded("reference.safetensors"));
  Scratch scratch;
  const bool good = rc::check([&] {
    std::string mutated = original;
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, mutated.size());
      switch (*rc::gen::inRange(0, 4)) {
        case 0:
          mutated[at] = *rc::gen::arbitrary<char>();
          break;
        case 1:
          mutated[at] = *rc::gen::elementOf(std::string("{}[]\",:0123456789-e. \\"));
          break;
        case 2:
          mutated.erase(at, *rc::gen::inRange<std::size_t>(1, 20));
          break;
        default:
          mutated.insert(at, mutated.substr(*rc::gen::inRange<std::size_t>(0, mutated.size()), 10));
      }
      if (mutated.empty()) break;
    }
    write_bytes(scratch.path("mutated"), mutated);
    read_hostile(scratch.path("mutated"), mutated.size());
  });
  EXPECT_TRUE(good);
}

TEST(Safetensors, AnySingleByteChangeOfAHeaderIsRefusedOrStillFillsTheFile) {
  const std::string file = file_bytes(recorded("gpt2_tiny.safetensors"));
  const SafetensorsReader original(recorded("gpt2_tiny.safetensors"));
  const auto begin = static_cast<std::size_t>(FileHeader::kLengthBytes);
  std::string json =
      file.substr(begin, static_cast<std::size_t>(original.header().data_begin) - begin);
  int accepted = 0;
  for (char& c : json) {
    const char before = c;
    for (const char change : std::string("{]\",9-\\\0\xff", 9)) {
      c = change;
      try {
        const FileHeader header = parse_header("file", json, std::ssize(file));
        EXPECT_EQ(header.data_begin + header.tensors.back().end, std::ssize(file));
        ++accepted;
      } catch (const Error&) {
        continue;
      }
    }
    c = before;
  }
  EXPECT_GT(accepted, 0);  // a changed letter of a name
}

TEST(Safetensors, ArbitraryBytesAreRefusedOrReadWhole) {
  Scratch scratch;
  const bool good = rc::check([&](const std::string& json, const std::string& data) {
    const std::string file = file_of("{" + json, data);
    write_bytes(scratch.path("noise"), file);
    read_hostile(scratch.path("noise"), file.size());
  });
  EXPECT_TRUE(good);
}

TEST(Safetensors, AFileCutWhileItIsOpenSaysWhereItEnds) {
  Scratch scratch;
  const std::string path = scratch.path("cut");
  write_bytes(path, file_bytes(recorded("reference.safetensors")));
  const SafetensorsReader reader(path);
  const FileTensor& last = reader.header().tensors.back();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(error_of([&] { bytes_of(reader, last); }), HasSubstr("the file was cut"));
}

TEST(Safetensors, OffsetsBeyond32BitsAreRead) {
  Scratch scratch;
  const std::string path = scratch.path("sparse");
  constexpr std::int64_t kCount = (std::int64_t{5} << 30) + 3;  // 20 GiB of fp32
  const FileHeader layout =
      lay_out({{"large", FileType::f32, {kCount}}, {"small", FileType::f32, {2}}}, {});
  write_bytes(path, header_bytes(layout));
  std::filesystem::resize_file(
      path, static_cast<std::uintmax_t>(layout.data_begin + layout.tensors.back().end));

  const std::vector<float> values = {1, 2, 3};
  const SafetensorsReader reader(path);
  const auto write = [&, file = files::disk().open_write(path)](
                         std::string_view name, std::int64_t first, std::span<const float> some) {
    file->write(reader.offset_of(*reader.find(name), first), std::as_bytes(some));
  };
  write("large", kCount - 3, values);
  write("small", 0, std::span(values).first(2));
  EXPECT_EQ(reader.find("large")->count(), kCount);
  EXPECT_EQ(reader.offset_of(*reader.find("small"), 1), layout.data_begin + 4 * kCount + 4);
  std::vector<float> read(4);
  reader.read(*reader.find("large"), kCount - 4, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, (std::vector<float>{0, 1, 2, 3}));
  reader.read(*reader.find("small"), 1, std::as_writable_bytes(std::span(read).first(1)));
  EXPECT_EQ(read[0], 2.0F);
}

TEST(Safetensors, RangesOutsideATensorAreRefused) {
  Scratch scratch;
  write_tensors(scratch.path("file"), lay_out({{"t", FileType::f32, {3}}}, {}));
  const SafetensorsReader reader(scratch.path("file"));
  const FileTensor& tensor = *reader.find("t");
  std::vector<std::byte> two(8);
  EXPECT_THAT(error_of([&] { reader.read(tensor, 2, two); }),
              HasSubstr("tensor \"t\": 2 elements from 2 on are outside its 3 elements"));
  EXPECT_THAT(error_of([&] { reader.read(tensor, -1, two); }), HasSubstr("2 elements from -1"));
  EXPECT_THAT(error_of([&] { reader.read(tensor, 0, std::span(two).first(3)); }),
              HasSubstr("3 bytes are not whole elements of F32"));
}

}  // namespace
}  // namespace zero::testing

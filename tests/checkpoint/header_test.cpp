// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Headers that lie, and the layout of new files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <ostream>

#include "base/message_text.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A text of a tensor "t" of 4 bytes with other fields.
std::string entry(const std::string& fields) { return "{\"t\":{" + fields + "}}"; }

/// A header and `data` bytes behind it, and what its refusal must say.
struct Lie {
  std::string name;
  std::string json;
  std::size_t data = 4;
  std::string expected;

  friend void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.json; }
};

class LyingHeader : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingHeader, IsRefusedWithFileTensorAndOffset) {
  Scratch scratch;
  const std::string path = scratch.path("lie.safetensors");
  write_bytes(path, file_of(GetParam().json, std::string(GetParam().data, 'x')));
  const std::string error = error_of([&] { SafetensorsReader reader(path); });
  EXPECT_THAT(error, StartsWith(path + ": "));
  EXPECT_THAT(error, HasSubstr(GetParam().expected));
  EXPECT_EQ(error, printable_line(error));
}

const std::string kGood = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

std::vector<Lie> lies_of_form() {
  return {
      {"Empty", "", 0, "offset 8: the header is not JSON: found nothing, expected '{'"},
      {"Text", "hello", 0, "offset 8: the header is not JSON: found byte 0x68, expected '{'"},
      {"LeadingSpace", " {}", 0, "offset 8: the header is not JSON: found byte 0x20"},
      {"Cut", "{\"t\":{", 0, "offset 14: the header is not JSON: "},
      {"BadSyntax", "{\"t\" 1}", 0, "offset 13: the header is not JSON: "},
      {"TwoObjects", "{}{}", 0, "the header is not JSON"},
      {"HiddenBehindNul", std::string("{}\0{}", 5), 0,
       "offset 10: the header is not JSON: it holds a NUL"},
      {"NotUtf8", "{\"\xff\":1}", 0, "the header is not JSON"},
      {"EscapeCode", R"({"\u001b[2Jt":1})", 0, "tensor \"?[2Jt\" in the header at offset 8: found"},
      {"EscapeCodeOfAField", entry(R"("\u009b2J":1)"), 4, "unknown field \"??2J\", expected"},
      {"EscapeCodeOfATensorThatIsNotThere",
       R"({"\u001b]0;t\u0007":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
       "tensor \"?]0;t?\": data_offsets [0, 8] reach beyond the end of the file"},
      {"NameTwice", "{\"t\":{" + kGood + "},\"t\":{" + kGood + "}}", 4,
       "tensor \"t\" in the header at offset 8: is named twice; names must be unique"},
      {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "is named twice"},
      {"MetadataKeyTwice", R"({"__metadata__":{"a":"1","a":"2"}})", 0,
       "metadata \"a\": is given twice"},
      {"MetadataNumber", R"({"__metadata__":{"a":1}})", 0,
       "metadata \"a\": found the number 1, expected a string"},
      {"MetadataNested", R"({"__metadata__":{"a":{}}})", 0,
       "metadata \"a\": found an object, expected a string"},
      {"MetadataList", R"({"__metadata__":[]})", 0, "found a list, expected an object"},
      {"TensorIsNumber", R"({"t":1})", 0,
       "tensor \"t\" in the header at offset 8: found the number 1, expected an object"},
      {"TensorIsNull", R"({"t":null})", 0, "found null, expected an object"},
      {"TensorIsTrue", R"({"t":true})", 0, "found true, expected an object"},
      {"TensorIsText", R"({"t":"F32"})", 0, "found a string, expected an object"},
      {"UnknownField", entry(kGood + R"(,"strides":[1])"), 4,
       "tensor \"t\" in the header at offset 8: unknown field \"strides\""},
      {"FieldTwice", entry(kGood + R"(,"shape":[1])"), 4, "shape is given twice"},
      {"NoDtype", entry(R"("shape":[1],"data_offsets":[0,4])"), 4, "dtype is missing"},
      {"NoShape", entry(R"("dtype":"F32","data_offsets":[0,4])"), 4, "shape is missing"},
      {"NoOffsets", entry(R"("dtype":"F32","shape":[1])"), 4, "data_offsets is missing"},
      {"OneOffset", entry(R"("dtype":"F32","shape":[1],"data_offsets":[4])"), 4,
       "data_offsets holds 1 numbers, expected 2"},
      {"ThreeOffsets", entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4,
       "data_offsets holds more than two"},
      {"OffsetsAreText", entry(R"("dtype":"F32","shape":[1],"data_offsets":"0,4")"), 4,
       "data_offsets holds a string, expected two integers"},
      {"ShapeIsNumber", entry(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4,
       "shape holds the number 1, expected a list"},
      {"ShapeNested", entry(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4,
       "shape holds a list, expected a list of integers"},
      {"ShapeFraction", entry(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4,
       "shape holds the number 1.5"},
      {"DtypeIsNumber", entry(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4,
       "dtype is the number 32, expected a string"},
      {"DtypeIsList", entry(R"("dtype":["F32"],"shape":[1],"data_offsets":[0,4])"), 4,
       "dtype is a list, expected a string"},
      {"UnknownDtype", entry(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4,
       "tensor \"t\" in the header at offset 8: unknown dtype \"F31\", expected one of BOOL, U8"},
  };
}

std::vector<Lie> lies_of_bytes() {
  const auto with_shape = [](const std::string& shape) {
    return entry(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + shape);
  };
  const auto with_offsets = [](const std::string& offsets) {
    return entry(R"("dtype":"F32","shape":[1],"data_offsets":)" + offsets);
  };
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  return {
      {"NegativeDimension", with_shape("[-1]"), 4,
       "tensor \"t\" in the header at offset 8: shape holds -1, which is negative"},
      {"NegativeOffset", with_offsets("[-4,0]"), 4, "data_offsets holds -4, which is negative"},
      {"DimensionOf64Bits", with_shape("[18446744073709551615]"), 4,
       "shape holds the number 18446744073709551615, expected a list of integers that fit 63 bits"},
      {"DimensionOverflows", with_shape("[18446744073709551616]"), 4,
       "shape holds the number 18446744073709551616"},
      {"OffsetOf64Bits", with_offsets("[0,9223372036854775808]"), 4,
       "data_offsets holds the number 9223372036854775808"},
      {"ProductOverflows", with_shape("[4294967296,4294967296]"), 4,
       "tensor \"t\" (offset 82): shape [4294967296, 4294967296] x F32 does not fit 63 bits"},
      {"BytesOverflow", with_shape("[4611686018427387904]"), 4, "does not fit 63 bits"},
      {"ShapeTooLarge", with_shape("[2]"), 4,
       "tensor \"t\" (offset 62): data_offsets [0, 4] span 4 bytes, expected 8 for shape [2] of "
       "F32"},
      {"ShapeTooSmall", with_shape("[0]"), 4, "span 4 bytes, expected 0 for shape [0] of F32"},
      {"EndBeforeBegin", with_offsets("[4,0]"), 4,
       "tensor \"t\": data_offsets [4, 0] end before they begin"},
      {"BeyondTheFile", with_offsets("[4,8]"), 4,
       "tensor \"t\": data_offsets [4, 8] reach beyond the end of the file: 4 bytes of data begin "
       "at offset 62, the file has 66"},
      {"FarBeyondTheFile", with_offsets("[9223372036854775803,9223372036854775807]"), 4,
       "reach beyond the end of the file"},
      {"DataMissing", with_offsets("[0,4]"), 0, "reach beyond the end of the file"},
      {"Overlap", two("[0,4]", "[2,6]"), 6,
       "tensor \"b\": begins at offset 115, inside tensor \"a\", which ends at 117; tensors must "
       "not overlap"},
      {"SameBytes", two("[0,4]", "[0,4]"), 4, "tensors must not overlap"},
      {"Hole", two("[0,4]", "[8,12]"), 12,
       "tensor \"b\": begins at offset 122, expected 118, where tensor \"a\" ends: the format "
       "allows no hole"},
      {"HoleAtTheFront", with_offsets("[4,8]"), 8,
       "tensor \"t\": begins at offset 66, expected 62, where the header ends: the format allows "
       "no hole"},
      {"TrailingBytes", entry(kGood), 7,
       "3 bytes from offset 66, behind tensor \"t\", belong to no tensor; the format allows none"},
      {"TrailingBytesWithoutTensors", "{}", 1,
       "1 bytes from offset 10, behind the header, belong to no tensor"},
  };
}

const auto kName = [](const ::testing::TestParamInfo<Lie>& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Form, LyingHeader, ::testing::ValuesIn(lies_of_form()), kName);
INSTANTIATE_TEST_SUITE_P(Bytes, LyingHeader, ::testing::ValuesIn(lies_of_bytes()), kName);

TEST(HeaderLength, BeyondTheFileIsRefused) {
  Scratch scratch;
  const std::string path = scratch.path("cut.safetensors");
  write_bytes(path, file_of("{}", "").substr(0, 9));
  EXPECT_EQ(
      error_of([&] { SafetensorsReader reader(path); }),
      path + ": offset 0: header length 2 reaches offset 10, beyond the end of the file at 9");
}

TEST(HeaderLength, OverTheLimitIsRefusedWithoutReadingIt) {
  Scratch scratch;
  const std::string path = scratch.path("large.safetensors");
  for (const std::uint64_t length :
       {std::uint64_t{100'000'001}, std::numeric_limits<std::uint64_t>::max()}) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    write_bytes(path, bytes + "{}");
    EXPECT_THAT(
        error_of([&] { SafetensorsReader reader(path); }),
        HasSubstr(fmt::format(
            "offset 0: header length {} is over the format's limit of 100000000 bytes", length)));
  }
}

TEST(HeaderLength, AFileTooShortForItIsRefused) {
  Scratch scratch;
  const std::string path = scratch.path("short.safetensors");
  write_bytes(path, "1234567");
  EXPECT_THAT(error_of([&] { SafetensorsReader reader(path); }),
              HasSubstr("it has 7 bytes, expected at least 8 that tell the header's length"));
}

TEST(Header, TensorsMayBeListedInAnyOrderAndPaddedWithSpaces) {
  Scratch scratch;
  const std::string path = scratch.path("good.safetensors");
  write_bytes(path, file_of(R"({"b":{"data_offsets":[1,2],"shape":[1],"dtype":"U8"},)"
                            R"("a":{"dtype":"I8","shape":[],"data_offsets":[0,1]},)"
                            R"("none":{"dtype":"I8","shape":[0,7],"data_offsets":[1,1]}}   )",
                            "xy"));
  const SafetensorsReader reader(path);
  ASSERT_EQ(reader.header().tensors.size(), 3U);
  EXPECT_EQ(reader.header().tensors[0].name, "a");
  EXPECT_EQ(reader.header().tensors[1].name, "none");
  EXPECT_EQ(bytes_of(reader, *reader.find("b")).at(0), std::byte{'y'});
  EXPECT_EQ(reader.find("c"), nullptr);
}

TEST(Header, OfMoreTensorsThanModelsHaveIsRefusedThere) {
  std::string json = "{";
  for (int i = 0; i <= 1 << 18; ++i) {
    json += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                        i == 0 ? "" : ",", i);
  }
  EXPECT_EQ(error_of([&] { read_header_text("f.safetensors", json + ",no JSON"); }),
            "f.safetensors: the header has more than 262144 tensors, which no model's file has");
}

TEST(Header, AFileWithoutTensorsIsFine) {
  Scratch scratch;
  const std::string path = scratch.path("none.safetensors");
  write_bytes(path, file_of("{}", ""));
  EXPECT_TRUE(SafetensorsReader(path).header().tensors.empty());
}

TEST(Layout, StartsTheDataAtAMultipleOfEightAndSortsByTypeThenName) {
  const FileHeader layout = lay_out({{"z", FileType::u8, {3}},
                                     {"b", FileType::f32, {2}},
                                     {"a", FileType::f32, {}},
                                     {"c", FileType::i64, {1}}},
                                    {{"format", "pt"}});
  std::vector<std::string> order;
  for (const FileTensor& tensor : layout.tensors) {
    order.push_back(tensor.name);
    EXPECT_EQ((layout.data_begin + tensor.begin) % size_of(tensor.type), 0);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"c", "a", "b", "z"}));
  EXPECT_EQ(layout.data_begin % 8, 0);
  EXPECT_EQ(std::ssize(header_bytes(layout)), layout.data_begin);
  EXPECT_EQ(layout.tensors.back().end, 8 + 4 + 8 + 3);
}

TEST(Layout, RefusesNamesThatFilesCannotHold) {
  EXPECT_THAT(error_of([] {
                lay_out({{"a", FileType::u8, {}}, {"a", FileType::f32, {}}}, {});
              }),
              HasSubstr("tensor \"a\" is listed twice for one file"));
  EXPECT_THAT(error_of([] {
                lay_out({{"__metadata__", FileType::u8, {}}}, {});
              }),
              HasSubstr("the format reserves it"));
  EXPECT_THAT(error_of([] { lay_out({{"\xff", FileType::u8, {}}}, {}); }), HasSubstr("not UTF-8"));
}

TEST(Layout, RefusesSizesThatDoNotFit) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  EXPECT_THAT(error_of([] {
                lay_out({{"a", FileType::f32, {kHuge}}}, {});
              }),
              HasSubstr("tensor \"a\": shape [2305843009213693952] of F32 cannot be laid out"));
  EXPECT_THAT(error_of([] {
                lay_out({{"a", FileType::u8, {kHuge, 3}}, {"b", FileType::u8, {kHuge}}}, {});
              }),
              HasSubstr("tensor \"b\""));
  EXPECT_THAT(error_of([] { lay_out({{"a", FileType::u8, {-1}}}, {}); }), HasSubstr("[-1]"));
}

TEST(Layout, RefusesAHeaderThatReadersWouldRefuse) {
  const auto header_with = [](std::int64_t note) {
    return lay_out({}, {{"note", std::string(static_cast<std::size_t>(note), 'n')}});
  };
  const std::int64_t around = std::ssize(std::string_view(R"({"__metadata__":{"note":""}})"));
  EXPECT_EQ(header_with(FileHeader::kLargest - around).data_begin, FileHeader::kLargest + 8);
  EXPECT_EQ(error_of([&] { header_with(FileHeader::kLargest - around + 1); }),
            "the header of 0 tensors takes 100000008 bytes, over the limit of 100000000: readers "
            "would refuse it");
}

}  // namespace
}  // namespace zero::testing

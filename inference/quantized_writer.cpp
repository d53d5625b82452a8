// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/quantized_writer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/error.h"
#include "device/cpu/primitives.h"
#include "weights/quantized_files.h"

namespace zero {
namespace {

FileType file_type(DType dtype) {
  ZERO_CHECK(dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16,
             "vectors are written as fp32, bf16 or fp16, found {}", name_of(dtype));
  return dtype == DType::fp32   ? FileType::f32
         : dtype == DType::bf16 ? FileType::bf16
                                : FileType::f16;
}

/// Codes as files have them: of 4 bits two to a byte.
std::vector<std::uint8_t> codes_of_file(const QuantizedRows& rows) {
  if (rows.shape.format == WeightFormat::int8) return rows.codes;
  const std::int64_t columns = rows.shape.file_columns();
  const std::int64_t bytes = code_row_bytes(rows.shape);
  std::vector<std::uint8_t> halves(static_cast<std::size_t>(rows.count * bytes));
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const std::uint8_t* const codes = rows.codes.data() + row * columns;
    std::uint8_t* const to = halves.data() + row * bytes;
    for (std::int64_t i = 0; i < columns / 2; ++i) {
      to[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
    if (columns % 2 != 0) to[bytes - 1] = codes[columns - 1];
  }
  return halves;
}

class Writer {
 public:
  Writer(const ModelFolder& from, const QuantizedFormats& formats, int threads,
         files::OutputFile& file)
      : source_(from.source()),
        formats_(formats),
        threads_(threads),
        header_(quantized_header(from.shape(), formats)),
        file_(file) {}

  void write(const std::vector<DecoderParameter>& parameters) {
    const std::string head = header_bytes(header_);
    file_.write(0, std::as_bytes(std::span(head)));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].is_matrix() ? write_matrix(i, parameters[i]) : write_vector(i, parameters[i]);
    }
    file_.sync();
  }

 private:
  /// Writes bytes of a tensor from its byte `begin` on.
  void store(const std::string& name, std::int64_t begin, std::span<const std::byte> bytes) {
    const FileTensor& tensor = *std::ranges::find(header_.tensors, name, &FileTensor::name);
    file_.write(header_.data_begin + tensor.begin + begin, bytes);
  }

  void write_matrix(std::size_t number, const DecoderParameter& matrix) {
    constexpr std::int64_t kElements = std::int64_t{4} << 20;  // read at a time, about
    const WeightShape shape = whole_shape(matrix, formats_.codes);
    const std::int64_t columns = shape.file_columns();
    const std::int64_t step =
        round_up(std::max<std::int64_t>(1, kElements / columns), pack_rows(shape));
    std::vector<float> values;
    for (std::int64_t row = 0; row < shape.file_rows(); row += step) {
      values.resize(static_cast<std::size_t>(std::min(step, shape.file_rows() - row) * columns));
      source_.read(number, row * columns, values);
      const QuantizedRows rows = quantized(matrix, shape, row, values);
      const std::vector<std::uint8_t> codes = codes_of_file(rows);
      store(matrix.name, row * code_row_bytes(shape), std::as_bytes(std::span(codes)));
      store_scales(matrix.name, rows);
    }
  }

  QuantizedRows quantized(const DecoderParameter& matrix, const WeightShape& shape,
                          std::int64_t row, std::span<const float> values) const {
    try {
      return quantize(shape, row, values, threads_);
    } catch (const Error& error) {
      fail("tensor \"{}\": {}", matrix.name, error.what());
    }
  }

  // Whole rows of their tensors, as the rows of codes are.
  void store_scales(const std::string& name, const QuantizedRows& rows) {
    const WeightShape& shape = rows.shape;
    const std::int64_t groups = count_groups(shape.format, shape.in);
    store(name + "_scale",
          scale_bytes(shape.format) *
              (rows.by_depth() ? rows.group_begin() * shape.out : rows.first * groups),
          rows.scales);
    if (rows.ranges.empty()) return;
    const std::int64_t at = rows.by_depth() ? rows.scale_block_begin() * div_ceil(shape.out, kTile)
                                            : rows.first / kTile * div_ceil(groups, kGroupsOfRange);
    store(name + "_scale_range", at * static_cast<std::int64_t>(sizeof(ScaleRange)),
          std::as_bytes(std::span(rows.ranges)));
  }

  void write_vector(std::size_t number, const DecoderParameter& vector) {
    std::vector<float> values(static_cast<std::size_t>(vector.vectors() * vector.out));
    source_.read(number, 0, values);
    std::vector<std::byte> bytes(values.size() *
                                 static_cast<std::size_t>(size_of(formats_.vectors)));
    const View rounded(bytes.data(), std::ssize(values), formats_.vectors, nullptr);
    cpu::convert(View::of(std::span(values)), rounded);
    std::vector<float> again(values.size());
    cpu::convert(rounded, View::of(std::span(again)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ZERO_CHECK(!std::isfinite(values[i]) || std::isfinite(again[i]),
                 "tensor \"{}\": element {} is {}, too large for {}; take another --dtype",
                 vector.name, i, values[i], name_of(formats_.vectors));
    }
    store(vector.name, 0, bytes);
  }

  const ModelWeights::Source source_;
  const QuantizedFormats formats_;
  const int threads_;
  const FileHeader header_;
  files::OutputFile& file_;
};

}  // namespace

FileHeader quantized_header(const DecoderShape& shape, const QuantizedFormats& formats) {
  ZERO_CHECK(formats.codes != WeightFormat::plain, "weights are dtype; expected int8, nf4 or q4");
  std::vector<FileTensor> all;
  for (const DecoderParameter& each : all_parameters(shape)) {
    if (!each.is_matrix()) {
      all.push_back({.name = each.name, .type = file_type(formats.vectors), .shape = each.shape()});
      continue;
    }
    for (FileTensor& tensor : quantized_tensors(each, formats.codes)) {
      all.push_back(std::move(tensor));
    }
  }
  return lay_out(std::move(all), {});
}

std::int64_t write_quantized(const ModelFolder& from, const QuantizedFormats& formats, int threads,
                             files::FileSystem& disk, const std::string& path) {
  ZERO_CHECK(from.format() == WeightFormat::plain, "weights are codes of {}; expected elements",
             from.codes());
  const FileHeader header = quantized_header(from.shape(), formats);
  const std::int64_t bytes = header.data_begin + header.tensors.back().end;
  const std::unique_ptr<files::OutputFile> file = disk.create(path, bytes);
  Writer(from, formats, threads, *file).write(all_parameters(from.shape()));
  return bytes;
}

}  // namespace zero

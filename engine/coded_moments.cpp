// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/coded_moments.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "optim/cpu/small_moments.h"

namespace zero {
namespace {

/// Decodes, in host memory, the codes that fill the end of `to`. In chunks in order, values never
/// overwrite a code that is still to be read: n values end before the code behind the n-th.
void decode_in_place(const CodedMoment& from, const View& to) {
  std::array<std::uint8_t, 4096> chunk{};
  for (std::int64_t begin = 0; begin < to.count(); begin += std::ssize(chunk)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(chunk), to.count() - begin);
    CodedMoment part = from.slice(begin, count);
    std::memcpy(chunk.data(), part.codes.data(), static_cast<std::size_t>(count));
    part.codes = {chunk.data(), count, DType::u8, nullptr};
    cpu::decode_moment(part, to.as<float>().data() + begin);
  }
}

}  // namespace

CodedMoments::CodedMoments(Device& device, StateAccess& access, Optimizer& optimizer)
    : device_(device), access_(access), optimizer_(optimizer) {
  const bool coded = optimizer.config().moments == MomentFormat::eight_bit;
  if (!coded || device.memory() == MemorySpace::host) return;
  scales_ = device.allocate_host(kScales, DType::fp32, MemoryClass::staging, "scales of moments");
}

void CodedMoments::read(const CodedMoment& from, const StateAccess::Visit& visit) const {
  std::vector<float> scales;
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < from.codes.count(); begin += kPiece) {
    CodedMoment part = from.slice(begin, std::min(kPiece, from.codes.count() - begin));
    scales.resize(static_cast<std::size_t>(part.scales.count()));
    values.resize(static_cast<std::size_t>(part.codes.count()));
    access_.read(part.scales, [&](std::int64_t at, const View& piece) {
      std::ranges::copy(piece.as<const float>(), scales.begin() + at);
    });
    part.scales = View::of(std::span(scales));
    access_.read(part.codes, [&](std::int64_t at, const View& piece) {
      CodedMoment on_host = part.slice(at, piece.count());
      on_host.codes = piece;
      cpu::decode_moment(on_host, values.data() + at);
    });
    visit(begin, View::of(std::span(values)));
  }
}

void CodedMoments::copy(const CodedMoment& from, const View& to, Stream& stream) {
  if (access_.in_file(from.codes)) {
    return access_.visit_later(from.codes, stream, [&](std::int64_t at, const View& codes) {
      CodedMoment part = from.slice(at, codes.count());
      part.codes = codes;
      copy_from_host(part, to.slice(at, codes.count()), device_.transfer());
    });
  }
  if (access_.in_host(from.codes)) {
    access_.wait_for_host(stream);
    return copy_from_host(from, to, stream);
  }
  if (to.device() != nullptr || device_.memory() == MemorySpace::host)
    return optimizer_.decode(stream, from, to);
  copy_to_host(from, to, stream);
}

/// Of codes in host memory.
void CodedMoments::copy_from_host(const CodedMoment& from, const View& to, Stream& stream) {
  if (device_.memory() == MemorySpace::host) {
    return stream.submit_host("moments of the file",
                              [from, to] { cpu::decode_moment(from, to.as<float>().data()); });
  }
  if (to.device() == nullptr) return copy_to_host(from, to, stream);
  access_.upload(from.codes, stream, [&](std::int64_t at, const View& codes) {
    CodedMoment part = from.slice(at, codes.count());
    part.codes = codes;
    optimizer_.decode(stream, part, to.slice(at, codes.count()));
  });
}

/// Of scales in memory of the device that host code cannot access.
void CodedMoments::copy_to_host(const CodedMoment& from, const View& to, Stream& stream) {
  if (copying_ != &stream) stream.wait(copied_);
  copying_ = &stream;
  for (std::int64_t begin = 0; begin < to.count(); begin += kPiece) {
    const std::int64_t count = std::min(kPiece, to.count() - begin);
    copy_piece(from.slice(begin, count), to.slice(begin, count), stream);
  }
  copied_ = stream.record();
}

/// Copies codes, unless they are in host memory, and scales, and decodes them there, before the
/// stream's next copy of scales.
void CodedMoments::copy_piece(const CodedMoment& from, const View& to, Stream& stream) {
  const View scales = scales_.slice(0, from.scales.count());
  View codes = from.codes;
  device_.kernels().convert(stream, from.scales, scales);
  if (codes.device() != nullptr) {
    codes = to.reinterpret(DType::u8, to.bytes()).slice(to.bytes() - codes.count(), codes.count());
    device_.kernels().convert(stream, from.codes, codes);
  }
  stream.submit_host("moments to fp32",
                     [to, copied = CodedMoment{from.moment, codes, scales, from.phase}] {
                       decode_in_place(copied, to);
                     });
}

void CodedMoments::set(const CodedMoment& moment, std::int64_t at, std::int64_t end,
                       const View& values) {
  std::int64_t done = 0;
  while (done < values.count()) {
    const std::int64_t begin = at + done;
    const std::int64_t left = values.count() - done;
    const bool to_end = begin + left == end;
    const std::int64_t whole = to_end ? left : left / kMomentBlock * kMomentBlock;
    if (begin % kMomentBlock == 0 && whole > 0) {
      set_blocks(moment, begin, values.slice(done, whole));
      done += whole;
    } else {
      const std::int64_t count = std::min(left, kMomentBlock - begin % kMomentBlock);
      set_part(moment, begin, end, values.slice(done, count));
      done += count;
    }
  }
}

/// Sets all elements of some blocks.
void CodedMoments::set_blocks(const CodedMoment& moment, std::int64_t at, const View& values) {
  const CodedMoment to = moment.slice(at, values.count());
  encode(to, values);
  const auto* const first = static_cast<const std::uint8_t*>(to.codes.data());
  parts_.erase(parts_.lower_bound(first), parts_.lower_bound(first + values.count()));
}

/// Encodes values to `to`, which begins a block.
void CodedMoments::encode(const CodedMoment& to, const View& values) {
  std::vector<float> scales(static_cast<std::size_t>(to.scales.count()));
  const CodedMoment on_host{to.moment, to.codes, View::of(std::span(scales))};
  access_.write(to.codes, [&](std::int64_t begin, const View& piece) {
    CodedMoment part = on_host.slice(begin, piece.count());
    part.codes = piece;
    cpu::encode_moment(values.as<const float>().data() + begin, part);
  });
  access_.write(to.scales, [&](std::int64_t begin, const View& piece) {
    std::ranges::copy_n(scales.begin() + begin, piece.count(), piece.as<float>().begin());
  });
}

/// Sets some elements of one block.
void CodedMoments::set_part(const CodedMoment& moment, std::int64_t at, std::int64_t end,
                            const View& values) {
  const std::int64_t begin = at / kMomentBlock * kMomentBlock;
  const std::int64_t count = std::min(kMomentBlock, end - begin);
  const CodedMoment to = moment.slice(begin, count);
  const auto [found, added] = parts_.try_emplace(to.codes.data());
  Part& part = found->second;
  if (added) {
    read(to, [&](std::int64_t first, const View& known) {
      std::ranges::copy(known.as<const float>(), part.values.begin() + first);
    });
  }
  std::ranges::copy(values.as<const float>(), part.values.begin() + (at - begin));
  for (std::int64_t i = 0; i < values.count(); ++i)
    part.set.set(static_cast<std::size_t>(at - begin + i));
  encode(to, View::of(std::span<float>(part.values)).slice(0, count));
  if (static_cast<std::int64_t>(part.set.count()) == count) parts_.erase(found);
}

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/kernels.h"

#include <utility>

#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "device/planning/clock.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kGenerated = 1 << 12;  // elements: a random value takes about 20 ns

std::int64_t bytes_of(const std::vector<View>& views) {
  std::int64_t bytes = 0;
  for (const View& view : views) bytes += view.bytes();
  return bytes;
}

}  // namespace

void CpuKernels::convert(Stream& stream, View from, View to) {
  check_convert(from, to);
  planning::announce(stream, from.bytes() + to.bytes());
  stream.submit("convert",
                [from, to, threads = threads_on(stream)] { cpu::convert(from, to, threads); });
}

void CpuKernels::zero(Stream& stream, View view) {
  planning::announce(stream, view.bytes());
  stream.submit("zero", [view, threads = threads_on(stream)] { cpu::zero(view, threads); });
}

void CpuKernels::poison(Stream& stream, View view) {
  planning::announce(stream, view.bytes());
  stream.submit("poison", [view, threads = threads_on(stream)] { cpu::poison(view, threads); });
}

void CpuKernels::generate(Stream& stream, View to, Source source) {
  ZERO_CHECK(to.dtype() == DType::fp32, "generate: values are fp32, the destination is {}",
             name_of(to.dtype()));
  stream.submit("generate", [to, source = std::move(source), threads = threads_on(stream)] {
    const std::span<float> out = to.as<float>();
    parallel_for(threads, to.count(), kGenerated, [&](std::int64_t begin, std::int64_t end) {
      source(begin,
             out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    });
  });
}

void CpuKernels::tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) {
  check_tree_reduce(inputs, epilogue);
  planning::announce(stream,
                     bytes_of(inputs) + bytes_of(epilogue.addends) + epilogue.destination.bytes());
  stream.submit("tree_reduce",
                [inputs = std::move(inputs), epilogue = std::move(epilogue),
                 threads = threads_on(stream)] { cpu::tree_reduce(inputs, epilogue, threads); });
}

void CpuKernels::combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) {
  check_combine(inputs, to);
  planning::announce(stream, bytes_of(inputs) + to.bytes());
  stream.submit("combine", [inputs = std::move(inputs), op, to] { cpu::combine(inputs, op, to); });
}

}  // namespace zero::cpu

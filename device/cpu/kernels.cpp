// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/kernels.h"

#include <utility>

#include "device/cpu/primitives.h"

namespace zero::cpu {

void CpuKernels::convert(Stream& stream, View from, View to) {
  check_convert(from, to);
  stream.submit("convert",
                [from, to, threads = threads_on(stream)] { cpu::convert(from, to, threads); });
}

void CpuKernels::zero(Stream& stream, View view) {
  stream.submit("zero", [view, threads = threads_on(stream)] { cpu::zero(view, threads); });
}

void CpuKernels::poison(Stream& stream, View view) {
  stream.submit("poison", [view, threads = threads_on(stream)] { cpu::poison(view, threads); });
}

void CpuKernels::tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) {
  check_tree_reduce(inputs, epilogue);
  stream.submit("tree_reduce",
                [inputs = std::move(inputs), epilogue = std::move(epilogue),
                 threads = threads_on(stream)] { cpu::tree_reduce(inputs, epilogue, threads); });
}

}  // namespace zero::cpu

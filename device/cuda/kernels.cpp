// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/kernels.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "device/cuda/check.h"
#include "device/cuda/primitives.h"
#include "device/cuda/stream.h"

namespace zero::cuda {
namespace {

constexpr std::size_t kNormBytes = ExactSum::kLimbs * sizeof(std::int64_t);
constexpr int kBlocksEach = 8;  // blocks per multiprocessor
constexpr std::int64_t kGenerated = 1
                                    << 12;  // elements per thread: a random value takes about 20 ns

/// Kernels cannot access host memory that is not mapped to the device.
void check_on_device(const View& view, const char* who) {
  ZERO_CHECK(view.device() != nullptr || view.empty(),
             "{}: a view of {} {} is host memory; copy it to the device first (equal dtypes)", who,
             view.count(), name_of(view.dtype()));
}

std::size_t bytes_of(const View& view) { return static_cast<std::size_t>(view.bytes()); }

}  // namespace

CudaKernels::CudaKernels(Device& device, int processors)
    : streams_{&device.compute(), &device.communication()},
      scratch_(device),
      blocks_(processors * kBlocksEach) {}

std::size_t CudaKernels::index_of(Stream& stream) const {
  const auto found = std::ranges::find(streams_, &stream);
  ZERO_CHECK(found != streams_.end(),
             "tree_reduce: a norm needs the compute or the communication stream of the kernels' "
             "own device");
  return static_cast<std::size_t>(found - streams_.begin());
}

void CudaKernels::convert(Stream& stream, View from, View to) {
  cpu::check_convert(from, to);
  if (from.dtype() != to.dtype()) {
    check_on_device(from, "convert");
    check_on_device(to, "convert");
  }
  if (from.empty() || (from.data() == to.data() && from.dtype() == to.dtype())) return;
  stream.submit("convert", [&] {
    if (from.dtype() != to.dtype()) return cuda::convert(from, to, native(stream));
    check(cudaMemcpyAsync(to.data(), from.data(), bytes_of(to), cudaMemcpyDefault, native(stream)),
          "copy");
  });
}

void CudaKernels::zero(Stream& stream, View view) {
  if (view.empty()) return;
  stream.submit("zero", [&] {
    check(cudaMemsetAsync(view.data(), 0, bytes_of(view), native(stream)), "zero");
  });
}

void CudaKernels::poison(Stream& stream, View view) {
  if (view.empty()) return;
  const int byte = is_floating(view.dtype()) ? 0xff : 0x7f;
  stream.submit("poison", [&] {
    check(cudaMemsetAsync(view.data(), byte, bytes_of(view), native(stream)), "poison");
  });
}

void CudaKernels::generate(Stream& stream, View to, Source source) {
  ZERO_CHECK(to.dtype() == DType::fp32, "generate: values are fp32, the destination is {}",
             name_of(to.dtype()));
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  constexpr std::int64_t kPiece = KernelScratch::kPieceElements;
  for (std::int64_t begin = 0; begin < to.count(); begin += kPiece) {
    const std::size_t at = static_cast<std::size_t>(begin / kPiece) % uploaded_.size();
    uploaded_[at].synchronize();
    const View part = to.slice(begin, std::min(kPiece, to.count() - begin));
    const std::span<float> values = scratch_.pieces[at].slice(0, part.count()).as<float>();
    cpu::parallel_for(
        threads, part.count(), kGenerated, [&](std::int64_t first, std::int64_t last) {
          source(begin + first, values.subspan(static_cast<std::size_t>(first),
                                               static_cast<std::size_t>(last - first)));
        });
    convert(stream, View::of(values), part);
    uploaded_[at] = stream.record();
  }
}

void CudaKernels::tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) {
  cpu::check_tree_reduce(inputs, epilogue);
  ZERO_CHECK(inputs.size() <= kMostInputs && epilogue.addends.size() <= kMostAddends,
             "tree_reduce: {} inputs and {} addends; a CUDA device takes {} and {}", inputs.size(),
             epilogue.addends.size(), kMostInputs, kMostAddends);
  for (const View& view : inputs) check_on_device(view, "tree_reduce");
  for (const View& view : epilogue.addends) check_on_device(view, "tree_reduce");
  check_on_device(epilogue.destination, "tree_reduce");
  if (epilogue.destination.empty()) return;
  if (!epilogue.norm) {
    return stream.submit("tree_reduce", [&] {
      cuda::tree_reduce(inputs, epilogue, nullptr, blocks_, native(stream));
    });
  }
  const std::size_t at = index_of(stream);
  if (pending_[at] && pending_[at] != epilogue.norm) flush(stream, at);
  stream.submit("tree_reduce", [&] {
    const cudaStream_t queue = native(stream);
    void* const limbs = scratch_.norms[at].limbs.view().data();
    if (!pending_[at]) check(cudaMemsetAsync(limbs, 0, kNormBytes, queue), "zero the norm");
    cuda::tree_reduce(inputs, epilogue, static_cast<std::int64_t*>(limbs), blocks_, queue);
  });
  pending_[at] = epilogue.norm;
  if (!is_deferred(epilogue.norm)) flush(stream, at);
}

void CudaKernels::combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) {
  cpu::check_combine(inputs, to);
  ZERO_CHECK(inputs.size() <= kMostInputs, "combine: {} inputs; a CUDA device takes {}",
             inputs.size(), kMostInputs);
  for (const View& view : inputs) check_on_device(view, "combine");
  check_on_device(to, "combine");
  if (to.empty()) return;
  stream.submit("combine", [&] { cuda::combine(inputs, op, to, native(stream)); });
}

void CudaKernels::defer_norm(const std::shared_ptr<ExactSum>& norm) {
  std::erase_if(deferred_, [](const std::weak_ptr<ExactSum>& each) { return each.expired(); });
  deferred_.push_back(norm);
}

bool CudaKernels::is_deferred(const std::shared_ptr<ExactSum>& norm) const {
  return std::ranges::any_of(deferred_, [&](const auto& each) { return each.lock() == norm; });
}

void CudaKernels::flush_norms(Stream& stream) {
  const std::size_t at = index_of(stream);
  if (pending_[at]) flush(stream, at);
}

void CudaKernels::flush(Stream& stream, std::size_t at) {
  const Norm& memory = scratch_.norms[at];
  auto* const copy = static_cast<std::int64_t*>(memory.copy.view().data());
  stream.submit("norm", [&] {
    check(cudaMemcpyAsync(copy, memory.limbs.view().data(), kNormBytes, cudaMemcpyDefault,
                          native(stream)),
          "copy the norm");
  });
  stream.submit_host("norm", [copy, norm = std::exchange(pending_[at], nullptr)] {
    ExactSum sum;
    std::copy_n(copy, ExactSum::kLimbs, sum.limbs().begin());
    norm->add(sum);
  });
}

}  // namespace zero::cuda

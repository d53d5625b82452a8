// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/library_attention.h"

#include <atomic>
#include <stdexcept>

#include "base/error.h"
#include "model/cuda/attention.h"
#include "model/cuda/make_ops.h"

namespace zero::cuda {
namespace {

std::atomic<library_attention::Kind> kind{library_attention::Kind::none};

class Refusing final : public Attention {
 public:
  std::string refusal(const AttentionShape& /*shape*/) const override { return {}; }
  void prepare(const AttentionShape& shape) override {
    const bool windowed = shape.seen() < shape.sequence;
    if (kind == library_attention::Kind::refuses_windows && !windowed) return;
    if (kind == library_attention::Kind::throws) throw std::runtime_error("no implementation");
    fail("cuda: cuDNN: a plan of attention of {} x {}: no engine", shape.batch, shape.sequence);
  }
  std::int64_t scratch_bytes(const AttentionShape& /*shape*/) const override { return 1 << 20; }
  void forward(cudaStream_t /*stream*/, const AttentionShape& /*shape*/,
               const AttentionOperands& /*operands*/) override {
    if (kind == library_attention::Kind::refuses_windows) return;
    fail("attention was refused");
  }
  void backward(cudaStream_t /*stream*/, const AttentionShape& /*shape*/,
                const AttentionOperands& /*operands*/) override {
    fail("attention was refused");
  }
};

}  // namespace

namespace library_attention {

void become(Kind now) { kind = now; }

}  // namespace library_attention

std::unique_ptr<Attention> make_cudnn_attention(Device& /*device*/) {
  if (kind == library_attention::Kind::none) return nullptr;
  return std::make_unique<Refusing>();
}

std::string cudnn_version() { return "not in this build, whose own kernels compute attention"; }

}  // namespace zero::cuda

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <exception>
#include <source_location>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/handles.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/attention_slices.h"
#include "ops/cuda/make_ops.h"

namespace zero::cuda {
namespace {

// Older headers keep a pointer to a temporary in the plans that they build.
static_assert(CUDNN_FRONTEND_VERSION >= 13200,
              "cuDNN's frontend headers are older than 1.32: launch/install_cuda.sh brings newer");

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using LibraryHandle = Handle<cudnnHandle_t, cudnnDestroy>;

constexpr std::int64_t kShortest = 128;        // shortest sequence for the library's kernels
constexpr std::int64_t kWide = 128;            // widest head of its backward on every GPU,
constexpr std::int64_t kWidest = 256;          // and on compute capability 9
constexpr std::int64_t kSlice = 1LL << 30;     // bytes of gradients of scores at a time
constexpr std::int64_t kForward = 8LL << 20;   // workspace limit of forward
constexpr std::int64_t kReserve = 16LL << 20;  // backward's limit beyond its named parts

enum Operand : std::int64_t { kQ = 1, kK, kV, kOut, kLogSums, kDout, kDq, kDk, kDv };

std::string text_of(const AttentionShape& s) {
  return fmt::format("{} attention of {} x {}, {} heads of {} over {}{}", name_of(s.dtype), s.batch,
                     s.sequence, s.heads, s.head_width, s.key_heads(),
                     s.seen() < s.sequence ? fmt::format(", a window of {}", s.seen()) : "");
}

void check(fe::error_t status, const AttentionShape& s, std::string_view what,
           std::source_location where = std::source_location::current()) {
  if (status.is_good()) return;
  fail("cuda: cuDNN: {} of {}: {} at {}:{}", what, text_of(s), status.get_message(),
       where.file_name(), where.line());
}

void check(cudnnStatus_t status, std::string_view what,
           std::source_location where = std::source_location::current()) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail("cuda: {}: cuDNN says {} at {}:{}", what, cudnnGetErrorString(status), where.file_name(),
       where.line());
}

// The bytes of the gradients of a sequence's scores, of two each, which deterministic backward
// keeps.
std::int64_t score_bytes(const AttentionShape& s) {
  return 2 * s.heads * round_up(s.sequence, 64) * round_up(s.sequence, 128);
}

// Sequences per call of backward: the largest divisor of the batch that fits.
std::int64_t slice_of(const AttentionShape& s) {
  return divisor_up_to(s.batch, kSlice / score_bytes(s));
}

// Scores, the rows' dout . out, dq in fp32, dk and dv of every query head.
std::int64_t backward_bytes(const AttentionShape& s) {
  const std::int64_t rows = slice_of(s) * s.heads * s.sequence;
  return slice_of(s) * score_bytes(s) + rows * (4 + 12 * s.head_width) + kReserve;
}

struct Graph {
  fe::graph::Graph graph;
  std::int64_t batch = 0;

  Graph(const AttentionShape& s, std::int64_t sequences) : shape_(s) {
    batch = sequences;
    graph.set_io_data_type(s.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }
  // Rows (batch * sequence, width) of heads, side by side.
  std::vector<std::int64_t> heads(std::int64_t count) const {
    return {batch, count, shape_.sequence, shape_.head_width};
  }
  std::vector<std::int64_t> strides(std::int64_t width) const {
    return {shape_.sequence * width, shape_.head_width, width, 1};
  }
  Tensor input(const char* name, Operand operand, std::int64_t count, std::int64_t width) {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name(name)
                            .set_uid(operand)
                            .set_dim(heads(count))
                            .set_stride(strides(width)));
  }
  void output(const Tensor& tensor, Operand operand, std::int64_t count, std::int64_t width) const {
    tensor->set_output(true).set_uid(operand).set_dim(heads(count)).set_stride(strides(width));
  }
  std::vector<std::int64_t> sums() const { return {batch, shape_.heads, shape_.sequence, 1}; }
  std::vector<std::int64_t> sum_strides() const {
    return {shape_.heads * shape_.sequence, shape_.sequence, 1, 1};
  }

  void build(cudnnHandle_t handle) {
    check(graph.build(handle, {fe::HeurMode_t::A}), shape_, "a plan");
    check(graph.get_workspace_size(workspace), shape_, "the workspace");
  }

  std::int64_t workspace = 0;  // bytes, of a graph that was built

 private:
  AttentionShape shape_;
};

using GraphOf = std::unique_ptr<Graph> (*)(const AttentionShape&, std::int64_t sequences);

/// A built graph of as many sequences at a time, `first` at most, as a workspace of `most` bytes
/// allows.
std::unique_ptr<Graph> graph_that_fits(cudnnHandle_t handle, const AttentionShape& s,
                                       std::int64_t first, std::int64_t most, GraphOf graph_of) {
  auto made = plan_that_fits(
      s.batch, first, most,
      [&](std::int64_t count) {
        auto graph = graph_of(s, count);
        graph->build(handle);
        return graph;
      },
      [](const std::unique_ptr<Graph>& graph) { return graph->workspace; });
  ZERO_CHECK(made->workspace <= most,
             "cuda: cuDNN's plan for {} takes a workspace of {} bytes for one sequence, {} are "
             "planned; use another release of cuDNN, or build without",
             text_of(s), made->workspace, most);
  return made;
}

/// A query sees the keys whose position plus the bound is above its own.
template <typename Attributes>
void set_window(const AttentionShape& s, Attributes& attributes) {
  if (s.seen() < s.sequence) attributes.set_diagonal_band_left_bound(narrow<int>(s.seen()));
}

std::unique_ptr<Graph> forward_graph(const AttentionShape& s, std::int64_t sequences) {
  auto made = std::make_unique<Graph>(s, sequences);
  const Tensor q = made->input("q", kQ, s.heads, s.qkv_width());
  const Tensor k = made->input("k", kK, s.key_heads(), s.qkv_width());
  const Tensor v = made->input("v", kV, s.key_heads(), s.qkv_width());
  auto attributes = fe::graph::SDPA_attributes()
                        .set_name("attention")
                        .set_generate_stats(true)
                        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                        .set_diagonal_band_right_bound(0)
                        .set_attn_scale(s.score_scale());
  set_window(s, attributes);
  const auto [out, sums] = made->graph.sdpa(q, k, v, std::move(attributes));
  made->output(out, kOut, s.heads, s.heads * s.head_width);
  sums->set_output(true)
      .set_uid(kLogSums)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim(made->sums())
      .set_stride(made->sum_strides());
  return made;
}

std::unique_ptr<Graph> backward_graph(const AttentionShape& s, std::int64_t sequences) {
  auto made = std::make_unique<Graph>(s, sequences);
  const std::int64_t width = s.heads * s.head_width;
  const Tensor q = made->input("q", kQ, s.heads, s.qkv_width());
  const Tensor k = made->input("k", kK, s.key_heads(), s.qkv_width());
  const Tensor v = made->input("v", kV, s.key_heads(), s.qkv_width());
  const Tensor out = made->input("out", kOut, s.heads, width);
  const Tensor dout = made->input("dout", kDout, s.heads, width);
  const Tensor sums = made->graph.tensor(fe::graph::Tensor_attributes()
                                             .set_name("logsumexp")
                                             .set_uid(kLogSums)
                                             .set_data_type(fe::DataType_t::FLOAT)
                                             .set_dim(made->sums())
                                             .set_stride(made->sum_strides()));
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                        .set_diagonal_band_right_bound(0)
                        .set_deterministic_algorithm(true)
                        .set_attn_scale(s.score_scale());
  set_window(s, attributes);
  const auto [dq, dk, dv] =
      made->graph.sdpa_backward(q, k, v, out, dout, sums, std::move(attributes));
  made->output(dq, kDq, s.heads, s.qkv_width());
  made->output(dk, kDk, s.key_heads(), s.qkv_width());
  made->output(dv, kDv, s.key_heads(), s.qkv_width());
  return made;
}

std::byte* address(const View& view, std::int64_t element) {
  return static_cast<std::byte*>(view.data()) + element * size_of(view.dtype());
}

/// cuDNN tensors over the rows of q, k and v side by side. cuDNN's statistics are our logsumexp:
/// the natural logarithm of the sum of exp(scale * score).
class CudnnAttention final : public Attention {
 public:
  explicit CudnnAttention(const Device& device) {
    if (!device.has_memory()) return;
    check(cudnnCreate(handle_.put()), "opening cuDNN");
    int index = 0;
    cuda::check(cudaGetDevice(&index), "attention's device");
    cuda::check(cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, index),
                "attention's device");
  }

  std::string refusal(const AttentionShape& s) const override {
    if (s.dtype == DType::fp32) return "cuDNN computes bf16 and fp16 only";
    if (s.sequence < kShortest) return "a short sequence";
    if (s.head_width % 8 != 0) return "a head that is no multiple of 8";
    if (s.head_width > kWidest) return "a head that is too wide";
    return {};
  }
  void prepare(const AttentionShape& s) override {
    if (find(s) != nullptr) return;
    // Not in refusal(): a plan, whose scratch it decides, does not know the GPU.
    ZERO_CHECK(s.head_width <= kWide || major_ == 9,
               "cuda: cuDNN: {}: its backward takes heads of {} elements at most on compute "
               "capability {}, of {} on 9",
               text_of(s), kWide, major_, kWidest);
    try {
      const cudnnHandle_t handle = handle_.get();
      plans_.push_back(
          {s, graph_that_fits(handle, s, s.batch, kForward, forward_graph),
           graph_that_fits(handle, s, slice_of(s), backward_bytes(s), backward_graph)});
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // the frontend's own
      fail("cuda: cuDNN: a plan of {}: {}", text_of(s), error.what());
    }
  }
  std::int64_t scratch_bytes(const AttentionShape& s) const override {
    return std::max(kForward, backward_bytes(s));
  }

  void forward(cudaStream_t stream, const AttentionShape& s, const AttentionOperands& o) override {
    Graph& graph = *plan_of(s).forward;
    for (std::int64_t first = 0; first < s.batch; first += graph.batch) {
      Operands operands = qkv_of(s, o.qkv, {kQ, kK, kV}, first);
      const std::int64_t row = first * s.sequence * s.heads;
      operands[kOut] = address(o.out, row * s.head_width);
      operands[kLogSums] = address(o.logsumexp, row);
      execute(stream, s, graph.graph, operands, o.scratch);
    }
  }
  void backward(cudaStream_t stream, const AttentionShape& s, const AttentionOperands& o) override {
    Graph& graph = *plan_of(s).backward;
    for (std::int64_t first = 0; first < s.batch; first += graph.batch) {
      Operands operands = qkv_of(s, o.qkv, {kQ, kK, kV}, first);
      operands.merge(qkv_of(s, o.dqkv, {kDq, kDk, kDv}, first));
      const std::int64_t row = first * s.sequence * s.heads;
      operands[kOut] = address(o.out, row * s.head_width);
      operands[kDout] = address(o.dout, row * s.head_width);
      operands[kLogSums] = address(o.logsumexp, row);
      execute(stream, s, graph.graph, operands, o.scratch);
    }
  }

 private:
  using Operands = std::unordered_map<std::int64_t, void*>;
  struct Plan {
    AttentionShape shape;
    std::unique_ptr<Graph> forward;
    std::unique_ptr<Graph> backward;
  };

  static Operands qkv_of(const AttentionShape& s, const View& view,
                         const std::array<Operand, 3>& names, std::int64_t sequence) {
    const std::int64_t at = sequence * s.sequence * s.qkv_width();
    const std::int64_t keys = at + s.heads * s.head_width;
    return {{names[0], address(view, at)},
            {names[1], address(view, keys)},
            {names[2], address(view, keys + s.key_heads() * s.head_width)}};
  }
  void execute(cudaStream_t stream, const AttentionShape& s, const fe::graph::Graph& graph,
               Operands& operands, void* scratch) {
    check(cudnnSetStream(handle_.get(), stream), "cuDNN's stream");
    check(graph.execute(handle_.get(), operands, scratch), s, "a run");
  }
  Plan* find(const AttentionShape& s) {
    const auto key = [](const AttentionShape& shape) {
      return std::tuple(shape.batch, shape.sequence, shape.heads, shape.head_width,
                        shape.key_heads(), shape.dtype, shape.seen(), shape.score_scale());
    };
    const auto found =
        std::ranges::find_if(plans_, [&](const Plan& plan) { return key(plan.shape) == key(s); });
    return found == plans_.end() ? nullptr : &*found;
  }
  Plan& plan_of(const AttentionShape& s) {
    Plan* const plan = find(s);
    ZERO_CHECK(plan != nullptr, "cuda: {} was not prepared; prepare() its shape", text_of(s));
    return *plan;
  }

  LibraryHandle handle_;
  int major_ = 0;  // compute capability
  std::vector<Plan> plans_;
};

}  // namespace

std::string cudnn_version() {
  const std::size_t number = cudnnGetVersion();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::unique_ptr<Attention> make_cudnn_attention(Device& device) {
  return std::make_unique<CudnnAttention>(device);
}

}  // namespace zero::cuda

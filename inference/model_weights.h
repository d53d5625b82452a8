// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_parameters.h"
#include "collectives/mesh.h"
#include "inference/block_windows.h"
#include "inference/matrix_roles.h"
#include "ops/inference_ops.h"
#include "partition/logical_tensor.h"

namespace zero {

struct InferenceOptions;

/// This rank among those that hold one model together: shard x tensor of a mesh. A group of one
/// rank has no communicator: nothing is exchanged in it.
struct ModelRanks {
  struct Group {
    Communicator* communicator = nullptr;
    int rank = 0;
    int size = 1;
  };
  Group shard;   ///< ranks of other requests, with other parts of the same weights
  Group tensor;  ///< ranks that compute parts of the same rows
  Group all;     ///< rank = shard.rank * tensor.size + tensor.rank

  /// null: this rank alone. The mesh must outlive the result.
  static ModelRanks of(Mesh* mesh) {
    if (mesh == nullptr) return {};
    const auto group = [](Communicator& ranks) {
      return Group{ranks.size() > 1 ? &ranks : nullptr, ranks.rank(), ranks.size()};
    };
    return {group(mesh->shard()), group(mesh->tensor()), group(mesh->replica_group())};
  }
};

/// The weights of a decoder as inference keeps them: matrices packed in a format, in one copy also
/// where the head is the embedding (which stays plain if either is to); biases, norms and the table
/// of positions in the compute dtype. Over several ranks, a rank keeps
/// - its tensor-parallel slice of each block's matrices, sharded by columns and gathered by
///   BlockWindows;
/// - the columns of some tokens of embedding and head, never gathered (SplitVocabulary);
/// - the vectors that its tensor rank needs, whole.
/// With a folder for files, the blocks' matrices are in one, a rank's part, and read ahead of use.
class ModelWeights {
 public:
  struct Options {
    DType dtype = DType::fp32;
    WeightFormat format = WeightFormat::plain;
    std::int64_t group = 0;    ///< as WeightShape::group
    MatrixRoles keep{};        ///< matrices that are plain in any format
    std::int64_t windows = 2;  ///< blocks gathered, or read from a file, at a time
    TierFileOptions file{};    ///< of blocks; without a folder their shards are in memory
  };
  /// Allocates, charged to parameters, gathered and staging, and makes the file, if any. Collective
  /// over the ranks. All references must outlive the weights.
  ModelWeights(Device& device, InferenceOps& ops, const DecoderSplit& split,
               const ModelRanks& ranks, const Options& options);

  /// Names and shapes of all parameters, as the model registers them.
  static std::vector<LogicalTensor> tensors(const DecoderShape& decoder);
  /// Fills `values`, fp32, with elements of tensors()[tensor] from `begin` on.
  using Read = std::function<void(std::size_t tensor, std::int64_t begin, std::span<float> values)>;
  /// Rows [first, first + count) of a weight that holds `part` of a matrix, where files have them
  /// in codes; nothing where codes must be made of elements.
  using ReadCodes = std::function<std::optional<QuantizedRows>(
      std::size_t tensor, const TensorPart& part, const WeightShape& shape, std::int64_t first,
      std::int64_t count)>;
  struct Source {
    Read read;
    ReadCodes read_codes{};  ///< empty: of no matrix
  };
  /// Fills all weights. Reads whole rows where this rank keeps only some columns; otherwise only
  /// what it keeps. Throws zero::Error naming the tensor if its format cannot hold an
  /// element. With files of blocks collective over the ranks (check_blocks()); no more than
  /// Options::windows blocks are in memory at a time.
  void load(const Source& source);

  /// The tokens of each rank, whose columns it keeps of embedding and head.
  const std::vector<Slices::Range>& tokens() const { return tokens_; }
  StoredWeight embedding() const { return table(parameters_.embedding); }
  /// The embedding, if the head is tied.
  StoredWeight head() const { return table(parameters_.head); }
  View positions() const { return vector(parameters_.positions); }  ///< (context, width), or empty
  View norm_weight() const { return vector(parameters_.norm_weight); }
  View norm_bias() const { return vector(parameters_.norm_bias); }
  /// The shapes of a block's matrices.
  const BlockLayout& block_layout() const { return layout_; }

  /// A lease: the weights of a block, present until its end. Compute submitted until then may use
  /// them.
  class Block {
   public:
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    StoredWeight matrix(BlockSlot slot) const;
    /// Empty if the family has none.
    View vector(BlockSlot slot) const;

   private:
    friend class ModelWeights;
    Block(ModelWeights& weights, std::int64_t i, View matrices)
        : weights_(weights), i_(i), matrices_(matrices) {}
    ModelWeights& weights_;
    std::int64_t i_;
    View matrices_;
  };
  /// Blocks are leased one at a time, in order, pass after pass. Compute waits for the block's
  /// gather, and those of later blocks start.
  Block block(std::int64_t i);
  /// Starts the gathers and reads of the next pass that windows are free for.
  void prefetch();
  /// Throws the same AgreedError on every rank if a file of blocks has failed: what was computed
  /// with them is anything. Call behind the work of a pass. Collective with files, else nothing.
  void check_blocks();
  BlockReads block_reads() const { return shards_.reads(); }

 private:
  struct Table {
    std::size_t parameter = 0;
    WeightShape shape;
    Buffer buffer;
  };
  WeightFormat format_of(MatrixRole role) const;
  WeightFormat format_of_table(std::size_t parameter) const;
  WeightShape shape(const DecoderParameter& parameter, std::int64_t out, WeightFormat format) const;
  BlockLayout::Shapes block_shapes() const;
  void split_vocabulary(std::int64_t vocabulary);
  void add_table(std::size_t parameter);
  StoredWeight table(std::size_t parameter) const;
  View vector(std::size_t parameter) const;
  void load_block(const Source& source, std::int64_t block, const View& shard);
  void load_vector(const Source& source, std::size_t parameter);
  void load_matrix(const Source& source, std::size_t parameter, std::int64_t first,
                   const StoredWeight& weight);

  Device& device_;
  InferenceOps& ops_;
  const ModelRanks ranks_;
  const std::int64_t blocks_;
  const Options options_;
  const DecoderParameters parameters_;
  const BlockLayout layout_;
  std::vector<Slices::Range> tokens_;
  std::vector<Table> tables_;
  std::vector<Buffer> vectors_;  // by parameter; empty: a matrix
  BlockShards shards_;
  std::unique_ptr<BlockWindows> windows_;  // null: shards are whole
};

ModelWeights::Options weight_options(const InferenceOptions& options);

}  // namespace zero

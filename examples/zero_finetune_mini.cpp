// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder (Llama, Mistral, Qwen2, GPT-2) learns a text by heart, its states sharded
// over all ranks, and is saved as such a folder's weights. The program that has shuffled data,
// checkpoints and schedules is zero_train.
//   mpirun -np 4 zero_finetune_mini FOLDER TEXT.txt OUT [steps]
#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "zero/architecture/family.h"
#include "zero/checkpoint/weights.h"
#include "zero/collectives/backends.h"
#include "zero/model/decoder.h"
#include "zero/text/tokenizer.h"
#include "zero/weights/hf/config.h"

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) throw zero::Error(fmt::format("{} cannot be read, or is empty", path));
  return text;
}

constexpr std::int64_t kRows = 2, kTokens = 32;  // of a rank's micro-batch

void finetune(zero::Communicator& ranks, const std::string& folder, const std::string& text,
              const std::string& out, int steps) {
  const auto tokens = zero::make_tokenizer(folder)->encode(text, {.begin_of_text = true});
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count <= kTokens)
    throw zero::Error(fmt::format("the text has {} tokens, expected more than {}", count, kTokens));
  const auto device = zero::cpu::open();
  zero::Engine engine(ranks, *device,
                      {.stage = 3, .compute = zero::DType::bf16, .gradient_clipping = 1.0});
  const zero::DecoderShape shape = zero::read_hf_config(folder);
  zero::Decoder model(engine, shape, {.batch = kRows, .sequence = kTokens});
  engine.seal({.order = model.order()});
  model.allocate();
  const std::string note = model.note();  // what computes attention, if not the fastest
  if (ranks.rank() == 0 && !note.empty()) fmt::print("{}\n", note);
  zero::load_weights(engine, folder, zero::file_names(shape));  // a rank reads what it owns

  const auto host = [&](std::int64_t elements, zero::DType dtype, const char* name) {
    return device->allocate_host(elements, dtype, zero::MemoryClass::staging, name);
  };
  const zero::Buffer inputs = host(kRows * kTokens, zero::DType::i32, "inputs");
  const zero::Buffer targets = host(kRows * kTokens, zero::DType::i32, "targets");
  const zero::Buffer loss = host(1, zero::DType::fp64, "loss");
  const double all = static_cast<double>(kRows * kTokens * ranks.size());  // tokens of a step
  for (int step = 0; step < steps; ++step) {
    for (std::int64_t i = 0; i < kRows * kTokens; ++i) {
      const std::int64_t row = (step * ranks.size() + ranks.rank()) * kRows + i / kTokens;
      const std::int64_t at = (row * kTokens) % (count - kTokens) + i % kTokens;
      inputs.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(tokens[at]);
      targets.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(tokens[at + 1]);
    }
    model.train(inputs.view(), targets.view(), static_cast<float>(1 / all), loss.view());
    device->compute().synchronize();  // the loss is there; gradients may still be under way
    const double mean = loss.view().as<double>()[0] / all;
    const zero::StepReport report = engine.step({.learning_rate = 1e-4, .losses = {&mean, 1}});
    if (ranks.rank() == 0) fmt::print("step {:3}  loss {:.4f}\n", report.step, report.loss);
  }
  zero::save_hf_folder(engine, out, shape, {{"tokenizer.json", read(folder + "/tokenizer.json")}});
}

int main(int argc, char** argv) try {
  const int steps = argc > 4 ? std::atoi(argv[4]) : 20;
  if (argc < 4 || argc > 5 || argv[1][0] == '-' || steps < 1) {
    fmt::print(stderr, "usage: zero_finetune_mini FOLDER TEXT.txt OUT [steps, from 1]\n");
    return 1;
  }
  const std::string text = read(argv[2]);
  const auto body = [&](zero::Communicator& ranks) {
    finetune(ranks, argv[1], text, argv[3], steps);
  };
  zero::mpi::available() ? body(*zero::mpi::world(&argc, &argv)) : zero::local::run(1, body);
} catch (const std::exception& error) {
  fmt::print(stderr, "zero_finetune_mini: {}\n", error.what());
  zero::mpi::abort(1);
}

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/copying_reader.h"

#include <span>

namespace zero::toy {

CopyingReader::CopyingReader(Engine& engine, int rounds)
    : engine_(engine), device_(engine.device()), rounds_(rounds) {
  for (const StateKind kind : {StateKind::parameter, StateKind::moment0, StateKind::moment1}) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      for (const StateRun& run : engine.states().runs(tensor))
        pieces_.push_back({tensor, run, std::vector<float>(static_cast<std::size_t>(run.count))});
    }
  }
  last_.resize(engine.unit_names().size());
}

CopyingReader::~CopyingReader() {
  try {
    device_.transfer().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failed stream has dropped the work
  }
}

void CopyingReader::submit(int round) {
  submitted_.push_back(round);
  for (std::size_t i = static_cast<std::size_t>(round); i < pieces_.size();
       i += static_cast<std::size_t>(rounds_)) {
    Piece& piece = pieces_[i];
    Stream& transfer = device_.transfer();
    engine_.states().copy(piece.tensor, piece.run.begin, View::of(std::span(piece.values)),
                          transfer);
    last_[static_cast<std::size_t>(piece.tensor.unit)] = transfer.record();
  }
}

std::vector<float> CopyingReader::copied() {
  device_.compute().synchronize();
  device_.transfer().synchronize();
  std::vector<float> all;
  for (const Piece& piece : pieces_)
    all.insert(all.end(), piece.values.begin(), piece.values.end());
  return all;
}

std::vector<float> CopyingReader::of_rounds(int rounds, const std::vector<float>& all) const {
  std::vector<float> chosen;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const std::size_t end = begin + pieces_[i].values.size();
    if (static_cast<int>(i) % rounds_ < rounds)
      chosen.insert(chosen.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                    all.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return chosen;
}

}  // namespace zero::toy

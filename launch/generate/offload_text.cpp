// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/offload_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "base/message_text.h"
#include "inference/inference_model.h"
#include "inference/inference_options.h"
#include "launch/generate/generate_flags.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

/// The fewest requests, a token each, whose pass computes as long as its blocks are read.
std::string hiding_text(double disk, const PassTimes& times) {
  if (times.computing() >= disk) return "computing hides the disk";
  const std::optional<double> rows = times.rows_for(disk);
  if (!rows) return "no pass computed";
  const double requests = std::ceil(*rows);
  const auto most = static_cast<double>(InferenceOptions::kMostRows);
  constexpr double kMostTold = 1e15;
  return fmt::format("about {} at once would hide the disk ({})",
                     counted(static_cast<std::int64_t>(std::min(requests, kMostTold)), "request"),
                     requests <= most
                         ? "--requests"
                         : fmt::format("more than the {:.0f} that --requests takes", most));
}

}  // namespace

TierPlace offload_place(const GenerateFlags& flags) {
  return {.key = "--offload-weights",
          .folder = flags.offload.folder,
          .what = "blocks of weights",
          .waits = "pass",
          .advice = "use more hosts, or weights of fewer bits (--weights)",
          .memory_advice =
              "fewer --requests, --cache-tokens, --host-cache-tokens or --max-tokens take less; "
              "files in memory count as memory: give --offload-weights a folder on a disk"};
}

std::string offload_text(const BlockReads& reads, const PassTimes& times, std::string_view whose) {
  if (reads.bytes == 0 || reads.seconds <= 0) return "";
  const double rate = static_cast<double>(reads.bytes) / reads.seconds;
  const double disk = static_cast<double>(reads.pass_bytes) / rate;
  std::string text =
      fmt::format("blocks from the disk{}: {} a pass at {}/s, {:.3g} s", whose,
                  decimal_text(static_cast<double>(reads.pass_bytes)), decimal_text(rate), disk);
  if (times.passes() == 0) return text;
  return text + fmt::format(
                    "; a pass of {:.3g} tokens took {:.3g} s on average, of which {:.3g} s "
                    "computing; {}",
                    times.rows(), times.seconds(), times.computing(), hiding_text(disk, times));
}

}  // namespace zero

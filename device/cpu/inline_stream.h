// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "device/cpu/progress.h"
#include "device/stream.h"

namespace zero::cpu {

/// A stream whose work runs on the caller, inside submit(). Waiting for another stream's event
/// blocks the caller, on whose thread the stream runs.
class InlineStream final : public Stream {
 public:
  Event record() override;
  void synchronize() override { progress_->rethrow(); }
  double waited_seconds() const override { return static_cast<double>(waited_.load()) * 1e-9; }

 private:
  void do_submit(std::string_view what, Work work) override;
  void do_wait(const Event& event) override;

  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::atomic<std::int64_t> waited_{0};  // nanoseconds
};

}  // namespace zero::cpu

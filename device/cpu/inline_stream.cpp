// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/inline_stream.h"

namespace zero::cpu {

void InlineStream::do_submit(std::string_view what, Work work) {
  progress_->rethrow();
  try {
    work();
  } catch (...) {
    progress_->advance(current_error(what));
    progress_->rethrow();
  }
}

Event InlineStream::record() {
  return progress_->failed() ? event_at(progress_, progress_->done()) : Event();
}

void InlineStream::do_wait(const Event& event) {
  progress_->rethrow();
  try {
    wait_and_count(event, waited_);
  } catch (...) {
    progress_->advance(current_error("wait"));
    progress_->rethrow();
  }
}

}  // namespace zero::cpu

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/run_faults.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "base/consecutive.h"
#include "collectives/agreement.h"
#include "collectives/call.h"
#include "collectives/long_wait.h"
#include "collectives/mesh.h"
#include "device/device.h"
#include "launch/flight/flight_folder.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

using std::chrono::milliseconds;

/// A failure may follow from a death that the watchdog has yet to hear of, of another host too.
constexpr milliseconds kForDeath{100};
constexpr milliseconds kForDeathElsewhere{500};
/// The watchdog has ended the process by then.
constexpr std::chrono::seconds kForWatchdog{5};

pid_t thread_of(Stream& stream) {
  pid_t thread = 0;
  stream.submit_host("thread number", [&thread] { thread = ::gettid(); });
  stream.synchronize();
  return thread;
}

std::string_view name_of_signal(int signal) {
  return signal == SIGINT ? "INT" : signal == SIGPIPE ? "PIPE" : "TERM";
}

LastWords words_of_error(std::string_view message) {
  return {.kind = LastWords::Kind::error, .text = fmt::format("ended by an error: {}", message)};
}

/// Of a collective that most ranks called alike: whom the others hold up is known.
LastWords words_of_error(const std::exception& error) {
  const auto* const differ = dynamic_cast<const CallsDiffer*>(&error);
  if (differ == nullptr) return words_of_error(std::string_view(error.what()));
  return words_of({.what = FoundFault::mismatch,
                   .culprits = differ->odd(),
                   .lines = {differ->who_calls_what()}});
}

}  // namespace

RunFaults::RunFaults(Communicator& ranks, FlightFile file, std::optional<WatchdogOptions> watchdog,
                     std::unique_ptr<FaultInjector> injector)
    : ranks_(ranks), file_(std::move(file)), recorder_(file_), injector_(std::move(injector)) {
  const auto add = [this](const std::string& warning) {
    if (!warning_.empty() && !warning.empty()) warning_ += "; ";
    warning_ += warning;
  };
  try {
    add(flight_warning(file_, ranks, *cpu::open()));
    if (!watchdog || ranks.size() == 1) return;
    watchdog_ = std::make_unique<Watchdog>(ranks, *cpu::open(), file_, std::move(*watchdog));
    if (!watchdog_->obstacle().empty()) {
      add(fmt::format("watchdog: ranks of one host do not watch each other: {}",
                      watchdog_->obstacle()));
    }
    if (ranks.rank() == 0) add(watchdog_->warning());
    watchdog_->know_thread("host thread", ::gettid());
    watchdog_->watch();
  } catch (const AgreedError&) {  // nothing has begun that the file could tell of
    file_.withdraw();
    throw;
  }
}

void RunFaults::attach_to(Device& device) {
  if (watchdog_ == nullptr) return;
  if (device.kind() != DeviceKind::cpu) {
    return watchdog_->keep_fresh([this] { recorder_.poll(); });
  }
  watchdog_->know_thread("compute stream", thread_of(device.compute()));
  watchdog_->know_thread("communication stream", thread_of(device.communication()));
}

void RunFaults::begin(const std::string& group) {
  recorder_.know_group(ranks_, group, consecutive(0, ranks_.size()));
  listening_.emplace(ranks_, recorder_);
  for (PhaseListener* const each : listeners<PhaseListener>()) each->phase(-1, "start");
}

void RunFaults::record(const Mesh& mesh, Communicator& world) {
  recorder_.know_mesh(mesh);
  if (world.implementation()->context() == ranks_.implementation()->context()) return;
  of_devices_.emplace(world, recorder_);
}

void RunFaults::end_well() noexcept {
  if (watchdog_) watchdog_->leave();
  file_.end_and_remove();
}

void RunFaults::failed_alike(std::string_view message) noexcept {
  if (watchdog_) watchdog_->leave();
  if (!file_.has_come_to_a_step()) return file_.withdraw();
  file_.end();
  file_.write_last_words(words_of_error(message));
  keep_files();
}

std::string RunFaults::failing(const std::exception& error) {
  const std::string message = error.what();
  if (watchdog_ && !is_of_collective(message)) watchdog_->know_error(message);
  const LastWords words = words_of_error(error);
  if (!watchdog_) {
    file_.write_last_words(words);
    return message;
  }
  milliseconds patience = watchdog_->sees_other_hosts() ? kForDeathElsewhere : kForDeath;
  // All ranks of all hosts wait too long at one time.
  if (LongWait::is_overdue(message)) patience += watchdog_->patience_with_others();
  const bool others_tell = watchdog_->another_died(patience) || watchdog_->another_tells();
  std::string in_full = watchdog_->in_full(message);  // other hosts end once they hear the words
  if (others_tell || !watchdog_->leave_words(words)) std::this_thread::sleep_for(kForWatchdog);
  return in_full;
}

bool RunFaults::takes_over() const { return watchdog_ && watchdog_->takes_over(); }

void RunFaults::ended_by(int signal, Told told) noexcept {
  using Kind = LastWords::Kind;
  const LastWords words{.kind = told == Told::by_this_rank ? Kind::told_signal : Kind::signal,
                        .text = fmt::format("ended by SIG{}", name_of_signal(signal))};
  if (watchdog_) {
    watchdog_->leave_words(words);
    watchdog_->rest();
  } else {
    file_.write_last_words(words);
  }
}

void RunFaults::keep_files() const noexcept {
  if (watchdog_) return watchdog_->keep_files();
  keep_flight_files(file_, nullptr);
}

}  // namespace zero

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <exception>

#include "base/host.h"
#include "base/message_text.h"
#include "base/sign_of_life.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/telemetry/output.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kBetweenLooks{FaultFinder::kBetweenLooks};
/// Behind a death: others may have died with that rank.
constexpr std::chrono::milliseconds kForOthers{20};
constexpr std::chrono::milliseconds kForSignal{500};
/// A rank of another host that has told people has been read by then, and answered its own signal.
constexpr std::chrono::milliseconds kBeforeFollowing{1000};
/// All processes of a host have ended this long after a fault was found.
constexpr std::chrono::seconds kLastEnd{4};
constexpr std::int64_t kLooksBetweenCounts = 50;
/// A rank that sees less of the job tells of a wait so much later; each host later than the last.
constexpr std::chrono::milliseconds kForHub{2000}, kForHost{500};

}  // namespace

/// The thread's timer, and the descriptors that wake it: those of processes, when they end.
class Watchdog::Loop {
 public:
  explicit Loop(Watchdog& watchdog) : watchdog_(watchdog) {
    for (int i = 0; i < watchdog_.peers_.count(); ++i) {
      const int own = watchdog_.peers_.descriptor(i);
      const int copy = own < 0 ? -1 : ::dup(own);
      if (copy < 0) continue;  // then looks find the death
      deaths_.emplace_back(io_, copy);
    }
    for (auto& death : deaths_) {
      death.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this](boost::system::error_code error) {
                         if (!error) look_after(kForOthers);
                       });
    }
    look_after(kBetweenLooks);
  }

  void run() { io_.run(); }
  void stop() { io_.stop(); }

 private:
  void look_after(std::chrono::nanoseconds time) {
    timer_.expires_after(time);
    timer_.async_wait([this](boost::system::error_code error) {
      if (error) return;  // another look is due earlier
      watchdog_.look();
      if (watchdog_.over_) return io_.stop();
      look_after(kBetweenLooks);
    });
  }

  Watchdog& watchdog_;
  asio::io_context io_{1};
  asio::steady_timer timer_{io_};
  std::vector<asio::posix::stream_descriptor> deaths_{};
};

Watchdog::Watchdog(Communicator& world, Device& device, FlightFile& own, WatchdogOptions options)
    : peers_(world, device, own, options.host_key),
      own_(own),
      options_(std::move(options)),
      hosts_(options_.hosts && !peers_.whole_job()
                 ? connect_hosts(world, device, peers_, options_.addresses)
                 : HostConnection{}),
      ranks_(peers_, hosts_.link.get(), options_.hang_seconds),
      finder_(ranks_, options_.hang_seconds),
      reporter_(peers_, ranks_, options_.memory_kills) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(fresh_mutex_);
    over_ = true;
  }
  ends_.notify_all();
  if (refresher_.joinable()) refresher_.join();
  if (thread_.joinable()) {
    loop_->stop();
    thread_.join();
  }
  hosts_.link.reset();  // before what its thread uses
}

void Watchdog::watch() {
  if (!obstacle().empty()) return;
  prepare_stacks();
  loop_ = std::make_unique<Loop>(*this);
  thread_ = std::thread([this] {
    try {
      loop_->run();
    } catch (const std::exception& error) {
      over_ = true;
      const std::int64_t ended = files::disk_calls().ended;  // others see a call that goes on
      own_.disk_calls({.begun = ended + 1, .ended = ended});
      if (options_.warn) {
        options_.warn(
            fmt::format("rank {} watches no more: {}", peers_.rank(peers_.self()), error.what()));
      }
    }
  });
  if (!hosts_.link) return;
  hosts_.link->start(
      [this](bool in_a_hurry) { return ranks_.heartbeat(FlightFile::now(), in_a_hurry); },
      options_.warn);
}

void Watchdog::keep_fresh(std::function<void()> refresh) {
  if (!obstacle().empty()) return;
  refresher_ = std::thread([this, refresh = std::move(refresh)] {
    std::unique_lock lock(fresh_mutex_);
    while (!over_) {
      lock.unlock();
      refresh();
      lock.lock();
      ends_.wait_for(lock, kBetweenLooks, [this] { return over_.load(); });
    }
  });
}

template <typename Counts>
bool Watchdog::any_other(Is is, const Counts& counts) const {
  if (over_ || !obstacle().empty()) return false;
  for (int i = 0; i < ranks_.count(); ++i) {
    if (i == ranks_.self() || ranks_.ended(i) != (is == Is::dead)) continue;
    const FlightState state = ranks_.read(i);
    // One that is over ended in good order, or by an error that all ranks know of.
    if (!state.over && counts(state.last_words)) return true;
  }
  return false;
}

bool Watchdog::another_died(std::chrono::milliseconds patience) const {
  const Clock::time_point end = Clock::now() + patience;
  while (!ranks_.any_cut_off() && !any_other(Is::dead, [](const LastWords&) { return true; })) {
    if (over_ || Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool Watchdog::another_tells() const {
  if (over_ || !obstacle().empty()) return false;
  const auto tells = [](const LastWords& words) {
    return words.is_told() && !words.is_of_signal();
  };
  if (any_other(Is::there, tells)) return true;
  const auto told = hosts_.link ? hosts_.link->told() : std::nullopt;
  return told && !told->of_signal;
}

bool Watchdog::takes_over() const {
  return any_other(Is::dead, [](const LastWords& words) { return !words.is_of_signal(); }) ||
         another_tells();
}

void Watchdog::know_error(std::string_view message) {
  const std::scoped_lock lock(words_mutex_);
  own_error_ = message;
  if (!words_left_) {
    own_.write_last_words({.kind = LastWords::Kind::own_error, .own_error = own_error_});
  }
}

bool Watchdog::write_words(LastWords words) noexcept {
  const std::scoped_lock lock(words_mutex_);
  if (words_left_.exchange(true)) return false;
  // Words of an error have the message already.
  if (words.kind != LastWords::Kind::error) words.own_error = own_error_;
  own_.write_last_words(words);
  return true;
}

void Watchdog::keep_files() const noexcept {
  keep_flight_files(own_, obstacle().empty() ? &peers_ : nullptr);
}

bool Watchdog::leave_words(const LastWords& words) noexcept {
  if (!write_words(words)) return false;
  if (!hosts_.link) return true;
  // People may not have been told yet. The hub reads these words, and waits until this rank ends;
  // but what the hub says last, the others must hear before it ends.
  if (words.is_told() && hosts_.link->is_hub()) {
    tell_hosts(peers_.rank(peers_.self()), words);
  } else {
    hosts_.link->hurry();
  }
  return true;
}

void Watchdog::tell_hosts(int rank, const LastWords& words) noexcept {
  if (!hosts_.link) return;
  try {
    hosts_.link->tell({.rank = rank, .host = host_name(), .of_signal = words.is_of_signal()});
  } catch (const std::exception&) {
    // Then other hosts see a loss.
  }
}

void Watchdog::leave() noexcept {
  rest();
  if (hosts_.link) hosts_.link->leave();
}

void Watchdog::look() {
  if (over_) return;
  own_.disk_calls(files::disk_calls());
  const std::int64_t signs = signs_of_life();
  if (std::exchange(signs_, signs) != signs) own_.goes_on();
  // Kept young: a death is laid to kills of the last seconds alone.
  if (looks_++ % kLooksBetweenCounts == 0 && !found_) reporter_.note_kills();
  const std::int64_t now = FlightFile::now();
  ranks_.look(now);
  if (const auto told = hosts_.link ? hosts_.link->told() : std::nullopt) return follow(*told);
  const Finding finding = finder_.look(now);
  keep_stack(finding.self_suspected);
  if (finding.what == Finding::What::nothing) {
    found_.reset();
  } else {
    act(finding);
  }
}

void Watchdog::follow(const HeartbeatLink::Told& told) {
  if (!found_) found_ = Clock::now();
  // This rank may be about to end by itself.
  if (Clock::now() - *found_ < (words_left_ ? kLastEnd : kBeforeFollowing)) return;
  end({.kind = LastWords::Kind::follower,
       .text = fmt::format("ended because rank {} on host {} told why", told.rank, told.host)});
}

void Watchdog::act(const Finding& finding) {
  if (!found_) found_ = Clock::now();
  const bool late = Clock::now() - *found_ >= kLastEnd;
  const std::string culprits = ranks_text([&] {
    std::vector<int> ranks;
    for (const int index : finding.culprits) ranks.push_back(ranks_.rank(index));
    return ranks;
  }());
  if (words_left_) {  // this rank is about to end by itself; the lowest of several tells
    const bool told = finding.what == Finding::What::told &&
                      ranks_.rank(finding.culprits.front()) < peers_.rank(peers_.self());
    if (late || told) end({});
  } else if (finding.what == Finding::What::told) {
    // A signal that ended one rank may be on its way to this one, which then answers it.
    const FlightState told_by = ranks_.read(finding.culprits.front());
    if (told_by.last_words.is_of_signal() && Clock::now() - *found_ < kForSignal) return;
    tell_hosts(told_by.rank, told_by.last_words);
    end(words_behind(told_by.last_words, culprits));
  } else if (finding.speaks && !another_tells()) {
    speak(finding);
  } else if (late) {
    const bool any = !finding.culprits.empty();
    end({.kind = LastWords::Kind::follower,
         .text = fmt::format("ended because of a fault that no rank told of{}",
                             any ? ", of " + culprits : "")});
  }
}

void Watchdog::speak(const Finding& finding) {
  const Diagnosis diagnosis = reporter_.diagnosis_of(finding);
  LastWords words = words_of(diagnosis);
  const auto of_signal = [&](int index) { return ranks_.read(index).last_words.is_of_signal(); };
  if (finding.what == Finding::What::death && std::ranges::any_of(finding.culprits, of_signal)) {
    words.kind = LastWords::Kind::signal_finding;
  }
  if (!write_words(words)) return;
  if (options_.tell) options_.tell(diagnosis.lines);
  // A stopped process hears of nothing.
  for (const int index : finding.stopped) {
    if (index < ranks_.count_here()) peers_.kill(index);
  }
  tell_hosts(peers_.rank(peers_.self()), words);
  std::this_thread::sleep_for(kForReader);
  end({});
}

void Watchdog::end(const LastWords& words) {
  if (words.kind != LastWords::Kind::none) write_words(words);
  if (over_.exchange(true) || !options_.end) return;
  options_.end();
}

std::chrono::milliseconds Watchdog::patience_with_others() const {
  if (peers_.whole_job() || !options_.hosts) return {};
  const int hops = !hosts_.link ? 2 : hosts_.link->is_hub() ? 0 : 1;
  return hops * kForHub + std::min(peers_.host() * kForHost, kForHub);
}

void Watchdog::keep_stack(bool wanted) {
  if (wanted == stack_kept_) return;
  stack_kept_ = wanted;
  own_.write_stack(wanted ? threads_.stacks() : "");
}

}  // namespace zero

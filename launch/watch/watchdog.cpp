// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/watchdog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <exception>

#include "base/host.h"
#include "collectives/long_wait.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/telemetry/output.h"
#include "launch/watch/last_words.h"
#include "launch/watch/thread_stack.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kBetweenLooks{FaultFinder::kBetweenLooks};
/// Behind a death: others may have died with that rank.
constexpr std::chrono::milliseconds kForOthers{20};
constexpr std::chrono::milliseconds kForStack{200};
constexpr const char* kNoStack =
    "(no answer in 0.2 s: the thread has ended, waits for a core, or is blocked in the kernel or "
    "the loader)\n";
constexpr std::chrono::milliseconds kForSignal{500};
/// A rank of another host that has told people has been read by then, and answered its own signal.
constexpr std::chrono::milliseconds kForTeller{1000};
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
      meeting_(options_.hosts && !peers_.whole_job()
                   ? connect_hosts(world, device, peers_, options_.addresses)
                   : HostConnection{}),
      ranks_(peers_, meeting_.link.get(), options_.hang_seconds),
      finder_(ranks_, options_.hang_seconds) {}

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
  meeting_.link.reset();  // before what its thread uses
}

void Watchdog::know_thread(std::string name, pid_t thread) {
  const std::scoped_lock lock(threads_mutex_);
  // On a CPU the host's thread may be the compute stream's: one stack, with both names.
  const auto known = std::ranges::find(threads_, thread, &std::pair<std::string, pid_t>::second);
  if (known != threads_.end()) {
    known->first += " and " + name;
  } else {
    threads_.emplace_back(std::move(name), thread);
  }
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
  if (!meeting_.link) return;
  meeting_.link->start(
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
bool Watchdog::any_death(const Counts& counts) const {
  if (over_ || !obstacle().empty()) return false;
  for (int i = 0; i < ranks_.count(); ++i) {
    if (i == ranks_.self() || !ranks_.ended(i)) continue;
    const FlightState state = ranks_.read(i);
    if (!state.over && counts(state.last_words)) return true;
  }
  return false;
}

bool Watchdog::another_died(std::chrono::milliseconds patience) const {
  const Clock::time_point end = Clock::now() + patience;
  while (!ranks_.any_unreachable() && !any_death([](const std::string&) { return true; })) {
    if (over_ || Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool Watchdog::another_tells() const {
  if (over_ || !obstacle().empty()) return false;
  for (int i = 0; i < ranks_.count(); ++i) {
    if (i == ranks_.self() || ranks_.ended(i)) continue;
    const FlightState state = ranks_.read(i);
    if (state.over) continue;  // by an error that all ranks know of
    if (needs_no_teller(state.last_words) && !is_of_signal(state.last_words)) return true;
  }
  const auto told = meeting_.link ? meeting_.link->told() : std::nullopt;
  return told && !told->of_signal;
}

bool Watchdog::takes_over() const {
  return any_death([](const std::string& words) { return !is_of_signal(words); }) ||
         another_tells();
}

void Watchdog::know_error(std::string_view message) {
  const std::scoped_lock lock(words_mutex_);
  own_error_ = fmt::format("{}{}", kFailedItself, message);
  if (!words_left_) own_.write_last_words(own_error_);
}

/// The words of an error are those of know_error() already.
std::string Watchdog::with_own_error(std::string_view words) {
  const bool behind = !own_error_.empty() && !words.starts_with(kEndedByError);
  return behind ? fmt::format("{}\n{}", words, own_error_) : std::string(words);
}

bool Watchdog::write_words(std::string_view words) noexcept {
  const std::scoped_lock lock(words_mutex_);
  if (words_left_.exchange(true)) return false;
  own_.write_last_words(with_own_error(words));
  return true;
}

void Watchdog::keep_files() const noexcept {
  keep_flight_files(own_, obstacle().empty() ? &peers_ : nullptr);
}

bool Watchdog::leave_words(std::string_view words) noexcept {
  if (!write_words(words)) return false;
  if (!meeting_.link) return true;
  // People may not have been told yet. The hub reads these words, and waits until this rank ends;
  // but what the hub says last, the others must hear before it ends.
  if (needs_no_teller(words) && meeting_.link->is_hub()) {
    tell_hosts(peers_.rank(peers_.self()), words);
  } else {
    meeting_.link->hurry();
  }
  return true;
}

void Watchdog::tell_hosts(int rank, std::string_view words) noexcept {
  if (!meeting_.link) return;
  try {
    meeting_.link->tell({.rank = rank, .host = host_name(), .of_signal = is_of_signal(words)});
  } catch (const std::exception&) {
    // Then other hosts see a loss.
  }
}

void Watchdog::leave() noexcept {
  rest();
  if (meeting_.link) meeting_.link->leave();
}

void Watchdog::look() {
  if (over_) return;
  own_.disk_calls(files::disk_calls());
  // Kept young: a death is laid to kills of the last seconds alone.
  if (looks_++ % kLooksBetweenCounts == 0 && !found_) memory_kills_ = options_.memory_kills();
  const std::int64_t now = FlightFile::now();
  ranks_.look(now);
  if (const auto told = meeting_.link ? meeting_.link->told() : std::nullopt) return follow(*told);
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
  if (Clock::now() - *found_ < (words_left_ ? kLastEnd : kForTeller)) return;
  end(fmt::format("{}rank {} on host {} told why", kEndedBecause, told.rank, told.host));
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
    if (late || told) end("");
  } else if (finding.what == Finding::What::told) {
    // A signal that ended one rank may be on its way to this one, which then answers it.
    const FlightState teller = ranks_.read(finding.culprits.front());
    if (is_of_signal(teller.last_words) && Clock::now() - *found_ < kForSignal) return;
    tell_hosts(teller.rank, teller.last_words);
    end(words_behind(teller.last_words, culprits));
  } else if (finding.speaks && !another_tells()) {
    speak(finding);
  } else if (late) {
    const bool any = !finding.culprits.empty();
    end(fmt::format("{}of a fault that no rank told of{}", kEndedBecause,
                    any ? ", of " + culprits : ""));
  }
}

void Watchdog::speak(const Finding& finding) {
  const Diagnosis judgement = judgement_of(finding);
  const std::string words = words_of(judgement);
  if (!write_words(words)) return;
  if (options_.tell) options_.tell(judgement.lines);
  // A stopped process hears of nothing.
  for (const int index : finding.stopped) {
    if (index < ranks_.count_here()) peers_.kill(index);
  }
  tell_hosts(peers_.rank(peers_.self()), words);
  std::this_thread::sleep_for(kForReader);
  end("");
}

void Watchdog::end(std::string_view last_words) {
  if (!last_words.empty()) write_words(last_words);
  if (over_.exchange(true) || !options_.end) return;
  options_.end();
}

std::chrono::milliseconds Watchdog::patience_with_others() const {
  if (peers_.whole_job() || !options_.hosts) return {};
  const int hops = !meeting_.link ? 2 : meeting_.link->is_hub() ? 0 : 1;
  return hops * kForHub + std::min(peers_.host() * kForHost, kForHub);
}

std::string Watchdog::in_full(const std::string& message) const {
  if (!obstacle().empty()) return message;
  if (!LongWait::is_overdue(message)) {
    return is_of_collective(message) ? message : with_host(message, peers_.rank(peers_.self()));
  }
  const std::vector<int> blamed = find_blame(read_ranks()).blamed;
  const auto absent = LongWait::first_absent(message);
  const std::string first = !blamed.empty() ? with_host(message, ranks_.rank(blamed.front()))
                            : absent        ? with_host(message, absent->rank, absent->host())
                                            : message;
  return fmt::format("{}\n{}", first, fmt::join(judgement_of({}).lines, "\n"));
}

/// Behind the first line, in the form that launch/retry.sh reads. An empty `host`: looked up.
std::string Watchdog::with_host(std::string text, int rank, std::string host) const {
  if (host.empty() && rank < peers_.hosts().ranks()) host = peers_.host_name_of(rank);
  if (peers_.whole_job() || host.empty()) return text;
  return text.insert(std::min(text.find('\n'), text.size()),
                     fmt::format(" (rank {} on host {})", rank, host));
}

std::vector<FlightState> Watchdog::read_ranks() const {
  std::vector<FlightState> all;
  for (int i = 0; i < ranks_.count(); ++i) all.push_back(ranks_.read(i));
  return all;
}

Diagnosis Watchdog::judgement_of(const Finding& finding) const {
  std::vector<FlightState> states = read_ranks();
  std::vector<RankDeath> deaths;
  for (int i = 0; i < ranks_.count(); ++i) {
    FlightState& state = states[static_cast<std::size_t>(i)];
    const bool culprit = std::ranges::find(finding.culprits, i) != finding.culprits.end();
    if (culprit && finding.what == Finding::What::death) {
      deaths.push_back({.rank = ranks_.rank(i),
                        .how = ranks_.end_of(i, memory_kills_, options_.memory_kills())});
    }
    const bool stopped = std::ranges::find(finding.stopped, i) != finding.stopped.end();
    if (stopped && state.process_state.empty()) state.process_state = "is stopped";
  }
  Diagnosis found = diagnose(states, deaths, FlightFile::now());
  if (found.what == Diagnosis::What::nothing) found.what = Diagnosis::What::hang;
  std::vector<std::string>& lines = found.lines;
  for (const int index : finding.culprits) {
    const int rank = ranks_.rank(index);
    if (std::ranges::find(found.culprits, rank) != found.culprits.end()) continue;
    found.culprits.push_back(rank);
    lines.push_back(fmt::format(
        "rank {} holds up the others: {}", rank,
        index < ranks_.count_here() ? peers_.described(index) : "it is on another host"));
  }
  std::ranges::sort(found.culprits);
  if (lines.empty()) lines.emplace_back("all ranks wait for each other");
  for (const FlightState& state : states) {
    std::string error = own_error_text(state.rank, state.last_words);
    if (!error.empty()) lines.push_back(std::move(error));
  }
  if (!finding.culprits.empty()) {
    lines.front() = with_host(lines.front(), ranks_.rank(finding.culprits.front()));
  }
  return found;
}

void Watchdog::keep_stack(bool wanted) {
  if (wanted == stack_kept_) return;
  stack_kept_ = wanted;
  std::string text;
  const std::scoped_lock lock(threads_mutex_);
  for (const auto& [name, thread] : threads_) {
    if (!wanted) break;
    text += fmt::format("{}:\n{}", name, stack_of(thread, kForStack).value_or(kNoStack));
  }
  own_.write_stack(text);
}

}  // namespace zero

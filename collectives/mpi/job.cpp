// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "collectives/backends.h"
#include "collectives/mpi/job_socket.h"
#include "collectives/mpi/pmix_server.h"

namespace zero::mpi {
namespace {

/// A name that no other job on these hosts has: MPI names its shared memory by it.
std::string job_name(const StoreRank& self) {
  constexpr const char* kKey = "mpi/job";
  if (self.rank == 0) {
    std::random_device random;
    self.store.set(kKey, fmt::format("zero-{:08x}{:08x}", random(), random()));
  }
  return self.store.get(kKey, self.timeout);
}

JobLayout layout_of(const StoreRank& self, const std::vector<std::string>& hosts) {
  JobLayout layout{.name = job_name(self), .hosts = {}, .host_of = {}};
  for (const std::string& host : hosts) {
    const auto at = std::ranges::find(layout.hosts, host);
    layout.host_of.push_back(static_cast<int>(at - layout.hosts.begin()));
    if (at == layout.hosts.end()) layout.hosts.push_back(host);
  }
  layout.host = layout.host_of[static_cast<std::size_t>(self.rank)];
  return layout;
}

/// Forks the server of this host's ranks. It dies with this thread's process, and ignores signals
/// that a terminal or a launcher sends to all.
pid_t fork_server(const JobLayout& layout, std::array<int, 2> sockets) {
  const pid_t rank = ::getpid();
  const pid_t server = ::fork();
  ZERO_CHECK(server >= 0, "cannot start the server of MPI's ranks on this host: {}",
             std::generic_category().message(errno));
  if (server > 0) return server;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
    std::signal(signal, SIG_IGN);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != rank) ::_exit(1);
  // Not the rank's sockets: its peers see by them that it is gone.
  constexpr int kFirst = STDERR_FILENO + 1;
  if (sockets[1] != kFirst) ::dup2(sockets[1], kFirst);
  ::close_range(kFirst + 1, ~0U, 0);
  serve_pmix(layout, JobSocket(Descriptor(kFirst)));
}

/// This rank's part in a job of MPI that its ranks have formed: the first rank of each host has a
/// server, and carries what the servers tell each other through the store.
class Job {
 public:
  Job(const StoreRank& self, const std::vector<std::string>& hosts)
      : store_(self.store),
        layout_(layout_of(self, hosts)),
        exceptions_(std::uncaught_exceptions()) {
    const std::vector<int> here = layout_.ranks_of(layout_.host);
    if (here.front() == self.rank) start_server(here);
    const std::string mine = store_.get(variables_key(self.rank), self.timeout);
    const std::string error = mine.starts_with('!') ? mine.substr(1) : "";
    for (int rank = 0; const std::string& each : all_gather_texts(self, "mpi/server", error)) {
      ZERO_CHECK(
          each.empty(),
          "[rank {}] the ranks cannot form a job of MPI: {}; start them with mpirun, or with "
          "srun --mpi=pmix",
          rank, each);
      ++rank;
    }
    set_variables(mine.substr(1));
    if (server_ > 0) courier_ = std::thread([this] { carry(); });
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// A rank that unwinds leaves the server to the abort of MPI that follows.
  ~Job() {
    if (server_ < 0) return;
    const bool unwinds = std::uncaught_exceptions() > exceptions_;
    ended_ = true;
    unwinds ? socket_.stop_receiving() : socket_.hang_up();
    if (courier_.joinable()) courier_.join();
    if (unwinds) {
      socket_.leave_open();
    } else {
      while (::waitpid(server_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }

 private:
  static std::string variables_key(int rank) { return fmt::format("mpi/variables/{}", rank); }

  void start_server(const std::vector<int>& here) {
    std::array<int, 2> sockets{};
    ZERO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0,
               "cannot make a pair of sockets: {}", std::generic_category().message(errno));
    socket_ = JobSocket(Descriptor(sockets[0]));
    const Descriptor other(sockets[1]);
    server_ = fork_server(layout_, sockets);
    for (const int rank : here) {
      store_.set(variables_key(rank),
                 socket_.receive().value_or("!the server of MPI's ranks ended"));
    }
  }

  static void set_variables(const std::string& lines) {
    std::istringstream text(lines);
    for (std::string line; std::getline(text, line);) {
      const std::size_t equals = line.find('=');
      ::setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 1);
    }
    // Open MPI 4 believes in a PMIx server only if it knows the launcher: JSM serves as this does.
    ::setenv("JSM_JSRUN_PORT", "0", 0);
  }

  /// The courier's thread: brings what the hosts' servers have for each other.
  void carry() {
    for (int meeting = 0;; ++meeting) {
      const auto mine = socket_.receive();
      if (!mine) return;
      socket_.send(exchange(meeting, *mine));
    }
  }

  std::string exchange(int meeting, const std::string& mine) {
    constexpr std::chrono::milliseconds kBetweenLooks{1000};
    std::vector<std::string> keys;
    for (int host = 0; host < std::ssize(layout_.hosts); ++host) {
      keys.push_back(fmt::format("mpi/meeting/{}/{}", meeting, host));
    }
    try {
      store_.set(keys[static_cast<std::size_t>(layout_.host)], mine);
      while (!ended_) {
        try {
          std::string all = "+";
          for (const std::string& each : store_.get_all(keys, kBetweenLooks)) all += each;
          return all;
        } catch (const Error&) {
          if (store_.lost()) break;
        }
      }
    } catch (const Error&) {  // the store is gone
    }
    return "!";
  }

  Store& store_;
  JobLayout layout_;
  int exceptions_;
  pid_t server_ = -1;
  JobSocket socket_{Descriptor(-1)};
  std::atomic<bool> ended_ = false;
  std::thread courier_;
};

}  // namespace

bool can_form_job() { return true; }

std::shared_ptr<void> form_job(const StoreRank& self, const std::vector<std::string>& hosts) {
  return std::make_shared<Job>(self, hosts);
}

}  // namespace zero::mpi

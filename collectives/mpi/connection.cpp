// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/connection.h"

#include <numeric>

#include "base/checked_math.h"
#include "collectives/mpi/comm.h"

namespace zero::mpi {
namespace {

// For each rank, the first rank of its host.
std::vector<int> hosts_of(const Link& link) {
  if (!link.options().hosts.empty()) return link.options().hosts;
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(link.handle(), MPI_COMM_TYPE_SHARED, link.rank(), MPI_INFO_NULL, &host));
  const Comm there(host);
  int first = link.rank();
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, there.get()));
  std::vector<int> hosts(static_cast<std::size_t>(link.size()));
  check_mpi(MPI_Allgather(&first, 1, MPI_INT, hosts.data(), 1, MPI_INT, link.handle()));
  return hosts;
}

// Every rank's line of text, in rank order.
std::vector<std::string> exchange_lines(MPI_Comm handle, int ranks, const std::string& mine) {
  const auto world = static_cast<std::size_t>(ranks);
  const int length = narrow<int>(mine.size());
  std::vector<int> lengths(world);
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, handle));
  std::vector<int> begins(world);
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), ' ');
  check_mpi(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(),
                           MPI_CHAR, handle));
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < world; ++rank) {
    lines.push_back(all.substr(static_cast<std::size_t>(begins[rank]),
                               static_cast<std::size_t>(lengths[rank])));
  }
  return lines;
}

/// Joins the ranks of `group`; `names` are their numbers in the job.
host::HostTransport::Joined join(const std::shared_ptr<host::Memory>& memory,
                                 const std::string& reason, const Comm& group,
                                 std::vector<int> names) {
  return host::HostTransport::join(
      memory, reason, {group.rank(), group.size(), std::move(names)},
      [&](const std::string& mine) { return exchange_lines(group.get(), group.size(), mine); });
}

}  // namespace

// MPI makes progress only inside its calls: a rank that waits in shared memory may delay messages
// that another rank waits for inside MPI. Between hosts these are many. The call that makes
// progress also receives failures of ranks on other hosts, and answers their questions.
void Connection::keep_messages_moving(host::HostTransport& transport) {
  constexpr std::chrono::milliseconds kOften{1};
  const auto progress = [&link = link_, &transport] {
    if (const auto& failure = link.failures().received()) transport.give_up(*failure);
    link.inquiries()->attend([&transport] { return transport.absent(); });
  };
  transport.set_context(context_);
  transport.set_blame([&link = link_](const std::vector<int>& absent, auto since) {
    return link.blamed(absent, since);
  });
  transport.set_idle(progress, link_.between_hosts() ? kOften : host::HostTransport::kLongestNap);
}

std::vector<std::string> Connection::all_gather_texts(const std::string& mine) const {
  return exchange_lines(link_.handle(), link_.size(), mine);
}

Connection::Connection(std::shared_ptr<Runtime> runtime, Part part, const Options& options,
                       std::shared_ptr<const CallContext> context)
    : runtime_(std::move(runtime)),
      link_(std::move(part.group), options, context),
      context_(std::move(context)) {
  const std::vector<int> on_hosts = hosts_of(link_);
  if (!part.job) {
    // Both are collective: one after the other, in an order that no compiler chooses.
    Comm own = Comm::copy_of(link_.handle());
    RankProcesses processes(all_gather_texts(RankProcesses::mine()), on_hosts, link_.rank());
    part.job = std::make_shared<Inquiries>(std::move(own), std::move(processes));
  }
  link_.join(std::move(part.job));
  HostPlan plan(on_hosts);
  const WorkAssignment& here = plan.hosts()[static_cast<std::size_t>(plan.host_of(link_.rank()))];
  local_rank_ = here.index(link_.rank());
  local_size_ = here.size();
  choose(*runtime_, std::move(plan));
}

void Connection::choose(Runtime& runtime, HostPlan plan) {
  const auto hosts = static_cast<int>(plan.hosts().size());
  if (hosts > 1) link_.cut_messages(Link::kBetweenHosts);
  std::string refusal;
  if (link_.options().host_memory == Options::HostMemory::unused) {
    refusal = "they were asked for";
  } else if (hosts > 1 && hosts == link_.size()) {
    refusal = "the ranks are on several hosts";
  } else {
    refusal = share(runtime, std::move(plan));
  }
  if (!refusal.empty()) {
    memory_ = nullptr;
    description_ = "MPI messages: " + refusal;
    transport_ = std::make_unique<Messages>(link_);
    return;
  }
  description_ =
      hosts == 1 ? "shared memory inside the host"
                 : fmt::format("shared memory inside {} hosts, MPI messages between them", hosts);
}

std::string Connection::share(Runtime& runtime, HostPlan plan) {
  const WorkAssignment here = plan.hosts()[static_cast<std::size_t>(plan.host_of(link_.rank()))];
  const int subtree = plan.subtree_of(link_.rank());
  const WorkAssignment together = plan.summing()[static_cast<std::size_t>(subtree)];
  std::string reason;
  memory_ = runtime.memory(here.size(), reason);
  const auto split = [&](int color) {
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(link_.handle(), color, link_.rank(), &part));
    return part;
  };
  const Comm ranks_here(split(plan.host_of(link_.rank())));
  auto joined = join(memory_, reason, ranks_here, link_.names_of(here.members()));
  if (plan.hosts().size() == 1) {
    if (joined.transport) keep_messages_moving(*joined.transport);
    shared_ = joined.transport.get();
    transport_ = std::move(joined.transport);
    return joined.refusal;
  }
  const bool part_of_host = together.size() > 1 && together.size() < here.size();
  const MPI_Comm part = split(part_of_host ? subtree : MPI_UNDEFINED);
  Hosts::Transports transports{std::move(joined.transport), nullptr};
  if (part_of_host) {
    const Comm ranks_together(part);
    if (transports.host)
      joined = join(memory_, reason, ranks_together, link_.names_of(together.members()));
    transports.subtree = std::move(joined.transport);
  }
  for (const std::string& refusal : all_gather_texts(joined.refusal)) {
    if (!refusal.empty()) return refusal;
  }
  keep_messages_moving(*transports.host);
  if (transports.subtree) keep_messages_moving(*transports.subtree);
  transport_ = std::make_unique<Hosts>(link_, std::move(plan), std::move(transports));
  return "";
}

}  // namespace zero::mpi

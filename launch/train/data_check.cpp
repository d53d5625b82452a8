// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/data_check.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/message_text.h"
#include "base/seconds_since.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "files/disk_calls.h"
#include "launch/data/batches.h"
#include "launch/data/token_file.h"
#include "launch/process/signals.h"
#include "launch/telemetry/output.h"
#include "launch/train/stop_votes.h"

namespace zero {
namespace {

/// Between two questions whether the other ranks have their digests too.
constexpr double kAgainSeconds = 5;
/// The same in the last step, where ranks wait for the answer and for signals alike.
constexpr double kWaitSeconds = 0.5;

std::vector<const TokenFile*> files_of(const Batches& batches) {
  std::vector<const TokenFile*> files;
  for (const DataFile& file : batches.files()) files.push_back(&file.file);
  return files;
}

/// Those of all ranks: [rank][i]. Collective.
std::vector<std::vector<std::string>> all_gather_lists(Communicator& ranks, Device& device,
                                                       const std::vector<std::string>& mine,
                                                       std::string_view purpose) {
  std::vector<std::vector<std::string>> all;
  for (const std::string& each :
       all_gather_texts(ranks, device, nlohmann::json(mine).dump(), purpose)) {
    all.push_back(nlohmann::json::parse(each).get<std::vector<std::string>>());
  }
  return all;
}

/// For each file of this rank the lowest rank that has opened the same one.
std::vector<int> readers_of(const Batches& batches, Communicator& ranks, Device& device) {
  std::vector<std::string> own;
  for (const TokenFile* file : files_of(batches)) own.push_back(file->identity());
  const auto all = all_gather_lists(ranks, device, own, "identities of the data");
  std::vector<int> readers(own.size(), ranks.rank());
  for (int rank = ranks.rank() - 1; rank >= 0; --rank) {
    const std::vector<std::string>& theirs = all[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < std::min(own.size(), theirs.size()); ++i) {
      if (theirs[i] == own[i]) readers[i] = rank;
    }
  }
  return readers;
}

std::vector<bool> read_by_others(const std::vector<int>& readers, int rank) {
  std::vector<bool> others;
  for (const int reader : readers) others.push_back(reader != rank);
  return others;
}

}  // namespace

DataDigests::DataDigests(std::vector<const TokenFile*> files, std::vector<bool> read_elsewhere)
    : files_(std::move(files)), read_elsewhere_(std::move(read_elsewhere)), texts_(known()) {
  read_elsewhere_.resize(files_.size());
  complete_ = bytes_to_read() == 0;
  if (!complete_) thread_ = std::thread([this] { read_all(); });
}

DataDigests::~DataDigests() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

bool DataDigests::is_read(std::size_t file) const {
  return files_[file]->digest() == nullptr && !read_elsewhere_[file];
}

void DataDigests::read_all() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);  // of this thread alone
  // Steps go on beside it; the last one waits in collectives.
  const files::UncountedDiskCalls uncounted;
  try {
    for (std::size_t i = 0; i < files_.size() && !stopped_; ++i) {
      if (is_read(i)) texts_[i] = digest_of(*files_[i], stopped_).text();
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  complete_ = true;
  completed_.notify_all();
}

void DataDigests::wait(double seconds) const {
  std::unique_lock lock(mutex_);
  completed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return complete(); });
}

std::vector<std::string> DataDigests::texts() const {
  if (failure_) std::rethrow_exception(failure_);
  return texts_;
}

std::vector<std::string> DataDigests::known() const {
  std::vector<std::string> texts;
  for (const TokenFile* file : files_) {
    texts.push_back(file->digest() == nullptr ? "" : file->digest()->text());
  }
  return texts;
}

std::int64_t DataDigests::bytes_to_read() const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (is_read(i)) bytes += files_[i]->file_bytes();
  }
  return bytes;
}

DataCheck::DataCheck(const Batches& batches, Communicator& ranks, Device& device, Console& console,
                     const Signals* signals)
    : batches_(batches),
      ranks_(ranks),
      device_(device),
      console_(console),
      signals_(signals),
      readers_(readers_of(batches, ranks, device)),
      digests_(files_of(batches), read_by_others(readers_, ranks.rank())),
      known_(digests_.known()),
      compared_(std::ranges::count(known_, std::string()) == 0) {}

void DataCheck::check_against_expected(const std::vector<std::string>& digests) const {
  const std::vector<DataFile> files = batches_.files();
  for (std::size_t i = 0; i < std::min(digests.size(), expected_.size()); ++i) {
    if (digests[i].empty() || expected_[i].empty()) continue;
    ZERO_CHECK(digests[i] == expected_[i],
               "{}: {} has other tokens than the checkpoint's run had: digest {}, expected {}; put "
               "the file back as it was, or name data.train in run.resume_changes to go on with "
               "the tokens of today",
               files[i].key, files[i].file.path(), digests[i], expected_[i]);
  }
}

void DataCheck::expect(std::vector<std::string> digests) {
  expected_ = std::move(digests);
  agree(ranks_, device_, "data", [&] { check_against_expected(known_); });
}

std::int64_t DataCheck::vote() {
  if (compared_ || ranks_.rank() != 0 || !digests_.complete()) return 0;
  if (seconds_since(asked_) < kAgainSeconds) return 0;
  asked_ = std::chrono::steady_clock::now();
  return kDataVote;
}

DataCheck::Ranks DataCheck::ask_ranks() {
  const bool ending = signals_ != nullptr && signals_->asked().ending != 0;
  std::array<std::int64_t, 2> all{digests_.complete() ? 1 : 0, ending ? 0 : 1};
  host_all_reduce(ranks_, device_, View::of(std::span<std::int64_t>(all)), ReduceOp::min,
                  {"digests of the data", {}});
  return {.complete = all[0] == 1, .ending = all[1] == 0};
}

void DataCheck::after_step(std::int64_t votes, Step step) {
  if (compared_ || ((votes & kDataVote) == 0 && step != Step::last)) return;
  bool said = false;
  for (Ranks all = ask_ranks(); !all.complete; all = ask_ranks()) {
    if (step != Step::last || all.ending) return;
    if (!std::exchange(said, true)) {
      console_.line(
          fmt::format("the last step waits until all data are read and compared ({}); zero_prepare "
                      "--digest FILES spares this: it writes their digests beside them",
                      decimal_bytes(digests_.bytes_to_read())));
    }
    digests_.wait(kWaitSeconds);
  }
  compare();
}

std::vector<std::string> DataCheck::all_digests() {
  std::vector<std::string> digests;
  agree(ranks_, device_, "data", [&] { digests = digests_.texts(); });
  const auto all = all_gather_lists(ranks_, device_, digests, "digests of the data");
  for (std::size_t i = 0; i < digests.size(); ++i) {
    if (digests[i].empty()) digests[i] = all[static_cast<std::size_t>(readers_[i])].at(i);
  }
  return digests;
}

void DataCheck::compare() {
  std::map<std::string, std::string> same;
  std::vector<std::string> digests = all_digests();
  agree(ranks_, device_, "data", [&] {
    check_against_expected(digests);
    std::size_t next = 0;
    for (const auto& [key, name, file] : batches_.files()) {
      same[name] = fmt::format("{} (digest {})", file.path(), digests[next++]);
    }
  });
  try {
    require_agreement(ranks_, device_, same);
  } catch (const AgreedError& error) {
    throw AgreedError(fmt::format(
        "{}. The ranks have read different tokens: copy the file whole to every host and start "
        "afresh",
        error.what()));
  }
  compared_ = true;
  known_ = std::move(digests);
}

std::vector<std::string> DataCheck::agreed() const {
  std::vector<std::string> digests = known_;
  const std::vector<DataFile> files = batches_.files();
  digests.resize(static_cast<std::size_t>(
      std::ranges::count(files, std::string("data.train"), &DataFile::key)));
  return digests;
}

}  // namespace zero

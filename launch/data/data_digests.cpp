// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/data_digests.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace zero {

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

}  // namespace zero

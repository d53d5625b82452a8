// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/hooked_disk.h"

#include <exception>
#include <utility>

#include "base/error.h"

namespace zero::testing {
namespace {

class Output final : public files::OutputFile {
 public:
  Output(const HookedDisk& disk, std::unique_ptr<files::OutputFile> inner)
      : disk_(disk), inner_(std::move(inner)) {}
  const std::string& path() const override { return inner_->path(); }
  void write(std::int64_t offset, std::span<const std::byte> bytes) override {
    disk_.before("write", path());
    inner_->write(offset, bytes);
  }
  void sync() override {
    disk_.before("sync", path());
    inner_->sync();
  }
  files::OutputFile& inner() { return *inner_; }

 private:
  const HookedDisk& disk_;
  std::unique_ptr<files::OutputFile> inner_;
};

class Input final : public files::InputFile {
 public:
  Input(const HookedDisk& disk, std::unique_ptr<files::InputFile> inner)
      : disk_(disk), inner_(std::move(inner)) {}
  const std::string& path() const override { return inner_->path(); }
  std::int64_t size() const override { return inner_->size(); }
  void read(std::int64_t offset, std::span<std::byte> out) override {
    disk_.before("read", path());
    inner_->read(offset, out);
  }
  files::InputFile& inner() { return *inner_; }

 private:
  const HookedDisk& disk_;
  std::unique_ptr<files::InputFile> inner_;
};

/// A failure of the hook belongs to its transfer.
class Queue final : public files::TransferQueue {
 public:
  Queue(const HookedDisk& disk, std::unique_ptr<files::TransferQueue> inner)
      : disk_(disk), inner_(std::move(inner)) {}
  Ticket write(files::OutputFile& file, std::int64_t offset,
               std::span<const std::byte> bytes) override {
    return start("queue write", file.path(),
                 [&] { return inner_->write(dynamic_cast<Output&>(file).inner(), offset, bytes); });
  }
  Ticket read(files::InputFile& file, std::int64_t offset, std::span<std::byte> out) override {
    return start("queue read", file.path(),
                 [&] { return inner_->read(dynamic_cast<Input&>(file).inner(), offset, out); });
  }
  void flush() override { inner_->flush(); }
  void wait(Ticket ticket) override {
    const Transfer transfer = transfers_.extract(ticket).mapped();
    if (transfer.failure) std::rethrow_exception(transfer.failure);
    if (!disk_.transfers_at_once()) inner_->wait(transfer.ticket);
  }

 private:
  struct Transfer {
    Ticket ticket = 0;
    std::exception_ptr failure;
  };
  template <typename Start>
  Ticket start(const std::string& call, const std::string& path, const Start& start) {
    Transfer transfer;
    try {
      disk_.before(call, path);
      transfer.ticket = start();
      if (disk_.transfers_at_once()) inner_->wait(transfer.ticket);
    } catch (...) {
      transfer.failure = std::current_exception();
    }
    transfers_.emplace(++last_, transfer);
    return last_;
  }

  const HookedDisk& disk_;
  std::unique_ptr<files::TransferQueue> inner_;
  std::map<Ticket, Transfer> transfers_;
  Ticket last_ = 0;
};

}  // namespace

std::string HookedDisk::inner_path(std::string_view call, const std::string& path) const {
  hook_(std::string(call), path);
  return !from_.empty() && path.starts_with(from_) ? to_ + path.substr(from_.size()) : path;
}

std::unique_ptr<files::OutputFile> HookedDisk::create(const std::string& path, std::int64_t bytes) {
  return std::make_unique<Output>(*this, ForwardingFileSystem::create(path, bytes));
}

std::unique_ptr<files::OutputFile> HookedDisk::open_write(const std::string& path) {
  return std::make_unique<Output>(*this, ForwardingFileSystem::open_write(path));
}

std::unique_ptr<files::InputFile> HookedDisk::open_read(const std::string& path) {
  return std::make_unique<Input>(*this, ForwardingFileSystem::open_read(path));
}

files::ScratchFile HookedDisk::create_scratch(const std::string& folder, std::int64_t bytes) {
  files::ScratchFile file = ForwardingFileSystem::create_scratch(folder, bytes);
  return {std::make_unique<Output>(*this, std::move(file.output)),
          std::make_unique<Input>(*this, std::move(file.input))};
}

std::unique_ptr<files::TransferQueue> HookedDisk::queue(std::span<std::byte> memory,
                                                        const files::QueueOptions& options) {
  return std::make_unique<Queue>(*this, ForwardingFileSystem::queue(memory, options));
}

void Faults::operator()(const std::string& call, const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (calls_[call]++ != number_ || call != call_) return;
  happened_ = true;
  fail("{}: cannot {}: {}", path, call, reason_);
}

std::map<std::string, int> Faults::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

bool Faults::happened() const {
  const std::lock_guard lock(mutex_);
  return happened_;
}

}  // namespace zero::testing

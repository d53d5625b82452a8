// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/new_file.h"

#include <exception>
#include <utility>

namespace zero {
namespace {

constexpr std::size_t kAtOnce = std::size_t{1} << 20;  // bytes that are written together

}  // namespace

NewFile::NewFile(std::string path, files::FileSystem& disk)
    : path_(std::move(path)),
      disk_(disk),
      file_(advised("give a folder you may write to", [&] { return disk.create(path_, 0); })) {}

NewFile::~NewFile() {
  file_.reset();
  if (renamed_) return;
  try {
    disk_.remove_file(path_);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): what failed before is said
  }
}

void NewFile::write(std::span<const std::byte> bytes) {
  unwritten_.insert(unwritten_.end(), bytes.begin(), bytes.end());
  if (unwritten_.size() >= kAtOnce) flush();
}

void NewFile::flush() {
  if (unwritten_.empty()) return;
  advised("free some space", [&] { file_->write(at_, unwritten_); });
  at_ += static_cast<std::int64_t>(unwritten_.size());
  unwritten_.clear();
}

void NewFile::rewind() {
  flush();
  at_ = 0;
}

void NewFile::finish() {
  flush();
  advised("free some space", [&] { file_->sync(); });
  file_.reset();
}

void NewFile::rename(const std::string& path) {
  disk_.rename(path_, path);
  renamed_ = true;
}

void write_whole_file(const std::string& path, std::string_view text) {
  files::check_target(files::disk(), path);
  NewFile file(path + ".partial");
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  file.rename(path);
}

}  // namespace zero

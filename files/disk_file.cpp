// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/disk_file.h"

#include <fcntl.h>

#include <utility>

#include "base/error.h"
#include "files/transfer.h"

namespace zero::files {

PosixOutput::PosixOutput(std::string path, Descriptor descriptor, TransferCounts& counts)
    : file_(std::move(path), std::move(descriptor), O_WRONLY, counts) {}

void PosixOutput::write(std::int64_t offset, std::span<const std::byte> bytes) {
  run(Transfer::write(file_, offset, bytes, Transfer::Mode::cached));
}

PosixInput::PosixInput(const std::string& path, TransferCounts& counts)
    : file_(path, O_RDONLY, counts) {}

PosixInput::PosixInput(std::string path, Descriptor descriptor, TransferCounts& counts)
    : file_(std::move(path), std::move(descriptor), O_RDONLY, counts) {}

void PosixInput::read(std::int64_t offset, std::span<std::byte> out) {
  run(Transfer::read(file_, offset, out, Transfer::Mode::cached));
}

PosixFile& posix_file(OutputFile& file) {
  auto* const output = dynamic_cast<PosixOutput*>(&file);
  ZERO_CHECK(output != nullptr, "{}: this queue cannot write files of another file system",
             file.path());
  return output->file();
}

PosixFile& posix_file(InputFile& file) {
  auto* const input = dynamic_cast<PosixInput*>(&file);
  ZERO_CHECK(input != nullptr, "{}: this queue cannot read files of another file system",
             file.path());
  return input->file();
}

}  // namespace zero::files

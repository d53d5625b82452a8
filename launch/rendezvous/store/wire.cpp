// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/wire.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/whole_number.h"

namespace zero::store_wire {
namespace {

static_assert(std::endian::native == std::endian::little, "messages have the lowest byte first");

void check_length(std::size_t length, std::size_t most) {
  ZERO_CHECK(length <= most, "a message of {} bytes; rank 0 takes at most {}", length, most);
}

void append_length(std::string& text, std::size_t length) {
  const auto value = static_cast<Length>(length);
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The length at the start of `text`.
Length length_of(std::string_view text) {
  Length length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  return length;
}

}  // namespace

std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most) {
  const auto value = whole_number(text, least, most);
  ZERO_CHECK(value.has_value(), "{} bytes that are no whole number from {} to {}", text.size(),
             least, most);
  return *value;
}

std::string body_of(const Message& message) {
  std::size_t size = 0;
  for (const std::string& part : message) size += sizeof(Length) + part.size();
  check_length(size, kLargest);
  std::string body;
  body.reserve(size);
  for (const std::string& part : message) {
    append_length(body, part.size());
    body += part;
  }
  return body;
}

std::string framed(const Message& message) {
  const std::string body = body_of(message);
  std::string frame;
  frame.reserve(sizeof(Length) + body.size());
  append_length(frame, body.size());
  frame += body;
  return frame;
}

Message unframed(std::string_view body) {
  Message message;
  while (!body.empty()) {
    ZERO_CHECK(message.size() < kMostParts, "a message of more than {} strings", kMostParts);
    ZERO_CHECK(body.size() >= sizeof(Length), "a message ends too early");
    const Length length = length_of(body);
    body.remove_prefix(sizeof(Length));
    ZERO_CHECK(body.size() >= length, "a message ends too early");
    message.emplace_back(body.substr(0, length));
    body.remove_prefix(length);
  }
  ZERO_CHECK(!message.empty(), "an empty message");
  return message;
}

std::optional<std::string> FrameReader::next() {
  if (pending_.size() < sizeof(Length)) return std::nullopt;
  const std::size_t length = length_of(pending_);
  check_length(length, largest_);
  const std::size_t end = sizeof(Length) + length;
  if (pending_.size() < end) return std::nullopt;
  // The rest is copied, so that the memory of a long body leaves with the body.
  std::string rest = pending_.substr(end);
  pending_.resize(end);
  pending_.erase(0, sizeof(Length));
  std::string body = std::move(pending_);
  pending_ = std::move(rest);
  return body;
}

Message introduction_of(const Identity& identity) {
  return {"iam", std::string(kVersion), std::to_string(identity.rank),
          std::to_string(identity.world), identity.job};
}

Identity introduced(const Message& message) {
  ZERO_CHECK(message.size() >= 2 && message[0] == "iam", "it does not say which rank it is");
  ZERO_CHECK(message[1] == kVersion && message.size() == 5,
             "rank 0 runs another version of the program, with {}; all ranks must run one",
             kVersion);
  const std::string& job = message[4];
  ZERO_CHECK(job.size() <= kMostJobBytes, "a job whose name has {} bytes, expected at most {}",
             job.size(), kMostJobBytes);
  const int world = static_cast<int>(number(message[3], 1, kMostRanks));
  return {.rank = static_cast<int>(number(message[2], 0, world - 1)), .world = world, .job = job};
}

}  // namespace zero::store_wire

// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/store_wire.h"

#include "base/error.h"

namespace zero::store_wire {
namespace {

void append_length(std::string& text, std::size_t length) {
  ZERO_CHECK(length <= kLargest, "a message of {} bytes; a store takes at most {}", length,
             kLargest);
  for (int byte = 0; byte < 4; ++byte) {
    text.push_back(static_cast<char>((length >> (8 * byte)) & 0xffU));
  }
}

}  // namespace

std::string framed(const Message& message) {
  std::string body;
  for (const std::string& part : message) {
    append_length(body, part.size());
    body += part;
  }
  std::string frame;
  append_length(frame, body.size());
  return frame + body;
}

std::uint32_t length_of(const Length& bytes) {
  std::uint32_t length = 0;
  for (int byte = 3; byte >= 0; --byte) {
    length = length << 8U | bytes[static_cast<std::size_t>(byte)];
  }
  ZERO_CHECK(length <= kLargest, "a message of {} bytes; a store takes at most {}", length,
             kLargest);
  return length;
}

Message unframed(std::string_view body) {
  Message message;
  while (!body.empty()) {
    Length bytes{};
    ZERO_CHECK(body.size() >= bytes.size(), "a message of a store ends too early");
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(body[i]);
    }
    body.remove_prefix(bytes.size());
    const std::uint32_t length = length_of(bytes);
    ZERO_CHECK(body.size() >= length, "a message of a store ends too early");
    message.emplace_back(body.substr(0, length));
    body.remove_prefix(length);
  }
  ZERO_CHECK(!message.empty(), "an empty message for a store");
  return message;
}

}  // namespace zero::store_wire

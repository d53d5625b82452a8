// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Bytes for the store of a job, as a stranger or a faulty rank may send them: the first says in how
// large pieces the rest comes. What is no message must end in zero::Error, and nothing else. What
// messages do to a store: store_session.cpp.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "launch/rendezvous/store/wire.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace zero;
using namespace zero::store_wire;

/// The bodies of all frames before the first that is too long.
std::vector<std::string> bodies_of(std::string_view bytes, std::size_t piece,
                                   std::uint32_t largest) {
  std::vector<std::string> bodies;
  fuzz::may_refuse([&] {
    FrameReader reader(largest);
    while (!bytes.empty()) {
      reader.append(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (auto body = reader.next()) {
        fuzz::expect(body->size() <= largest, "a frame is no longer than its limit");
        bodies.push_back(std::move(*body));
      }
    }
  });
  return bodies;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = std::size_t{data[0]} + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

  const std::vector<std::string> bodies = bodies_of(bytes, piece, kLargest);
  fuzz::expect(bodies == bodies_of(bytes, bytes.size() + 1, kLargest),
               "frames do not depend on how they come in pieces");
  for (const std::string& body : bodies) {
    fuzz::may_refuse([&] {
      fuzz::expect(body_of(unframed(body)) == body, "a message is written as it was read");
    });
  }
  return 0;
}

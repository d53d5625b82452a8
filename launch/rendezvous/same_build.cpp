// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/same_build.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/host.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "device/device.h"
#include "launch/process/versions.h"

namespace zero {
namespace {

using Bytes = std::span<const std::byte>;

Bytes segment(const dl_phdr_info& object, const ElfW(Phdr) & header) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader tells addresses as numbers
  const auto* const begin = reinterpret_cast<const std::byte*>(object.dlpi_addr + header.p_vaddr);
  return {begin, header.p_memsz};
}

/// The build id among the notes; empty if there is none.
Bytes build_id(Bytes notes) {
  using namespace std::string_view_literals;
  const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  ElfW(Nhdr) note{};
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t name = sizeof note;
    const std::size_t content = name + padded(note.n_namesz);
    const std::size_t end = content + padded(note.n_descsz);
    if (end > notes.size()) return {};
    const std::string_view owner(reinterpret_cast<const char*>(notes.data() + name), note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && owner == "GNU\0"sv) {
      return notes.subspan(content, note.n_descsz);
    }
    notes = notes.subspan(end);
  }
  return {};
}

std::uint64_t mark_of(const dl_phdr_info& object) {
  XXH64_hash_t code = 0;
  for (const ElfW(Phdr) & header : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    const Bytes bytes = segment(object, header);
    if (header.p_type == PT_NOTE) {
      if (const Bytes id = build_id(bytes); !id.empty()) return XXH3_64bits(id.data(), id.size());
    }
    if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0 && (header.p_flags & PF_W) == 0) {
      code = XXH3_64bits_withSeed(bytes.data(), bytes.size(), code);
    }
  }
  return code;
}

int add_mark(dl_phdr_info* object, std::size_t /*size*/, void* marks) {
  const std::string_view path = object->dlpi_name;
  const bool is_program = path.empty();
  const bool is_ours = path.substr(path.rfind('/') + 1).starts_with("libzero");
  auto& text = *static_cast<std::string*>(marks);
  if (is_program || is_ours) {
    text += fmt::format("{}{:016x}", text.empty() ? "" : "-", mark_of(*object));
  }
  return 0;
}

std::string shown(std::size_t rank, const RankProgram& program) {
  return fmt::format("rank {} on host {} runs zero {} (build {})", rank, program.host,
                     program.version, program.build);
}

}  // namespace

std::string build_mark() {
  std::string marks;
  ::dl_iterate_phdr(add_mark, &marks);
  return marks;
}

std::string other_program(std::span<const RankProgram> of_ranks) {
  const RankProgram& first = of_ranks.front();
  const auto other = std::ranges::find_if(of_ranks, [&](const RankProgram& program) {
    return program.version != first.version || program.build != first.build;
  });
  if (other == of_ranks.end()) return "";
  const auto rank = static_cast<std::size_t>(other - of_ranks.begin());
  return fmt::format("{}, {}; all ranks must run one build of the program: copy it to all hosts",
                     shown(rank, *other), shown(0, first));
}

void require_same_build(Communicator& communicator) {
  const std::string mine = fmt::format("{}\n{}\n{}", host_name(), version(), build_mark());
  std::vector<RankProgram> programs;
  for (const std::string& text :
       all_gather_texts(communicator, *cpu::open(), mine, "builds of the program")) {
    const std::size_t host = text.find('\n');
    const std::size_t version = text.find('\n', host + 1);
    programs.push_back({.host = text.substr(0, host),
                        .version = text.substr(host + 1, version - host - 1),
                        .build = text.substr(version + 1)});
  }
  if (const std::string other = other_program(programs); !other.empty()) throw AgreedError(other);
}

}  // namespace zero

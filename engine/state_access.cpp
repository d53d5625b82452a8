// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_access.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cpu/primitives.h"

namespace zero {
namespace {

/// Widens to fp32, in host memory, the values that fill the end of `to` in their own dtype. The
/// first n values in fp32 end before the bytes of the values behind the n-th begin, so chunks in
/// order overwrite no value that is still to be read.
void widen_in_place(const View& values, const View& to) {
  std::array<std::byte, 4096> memory{};
  const std::int64_t length = std::ssize(memory) / size_of(values.dtype());
  for (std::int64_t begin = 0; begin < to.count(); begin += length) {
    const View from = values.slice(begin, std::min(length, to.count() - begin));
    std::memcpy(memory.data(), from.data(), static_cast<std::size_t>(from.bytes()));
    cpu::convert({memory.data(), from.count(), from.dtype(), nullptr},
                 to.slice(begin, from.count()), 1);
  }
}

std::int64_t address(const View& view) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data()));
}

/// The elements of `rest`, from its begin on, that `tile` has.
std::int64_t count_in(const View& tile, const View& rest) {
  const std::int64_t end = address(tile) + tile.bytes();
  return std::min(rest.count(), (end - address(rest)) / size_of(rest.dtype()));
}

}  // namespace

void StateAccess::read(const View& view, const Visit& visit) {
  away(view) ? visit_away(view, visit, false) : memory_.read(view, visit);
}

void StateAccess::write(const View& view, const Visit& fill) {
  away(view) ? visit_away(view, fill, true) : memory_.write(view, fill);
}

/// In host memory in place, behind all transfers; of the file tile by tile.
void StateAccess::visit_away(const View& view, const Visit& visit, bool write) {
  if (in_host(view)) {
    home_.host().moved().synchronize();
    return visit(0, view);
  }
  for (std::int64_t begin = 0; begin < view.count();) {
    const View part = tile_part(view.slice(begin, view.count() - begin), write);
    visit(begin, part);
    begin += part.count();
  }
}

/// The memory of the first elements of `rest`, as many as are in one tile, which becomes the
/// host's. Their values are there, unless they are going to be written.
View StateAccess::tile_part(const View& rest, bool write) {
  const View tile = home_.file().around(rest.slice(0, 1), home_.tile_bytes());
  if (tile.data() != host_tile_.data()) {
    flush();
    host_tile_ = tile;
    known_ = 0;
  }
  const std::int64_t at = address(rest) - address(tile);
  const std::int64_t count = count_in(tile, rest);
  const std::int64_t end = at + count * size_of(rest.dtype());
  if (write ? at > known_ : end > known_) complete();
  if (write) {
    known_ = std::max(known_, end);
    changed_ = true;
  }
  return home_.host_tile().slice(at, end - at).reinterpret(rest.dtype(), count);
}

/// Reads the rest of the host's tile, from the block in which what is known ends.
void StateAccess::complete() {
  if (known_ == host_tile_.bytes()) return;
  std::array<std::byte, TierFile::kBlock> kept{};
  const std::int64_t part = known_ % TierFile::kBlock;
  const std::int64_t begin = known_ - part;
  const std::int64_t bytes = host_tile_.bytes() - begin;
  const View window = home_.host_tile().slice(begin, bytes);
  std::memcpy(kept.data(), window.data(), static_cast<std::size_t>(part));
  transfer(false, host_tile_.slice(begin, bytes), window);
  std::memcpy(window.data(), kept.data(), static_cast<std::size_t>(part));
  known_ = host_tile_.bytes();
}

void StateAccess::flush() {
  if (!changed_) return;
  complete();
  transfer(true, host_tile_, home_.host_tile().slice(0, host_tile_.bytes()));
  changed_ = false;
  copy_tile_ = View();  // may be of the same values
}

/// Moves bytes between the file and a window, and blocks the host until they have.
void StateAccess::transfer(bool write, const View& there, const View& window) {
  TierFile& file = home_.file();
  file.finish(write ? file.start_write(window, there) : file.start_read(there, window));
  device_.transfer().synchronize();
}

void StateAccess::settle() {
  flush();
  host_tile_ = copy_tile_ = View();
}

void StateAccess::visit_later(const View& view, Stream& stream, const Visit& use) {
  flush();
  TierFile& file = home_.file();
  Stream& transfer = device_.transfer();
  if (&stream != &transfer) transfer.wait(stream.record());
  for (std::int64_t begin = 0; begin < view.count();) {
    const View rest = view.slice(begin, view.count() - begin);
    const View tile = file.around(rest.slice(0, 1), home_.tile_bytes());
    if (tile.data() != copy_tile_.data())
      file.finish(file.start_read(tile, home_.copy_tile().slice(0, tile.bytes())));
    copy_tile_ = tile;
    const std::int64_t count = count_in(tile, rest);
    const View part = home_.copy_tile()
                          .slice(address(rest) - address(tile), count * size_of(rest.dtype()))
                          .reinterpret(rest.dtype(), count);
    use(begin, part);
    begin += count;
  }
  if (&stream != &transfer) stream.wait(transfer.record());
}

void StateAccess::wait_for_host(Stream& stream) const {
  if (&stream != &device_.transfer()) stream.wait(home_.host().moved());
}

void StateAccess::upload(const View& view, Stream& stream, const Visit& use) {
  if (uploading_ != &stream) stream.wait(uploaded_);
  uploading_ = &stream;
  const std::int64_t length = home_.device_tile().bytes() / size_of(view.dtype());
  for (std::int64_t begin = 0; begin < view.count(); begin += length) {
    const View part = view.slice(begin, std::min(length, view.count() - begin));
    const View tile = home_.device_tile().reinterpret(view.dtype(), part.count());
    device_.kernels().convert(stream, part, tile);
    use(begin, tile);
  }
  uploaded_ = stream.record();
}

void StateAccess::set(const View& to, const View& values) {
  if (!away(to) && to.dtype() == values.dtype())
    return device_.kernels().convert(device_.compute(), values, to);
  write(to, [&](std::int64_t at, const View& piece) {
    cpu::convert(values.slice(at, piece.count()), piece, device_.threads());
  });
}

/// The driver's copies from host memory to host memory would block the host.
void StateAccess::copy_from_host(const View& from, const View& to, Stream& stream) {
  if (to.device() == nullptr || device_.memory() == MemorySpace::host)
    return stream.submit_host("states of the host", [from, to] { cpu::convert(from, to); });
  if (from.dtype() == to.dtype()) return device_.kernels().convert(stream, from, to);
  upload(from, stream, [&](std::int64_t begin, const View& values) {
    device_.kernels().convert(stream, values, to.slice(begin, values.count()));
  });
}

void StateAccess::copy_from_file(const View& from, const View& to, Stream& stream) {
  visit_later(from, stream, [&](std::int64_t begin, const View& values) {
    copy_from_host(values, to.slice(begin, values.count()), device_.transfer());
  });
}

/// A kernel converts within the memory of the device only, so host memory gets other dtypes
/// unchanged, and is widened on the host.
void StateAccess::copy(const View& from, const View& to, Stream& stream) {
  if (in_file(from)) return copy_from_file(from, to, stream);
  Kernels& kernels = device_.kernels();
  if (in_host(from)) {
    wait_for_host(stream);
    return copy_from_host(from, to, stream);
  }
  if (from.dtype() == to.dtype() || to.device() != nullptr)
    return kernels.convert(stream, from, to);
  const std::int64_t most = to.bytes() / size_of(from.dtype());
  const View end = to.reinterpret(from.dtype(), most).slice(most - from.count(), from.count());
  kernels.convert(stream, from, end);
  stream.submit_host("values to fp32", [end, to] { widen_in_place(end, to); });
}

}  // namespace zero

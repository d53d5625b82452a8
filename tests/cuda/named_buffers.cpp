// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"
#include "tests/cuda/emulator/emulator.h"

// Buffers tell the emulator what the ledger calls them, so that reports can say it: the linker puts
// this function (--wrap, CMakeLists.txt) in place of their constructor, which it calls.
extern "C" {

void __real__ZN4zero6BufferC1ENS_4ViewENS_11MemoryClassENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERNS_12MemoryLedgerESt8functionIFvPvEE(
    zero::Buffer* buffer, zero::View view, zero::MemoryClass memory_class, std::string label,
    zero::MemoryLedger& ledger, zero::Buffer::Free free);

void __wrap__ZN4zero6BufferC1ENS_4ViewENS_11MemoryClassENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERNS_12MemoryLedgerESt8functionIFvPvEE(
    zero::Buffer* buffer, zero::View view, zero::MemoryClass memory_class, std::string label,
    zero::MemoryLedger& ledger, zero::Buffer::Free free) {
  zero::cuda::emulated::name_memory(view.data(), static_cast<std::size_t>(view.bytes()),
                                    fmt::format("{}/{}", zero::name_of(memory_class), label));
  __real__ZN4zero6BufferC1ENS_4ViewENS_11MemoryClassENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERNS_12MemoryLedgerESt8functionIFvPvEE(
      buffer, view, memory_class, std::move(label), ledger, std::move(free));
}

}  // extern "C"

# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)

# zero_precompile(TARGET KIND [HEADER...]): the headers that nearly all sources include, and HEADER..., are compiled once a KIND, with its first
# target, whose flags all targets of the kind have. Sources stand alone all the same, which builds with
# CMAKE_DISABLE_PRECOMPILE_HEADERS=ON show. Clang is stricter about flags that differ, and goes without.
function(zero_precompile target kind)
  get_property(first GLOBAL PROPERTY ZERO_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
    return()
  endif()
  set(headers <cstring> <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstdint> <exception> <filesystem> <functional> <limits> <map>
    <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <stdexcept> <string> <string_view> <thread> <utility> <vector>
    <fmt/format.h> <fmt/ranges.h> ${ARGN})
  target_precompile_headers(${target} PRIVATE ${headers})
  set_property(GLOBAL PROPERTY ZERO_PRECOMPILED_${kind} ${target})
endfunction()

# zero_unity(TARGET): with ZERO_UNITY, ZERO_UNITY_BATCH of its sources are compiled at once.
function(zero_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ZERO_UNITY} UNITY_BUILD_BATCH_SIZE ${ZERO_UNITY_BATCH})
endfunction()

# zero_light(TARGET): for code that runs once a step or less the time to compile it counts.
function(zero_light target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# zero_bf16_sources(SOURCE...): files of intrinsics that run only if the processor has bf16 instructions.
# GCC 12 finds its own AVX-512 header careless (PR 105593). Clang 16 crashes where it combines a vector's broadcast
# with its cast to bf16 pairs: without that pass.
function(zero_bf16_sources)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS
      "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vbmi;-mavx512bf16;-mamx-tile;-mamx-bf16;$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>;$<$<CXX_COMPILER_ID:Clang>:-mllvm;-disable-vector-combine>")
  endif()
endfunction()

# zero_kernels(SOURCE...): loops over values and intrinsics, compiled alone. Of LIGHT rooms with AddressSanitizer these alone are optimized: to optimize
# what it and UBSan add takes half the time of compiling it.
function(zero_kernels)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  if(ZERO_SANITIZE STREQUAL "address")
    set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    if(NOT ZERO_LIBFUZZER)
      set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -O1)
    endif()
  endif()
endfunction()

# zero_room(NAME SOURCES file... [LINK target...] [PRIVATE_LINK target...] [LIGHT|UNITY])
# One library per room: target zero_NAME, alias zero::NAME. LINK is what its headers need, PRIVATE_LINK what only its sources do. UNITY: compiled
# by ZERO_UNITY_BATCH sources at once, but for kernels (cpu/) and what zero_cuda() adds; LIGHT: so, and as above.
function(zero_room name)
  cmake_parse_arguments(ROOM "LIGHT;UNITY" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(zero_${name} STATIC ${ROOM_SOURCES})
  add_library(zero::${name} ALIAS zero_${name})
  set_target_properties(zero_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(zero_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(zero_${name} PUBLIC cxx_std_20)
  target_link_libraries(zero_${name} PUBLIC ${ROOM_LINK} PRIVATE $<BUILD_INTERFACE:zero_flags> ${ROOM_PRIVATE_LINK})
  set(kind room)
  if(ZERO_LIBFUZZER AND name MATCHES "^(base|files|text|weights|checkpoint|launch)$")
    # They read what strangers write: libFuzzer is told which branches they take.
    target_compile_options(zero_${name} PRIVATE -fsanitize=fuzzer-no-link)
  elseif(ZERO_LIBFUZZER)  # compiled for the second compiler's warnings, as fast as may be
    target_compile_options(zero_${name} PRIVATE -O0 -fno-sanitize=all)
    set(kind unread_room)
  endif()
  if(ROOM_LIGHT)
    zero_light(zero_${name})
    string(PREPEND kind light_)
  endif()
  if(ROOM_LIGHT OR ROOM_UNITY)
    zero_unity(zero_${name})
    list(FILTER ROOM_SOURCES INCLUDE REGEX "^cpu/")
    zero_kernels(${ROOM_SOURCES})
    if(ROOM_LIGHT AND ZERO_SANITIZE STREQUAL "address")
      target_compile_options(zero_${name} PRIVATE -O0)
    endif()
  endif()
  zero_precompile(zero_${name} ${kind})
  set_property(GLOBAL APPEND PROPERTY ZERO_ROOMS zero_${name})
endfunction()

# zero_program(NAME SOURCES file... [LINK target...] [LIGHT]): an executable in build/bin.
function(zero_program name)
  cmake_parse_arguments(PROGRAM "LIGHT" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  if(PROGRAM_LIGHT)
    zero_light(${name})
    zero_unity(${name})
  endif()
  if(ZERO_SANITIZE STREQUAL "address")
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(PROGRAM_LIGHT AND "CLI11::CLI11" IN_LIST PROGRAM_LINK)
    zero_precompile(${name} program <CLI/CLI.hpp>)
  endif()
  target_link_libraries(${name} PRIVATE zero_flags ${PROGRAM_LINK})
endfunction()

# zero_test_flags(TARGET [OPTIMIZED]): how tests' own sources are compiled. The rooms they link keep their optimisation and all sanitizers; UBSan alone
# doubles the time of a source that formats text, and to optimize tests takes longer than it saves, but for OPTIMIZED ones, whose own loops are long.
function(zero_test_flags target)
  zero_light(${target})
  zero_unity(${target})
  if(ZERO_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  if(NOT "OPTIMIZED" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# zero_test_objects(NAME SOURCES file... [LINK target...]): tests that several programs of tests have.
function(zero_test_objects name)
  cmake_parse_arguments(TEST "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} OBJECT ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE zero_flags PUBLIC ${TEST_LINK} GTest::gmock)
  zero_test_flags(${name} OPTIMIZED)
endfunction()

# zero_test(NAME SOURCES file... [LINK target...] [LABELS label...] [TIMEOUT seconds] [PROCESSORS n] [PREFIX text] [OPTIMIZED] [WHOLE] [ONE_CORE]): a GoogleTest
# program; each case is a ctest entry, named PREFIX and the case. WHOLE: one entry, for cases that most machines skip. ONE_CORE: of ranks that are
# threads with little work between their waits, a process on one core, where handing on takes half the time; with sanitizers on all.
function(zero_test name)
  cmake_parse_arguments(TEST "OPTIMIZED;WHOLE;ONE_CORE" "TIMEOUT;PREFIX;PROCESSORS" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT TEST_PROCESSORS)
    set(TEST_PROCESSORS 1)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 600)
  endif()
  if(ZERO_SANITIZE)
    set(TEST_TIMEOUT 1500)  # of an eighth of a program's cases, on a machine that is slow
  endif()
  if(TEST_ONE_CORE AND NOT ZERO_SANITIZE)
    list(APPEND TEST_SOURCES ${PROJECT_SOURCE_DIR}/tests/support/one_core.cpp)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  # The standard library before the rooms' archives, of which a member would be linked that happens to have what GoogleTest lacks of it.
  target_link_libraries(${name} PRIVATE zero_flags ${TEST_LINK} GTest::gmock GTest::gtest_main stdc++)
  if(ZERO_LLD)  # a third of the time
    target_link_options(${name} PRIVATE -fuse-ld=lld)
  endif()
  set(kind test)
  set(flags)
  if(TEST_OPTIMIZED)
    set(flags OPTIMIZED)
    string(PREPEND kind optimized_)
  endif()
  zero_test_flags(${name} ${flags})
  zero_precompile(${name} ${kind} <gmock/gmock.h> <gtest/gtest.h>)
  if(TEST_WHOLE)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}")
    return()
  endif()
  if(ZERO_SANITIZE)
    # A program with a sanitizer starts for as long as most cases run: a part of them a process.
    foreach(shard RANGE 7)
      add_test(NAME ${name}.${shard} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT ${TEST_TIMEOUT} PROCESSORS ${TEST_PROCESSORS} LABELS "${TEST_LABELS}"
        ENVIRONMENT "GTEST_TOTAL_SHARDS=8;GTEST_SHARD_INDEX=${shard}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 600 NO_PRETTY_VALUES TEST_PREFIX "${TEST_PREFIX}"
    PROPERTIES TIMEOUT ${TEST_TIMEOUT} PROCESSORS ${TEST_PROCESSORS} LABELS "${TEST_LABELS}")
  # With ZERO_TEST_PARTS in ctest's environment, that many entries a program: a process a case is a tenth of the time of all tests.
  set(parts ${CMAKE_CURRENT_BINARY_DIR}/${name}_parts.cmake)
  set(properties "TIMEOUT 3000 PROCESSORS ${TEST_PROCESSORS} LABELS [==[${TEST_LABELS}]==] SKIP_REGULAR_EXPRESSION \"0 tests from 0 test suites ran\"")
  get_property(cases DIRECTORY PROPERTY TEST_INCLUDE_FILES)
  list(POP_BACK cases last)
  file(GENERATE OUTPUT ${parts} CONTENT "if(NOT DEFINED ENV{ZERO_TEST_PARTS})
  include(\"${last}\")
  return()
endif()
math(EXPR most \"\$ENV{ZERO_TEST_PARTS} - 1\")
foreach(part RANGE \${most})
  add_test(${TEST_PREFIX}${name}.\${part} $<TARGET_FILE:${name}> --gtest_brief=1)
  set_tests_properties(${TEST_PREFIX}${name}.\${part} PROPERTIES WORKING_DIRECTORY \"${CMAKE_CURRENT_BINARY_DIR}\"
    ENVIRONMENT \"GTEST_TOTAL_SHARDS=\$ENV{ZERO_TEST_PARTS};GTEST_SHARD_INDEX=\${part}\" ${properties})
endforeach()
")
  set_property(DIRECTORY PROPERTY TEST_INCLUDE_FILES ${cases} ${parts})
endfunction()

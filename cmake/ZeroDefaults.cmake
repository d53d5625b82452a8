# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(ZERO_CCACHE ccache)
if(ZERO_CCACHE)
  # Else precompiled headers, and what includes them, are not cached.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${ZERO_CCACHE})
endif()

cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR memory_per_core "${memory} / ${cores}")  # MiB
# Sources that are compiled at once share what they instantiate: 40 take 60 % of the time of 4 x 10, and up to 2 GiB. Many cores have more
# to do with smaller batches.
set(batch 12)
if(cores LESS 5 AND memory_per_core GREATER 3000)
  set(batch 40)
endif()
set(ZERO_UNITY_BATCH ${batch} CACHE STRING "How many sources of a target are compiled at once")
# g++ collects its garbage at 128 MiB, and takes a fifth longer for it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND memory_per_core GREATER 3000)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>")
endif()

# Flags of every target of the project; not exported to users.
add_library(zero_flags INTERFACE)
# -ffp-contract=off: the same arithmetic however a loop is vectorised. What nvcc takes is in ZeroCuda. Of sources that are compiled several at once,
# one's constant may shadow another's.
target_compile_options(zero_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic>"
  "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>>:-Wshadow>"
  "$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>" "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")
if(ZERO_WERROR)
  target_compile_options(zero_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>")
endif()
if(ZERO_CHECKED)
  target_compile_definitions(zero_flags INTERFACE ZERO_CHECKED)
endif()
if(ZERO_SANITIZE STREQUAL "address")
  # Without UBSan's checks of pointers, of which AddressSanitizer sees most: they take a quarter of the time to compile.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr,null,object-size -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options(-fno-sanitize=function)
    set(ZERO_LIBFUZZER ON)  # fuzz targets are its programs, and rooms tell it which branches they take
  endif()
  add_link_options(-fsanitize=address,undefined)
elseif(ZERO_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=thread)
elseif(ZERO_SANITIZE)
  message(FATAL_ERROR "ZERO_SANITIZE is \"${ZERO_SANITIZE}\"; expected empty, address or thread")
endif()
if(ZERO_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What sanitizers add misleads g++'s warnings of the flow of values, to which the Release build is held.
  add_compile_options(-Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=stringop-overread
    -Wno-error=restrict -Wno-error=null-dereference -Wno-error=nonnull -Wno-error=free-nonheap-object)
endif()
find_program(ZERO_LLD ld.lld)
if(ZERO_SANITIZE AND ZERO_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Highway compiles each vector kernel once per instruction set and picks at run time. AVX2, AVX-512 and the portable
# baseline are what CPUs that train are made of; the others only cost build time. SVE is off: Highway
# would prefer it to NEON, for which more kernels are written.
set(disabled "HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(disabled "HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128")
elseif(ZERO_SANITIZE AND EXISTS /proc/cpuinfo)  # a build to be run here: what this processor lacks would only cost time
  file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
  if(NOT flags MATCHES "avx512vl")
    string(APPEND disabled "|HWY_AVX3")
  endif()
endif()
add_compile_definitions("$<$<COMPILE_LANGUAGE:C,CXX>:HWY_DISABLED_TARGETS=(${disabled})>")

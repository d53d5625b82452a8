# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# Everything is found, nothing is downloaded. launch/install_packages.sh installs what is missing.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers of Asio and Beast
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto SSL)
list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
find_package(SentencePiece REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)  # patterns of tokenizers
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)     # and their normalization
pkg_check_modules(liburing QUIET IMPORTED_TARGET liburing)  # optional
set(ZERO_URING_MODULE)
if(liburing_FOUND)
  set(ZERO_URING_MODULE liburing=liburing)
endif()

set(ZERO_HAVE_MPI OFF)
if(NOT ZERO_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)
  if(ZERO_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS C)
  else()
    find_package(MPI COMPONENTS C)
  endif()
  set(ZERO_HAVE_MPI ${MPI_C_FOUND})
endif()
# With it ranks of CPUs on several hosts need no launcher that knows MPI.
set(ZERO_HAVE_PMIX OFF)
set(ZERO_PMIX_MODULE)
if(ZERO_HAVE_MPI)
  pkg_check_modules(pmix QUIET IMPORTED_TARGET pmix>=4)
  if(pmix_FOUND)
    set(ZERO_HAVE_PMIX ON)
    set(ZERO_PMIX_MODULE pmix=pmix)
  endif()
endif()

# oneDNN, 2.6 or newer, and OpenMP, which has its number of threads: what zero_bench measures this library beside, and nothing else.
set(ZERO_HAVE_ONEDNN OFF)
if(NOT ZERO_ONEDNN STREQUAL "OFF" AND (ZERO_BENCH OR ZERO_TESTS))
  if(ZERO_ONEDNN STREQUAL "ON")
    find_package(dnnl REQUIRED)
  else()
    find_package(dnnl QUIET)
  endif()
  set(ZERO_HAVE_ONEDNN ${dnnl_FOUND})
  if(dnnl_FOUND)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
  endif()
endif()

if(ZERO_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
endif()

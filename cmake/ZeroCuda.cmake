# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0

# Finds CUDA, and of what goes with it NCCL and cuDNN; launch/install_cuda.sh brings them where they are missing. Sets
#   ZERO_HAVE_CUDA   nvcc, the runtime and cuBLASLt: targets CUDA::cudart_static, CUDA::cublasLt, language CUDA
#   ZERO_CUDA_CODE   the architectures that ZERO_CUDA_ARCHITECTURES stands for, which may be "native"
#   ZERO_HAVE_NCCL   target zero_nccl
#   ZERO_HAVE_CUDNN  target zero_cudnn: the library and the frontend's headers
#   ZERO_CUDA_HEADERS  the folder of cuda_runtime_api.h, also where nvcc is switched off (the emulator's tests use it), or empty
set(ZERO_CUDA AUTO CACHE STRING "CUDA backend: ON, OFF or AUTO")
set(ZERO_CUDA_ARCHITECTURES "90a-real" CACHE STRING "GPU architectures to build for, as CMAKE_CUDA_ARCHITECTURES")

# zero_cuda_part(NAME ROOT HEADER LIBRARY...)
# Sets ZERO_NAME_HEADERS and ZERO_NAME_LIBRARY where ROOT, or one of CMake's own places where ROOT is "anywhere", has both.
function(zero_cuda_part name root header)
  set(where PATHS ${root} NO_DEFAULT_PATH)
  if(root STREQUAL "anywhere")
    set(where)
  endif()
  find_path(ZERO_${name}_HEADERS ${header} ${where} PATH_SUFFIXES include)
  find_library(ZERO_${name}_LIBRARY NAMES ${ARGN} ${where} PATH_SUFFIXES lib lib64)
  if(NOT ZERO_${name}_HEADERS OR NOT ZERO_${name}_LIBRARY)
    unset(ZERO_${name}_HEADERS CACHE)
    unset(ZERO_${name}_LIBRARY CACHE)
  endif()
endfunction()

if(DEFINED ENV{XDG_CACHE_HOME})
  set(zero_cuda_folder $ENV{XDG_CACHE_HOME}/zero/cuda-13.0)
else()
  set(zero_cuda_folder $ENV{HOME}/.cache/zero/cuda-13.0)
endif()
set(ZERO_HAVE_CUDA OFF)
set(ZERO_HAVE_NCCL OFF)
set(ZERO_HAVE_CUDNN OFF)

find_program(ZERO_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin ${zero_cuda_folder}/bin)
if(ZERO_CUDA STREQUAL "ON" AND NOT ZERO_NVCC)
  message(FATAL_ERROR "ZERO_CUDA is ON, but there is no nvcc; launch/install_cuda.sh brings one, or set CUDA_HOME")
endif()
if(ZERO_NVCC)
  get_filename_component(zero_cuda_root ${ZERO_NVCC} REALPATH)
  get_filename_component(zero_cuda_root ${zero_cuda_root} DIRECTORY)
  get_filename_component(zero_cuda_root ${zero_cuda_root} DIRECTORY)
endif()
find_path(ZERO_CUDA_HEADERS cuda_runtime_api.h HINTS ${zero_cuda_root}/include ${zero_cuda_folder}/include NO_DEFAULT_PATH)

if(ZERO_NVCC AND NOT ZERO_CUDA STREQUAL "OFF")
  set(CMAKE_CUDA_COMPILER ${ZERO_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES ${ZERO_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(ZERO_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${ZERO_CCACHE})
  endif()
  enable_language(CUDA)
  set(ZERO_CUDA_CODE ${ZERO_CUDA_ARCHITECTURES})
  if(ZERO_CUDA_CODE STREQUAL "native" AND CMAKE_CUDA_ARCHITECTURES_NATIVE MATCHES "^[0-9]")
    set(ZERO_CUDA_CODE ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
  endif()
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know nvcc's
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CUDAToolkit_ROOT ${zero_cuda_root})
  find_package(CUDAToolkit 12.8 REQUIRED)
  set(ZERO_HAVE_CUDA ON)

  # Of what a machine's CUDA lacks, or has in too old a release, each part comes from the fetched set, which is for CUDA 13.
  set(zero_cuda_roots $ENV{NCCL_HOME} $ENV{CUDNN_HOME} ${zero_cuda_root})
  if(CUDAToolkit_VERSION_MAJOR EQUAL 13)
    list(APPEND zero_cuda_roots ${zero_cuda_folder})
  endif()
  foreach(root IN LISTS zero_cuda_roots ITEMS anywhere)
    zero_cuda_part(NCCL ${root} nccl.h nccl libnccl.so.2)
    if(NOT ZERO_NCCL_LIBRARY)
      continue()
    endif()
    file(STRINGS ${ZERO_NCCL_HEADERS}/nccl.h zero_nccl_code REGEX "define NCCL_VERSION_CODE")
    string(REGEX MATCH "[0-9]+" zero_nccl_code "${zero_nccl_code}")
    if(zero_nccl_code GREATER_EQUAL 22700)
      set(ZERO_HAVE_NCCL ON)
      break()
    endif()
    message(STATUS "zero: the NCCL in ${ZERO_NCCL_HEADERS} is of ${zero_nccl_code}, older than 2.27, and not used")
    unset(ZERO_NCCL_HEADERS CACHE)
    unset(ZERO_NCCL_LIBRARY CACHE)
  endforeach()
  if(ZERO_HAVE_NCCL)
    add_library(zero_nccl INTERFACE)
    target_include_directories(zero_nccl SYSTEM INTERFACE $<BUILD_INTERFACE:${ZERO_NCCL_HEADERS}>)
    target_link_libraries(zero_nccl INTERFACE $<BUILD_INTERFACE:${ZERO_NCCL_LIBRARY}>)
  endif()
  foreach(root IN LISTS zero_cuda_roots ITEMS anywhere)
    zero_cuda_part(CUDNN ${root} cudnn.h cudnn libcudnn.so.9)
    if(ZERO_CUDNN_LIBRARY)
      break()
    endif()
  endforeach()
  find_path(ZERO_CUDNN_FRONTEND cudnn_frontend.h HINTS ${zero_cuda_roots} PATH_SUFFIXES include)  # headers alone
  # The frontend's engines that compile their kernels at run time are not used, but linked.
  if(ZERO_CUDNN_FRONTEND AND ZERO_CUDNN_LIBRARY AND TARGET CUDA::nvrtc)
    add_library(zero_cudnn INTERFACE)
    target_include_directories(zero_cudnn SYSTEM INTERFACE
      $<BUILD_INTERFACE:${ZERO_CUDNN_HEADERS}> $<BUILD_INTERFACE:${ZERO_CUDNN_FRONTEND}>)
    target_link_libraries(zero_cudnn INTERFACE $<BUILD_INTERFACE:${ZERO_CUDNN_LIBRARY}> CUDA::nvrtc)
    set(ZERO_HAVE_CUDNN ON)
  endif()
  foreach(part NCCL CUDNN)
    if(NOT ZERO_HAVE_${part})
      message(STATUS "zero: ${zero_cuda_root} lacks what building with ${part} takes; launch/install_cuda.sh brings it")
    endif()
  endforeach()

  # nvcc's front end does not see that fmt's checks of formats are constant expressions; g++ checks the same headers.
  target_compile_definitions(zero_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=;FMT_USE_CONSTEVAL=0;FMT_USE_CONSTEXPR=1>")
  # Warnings of host code inside .cu files; a product and a sum stay two roundings, as on the CPU.
  target_compile_options(zero_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off>")
  if(ZERO_WERROR)
    target_compile_options(zero_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
endif()

# zero_cuda(ROOM SOURCES file... UNAVAILABLE file... [LINK target...])
# The CUDA part of a room: SOURCES where CUDA is to be had, otherwise UNAVAILABLE. tests/cuda builds SOURCES once more, for the emulator,
# but for those named in NOT_EMULATED (they need libraries of the vendor's).
function(zero_cuda room)
  cmake_parse_arguments(PART "" "" "SOURCES;NOT_EMULATED;UNAVAILABLE;LINK" ${ARGN})
  if(ZERO_HAVE_CUDA)
    target_sources(zero_${room} PRIVATE ${PART_SOURCES} ${PART_NOT_EMULATED})
    target_link_libraries(zero_${room} PRIVATE CUDA::cudart_static ${PART_LINK})
  else()
    target_sources(zero_${room} PRIVATE ${PART_UNAVAILABLE})
  endif()
  # In objects of their own, which the emulator's tests replace.
  set_source_files_properties(${PART_SOURCES} ${PART_NOT_EMULATED} ${PART_UNAVAILABLE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  list(TRANSFORM PART_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY ZERO_EMULATED ${PART_SOURCES})
endfunction()

if(ZERO_HAVE_CUDA)
  message(STATUS "zero: MPI backend ${ZERO_HAVE_MPI}, CUDA ${CUDAToolkit_VERSION} (NCCL ${ZERO_HAVE_NCCL}, cuDNN ${ZERO_HAVE_CUDNN})")
else()
  message(STATUS "zero: MPI backend ${ZERO_HAVE_MPI}, CUDA backend OFF")
endif()

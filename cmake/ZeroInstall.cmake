# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0

# zero::zero, all rooms in one: what an outside project links after find_package(zero).
include(CMakePackageConfigHelpers)

get_property(ZERO_ROOMS GLOBAL PROPERTY ZERO_ROOMS)
add_library(zero INTERFACE)
add_library(zero::zero ALIAS zero)
target_link_libraries(zero INTERFACE ${ZERO_ROOMS})

# g++ leaves out shared libraries of which nothing is used; clang asks for all, the driver of a GPU too.
target_link_options(zero INTERFACE $<INSTALL_INTERFACE:LINKER:--as-needed>)

install(TARGETS zero ${ZERO_ROOMS} EXPORT zeroTargets)
foreach(program zero_train zero_plan zero_prepare zero_generate zero_ckpt zero_doctor zero_memory zero_scale zero_bench)
  if(TARGET ${program})
    install(TARGETS ${program})
  endif()
endforeach()

# Outside projects, and the examples, include "zero/ROOM/...": the build tree has links for that, an installed one the headers themselves.
set(rooms)
foreach(room ${ZERO_ROOMS})
  string(REGEX REPLACE "^zero_" "" directory ${room})
  list(APPEND rooms ${directory})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/zero)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${directory} ${PROJECT_BINARY_DIR}/include/zero/${directory} SYMBOLIC)
endforeach()
target_include_directories(zero INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)
set(installed_headers ${PROJECT_BINARY_DIR}/installed/zero)
install(CODE "set(SOURCE \"${PROJECT_SOURCE_DIR}\")\nset(ROOMS \"${rooms}\")\nset(INTO \"${installed_headers}\")")
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/InstallHeaders.cmake)
install(DIRECTORY ${installed_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(ZERO_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/zero)
install(EXPORT zeroTargets NAMESPACE zero:: DESTINATION ${ZERO_CMAKE_DIR})
foreach(part mpi cuda)
  string(TOUPPER ZERO_HAVE_${part} have)
  set(zero_config_${part} 0)
  if(${have})
    set(zero_config_${part} 1)
  endif()
endforeach()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/zeroConfig.cmake.in
  ${PROJECT_BINARY_DIR}/zeroConfig.cmake INSTALL_DESTINATION ${ZERO_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/zeroConfig.cmake ${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindSentencePiece.cmake DESTINATION ${ZERO_CMAKE_DIR})

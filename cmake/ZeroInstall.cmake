# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0

# zero::zero, all rooms in one: what an outside project links after find_package(zero).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

get_property(ZERO_ROOMS GLOBAL PROPERTY ZERO_ROOMS)
add_library(zero INTERFACE)
add_library(zero::zero ALIAS zero)
target_link_libraries(zero INTERFACE ${ZERO_ROOMS})

install(TARGETS zero ${ZERO_ROOMS} EXPORT zeroTargets)
foreach(program zero_train zero_prepare zero_generate zero_bench)
  if(TARGET ${program})
    install(TARGETS ${program})
  endif()
endforeach()

# Includes are written from the root of the repository, inside and outside alike.
foreach(room ${ZERO_ROOMS})
  string(REGEX REPLACE "^zero_" "" directory ${room})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${directory} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zero
    FILES_MATCHING PATTERN "*.h")
endforeach()

set(ZERO_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/zero)
install(EXPORT zeroTargets NAMESPACE zero:: DESTINATION ${ZERO_CMAKE_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/zeroConfig.cmake.in
  ${PROJECT_BINARY_DIR}/zeroConfig.cmake INSTALL_DESTINATION ${ZERO_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/zeroConfig.cmake ${PROJECT_BINARY_DIR}/zeroConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindSentencePiece.cmake DESTINATION ${ZERO_CMAKE_DIR})

# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0

# zero_mpi_test(NAME target RANKS n [ARGS arg...] [TIMEOUT seconds]): a ctest entry that runs `target` as n ranks, more
# than there are cores where need be. Exit 0 of every rank is a pass.
function(zero_mpi_test name target)
  cmake_parse_arguments(TEST "" "RANKS;TIMEOUT" "ARGS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none
    ${MPIEXEC_NUMPROC_FLAG} ${TEST_RANKS} $<TARGET_FILE:${target}> ${TEST_ARGS})
  # Ranks outnumber cores, so two such tests at once would only slow each other down.
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${TEST_TIMEOUT} LABELS mpi RUN_SERIAL ON
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()

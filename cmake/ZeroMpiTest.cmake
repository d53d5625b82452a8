# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
set(ZERO_EXPECT_FAILURE ${CMAKE_CURRENT_LIST_DIR}/ExpectFailure.cmake)

# zero_mpi_test(NAME target RANKS n [ARGS arg...] [MPI_ARGS arg...] [UNDER command...] [FAILS_WITH text]): a ctest
# entry that runs `target` as n ranks, more than there are cores where need be, each by way of `command` if there is one. It passes when
# every rank exits with 0; with FAILS_WITH, when the job ends by itself, fails and says `text`.
function(zero_mpi_test name target)
  cmake_parse_arguments(TEST "" "RANKS;FAILS_WITH" "ARGS;MPI_ARGS;UNDER" ${ARGN})
  set(command ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none
    ${TEST_MPI_ARGS} ${MPIEXEC_NUMPROC_FLAG} ${TEST_RANKS} ${TEST_UNDER} $<TARGET_FILE:${target}> ${TEST_ARGS})
  if(TEST_FAILS_WITH)
    set(command ${CMAKE_COMMAND} "-DTEXT=${TEST_FAILS_WITH}" -P ${ZERO_EXPECT_FAILURE} -- ${command})
  endif()
  add_test(NAME ${name} COMMAND ${command})
  # Ranks outnumber cores: two such tests at once would only slow each other down. They wait much, and begin first, so that one other test
  # at a time fills in.
  set_tests_properties(${name} PROPERTIES
    TIMEOUT 600 LABELS mpi RESOURCE_LOCK mpi PROCESSORS 3 COST 60
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()

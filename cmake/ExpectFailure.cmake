# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# cmake -DTEXT=... -P ExpectFailure.cmake -- COMMAND...: passes when COMMAND ends by itself with a failure and says TEXT.
# One that hangs is ended before the test is, so that its output is shown.
set(command)
set(after_dashes FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(after_dashes)
    list(APPEND command ${CMAKE_ARGV${i}})
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after_dashes TRUE)
  endif()
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 500)
if(NOT code MATCHES "^[1-9][0-9]*$")
  message(FATAL_ERROR "expected a failing exit code, found \"${code}\":\n${output}")
endif()
string(FIND "${output}" "${TEXT}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "exit code ${code}, but the output lacks \"${TEXT}\":\n${output}")
endif()

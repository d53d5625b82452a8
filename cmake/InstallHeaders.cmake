# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# Writes the headers that are installed to INTO: those of ROOMS, folders of SOURCE, but for folders of one device or one transport and of
# test support, of which only what the others include. Their includes of each other are written "zero/ROOM/...", so that they find one
# another whatever folders an outside project has on its include path.
cmake_policy(VERSION 3.25)

set(left)
foreach(room ${ROOMS})
  file(GLOB_RECURSE found RELATIVE ${SOURCE} ${SOURCE}/${room}/*.h)
  list(APPEND left ${found})
endforeach()
list(FILTER left EXCLUDE REGEX "/(cpu|cuda|host|local|mpi|nccl|planning|testing)/")
list(JOIN ROOMS "|" rooms)

file(REMOVE_RECURSE ${INTO})
set(written)
while(left)
  list(POP_FRONT left header)
  if(header IN_LIST written)
    continue()
  endif()
  list(APPEND written ${header})
  file(STRINGS ${SOURCE}/${header} includes REGEX "^#include \"(${rooms})/")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    list(APPEND left ${included})
  endforeach()
  file(READ ${SOURCE}/${header} text)
  string(REGEX REPLACE "(^|\n)#include \"(${rooms})/" "\\1#include \"zero/\\2/" text "${text}")
  file(WRITE ${INTO}/${header} "${text}")
endwhile()

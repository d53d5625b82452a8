# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# Installs BUILD into a prefix of its own, builds a copy of EXAMPLES, and the custom trainer that README shows, against
# nothing but that prefix with the compiler CXX, runs them and reads zero_mlp's ledger. Everything happens under WORK.
cmake_minimum_required(VERSION 3.25)

function(run_step)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit status ${result} of: ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_line pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "no line like \"${pattern}\" in:\n${output}")
  endif()
endfunction()

# Sets `block` to README's first block of code in `language`.
function(read_block language)
  file(READ ${README} text)
  string(REGEX MATCH "```${language}\n([^`]*)```" found "${text}")
  if(NOT found)
    message(FATAL_ERROR "${README} has no block of ${language}")
  endif()
  set(block "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(COPY ${EXAMPLES} DESTINATION ${WORK})
run_step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run_step(${CMAKE_COMMAND} -S ${WORK}/examples -B ${WORK}/build -G Ninja
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run_step(${CMAKE_COMMAND} --build ${WORK}/build)

run_step(${WORK}/build/zero_tensor_mlp 1 3 2)
expect_line("step +2  loss [0-9]+\\.[0-9]+  gradient norm [0-9]+")

run_step(${WORK}/build/zero_resume ${WORK}/checkpoints 3 2)
run_step(${WORK}/build/zero_resume ${WORK}/checkpoints 1 1)
expect_line("goes on from .*step_00000002, 16 rows seen\nstep +3  loss [0-9]+\\.[0-9]+\nsaved")

run_step(${WORK}/build/zero_mlp 0 2)
expect_line("step +2  loss 0\\.[0-9]+")
expect_line("parameters +48\\.0[45]")
expect_line("gradients +48\\.0[45]")
expect_line("optimizer +96\\.(09|10)")
expect_line("activations +1\\.500 MiB")
expect_line("staging/input +0\\.125 MiB")
expect_line("staging/target +0\\.125 MiB")

# What README leaves to the reader: its arithmetic, and here no batch.
read_block(cmake)
file(WRITE ${WORK}/readme/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\n${block}")
read_block(cpp)
file(WRITE ${WORK}/readme/trainer.cpp "#include \"device/view.h\"
#include <string>
#include <vector>
struct Batch {};
const std::vector<Batch> batches;
void forward(zero::View, zero::View) {}
double error(const Batch&) { return 0; }
void backward(zero::View, zero::View, zero::View) {}
${block}")
run_step(${CMAKE_COMMAND} -S ${WORK}/readme -B ${WORK}/readme/build -G Ninja
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run_step(${CMAKE_COMMAND} --build ${WORK}/readme/build)
run_step(${WORK}/readme/build/trainer)

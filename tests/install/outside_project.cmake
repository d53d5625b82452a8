# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# Installs BUILD, which was configured in SOURCE, into a prefix of its own; builds a copy of the examples, and the custom trainer that
# README shows, against nothing but that prefix with the compiler CXX, the trainer with clang too; runs them, reads zero_mlp's ledger, and
# compiles headers alone. Everything happens under WORK.
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
  file(READ ${SOURCE}/README.md text)
  string(REGEX MATCH "```${language}\n([^`]*)```" found "${text}")
  if(NOT found)
    message(FATAL_ERROR "${SOURCE}/README.md has no block of ${language}")
  endif()
  set(block "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# Builds the project in `folder` in `build` with `compiler`.
function(build_outside folder build compiler)
  run_step(${CMAKE_COMMAND} -S ${folder} -B ${build} -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_PREFIX_PATH=${WORK}/prefix ${ARGN})
  run_step(${CMAKE_COMMAND} --build ${build})
endfunction()

file(REMOVE_RECURSE ${WORK})
file(COPY ${SOURCE}/examples DESTINATION ${WORK})
run_step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
set(programs zero_train zero_plan zero_prepare zero_generate zero_ckpt zero_doctor zero_memory zero_scale)
if(EXISTS ${BUILD}/bin/zero_bench)
  list(APPEND programs zero_bench)
endif()
foreach(program IN LISTS programs)
  run_step(${WORK}/prefix/bin/${program} --help)
  expect_line("${program}")
endforeach()
build_outside(${WORK}/examples ${WORK}/build ${CXX})

run_step(${WORK}/build/zero_tensor_mlp 1 3 2)
expect_line("step +2  loss [0-9]+\\.[0-9]+  gradient norm [0-9]+")

run_step(${WORK}/build/zero_resume ${WORK}/checkpoints 3 2)
run_step(${WORK}/build/zero_resume ${WORK}/checkpoints 1 1)
expect_line("goes on from .*step_00000002, 16 rows seen\nstep +3  loss [0-9]+\\.[0-9]+\nsaved")

run_step(${WORK}/build/zero_mlp 0 2)
expect_line("step +2  loss 0\\.[0-9]+")
# 12 x (1024 x 1024 + 1024) parameters in fp32: 48.05 MiB, as their gradients; Adam's moments are twice that; the batch, 2 x 32 x 1024: 0.25;
# what layers keep, 12 x 32 x 1024: 1.5; the loss's gradient: 0.125.
expect_line("seal\\(\\) allocated 192\\.19 MiB\n")
expect_line("batch +live +48\\.30 MiB of +194\\.06 MiB allocated
forward +live +49\\.80 MiB of +194\\.06 MiB allocated
loss +live +49\\.92 MiB of +194\\.06 MiB allocated
backward +live +97\\.97 MiB of +194\\.06 MiB allocated
step +live +194\\.06 MiB of +194\\.06 MiB allocated
step +1  loss ")
expect_line("parameters +48\\.0[45]")
expect_line("gradients +48\\.0[45]")
expect_line("optimizer +96\\.(09|10)")
expect_line("activations +1\\.500 MiB")
expect_line("staging/input +0\\.125 MiB")
expect_line("staging/target +0\\.125 MiB")

# 8 layers, in KiB: x and dx are 16 each, z and wide 64. All of them kept: 9 x 32 + 8 x 128 = 1312. At the first step of backward live x.0 to
# x.7, dx.8, dx.7 and every z and wide: 160 + 1024 = 1184; computed again, those of one layer: 160 + 128 = 288.
run_step(${WORK}/build/zero_recompute)
expect_line("step +1  loss [0-9.]+  scale 16777216  skipped: layer\\.[0-9]\\.[a-z]+")
expect_line("step +40  loss 0\\.[0-9]+  scale")
expect_line("activations in KiB: 1312 in a buffer for each, 1184 in places [a-z ]+, 288 if [a-z ]+")
expect_line("no plan of these takes less than 288\n")
expect_line("growing labels 0\n")

# A small model learns a text in one program, and continues it in another.
string(REPEAT "The lines of this text are all of one kind, as this line says.\n" 40 text)
file(WRITE ${WORK}/text.txt "${text}")
file(WRITE ${WORK}/tiny.json [[{
  "model": {"family": "llama", "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "intermediate": 64, "context": 256, "vocabulary": 3011},
  "data": {"train": "tokens", "sequence_length": 32}, "train_batch_size": 4,
  "run": {"steps": 1, "save_weights": "tiny/", "log": null, "device": "cpu"}}]])
file(COPY ${SOURCE}/tests/text/tokenizers/llama3/tokenizer.json DESTINATION ${WORK}/tiny)
run_step(${WORK}/prefix/bin/zero_prepare --tokenizer ${WORK}/tiny --out ${WORK}/tokens ${WORK}/text.txt)
run_step(${CMAKE_COMMAND} -E chdir ${WORK} ${WORK}/prefix/bin/zero_train --config tiny.json)
run_step(${WORK}/build/zero_finetune_mini ${WORK}/tiny ${WORK}/text.txt ${WORK}/tuned/ 40)
expect_line("step +40  loss 7\\.[0-9]+")
run_step(${WORK}/build/zero_generate_mini ${WORK}/tuned "The lines" "The text")
expect_line("^The lines.*\nThe text.*\n$")

# Headers: what they include of ours is installed, by the name that outside projects use. A header that a source of its own does not
# include first, which shows the same, is compiled alone. An outside project may have files of the same names.
file(GLOB_RECURSE headers RELATIVE ${WORK}/prefix/include/zero ${WORK}/prefix/include/zero/*.h)
set(sources)
foreach(header IN LISTS headers)
  file(STRINGS ${WORK}/prefix/include/zero/${header} includes REGEX "^#include \"")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    if(NOT EXISTS ${WORK}/prefix/include/${included} OR NOT included MATCHES "^zero/")
      message(FATAL_ERROR "the installed ${header} includes \"${included}\", expected an installed header of zero/")
    endif()
  endforeach()
  file(WRITE ${WORK}/own/${header} "#error \"a header of the outside project\"\n")
  string(REGEX REPLACE "h$" "cpp" own_source ${SOURCE}/${header})
  set(first)
  if(EXISTS ${own_source})
    file(STRINGS ${own_source} first REGEX "^#include" LIMIT_COUNT 1)
  endif()
  if(NOT first STREQUAL "#include \"${header}\"")
    string(MAKE_C_IDENTIFIER ${header} name)
    file(WRITE ${WORK}/headers/${name}.cpp "#include \"zero/${header}\"\n")
    string(APPEND sources " ${name}.cpp")
  endif()
endforeach()
foreach(header engine/engine.h checkpoint/checkpointer.h model/decoder.h inference/generator.h)
  if(NOT header IN_LIST headers)
    message(FATAL_ERROR "${header} is not installed")
  endif()
endforeach()
if(headers MATCHES "testing/|cuda/kernels|-inl")
  message(FATAL_ERROR "headers of test support or of kernels are installed: ${headers}")
endif()
# The blocks of two pages, each in a function that has what its page takes for granted.
set(blocks)
foreach(name trainers memory_tools)
  file(READ ${SOURCE}/docs/${name}.md page)
  string(REPLACE ";" "<semicolon>" page "${page}")
  string(REGEX MATCHALL "```cpp\n[^`]*```" of_page "${page}")
  list(LENGTH of_page count)
  if(count LESS 3)
    message(FATAL_ERROR "docs/${name}.md has ${count} blocks of C++, expected at least 3")
  endif()
  list(APPEND blocks ${of_page})
endforeach()
set(text "#include <memory>
#include <span>
#include <stdexcept>
#include <vector>
#include \"zero/device/lifetime_plan.h\"
#include \"zero/device/memory_monitor.h\"
#include \"zero/engine/engine.h\"
#include \"zero/optim/learning_rate.h\"
#include \"zero/optim/loss_scaler.h\"
void my_kernel(std::span<const float>, std::span<const float>, std::span<float>);
void evaluate(int batch);
void train_one_step();
struct Page {
  zero::Engine& engine;
  std::unique_ptr<zero::Device> device;
  zero::UnitId layer;
  zero::GradientLease lease;
  std::int64_t count;
  zero::Buffer output;
  std::vector<int> validation;
  std::vector<double> losses;
  double rate;
  std::size_t i;
  float sum;
")
set(number 0)
foreach(block IN LISTS blocks)
  string(REGEX REPLACE "^```cpp\n(.*)```$" "\\1" block "${block}")
  string(APPEND text "  void block_${number}() {\n${block}\n}\n")
  math(EXPR number "${number} + 1")
endforeach()
string(APPEND text "}<semicolon>\n")
string(REPLACE "<semicolon>" ";" text "${text}")
file(WRITE ${WORK}/headers/page.cpp "${text}")
string(APPEND sources " page.cpp")
set(own -DCMAKE_CXX_FLAGS=-I${WORK}/own)
file(WRITE ${WORK}/headers/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(headers LANGUAGES C CXX)
find_package(zero REQUIRED)
add_library(headers OBJECT ${sources})
target_link_libraries(headers PRIVATE zero::zero)
target_compile_options(headers PRIVATE -fsyntax-only)
")
build_outside(${WORK}/headers ${WORK}/headers/build ${CXX} ${own} -DCMAKE_BUILD_TYPE=None)

# What README leaves to the reader: its arithmetic, and here no batch.
read_block(cpp)
set(trainer "#include <string>
#include <vector>
#include \"zero/device/view.h\"
struct Batch {};
const std::vector<Batch> batches;
void forward(zero::View, zero::View) {}
double error(const Batch&) { return 0; }
void backward(zero::View, zero::View, zero::View) {}
${block}")
read_block(cmake)
file(WRITE ${WORK}/readme/trainer.cpp "${trainer}")
file(WRITE ${WORK}/readme/CMakeLists.txt "${block}")
build_outside(${WORK}/readme ${WORK}/readme/build ${CXX} ${own})
run_step(${WORK}/readme/build/trainer)

# A project without cmake_minimum_required() has the policies of CMake 2.
file(WRITE ${WORK}/old/trainer.cpp "${trainer}")
string(REGEX REPLACE "cmake_minimum_required[^\n]*\n" "" without "${block}")
if(without STREQUAL block)
  message(FATAL_ERROR "README's CMake has no cmake_minimum_required()")
endif()
file(WRITE ${WORK}/old/CMakeLists.txt "${without}")
set(compiler ${CXX})
find_program(CLANG NAMES clang++-16 clang++)
if(CLANG)
  file(WRITE ${WORK}/empty.cpp "int main() {}\n")
  execute_process(COMMAND ${CLANG} ${WORK}/empty.cpp -o ${WORK}/empty RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(result EQUAL 0)
    set(compiler ${CLANG})
  endif()
endif()
build_outside(${WORK}/old ${WORK}/old/build ${compiler} ${own})
run_step(${WORK}/old/build/trainer)

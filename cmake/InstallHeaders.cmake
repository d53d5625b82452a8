# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# Writes to INTO the headers that are installed: the public ones below, which change only as CHANGELOG.md says, and what they include, which
# may change. Their includes of each other are written "zero/ROOM/...", so that they find one another whatever folders an outside project has
# on its include path. ROOMS: folders of SOURCE.
cmake_policy(VERSION 3.25)

set(public
  base/dtype.h base/error.h base/half.h
  device/buffer.h device/device.h device/lifetime_plan.h device/memory_ledger.h device/memory_monitor.h device/stream.h device/view.h
  partition/flat_layout.h partition/tensor_slice.h
  architecture/decoder_shape.h architecture/family.h
  collectives/backends.h collectives/communicator.h collectives/listener.h collectives/mesh.h collectives/store.h collectives/wait_limits.h
  optim/learning_rate.h optim/loss_scaler.h optim/optimizer.h
  engine/engine.h engine/engine_options.h engine/engine_states.h engine/lease.h engine/schedule.h
  model/activation_trace.h model/decoder.h model/layers.h model/model.h model/parallel_linear.h model/tensor_parallel.h model/vocabulary_parallel.h ops/ops.h
  checkpoint/checkpointer.h checkpoint/weights.h weights/hf/config.h
  inference/generator.h inference/inference_model.h inference/scheduler.h
  text/chat_template.h text/text_stream.h text/tokenizer.h text/tokenizer_config.h)

set(left ${public})
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

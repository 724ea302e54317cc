# SPDX-License-Identifier: Apache-2.0
# What the CUDA kernels are built for. Machine code runs on GPUs of the same major number from its minor one on; PTX is
# compiled by the driver on any newer GPU, at the first start.
#
# As a script (cmake -DLIST=... -DQUERY=... -P), for its test: prints what LIST becomes.

# A10, 30xx, 40xx, H100 and H200, B200, 50xx; PTX for what comes between and after them.
set(HEADRACE_CUDA_EVERY "80-real;86-real;89-real;90;100-real;120")

# One name a GPU for `native`, by nvcc's own program QUERY; every other name stays. What no kernel compiles for is refused.
function(headrace_cuda_architectures out list query)
  set(names)
  foreach(name IN LISTS list)
    if(name STREQUAL "native")
      execute_process(COMMAND "${query}" OUTPUT_VARIABLE found RESULT_VARIABLE failed ERROR_VARIABLE why
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
      string(REGEX MATCHALL "[0-9]+" found "${found}")
      if(failed OR NOT found)
        message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=native: no GPU of this machine answers (${query}: ${why}): "
          "expected one, or the architecture's number, as CMAKE_CUDA_ARCHITECTURES=90")
      endif()
      list(APPEND names ${found})
    else()
      list(APPEND names "${name}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  foreach(name IN LISTS names)
    if(NOT name MATCHES "^([0-9]+)[af]?(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=${list}: ${name}: expected native, or numbers from 80 on, "
        "with -real (machine code only) or -virtual (PTX only) behind them or not")
    endif()
  endforeach()
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  headrace_cuda_architectures(names "${LIST}" "${QUERY}")
  message(STATUS "${names}")
endif()

# SPDX-License-Identifier: Apache-2.0
# Headers of the system that most sources read anyway, parsed once a build. Nothing of the tree is in them: a change of
# ours never rebuilds everything. A source still includes what it uses; -DHEADRACE_PRECOMPILED=OFF builds without them.
option(HEADRACE_PRECOMPILED "Parse the headers of the system once a build" ON)

set(HEADRACE_STANDARD_HEADERS <algorithm> <array> <cmath> <cstddef> <cstdint> <cstring> <functional> <limits> <map> <memory>
  <numeric> <optional> <set> <string> <string_view> <tuple> <utility> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/types/span.h>
  <nlohmann/json.hpp>)
set(HEADRACE_TEST_HEADERS ${HEADRACE_STANDARD_HEADERS} <cstdlib> <filesystem> <fstream> <random> <sstream>
  <gmock/gmock.h> <gtest/gtest.h> <rapidcheck.h>)
set(HEADRACE_MLIR_HEADERS ${HEADRACE_STANDARD_HEADERS}
  <mlir/Bytecode/BytecodeOpInterface.h> <mlir/IR/Builders.h> <mlir/IR/BuiltinOps.h> <mlir/IR/Dialect.h>
  <mlir/IR/OpImplementation.h> <mlir/IR/SymbolTable.h> <mlir/Pass/Pass.h> <mlir/Pass/PassManager.h>)

# headrace_precompiled(TARGET base|tests|mlir): one set for each combination of headers and flags, made where it is first
# asked for. tests: at -O0.
function(headrace_precompiled TARGET KIND)
  if(NOT HEADRACE_PRECOMPILED)
    return()
  endif()
  set(made headrace_precompiled_${KIND})
  if(NOT TARGET ${made})
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/Precompiled.cpp" CONTENT "" @ONLY)
    add_library(${made} OBJECT "${PROJECT_BINARY_DIR}/Precompiled.cpp")
    target_link_libraries(${made} PRIVATE headrace_flags)
    if(KIND STREQUAL "base")
      target_precompile_headers(${made} PRIVATE ${HEADRACE_STANDARD_HEADERS})
    elseif(KIND STREQUAL "tests")
      find_package(GTest REQUIRED)
      target_link_libraries(${made} PRIVATE GTest::gtest GTest::gmock)
      target_compile_options(${made} PRIVATE -O0)
      target_precompile_headers(${made} PRIVATE ${HEADRACE_TEST_HEADERS})
    elseif(KIND STREQUAL "mlir")
      target_link_libraries(${made} PRIVATE headrace_mlir)
      target_precompile_headers(${made} PRIVATE ${HEADRACE_MLIR_HEADERS})
    else()
      message(FATAL_ERROR "headrace_precompiled: ${KIND}?")
    endif()
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      target_compile_options(${made} PRIVATE "SHELL:-Xclang -fno-pch-timestamp") # for ccache
    endif()
  endif()
  target_precompile_headers(${TARGET} REUSE_FROM ${made})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # -fpch-preprocess is for ccache. GCC 12 no longer knows that a precompiled header is the system's, and then warns of
    # copies in std::string that are not there.
    target_compile_options(${TARGET} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
  endif()
endfunction()

# SPDX-License-Identifier: Apache-2.0
# Compiler settings, dependencies outside LLVM, and the three functions every folder uses.

# Paths below the tree are hashed as relative ones, so that a second checkout takes what the first one compiled: headers
# that are precompiled and sources that stand alone. Those that are compiled as one do not match, since CMake names them by
# their whole paths. The sloppiness is what precompiled headers need (ccache's manual);
# they hold headers of the system only.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  foreach(language C CXX CUDA)
    set(CMAKE_${language}_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1"
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;${CCACHE_PROGRAM}")
  endforeach()
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED CONFIG)
# Debian's absl targets name the shared libraries; the archives beside them are linked instead, so that a program runs on
# a machine that has none of our build's libraries.
get_property(HEADRACE_IMPORTED DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS HEADRACE_IMPORTED)
  if(target MATCHES "^absl::")
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration IN LISTS configurations)
      get_target_property(location ${target} IMPORTED_LOCATION_${configuration})
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${location}")
      if(EXISTS "${archive}")
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} "${archive}")
      endif()
    endforeach()
  endif()
endforeach()
find_path(HEADRACE_TOMLPP_INCLUDE toml++/toml.h REQUIRED)
find_path(HEADRACE_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_program(FLATC_EXECUTABLE flatc REQUIRED)

add_library(headrace_flags INTERFACE)
target_include_directories(headrace_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(headrace_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers -ffunction-sections -fdata-sections
  -ffp-contract=off -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlapping copies in std::string's operator+ that are not there (its bug 105651).
  target_compile_options(headrace_flags INTERFACE -Wno-restrict)
endif()
if(HEADRACE_WERROR)
  target_compile_options(headrace_flags INTERFACE -Werror)
endif()
target_link_options(headrace_flags INTERFACE -Wl,--gc-sections)
if(HEADRACE_SANITIZE)
  # -O1: with both sanitizers GCC takes 177 s for the host kernels at -O2, and 11 s so. Options of the folder come before
  # a target's own: those of headrace_flags come after them, and would undo the -O0 of tests, which take three times as
  # long to compile then.
  add_compile_options(-O1 -g1)
  target_compile_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE})
  target_compile_definitions(headrace_flags INTERFACE HEADRACE_SANITIZED=1)
  if(HEADRACE_SANITIZE MATCHES "thread")
    target_compile_definitions(headrace_flags INTERFACE HEADRACE_TSAN=1)
  endif()
endif()
if(HEADRACE_FUZZERS)
  # The libraries a fuzzer reaches are instrumented for coverage; the fuzz targets add the driver.
  target_compile_options(headrace_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -g1)
  target_link_options(headrace_flags INTERFACE -fsanitize=address,undefined)
endif()

include(Precompiled)

# The sources of a target are compiled as one, in a third of the time; names in unnamed namespaces are the target's then.
# Where two sources want the same ones they stand in different groups, of which each is compiled as one (headrace_group;
# 0 without a word), or headrace_alone; where one is edited over and over (and for tools that look for its compile
# command), all of them with -DHEADRACE_UNITY=OFF.
set(CMAKE_UNITY_BUILD ${HEADRACE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)
function(headrace_group NUMBER)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${NUMBER})
endfunction()
function(headrace_grouped TARGET)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${TARGET} SOURCES)
  headrace_group(0 ${sources})
endfunction()
function(headrace_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# headrace_library(NAME SOURCES a.cpp ... DEPS lib ... [MLIR])
# A static library `NAME`. DEPS are public; scripts/check-arrows checks the arrows from them. MLIR: most of its sources
# include MLIR's headers.
function(headrace_library NAME)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;DEPS" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SOURCES})
  headrace_grouped(${NAME})
  target_link_libraries(${NAME} PUBLIC headrace_flags ${ARG_DEPS})
  if(ARG_MLIR)
    headrace_precompiled(${NAME} mlir)
  else()
    headrace_precompiled(${NAME} base)
  endif()
  set_property(GLOBAL APPEND PROPERTY HEADRACE_LIBRARIES ${NAME})
endfunction()

# headrace_test(NAME SOURCES a.cpp ... DEPS lib ... LABELS label ... [OPTIMIZED] [SHARDS n])
# A GoogleTest executable, one ctest entry, or so many that share its tests and run side by side. Its own sources, not
# what they test, are compiled at -O0, which takes half the time; OPTIMIZED, as all else: where they do most of the work.
# Property tests draw the same cases in every run; NAME_random, labelled long, draws ten times as many
# from a seed of its own, which it prints.
function(headrace_test NAME)
  cmake_parse_arguments(ARG "OPTIMIZED" "SHARDS" "SOURCES;DEPS;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${NAME} ${ARG_SOURCES})
  headrace_grouped(${NAME})
  target_link_libraries(${NAME} PRIVATE headrace_flags headrace_source_dir ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(ARG_OPTIMIZED)
    headrace_precompiled(${NAME} base)
  else()
    target_compile_options(${NAME} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
    headrace_precompiled(${NAME} tests)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  set(timeout 300)
  if(HEADRACE_SANITIZE) # three to six times as slow
    set(timeout 900)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${NAME})
    if(ARG_SHARDS GREATER 1)
      set(test ${NAME}_${shard}_of_${ARG_SHARDS})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${NAME})
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${timeout}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index};RC_PARAMS=seed=1")
    if(ARG_SHARDS GREATER 1) # long ones begin early, so that no core is without work at the end
      set_tests_properties(${test} PROPERTIES COST 50)
    endif()
  endforeach()
  if(rapidcheck IN_LIST ARG_DEPS)
    add_test(NAME ${NAME}_random COMMAND ${NAME})
    set_tests_properties(${NAME}_random PROPERTIES LABELS long TIMEOUT 3600 ENVIRONMENT RC_PARAMS=max_success=1000)
  endif()
endfunction()

# headrace_benchmark(NAME SOURCES a.cpp ... DEPS lib ...)
function(headrace_benchmark NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE headrace_flags headrace_source_dir ${ARG_DEPS} benchmark::benchmark)
  headrace_precompiled(${NAME} base)
endfunction()

# Writes every library's folder and direct link edges to headrace-links.txt, for scripts/check-arrows.
function(headrace_write_links)
  get_property(libraries GLOBAL PROPERTY HEADRACE_LIBRARIES)
  set(text "")
  foreach(library IN LISTS libraries)
    get_target_property(folder ${library} SOURCE_DIR)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${folder}")
    get_target_property(links ${library} INTERFACE_LINK_LIBRARIES)
    string(REPLACE ";" " " links "${links}")
    string(APPEND text "${library} ${folder} ${links}\n")
  endforeach()
  file(WRITE "${PROJECT_BINARY_DIR}/headrace-links.txt" "${text}")
endfunction()

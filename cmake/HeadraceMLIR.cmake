# SPDX-License-Identifier: Apache-2.0
# MLIR for ir/, passes/ and what uses them: found, linked statically, and kept out of our warnings.

list(APPEND CMAKE_PREFIX_PATH /usr/lib/llvm-22)
find_package(MLIR 22.1 REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)

# Debian's exported MLIR targets name the shared library `LLVM`, which would bring 260 MB of dependencies. Instead: the
# archives that the IR core needs, so that the tools start in milliseconds and run where no LLVM is installed.
set(HEADRACE_LLVM_ARCHIVES LLVMCore LLVMAsmParser LLVMBitReader LLVMRemarks LLVMSupport)
get_property(HEADRACE_MLIR_TARGETS GLOBAL PROPERTY MLIR_ALL_LIBS)
if(NOT HEADRACE_MLIR_TARGETS)
  set(HEADRACE_MLIR_TARGETS ${MLIR_EXPORTED_TARGETS})
endif()
foreach(target IN LISTS HEADRACE_MLIR_TARGETS)
  if(TARGET ${target})
    get_target_property(deps ${target} INTERFACE_LINK_LIBRARIES)
    if(deps)
      list(TRANSFORM deps REPLACE "^(\\$<LINK_ONLY:)?LLVM(>)?$" "@LLVM@")
      if("@LLVM@" IN_LIST deps)
        list(REMOVE_ITEM deps "@LLVM@")
        list(APPEND deps ${HEADRACE_LLVM_ARCHIVES})
        set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${deps}")
      endif()
    endif()
  endif()
endforeach()
find_library(HEADRACE_LIBZ libz.a)
find_library(HEADRACE_LIBZSTD libzstd.a)
if(NOT HEADRACE_LIBZ OR NOT HEADRACE_LIBZSTD)
  message(FATAL_ERROR "libz.a and libzstd.a are needed to link LLVM statically: install zlib1g-dev and libzstd-dev")
endif()
set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES
  "LLVMDemangle;${HEADRACE_LIBZ};${HEADRACE_LIBZSTD};rt;dl;m")

# What every target that includes MLIR headers gets. SYSTEM: LLVM's headers and generated code are not clean under -Wextra.
add_library(headrace_mlir INTERFACE)
target_include_directories(headrace_mlir SYSTEM INTERFACE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS} "${PROJECT_BINARY_DIR}/generated")
target_link_options(headrace_mlir INTERFACE -static-libstdc++ -static-libgcc)
# What programs are linked with that are carried to other machines.
add_library(headrace_portable OBJECT "${CMAKE_CURRENT_LIST_DIR}/Arc4Random.cpp")

# headrace_tablegen(SOURCE.td OUTPUT.inc args...)
# One generated file, at ${PROJECT_BINARY_DIR}/generated/OUTPUT, so that includes read "ir/HeadraceOps.h.inc". The
# directory property HEADRACE_GENERATED lists a folder's outputs.
function(headrace_tablegen SOURCE OUTPUT)
  cmake_parse_arguments(ARG "" "" "" ${ARGN})
  set(out "${PROJECT_BINARY_DIR}/generated/${OUTPUT}")
  get_filename_component(dir "${out}" DIRECTORY)
  file(MAKE_DIRECTORY "${dir}")
  file(GLOB td_files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.td")
  add_custom_command(OUTPUT "${out}"
    COMMAND ${MLIR_TABLEGEN_EXE} ${ARG_UNPARSED_ARGUMENTS} -I "${PROJECT_SOURCE_DIR}" -I ${MLIR_INCLUDE_DIRS}
            "${CMAKE_CURRENT_SOURCE_DIR}/${SOURCE}" -o "${out}"
    DEPENDS ${td_files} VERBATIM)
  set_property(DIRECTORY APPEND PROPERTY HEADRACE_GENERATED "${out}")
endfunction()

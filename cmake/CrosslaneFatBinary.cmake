# GPU code as bytes for a program: nvcc makes a fat binary of a .cu file. CMake's CUDA language is not used: it would
# link a CUDA runtime. It must not know what the kernels are.
include_guard(GLOBAL)

# crosslane_find_nvcc()
#
# Sets CROSSLANE_NVCC: a toolkit's, or PyPI's nvidia-cuda-nvcc (nvidia/cu13 since CUDA 13); ends without either.
function(crosslane_find_nvcc)
  file(GLOB wheels "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/*/bin"
    "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/*/bin")
  find_program(CROSSLANE_NVCC nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH "${PROJECT_SOURCE_DIR}/build/cuda" PATH_SUFFIXES bin
    PATHS /usr/local/cuda/bin /opt/cuda/bin ${wheels}
    DOC "NVIDIA's compiler for the GPU kernels")
  if(NOT CROSSLANE_NVCC)
    message(FATAL_ERROR "nvcc is missing: install a CUDA toolkit (12.3 or newer) or PyPI's nvidia-cuda-nvcc and name its "
      "nvcc with -DCROSSLANE_NVCC=, or build with -DCROSSLANE_CUDA_KERNELS=OFF for emulated GPUs only (real GPUs then "
      "use copies only)")
  endif()
endfunction()

# crosslane_fat_binary(<name> <embedder> [INCLUDE <folder>])
#
# Compiles <name>.cu of the current folder to <name>.fatbin in the current binary folder, which <embedder>, a source of the
# folder that embeds it (src/kernel/embed.h), then depends on. No kernel asks which GPU it is compiled for, so one pass of the
# compiler serves all: what the assembler makes of it for sm_90 is to the byte what it makes of code compiled for that.
function(crosslane_fat_binary name embedder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "INCLUDE" "")
  crosslane_find_nvcc()
  set(fat_binary "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin")
  add_custom_command(OUTPUT "${fat_binary}"
    COMMAND "${CROSSLANE_NVCC}" -std=c++20 -O3 -fmad=false --fatbin -Xfatbin=-compress-all -Werror all-warnings -I "${arg_INCLUDE}"
      -ccbin "${CMAKE_CXX_COMPILER}" -allow-unsupported-compiler
      -gencode arch=compute_80,code=[sm_80,sm_90,compute_80]
      -MD -MF "${fat_binary}.d" -MT "${fat_binary}" -o "${fat_binary}" "${CMAKE_CURRENT_SOURCE_DIR}/${name}.cu"
    DEPENDS ${name}.cu DEPFILE "${fat_binary}.d"
    COMMENT "Compiling the ${name} kernels for GPUs" VERBATIM)
  set_property(SOURCE "${embedder}" APPEND PROPERTY OBJECT_DEPENDS "${fat_binary}")
endfunction()

# crosslane_embed_fat_binaries(<target> INCLUDE <folder> NAMES <name>...)
#
# <target> gets fat_binary.cpp of the current folder with the fat binaries of all <name>.cu in it, each compiled by itself, side by side;
# without CROSSLANE_CUDA_KERNELS no_fat_binary.cpp, which has none.
function(crosslane_embed_fat_binaries target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "INCLUDE" "NAMES")
  if(NOT CROSSLANE_CUDA_KERNELS)
    target_sources(${target} PRIVATE no_fat_binary.cpp)
    return()
  endif()
  foreach(name IN LISTS arg_NAMES)
    crosslane_fat_binary(${name} fat_binary.cpp INCLUDE "${arg_INCLUDE}")
  endforeach()
  target_sources(${target} PRIVATE fat_binary.cpp)
  set_source_files_properties(fat_binary.cpp PROPERTIES
    COMPILE_DEFINITIONS "CROSSLANE_FAT_BINARIES=\"${CMAKE_CURRENT_BINARY_DIR}\"")
endfunction()

# Compiler settings shared by every target, and the project's options.
option(CROSSLANE_TESTS "Build the tests" ON)
option(CROSSLANE_BENCH "Build the benchmarks" ON)
option(CROSSLANE_EXAMPLES "Build the examples" ON)
option(CROSSLANE_PRECOMPILE "Compile the headers that most programs of tests and benchmarks include once" OFF)
set(CROSSLANE_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# A build of the Python package brings its own Python with the generators' input, and CUDA's headers.
if(SKBUILD)
  if(NOT CROSSLANE_PYTHON)
    set(CROSSLANE_PYTHON "${Python3_EXECUTABLE}" CACHE FILEPATH "Python with pympistandard for the generators")
  endif()
  execute_process(COMMAND "${CROSSLANE_PYTHON}" -c "import nvidia; print(*nvidia.__path__, sep=';')"
    OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  foreach(folder IN LISTS folders)
    if(NOT DEFINED ENV{CUDA_HOME} AND EXISTS "${folder}/cu13/include/cuda.h")
      set(ENV{CUDA_HOME} "${folder}/cu13")
    endif()
  endforeach()
endif()

find_program(CROSSLANE_CCACHE ccache DOC "Compiler cache, used where it is installed")
if(CROSSLANE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${CROSSLANE_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CROSSLANE_CCACHE}")
  if(CROSSLANE_PRECOMPILE AND NOT DEFINED ENV{CCACHE_SLOPPINESS})
    # What it must not be strict about to cache what is compiled with precompiled headers.
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_SLOPPINESS=pch_defines,time_macros")
  endif()
endif()

# Header-only libraries, wherever they are installed (CMAKE_PREFIX_PATH); Debian: libfmt-dev, libspdlog-dev, nlohmann-json3-dev.
find_path(CROSSLANE_FMT_INCLUDE_DIR fmt/format.h)
find_path(CROSSLANE_SPDLOG_INCLUDE_DIR spdlog/spdlog.h)
find_path(CROSSLANE_JSON_INCLUDE_DIR nlohmann/json.hpp)
if(NOT (CROSSLANE_FMT_INCLUDE_DIR AND CROSSLANE_SPDLOG_INCLUDE_DIR AND CROSSLANE_JSON_INCLUDE_DIR))
  message(FATAL_ERROR "Crosslane is built with the headers of fmt (${CROSSLANE_FMT_INCLUDE_DIR}), spdlog "
    "(${CROSSLANE_SPDLOG_INCLUDE_DIR}) and nlohmann-json (${CROSSLANE_JSON_INCLUDE_DIR}), which pip does not bring. Do one of:\n"
    "  Debian, Ubuntu: apt-get install libfmt-dev libspdlog-dev nlohmann-json3-dev\n"
    "  Fedora, RHEL with EPEL: dnf install fmt-devel spdlog-devel json-devel\n"
    "  conda: conda install -c conda-forge fmt spdlog nlohmann_json\n"
    "  or unpack them anywhere and set the environment variable CMAKE_PREFIX_PATH to the folder above their include/")
endif()

# Linked by every target of ours: warnings are errors, and fmt comes from one object of ours (src/base/formatting.cpp).
add_library(crosslane_settings INTERFACE)
target_compile_options(crosslane_settings INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast> -Wcast-align $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>
  # What the optimiser believes about bounds differs by GCC version, with false alarms in the standard library: shown only.
  -Wno-error=array-bounds -Wno-error=stringop-overflow $<$<CXX_COMPILER_ID:GNU>:-Wno-error=stringop-overread>
  # Said of members of unnamed namespaces' types, in any file but the one that is compiled: with CMAKE_UNITY_BUILD that is all.
  $<$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-Wno-subobject-linkage>
  $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
target_link_libraries(crosslane_settings INTERFACE crosslane_formatting)
target_include_directories(crosslane_settings SYSTEM INTERFACE
  "${CROSSLANE_FMT_INCLUDE_DIR}" "${CROSSLANE_SPDLOG_INCLUDE_DIR}" "${CROSSLANE_JSON_INCLUDE_DIR}")
if(CROSSLANE_SANITIZE)
  add_compile_options(-fsanitize=${CROSSLANE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CROSSLANE_SANITIZE})
endif()
find_package(Threads REQUIRED)
add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")  # messages name src/..., on whatever machine it was built

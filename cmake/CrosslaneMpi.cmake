# MPI programs for tests, examples and benchmarks: which MPIs this machine has, programs built against each, and tests
# that run them with Crosslane preloaded. Nothing here is linked into Crosslane itself.
include_guard(GLOBAL)
include(CrosslaneFamily)

# find_mpi_families()
#
# Sets CROSSLANE_MPI_FAMILIES to those of CROSSLANE_FAMILIES whose compiler wrapper and launcher are installed, with
# CROSSLANE_MPICC_<family> and CROSSLANE_MPIEXEC_<family> (cache variables; set them to choose an installation), and
# creates the interface target mpi_<family> that carries the wrapper's flags.
function(find_mpi_families)
  get_property(done GLOBAL PROPERTY CROSSLANE_MPI_FAMILIES_FOUND)
  if(done)
    return()
  endif()
  set_property(GLOBAL PROPERTY CROSSLANE_MPI_FAMILIES_FOUND TRUE)
  set(found)
  foreach(family IN LISTS CROSSLANE_FAMILIES)
    find_program(CROSSLANE_MPICC_${family} NAMES mpicc.${family} mpicc VALIDATOR crosslane_validate_mpicc_${family})
    if(NOT CROSSLANE_MPICC_${family})
      message(STATUS "Crosslane: no compiler wrapper of family ${family}; its MPI programs are left out")
      continue()
    endif()
    get_filename_component(folder "${CROSSLANE_MPICC_${family}}" DIRECTORY)
    find_program(CROSSLANE_MPIEXEC_${family} NAMES mpiexec.${family} mpirun.${family} mpiexec mpirun HINTS "${folder}"
      NO_CMAKE_FIND_ROOT_PATH)
    crosslane_mpi_flags(${family})
    crosslane_mpi_soname(${family})
    list(APPEND found ${family})
  endforeach()
  set(CROSSLANE_MPI_FAMILIES "${found}" CACHE INTERNAL "The MPI families that this machine can build and run")
  message(STATUS "Crosslane: MPI families for tests: ${found}")
endfunction()

function(crosslane_validate_mpicc_openmpi result wrapper)
  execute_process(COMMAND "${wrapper}" --showme:version OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT text MATCHES "Open MPI")
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(crosslane_validate_mpicc_mpich result wrapper)
  execute_process(COMMAND "${wrapper}" -show OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  execute_process(COMMAND "${wrapper}" --showme:version OUTPUT_VARIABLE other ERROR_QUIET RESULT_VARIABLE other_status)
  if(NOT status EQUAL 0 OR (other_status EQUAL 0 AND other MATCHES "Open MPI"))
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Sets CROSSLANE_MPI_SONAME_<family> to the name by which programs of this installation load MPI.
function(crosslane_mpi_soname family)
  set(program "${CMAKE_BINARY_DIR}/CMakeFiles/mpi_soname_${family}")
  file(WRITE "${program}.c" "#include <mpi.h>\nint main(void) { int flag; return MPI_Initialized(&flag); }\n")
  execute_process(COMMAND "${CROSSLANE_MPICC_${family}}" "${program}.c" -o "${program}" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMAKE_READELF}" -d "${program}" OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "NEEDED[^[]*\\[(lib(mpi|mpich|mpi_abi)[.]so[.0-9]*)\\]" _ "${dynamic}")
  set(CROSSLANE_MPI_SONAME_${family} "${CMAKE_MATCH_1}" CACHE INTERNAL "What programs of ${family} load")
endfunction()

# Turns what the wrapper of a family would add to a command line into the interface target mpi_<family>.
function(crosslane_mpi_flags family)
  set(wrapper "${CROSSLANE_MPICC_${family}}")
  execute_process(COMMAND "${wrapper}" -show OUTPUT_VARIABLE words OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(words UNIX_COMMAND "${words}")
  list(REMOVE_AT words 0)
  add_library(mpi_${family} INTERFACE IMPORTED GLOBAL)
  # A program that reaches MPI through Crosslane's table alone must still load it.
  target_link_options(mpi_${family} INTERFACE "LINKER:--no-as-needed")
  foreach(word IN LISTS words)
    if(word MATCHES "^-I(.+)$")
      target_include_directories(mpi_${family} SYSTEM INTERFACE "${CMAKE_MATCH_1}")
    elseif(word MATCHES "^-L(.+)$")
      target_link_options(mpi_${family} INTERFACE "-L${CMAKE_MATCH_1}" "LINKER:-rpath,${CMAKE_MATCH_1}")
    elseif(word MATCHES "^-l|^-Wl,|[.]so$|[.]a$")
      target_link_libraries(mpi_${family} INTERFACE "${word}")
    elseif(word STREQUAL "-pthread")
      target_link_libraries(mpi_${family} INTERFACE Threads::Threads)
    elseif(word MATCHES "^-D")
      target_compile_options(mpi_${family} INTERFACE "${word}")
    endif()
  endforeach()
  # The C++ bindings that MPI removed in 2012 are neither included nor linked.
  target_compile_definitions(mpi_${family} INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
endfunction()

# What programs and their libraries have in common: the flags of a family's wrapper, the macro CROSSLANE_TEST_MPI_<FAMILY>=1.
# Where a target <library>_<family> exists it is taken instead of <library>.
function(crosslane_mpi_target target family scope)
  string(TOUPPER "${family}" macro)
  target_compile_definitions(${target} PRIVATE "CROSSLANE_TEST_MPI_${macro}=1")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include"
    "${PROJECT_SOURCE_DIR}/tests")
  foreach(library IN LISTS ARGN)
    target_link_libraries(${target} ${scope}
      "$<IF:$<TARGET_EXISTS:${library}_${family}>,${library}_${family},${library}>")
  endforeach()
  target_link_libraries(${target} ${scope} crosslane_settings mpi_${family})
endfunction()

# crosslane_mpi_precompiled(<target> <family>)
#
# With CROSSLANE_PRECOMPILE, has the target's C++ begin with tests/support/precompiled/headers.h, compiled once for the family and each
# set of compiler options. A build without it (tools/gpu-check) sees whether files include what they use.
function(crosslane_mpi_precompiled target family)
  get_target_property(sources ${target} SOURCES)
  # What users copy is to include what it uses.
  if(NOT CROSSLANE_PRECOMPILE OR NOT "${sources}" MATCHES "[.]cpp" OR CMAKE_CURRENT_SOURCE_DIR MATCHES "/examples(/|$)")
    return()
  endif()
  get_directory_property(options COMPILE_OPTIONS)
  string(MD5 options "${options}")
  string(SUBSTRING "${options}" 0 8 options)
  set(owner crosslane_mpi_precompiled_${family}_${options})
  if(NOT TARGET ${owner})
    set(folder "${PROJECT_SOURCE_DIR}/tests/support/precompiled")
    # A program, as its users are: what is compiled for libraries fits libraries alone.
    add_executable(${owner} EXCLUDE_FROM_ALL "${folder}/main.cpp")
    crosslane_mpi_target(${owner} ${family} PRIVATE crosslane_cuda_headers)
    target_precompile_headers(${owner} PRIVATE "${folder}/headers.h")
    target_compile_options(${owner} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>")
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>")  # as ccache wants it
endfunction()

# crosslane_mpi_executable(<name> <source>... [CUDA] [FAMILY <family>...] [LIBRARIES <library>...])
#
# Builds <name>_<family> for each family found (or those of FAMILY). CUDA gives cuda.h and links libcuda.so.1 without a run
# path, so that the same binary runs on the emulated driver (preloaded by run_mpi.sh) and on a real one.
function(crosslane_mpi_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CUDA" "" "FAMILY;LIBRARIES")
  find_mpi_families()
  set(families ${CROSSLANE_MPI_FAMILIES})
  if(arg_FAMILY)
    set(families ${arg_FAMILY})
  endif()
  foreach(family IN LISTS families)
    if(NOT family IN_LIST CROSSLANE_MPI_FAMILIES)
      continue()
    endif()
    set(target "${name}_${family}")
    add_executable(${target} ${arg_UNPARSED_ARGUMENTS})
    crosslane_mpi_target(${target} ${family} PRIVATE ${arg_LIBRARIES})
    crosslane_mpi_precompiled(${target} ${family})
    if(arg_CUDA)
      # By name and without a run path: the emulated driver's folder would come ahead of the real driver's.
      target_link_libraries(${target} PRIVATE crosslane_cuda_link)
      add_dependencies(${target} crosslane_emulated_driver)
    endif()
  endforeach()
endfunction()

# crosslane_mpi_library(<name> <source>... [LIBRARIES <library>...])
#
# What several programs share, compiled once for each family found: the static libraries <name>_<family>, for LIBRARIES.
function(crosslane_mpi_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES")
  find_mpi_families()
  foreach(family IN LISTS CROSSLANE_MPI_FAMILIES)
    add_library(${name}_${family} STATIC EXCLUDE_FROM_ALL ${arg_UNPARSED_ARGUMENTS})
    crosslane_mpi_target(${name}_${family} ${family} PUBLIC ${arg_LIBRARIES})
  endforeach()
endfunction()

# crosslane_mpi_test(<name> RANKS <n> [GPUS <k>] [EXECUTABLE <executable>] [FAMILY <family>...] [ENV <NAME=value>...]
#                    [PRELOAD on|off|<library>] [HEAP host|managed] [LABELS <label>...] [TIMEOUT <seconds>] [ARGS <argument>...])
#
# Registers the test <name>.<family> for each family: <executable>_<family> (default: <name>) on n ranks under the
# family's launcher, through tests/run_mpi.sh. PRELOAD (default on: libcrosslane_<family>.so) loads a library; GPUS above 0 loads
# the emulated driver with k GPUs (HEAP managed: in whose memory the program's heap is, tests/applications/managed_heap.cpp), unless
# ctest's environment has CROSSLANE_TEST_GPU (tests/run_mpi.sh). Status 77 is "skipped".
# Where CROSSLANE_TEST_NAPS is off, waits of the MPI and of Crosslane are as they are, whatever the number of cores
# (tests/support/polling/yield.cpp).
# TIMEOUT (default 120) is for a machine with nothing else to do: three times as long ends the whole launch, ranks included, and fails.
function(crosslane_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RANKS;GPUS;EXECUTABLE;PRELOAD;HEAP;TIMEOUT;PRINTS" "FAMILY;ENV;LABELS;ARGS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_RANKS)
    message(FATAL_ERROR "crosslane_mpi_test(${name}): RANKS is needed; not understood: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(pair "GPUS=0" "EXECUTABLE=${name}" "PRELOAD=on" "HEAP=host" "TIMEOUT=120")
    string(REGEX MATCH "^([A-Z]+)=(.*)$" _ "${pair}")
    if(NOT DEFINED arg_${CMAKE_MATCH_1})
      set(arg_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  set(families ${CROSSLANE_MPI_FAMILIES})
  if(arg_FAMILY)
    set(families ${arg_FAMILY})
  endif()
  math(EXPR seconds "3 * ${arg_TIMEOUT}")
  math(EXPR limit "${seconds} + 30")  # run_mpi.sh ends the launch itself; this is for the script
  foreach(family IN LISTS families)
    if(NOT family IN_LIST CROSSLANE_MPI_FAMILIES)
      continue()
    endif()
    set(environment)
    foreach(entry IN LISTS arg_ENV)
      list(APPEND environment --env "${entry}")
    endforeach()
    set(sanitize)
    if(CROSSLANE_SANITIZE)
      set(sanitize --sanitize "${CROSSLANE_SANITIZE}")
    endif()
    set(prints)
    if(arg_PRINTS)
      set(prints --prints "${arg_PRINTS}")
    endif()
    set(naps)
    if(DEFINED CROSSLANE_TEST_NAPS AND NOT CROSSLANE_TEST_NAPS)
      set(naps --naps off)
    endif()
    set(test "${name}.${family}")
    add_test(NAME ${test} COMMAND "${PROJECT_SOURCE_DIR}/tests/run_mpi.sh" --family ${family}
      --mpiexec "${CROSSLANE_MPIEXEC_${family}}" --build "${CMAKE_BINARY_DIR}" --ranks ${arg_RANKS}
      --gpus ${arg_GPUS} --preload ${arg_PRELOAD} --heap ${arg_HEAP} ${naps} --timeout ${seconds} ${sanitize} ${prints} ${environment}
      -- $<TARGET_FILE:${arg_EXECUTABLE}_${family}> ${arg_ARGS})
    set(labels mpi ${family} ${arg_LABELS})
    # Those that may take long start first, so that a parallel run does not end with one of them alone.
    set_tests_properties(${test} PROPERTIES TIMEOUT ${limit} SKIP_RETURN_CODE 77 PROCESSORS ${arg_RANKS} COST ${arg_TIMEOUT}
      LABELS "${labels}")
  endforeach()
endfunction()

option(CROSSLANE_TESTS_SHARE_A_GPU "Tests that run at once use the kernels of one GPU, a real one under MPS" OFF)

# A test that may fill a GPU with kernels that wait for peers: what keeps those all resident (share/board.h, seats) counts within a job
# alone, and several such jobs on one GPU wait for each other for ever.
function(crosslane_fills_gpu name)
  foreach(family IN LISTS CROSSLANE_MPI_FAMILIES)
    set_tests_properties(${name}.${family} PROPERTIES RUN_SERIAL ${CROSSLANE_TESTS_SHARE_A_GPU})
  endforeach()
endfunction()

# MPI programs in Fortran, by the compiler wrapper of each MPI: the project itself needs no Fortran compiler.
include_guard(GLOBAL)
include(CrosslaneMpi)

# crosslane_fortran_executable(<name> <source>... [MODULE mpif|mpi|mpi_f08] [FLAGS <flag>...] [OBJECTS <object library>...])
#
# Builds <name>_<family> for each family found, linked with those objects, and with libcuda.so.1 by name. Sets <name>_<family>_MISSING in the
# caller's scope, to the reason, where there is no wrapper that compiles a program with MODULE (default mpi_f08).
function(crosslane_fortran_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MODULE" "FLAGS;OBJECTS")
  if(NOT arg_MODULE)
    set(arg_MODULE mpi_f08)
  endif()
  find_mpi_families()
  set(sources)
  foreach(source IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(source "${source}" ABSOLUTE)
    list(APPEND sources "${source}")
  endforeach()
  set(objects)
  foreach(library IN LISTS arg_OBJECTS)
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
  endforeach()
  foreach(family IN LISTS CROSSLANE_MPI_FAMILIES)
    get_filename_component(folder "${CROSSLANE_MPICC_${family}}" DIRECTORY)
    # Beside the C wrapper only: any other may be of another MPI.
    find_program(CROSSLANE_MPIFORT_${family} NAMES mpifort.${family} mpif90.${family} mpifort mpif90
      PATHS "${folder}" NO_DEFAULT_PATH)
    crosslane_fortran_usable(${family} ${arg_MODULE} missing)
    set(${name}_${family}_MISSING "${missing}" PARENT_SCOPE)
    if(missing)
      continue()
    endif()
    set(target "${name}_${family}")
    set(program "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${target}.fortran")  # not a target's name: CMake would take it for that
    set(modules "${CMAKE_CURRENT_BINARY_DIR}/${target}_modules")
    add_custom_command(OUTPUT "${program}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "${modules}"
      COMMAND "${CROSSLANE_MPIFORT_${family}}" -O2 -J "${modules}" ${arg_FLAGS} ${sources} ${objects}
        $<TARGET_FILE:crosslane_emulated_driver> -o "${program}"
      DEPENDS ${sources} ${arg_OBJECTS} ${objects} crosslane_emulated_driver
      COMMENT "Building ${target} with ${CROSSLANE_MPIFORT_${family}}"
      VERBATIM COMMAND_EXPAND_LISTS)
    add_custom_target(${target}_program ALL DEPENDS "${program}")
    add_executable(${target} IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${program}")
  endforeach()
endfunction()

# Sets <result> to why <family>'s wrapper cannot compile a program that uses <module>; to nothing where it can.
function(crosslane_fortran_usable family module result)
  set(${result} "" PARENT_SCOPE)
  if(NOT CROSSLANE_MPIFORT_${family})
    set(${result} "no Fortran compiler wrapper beside ${CROSSLANE_MPICC_${family}}" PARENT_SCOPE)
    return()
  endif()
  set(tried "CROSSLANE_MPIFORT_${family}_${module}")
  if(NOT DEFINED ${tried})
    set(program "${CMAKE_BINARY_DIR}/CMakeFiles/mpifort_${family}_${module}")
    if(module STREQUAL "mpif")
      file(WRITE "${program}.f90" "program p\nimplicit none\ninclude 'mpif.h'\ninteger e\ncall MPI_Init(e)\nend program\n")
    else()
      file(WRITE "${program}.f90" "program p\nuse ${module}\ninteger e\ncall MPI_Init(e)\nend program\n")
    endif()
    execute_process(COMMAND "${CROSSLANE_MPIFORT_${family}}" "${program}.f90" -o "${program}"
      RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    set(${tried} "${status}" CACHE INTERNAL "Exit status of a compilation that uses ${module}")
  endif()
  if(NOT ${tried} STREQUAL "0")
    set(${result} "${CROSSLANE_MPIFORT_${family}} does not compile `use ${module}`" PARENT_SCOPE)
  endif()
endfunction()

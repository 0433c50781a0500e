# Libraries that touch MPI types are compiled once for each binary interface (ABI family) of MPI.
# Include this file where a folder's library is declared; it must not know any MPI's header or installation.
include_guard(GLOBAL)

set(CROSSLANE_FAMILIES openmpi mpich CACHE INTERNAL "The MPI ABI families that Crosslane is built for")
set(CROSSLANE_GENERATED_DIR "${CMAKE_BINARY_DIR}/generated" CACHE INTERNAL "Where the generators write")

# crosslane_family_library(<name> <folder> [EXCLUDE <regex>...] [LIBRARIES <library>...])
#
# Creates the static libraries <name>_openmpi, <name>_mpich, ... from the *.cpp of <folder> (not below it), each
# compiled with CROSSLANE_ABI_<FAMILY>=1. LIBRARIES are linked publicly; where a target <library>_<family> exists it is taken
# instead of <library>, so `LIBRARIES crosslane_mpi crosslane_gpu` means the right thing for both.
function(crosslane_family_library name folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "EXCLUDE;LIBRARIES")
  get_filename_component(folder "${folder}" ABSOLUTE)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  foreach(pattern IN LISTS arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  foreach(family IN LISTS CROSSLANE_FAMILIES)
    string(TOUPPER "${family}" macro)
    set(target "${name}_${family}")
    if(sources)
      add_library(${target} STATIC ${sources})
      set(scope PUBLIC)
    else()
      add_library(${target} INTERFACE)
      set(scope INTERFACE)
    endif()
    add_dependencies(${target} crosslane_generated)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_definitions(${target} ${scope} "CROSSLANE_ABI_${macro}=1")
    target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include"
      "${CROSSLANE_GENERATED_DIR}")
    target_link_libraries(${target} ${scope} crosslane_base crosslane_settings ${CMAKE_DL_LIBS})
    foreach(library IN LISTS arg_LIBRARIES)
      target_link_libraries(${target} ${scope}
        "$<IF:$<TARGET_EXISTS:${library}_${family}>,${library}_${family},${library}>")
    endforeach()
  endforeach()
endfunction()

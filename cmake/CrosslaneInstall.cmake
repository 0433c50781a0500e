# What `cmake --install` and `pip install .` put where: the interposed libraries, the emulated driver in a folder of its
# own (it must never shadow a real libcuda.so.1), the public headers, what find_package and pkg-config read, and the
# command with its benchmarks. It must not know how any of them is built.
#
#   pip, in the package            cmake --install, in the prefix
#   crosslane/lib                  <libdir>/crosslane                     libcrosslane_*.so, emulated/
#   crosslane/bin                  <libdir>/crosslane/bin                 crosslane_bench_*
#   crosslane/include              <includedir>                           crosslane/crosslane.h
#   crosslane/lib/cmake/Crosslane  <libdir>/cmake/Crosslane               find_package(Crosslane)
#   crosslane/lib/pkgconfig        <libdir>/pkgconfig                     crosslane-openmpi.pc, crosslane-mpich.pc
#   (pip's own)                    bin/crosslane, <libdir>/crosslane/python

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
if(SKBUILD)
  # scikit-build-core copies the package's sources itself. Relative to its prefix, or the wheel would name a folder of the build.
  file(RELATIVE_PATH crosslane_package "${CMAKE_INSTALL_PREFIX}" "${SKBUILD_PLATLIB_DIR}/crosslane")
  set(crosslane_libraries_to "${crosslane_package}/lib")
  set(crosslane_programs_to "${crosslane_package}/bin")
  set(crosslane_headers_to "${crosslane_package}/include")
  set(crosslane_descriptions_to "${crosslane_package}/lib")
else()
  set(crosslane_libraries_to "${CMAKE_INSTALL_LIBDIR}/crosslane")
  set(crosslane_programs_to "${crosslane_libraries_to}/bin")
  set(crosslane_headers_to "${CMAKE_INSTALL_INCLUDEDIR}")
  set(crosslane_descriptions_to "${CMAKE_INSTALL_LIBDIR}")
endif()

# A library of src/interpose is named for its family and its level of MPI; src/gpu/emulated has one.
set(crosslane_interposed_targets)
foreach(family IN LISTS CROSSLANE_FAMILIES)
  if(TARGET crosslane_${family})
    # Programs link the one that has all; levels are for LD_PRELOAD.
    set_target_properties(crosslane_${family} PROPERTIES EXPORT_NAME ${family})
    install(TARGETS crosslane_${family} EXPORT Crosslane
      LIBRARY DESTINATION "${crosslane_libraries_to}" COMPONENT libraries
      INCLUDES DESTINATION "${crosslane_headers_to}")
    list(APPEND crosslane_interposed_targets crosslane_${family})
    file(RELATIVE_PATH crosslane_to_prefix "/${crosslane_descriptions_to}/pkgconfig" "/")
    configure_file("${CMAKE_CURRENT_LIST_DIR}/crosslane.pc.in" crosslane-${family}.pc @ONLY)
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/crosslane-${family}.pc"
      DESTINATION "${crosslane_descriptions_to}/pkgconfig" COMPONENT headers)
  endif()
  foreach(level IN ITEMS mpi3 mpi4_int mpi4)
    if(TARGET crosslane_${family}_${level})
      install(TARGETS crosslane_${family}_${level}
        LIBRARY DESTINATION "${crosslane_libraries_to}" COMPONENT libraries)
    endif()
  endforeach()
  if(TARGET crosslane_bench_${family})
    install(TARGETS crosslane_bench_${family} RUNTIME DESTINATION "${crosslane_programs_to}" COMPONENT command)
  endif()
endforeach()
if(crosslane_interposed_targets)
  set(crosslane_cmake_to "${crosslane_descriptions_to}/cmake/Crosslane")
  install(EXPORT Crosslane NAMESPACE Crosslane:: FILE CrosslaneTargets.cmake
    DESTINATION "${crosslane_cmake_to}" COMPONENT headers)
  configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/CrosslaneConfig.cmake.in" CrosslaneConfig.cmake
    INSTALL_DESTINATION "${crosslane_cmake_to}" NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(CrosslaneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/CrosslaneConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/CrosslaneConfigVersion.cmake"
    DESTINATION "${crosslane_cmake_to}" COMPONENT headers)
elseif(SKBUILD)
  message(FATAL_ERROR "Crosslane: no interposed library is built; the Python package would be empty")
endif()
if(TARGET crosslane_emulated_driver)
  install(TARGETS crosslane_emulated_driver
    LIBRARY DESTINATION "${crosslane_libraries_to}/emulated" COMPONENT libraries NAMELINK_SKIP)
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${crosslane_headers_to}" COMPONENT headers)

if(NOT SKBUILD)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/crosslane" DESTINATION "${crosslane_libraries_to}/python"
    COMPONENT command FILES_MATCHING PATTERN "*.py")
  file(RELATIVE_PATH crosslane_to_python "/${CMAKE_INSTALL_BINDIR}" "/${crosslane_libraries_to}/python")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/crosslane.in" crosslane @ONLY)
  install(PROGRAMS "${CMAKE_CURRENT_BINARY_DIR}/crosslane" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT command)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT headers)
endif()

# What `cmake --install` and `pip install .` put where: the interposed libraries, the emulated driver in a folder of its
# own (it must never shadow a real libcuda.so.1), the public headers. It must not know how any of them is built.

if(SKBUILD)
  # Inside the Python package, whose sources scikit-build-core copies itself.
  set(crosslane_libraries_to "${SKBUILD_PLATLIB_DIR}/crosslane/lib")
  set(crosslane_headers_to "${SKBUILD_PLATLIB_DIR}/crosslane/include")
else()
  include(GNUInstallDirs)
  set(crosslane_libraries_to "${CMAKE_INSTALL_LIBDIR}/crosslane")
  set(crosslane_headers_to "${CMAKE_INSTALL_INCLUDEDIR}")
endif()

# A library of src/interpose is named for its family and its level of MPI; src/gpu/emulated has one.
set(crosslane_interposed_targets)
foreach(family IN LISTS CROSSLANE_FAMILIES)
  foreach(level IN ITEMS "" _mpi3 _mpi4_int _mpi4)
    if(TARGET crosslane_${family}${level})
      list(APPEND crosslane_interposed_targets crosslane_${family}${level})
    endif()
  endforeach()
endforeach()

if(crosslane_interposed_targets)
  install(TARGETS ${crosslane_interposed_targets} LIBRARY DESTINATION "${crosslane_libraries_to}" COMPONENT libraries)
elseif(SKBUILD)
  message(FATAL_ERROR "Crosslane: no interposed library is built; the Python package would be empty")
endif()
if(TARGET crosslane_emulated_driver)
  install(TARGETS crosslane_emulated_driver
    LIBRARY DESTINATION "${crosslane_libraries_to}/emulated" COMPONENT libraries NAMELINK_SKIP)
endif()
if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/include")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${crosslane_headers_to}" COMPONENT headers)
endif()

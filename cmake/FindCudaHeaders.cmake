# Finds <cuda.h>, the only part of the CUDA toolkit that building Crosslane's host side needs.
# Result: CROSSLANE_CUDA_INCLUDE_DIR. Give it on the command line, or have a toolkit or PyPI's nvidia-cuda-runtime.
find_path(CROSSLANE_CUDA_INCLUDE_DIR cuda.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH ENV CONDA_PREFIX
  PATHS /usr/local/cuda /opt/cuda /usr/lib/cuda
  PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include
  NO_DEFAULT_PATH
  DOC "The directory that holds cuda.h")
if(NOT CROSSLANE_CUDA_INCLUDE_DIR)
  # PyPI's packages: nvidia/cu13/include (CUDA 13) or nvidia/cuda_runtime/include (CUDA 12) in site-packages.
  file(GLOB crosslane_cuda_wheels
    "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/*/include"
    "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/*/include"
    "/usr/local/lib/python3*/*-packages/nvidia/*/include"
    "/usr/lib/python3*/*-packages/nvidia/*/include")
  find_path(CROSSLANE_CUDA_INCLUDE_DIR cuda.h PATHS ${crosslane_cuda_wheels} NO_DEFAULT_PATH)
endif()
if(NOT CROSSLANE_CUDA_INCLUDE_DIR)
  # Last the compiler's own places; /usr/include/hwloc/cuda.h and linux/cuda.h are other files, never found this way.
  find_path(CROSSLANE_CUDA_INCLUDE_DIR cuda.h)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders REQUIRED_VARS CROSSLANE_CUDA_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "cuda.h is missing: install a CUDA toolkit (12.3 or newer), or `pip install nvidia-cuda-runtime`, or set CROSSLANE_CUDA_INCLUDE_DIR")
mark_as_advanced(CROSSLANE_CUDA_INCLUDE_DIR)

# Tests in one program that run on emulated GPUs and, as */real.*, on the machine's own.
include_guard(GLOBAL)
include(GoogleTest)

# crosslane_on_machines(<target>): it finds the emulated driver (tests/gpu/machine.h).
function(crosslane_on_machines target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(${target} PRIVATE
    CROSSLANE_EMULATED_LIBRARY="$<TARGET_FILE_DIR:crosslane_emulated_driver>/libcuda.so.1")
  add_dependencies(${target} crosslane_emulated_driver)
endfunction()

# crosslane_discover_on_machines(<target> <label>): of a program with tests/kernel/main.cpp, which asks for all hardware queues: see
# tests/kernel/CMakeLists.txt.
function(crosslane_discover_on_machines target label)
  gtest_discover_tests(${target} TEST_FILTER "-*/real.*" PROPERTIES LABELS ${label} TIMEOUT 300 DISCOVERY_TIMEOUT 60)
  gtest_discover_tests(${target} TEST_FILTER "*/real.*"
    PROPERTIES LABELS ${label} TIMEOUT 300 RESOURCE_LOCK hardware_queues DISCOVERY_TIMEOUT 60)
endfunction()

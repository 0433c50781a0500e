/* Stands for libcrosslane_<family>.so where the build has none: nothing is interposed, doctor's functions answer.
   It prints as some MPIs do, which is no answer, and more than a pipe holds. */
#include <stdio.h>
#include <string.h>

const char* crosslane_doctor_json(void) {
  printf("an MPI's banner\n\n{}\n");
  fflush(stdout);
  for (int line = 0; line < 5000; ++line) fprintf(stderr, "line %d of what nobody reads\n", line);
  return strdup(
      "{\"usable\": true, \"problems\": [{\"severity\": \"note\", \"text\": \"a stand-in\", \"remedy\": \"build the "
      "library\"}],"
      " \"settings\": {\"error\": \"\", \"rows\": [{\"name\": \"CROSSLANE_GPU\", \"value\": \"auto\", \"origin\": "
      "\"default\","
      " \"help\": \"which GPU driver to use\"}]},"
      " \"driver\": {\"found\": true, \"emulated\": true, \"path\": \"/x/libcuda.so.1\", \"version\": \"CUDA 13.0\"},"
      " \"gpus\": [{\"ordinal\": 0, \"name\": \"stand-in\", \"uuid\": \"GPU-0\", \"pci\": \"0000:00:00.0\", "
      "\"total_bytes\": 1073741824,"
      " \"free_bytes\": 1048576, \"compute_mode\": \"shared\", \"capability\": \"9.0\"}], \"peer_access\": [[true]],"
      " \"mps\": {\"active\": false, \"pipe_directory\": \"/tmp/nvidia-mps\"},"
      " \"mpi\": {\"loaded\": false, \"path\": \"\", \"version\": \"\"},"
      " \"process\": {\"shm_bytes\": 67108864, \"shm_free_bytes\": 67108864, \"memlock_bytes\": null, \"container\": "
      "\"\","
      " \"pid_namespaces\": 1, \"visible_devices\": \"\"}}");
}

const char* crosslane_doctor_export_json(void) {
  return strdup("{\"handles\": [{\"uuid\": \"GPU-0\", \"handle\": \"00\"}], \"problems\": []}");
}

const char* crosslane_doctor_import_json(const char* exported) {
  return strdup(
      strstr(exported, "GPU-0") == NULL
          ? "{\"opened\": [], \"problems\": []}"
          : "{\"opened\": [{\"exporter\": \"GPU-0\", \"importer\": \"GPU-0\", \"ok\": true, \"error\": \"\"}],"
            " \"problems\": []}");
}

const char* crosslane_coverage_json(void) {
  return "[{\"procedure\": \"MPI_Send\", \"route\": \"staged\"}, {\"procedure\": \"MPI_Recv\", \"route\": \"staged\"}]";
}

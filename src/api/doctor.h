// What `crosslane doctor` shows: this process's surroundings as Crosslane sees them, each problem with its remedy.
// Made for a child process that loads the library for nothing else: it creates contexts on every visible GPU.
// It must not know how its findings are printed.
#pragma once

/// Each returns one line of JSON in UTF-8, from malloc: the caller may free it. None throws, none prints, none ends the
/// process of its own will. A member `problems` is a list of {severity: error|warning|note, text, remedy}.
extern "C" {

/// Settings with their origin, the driver, GPUs (UUID, memory, compute capability, whether they take Crosslane's kernels, peer access), MPS,
/// limits of the process, the MPI that is loaded. `usable` is false where GPU buffers cannot work.
const char* crosslane_doctor_json(void);

/// Initializes the MPI that is loaded as a singleton, asks whether it takes GPU buffers itself, and finalizes it:
/// {"initialized": bool, "cuda": bool}. An MPI may end the process here, hence it is a question of its own.
const char* crosslane_doctor_mpi_json(void);

/// Allocates on every GPU and exports it, for another process to open; the memory stays until this process ends:
/// {"handles": [{"uuid", "handle"}]}.
const char* crosslane_doctor_export_json(void);

/// Opens, on every GPU, what another process's crosslane_doctor_export_json gave, and reads it:
/// {"opened": [{"exporter": uuid, "importer": uuid, "ok": bool, "error": text}]}.
const char* crosslane_doctor_import_json(const char* exported);
}

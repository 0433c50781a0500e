// What `crosslane algorithms` and `crosslane choose` show: the catalogue of collective algorithms, and what a call would take and why.
// No GPU, no MPI and no other rank is asked. It must not know how its findings are printed, nor any algorithm by name.
#pragma once

/// Each returns one line of JSON in UTF-8, from malloc: the caller may free it. None throws or prints. What is wrong with the
/// arguments or the settings is {"error": text, "remedy": text} alone.
extern "C" {

/// {"algorithms": [{"collective", "name", "summary", "source", "supports"}]}, a row each; `supports` is null where nothing is
/// known, else {"most_bytes": number or null, "most_bytes_of": [{"ranks", "most_bytes"}] (of 2, 4 and 8 where there is a limit),
/// "least_ranks", "most_ranks", "several_ranks_a_gpu": bool, "needs_mapped_buffers": bool, "needs_peer_access": bool,
/// "cannot_combine": ["sum_i64", ...]}.
const char* crosslane_algorithms_json(void);

/// `request`: {"collective", "bytes", "ranks", "gpus", "nodes", "element", "op"}, no more gpus or nodes than ranks; element and op are not
/// looked at where nothing is combined. `nodes` of the answer counts pretended ones (CROSSLANE_NODE_SIZE).
/// {"collective", "bytes", "ranks", "ranks_a_gpu", "nodes", "algorithm", "calls": [{"mapped": bool, "algorithm": name, "mpi" or "forwarded",
/// "summary", "why", "preferences": [{"text", "origin", "fate"}]}]}: of the first calls with a buffer, and, where mapping buffers pays,
/// of later ones. `algorithm` is that of the last.
const char* crosslane_choose_json(const char* request);
}

/* See heap.h. What the table below does not know came from elsewhere (strdup, the MPI), and goes back there. */
#include "cuda_runtime_api.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Allocation {
  void* pointer;
  size_t bytes;
  struct Allocation* next;
} Allocation;

enum { buckets = 4096 };
static Allocation* table[buckets];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static Allocation** bucket_of(const void* pointer) { return &table[((size_t)pointer >> 6) % buckets]; }

static int managed(void) {
  const char* heap = getenv("SUITE_HEAP");
  return heap != NULL && strcmp(heap, "managed") == 0;
}

/* The record of `pointer`, no longer in the table, or NULL. */
static Allocation* removed(const void* pointer) {
  pthread_mutex_lock(&guard);
  Allocation** link = bucket_of(pointer);
  while (*link != NULL && (*link)->pointer != pointer) link = &(*link)->next;
  Allocation* found = *link;
  if (found != NULL) *link = found->next;
  pthread_mutex_unlock(&guard);
  return found;
}

void* suite_malloc(size_t bytes) {
  if (!managed()) return malloc(bytes);
  Allocation* made = malloc(sizeof *made);
  if (made == NULL) return NULL;
  made->bytes = bytes;
  cudaMallocManaged(&made->pointer, bytes, cudaMemAttachGlobal);
  pthread_mutex_lock(&guard);
  Allocation** link = bucket_of(made->pointer);
  made->next = *link;
  *link = made;
  pthread_mutex_unlock(&guard);
  return made->pointer;
}

void* suite_calloc(size_t count, size_t bytes) {
  if (!managed()) return calloc(count, bytes);
  void* pointer = suite_malloc(count * bytes);
  return pointer != NULL ? memset(pointer, 0, count * bytes) : NULL;
}

void suite_free(void* pointer) {
  Allocation* found = pointer != NULL ? removed(pointer) : NULL;
  if (found == NULL) {
    free(pointer);
    return;
  }
  cudaFree(found->pointer);
  free(found);
}

void* suite_realloc(void* pointer, size_t bytes) {
  Allocation* old = pointer != NULL ? removed(pointer) : NULL;
  if (old == NULL && (pointer != NULL || !managed())) return realloc(pointer, bytes);
  void* fresh = suite_malloc(bytes);
  if (old != NULL) {
    memcpy(fresh, old->pointer, old->bytes < bytes ? old->bytes : bytes);
    cudaFree(old->pointer);
    free(old);
  }
  return fresh;
}

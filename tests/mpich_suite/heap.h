/* Included before each of MPICH's test programs: their heap is managed memory where SUITE_HEAP=managed stands in the environment.
 * Most of the suite has no notion of GPU memory, fills and checks its buffers on the CPU, and so runs on GPU memory unchanged. */
#ifndef CROSSLANE_TESTS_MPICH_SUITE_HEAP_H
#define CROSSLANE_TESTS_MPICH_SUITE_HEAP_H

#include <stdlib.h>
#include <string.h>

void* suite_malloc(size_t bytes);
void* suite_calloc(size_t count, size_t bytes);
void* suite_realloc(void* pointer, size_t bytes);
void suite_free(void* pointer);

#define malloc(bytes) suite_malloc(bytes)
#define calloc(count, bytes) suite_calloc(count, bytes)
#define realloc(pointer, bytes) suite_realloc(pointer, bytes)
#define free(pointer) suite_free(pointer)

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The host system, as providers use it: threads, condition variables, memory files and fills. Any thread may
 * call any function at any time; no function takes a lock.
 */
#ifndef MOORAGE_KIT_HOST_H
#define MOORAGE_KIT_HOST_H

#include <moorage/abi/provider.h>
#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- threads and time ---- */

/* Starts a thread with all signals blocked: signals are for the host's threads. name: [in] for debuggers, at
 * most 15 bytes. ret_thread: [out] to be joined. Returns 0 or an errno. */
int moor_kit_thread_start(pthread_t *ret_thread, const char *name, void *(*work)(void *argument),
                          void *argument);

/* Initialises a condition variable that no change of the wall clock disturbs. HOST_NOMEM. */
int32_t moor_kit_cond_init(pthread_cond_t *cond);

/* Sleeps until the condition is signalled, or longest_ns have passed; UINT64_MAX: without limit. May return
 * early, as condition variables do: check the condition again. Requires *lock. Releases it while waiting. */
void moor_kit_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t longest_ns);

/* Returns the nanoseconds until a deadline on the host's clock: 0: it has passed; UINT64_MAX: there is no
 * deadline. */
uint64_t moor_kit_time_left(const struct moor_abi_host *host, uint64_t deadline_ns);

/* ---- memory ---- */

/* Fills memory with the low pattern_bytes bytes of a pattern, in the byte order of the host. pattern_bytes:
 * 1, 2 or 4; `memory` and `bytes` are multiples of it. */
void moor_kit_fill_memory(void *memory, uint64_t bytes, uint64_t pattern, uint32_t pattern_bytes);

#define MOOR_KIT_FILE_BYTES (UINT64_C(1) << 62) /* the size of a memory file; holes cost nothing */

/* Opens a sparse memory file, for segments. name: [in] for debuggers. ret_file: [out, owned] close() it.
 * LIMIT: no descriptor is left, or RLIMIT_FSIZE is not unlimited. Else PROVIDER. */
int32_t moor_kit_file_open(const char *name, int *ret_file, struct moor_abi_error *error);

/* Frees the pages of a part of a memory file: it reads as zero. PROVIDER: the system refuses, and pages may
 * be left. */
int32_t moor_kit_file_punch(int file, uint64_t offset_bytes, uint64_t length_bytes,
                            struct moor_abi_error *error);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT */
/*
 * Physical memory and its mappings: the single steps of a commit and a decommit, and a piece of memory that
 * is mapped repeatedly. Facts: whether the device supports read-only access, and the contents of fresh
 * memory.
 */
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Addresses of two granules: the first for memory that is created and released, the second for memory that is
 * mapped repeatedly. */
static CUdeviceptr place;
static CUmemGenericAllocationHandle shared; /* mapped repeatedly; 0: none */
static char piece_text[32] = "2 MiB";
static char lack[256]; /* the reason if there is none; "" otherwise */

static CUdeviceptr second_place(const struct raw *raw)
{
    return place + raw->granule_bytes;
}

static bool has_functions(const struct raw *raw)
{
    return raw->granule_bytes != 0 && raw->call.cuMemAddressReserve != NULL &&
           raw->call.cuMemAddressFree != NULL && raw->call.cuMemCreate != NULL &&
           raw->call.cuMemRelease != NULL && raw->call.cuMemMap != NULL && raw->call.cuMemUnmap != NULL &&
           raw->call.cuMemSetAccess != NULL && raw->call.cuMemsetD8Async != NULL;
}

static CUresult set_access(struct raw *raw, CUdeviceptr address, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = raw->properties.location, .flags = flags};
    return raw_did(raw,
                   flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? "cuMemSetAccess for reading" : "cuMemSetAccess",
                   raw->call.cuMemSetAccess(address, raw->granule_bytes, &access, 1));
}

static CUresult unmap(struct raw *raw, CUdeviceptr address)
{
    return raw_did(raw, "cuMemUnmap", raw->call.cuMemUnmap(address, raw->granule_bytes));
}

static CUresult map(struct raw *raw, CUdeviceptr address, CUmemGenericAllocationHandle handle)
{
    return raw_did(raw, "cuMemMap", raw->call.cuMemMap(address, raw->granule_bytes, 0, handle, 0));
}

/* Maps the memory and makes it accessible, or does neither. */
static CUresult attach(struct raw *raw, CUdeviceptr address, CUmemGenericAllocationHandle handle,
                       CUmemAccess_flags flags)
{
    CUresult result = map(raw, address, handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = set_access(raw, address, flags);
    if (result != CUDA_SUCCESS)
        (void)raw->call.cuMemUnmap(address, raw->granule_bytes); /* the first failure is reported */
    return result;
}

/* ---- cases ---- */

enum step { CREATE, MAP, ACCESS, FILL, UNMAP, RELEASE, ALL };
_Static_assert(ALL < RAW_PARTS_MAX, "one part per step");

/* Measures the time since the last step. */
static void lap(double *ret_us, uint64_t *from_ns)
{
    uint64_t now_ns = raw_clock_ns();
    *ret_us = (double)(now_ns - *from_ns) / 1000.0;
    *from_ns = now_ns;
}

/* Runs between create and release. */
static CUresult use(struct raw *raw, CUmemGenericAllocationHandle handle, uint64_t *from_ns, double *ret_us)
{
    CUresult result = map(raw, place, handle);
    lap(&ret_us[MAP], from_ns);
    if (result != CUDA_SUCCESS)
        return result;
    result = set_access(raw, place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    lap(&ret_us[ACCESS], from_ns);
    if (result == CUDA_SUCCESS)
        result = raw_did(raw, "cuMemsetD8Async",
                         raw->call.cuMemsetD8Async(place, 0, raw->granule_bytes, raw->stream));
    CUresult drained = raw_did(raw, "cuStreamSynchronize", raw->call.cuStreamSynchronize(raw->stream));
    lap(&ret_us[FILL], from_ns);
    CUresult unmapped = unmap(raw, place);
    lap(&ret_us[UNMAP], from_ns);
    if (result == CUDA_SUCCESS)
        result = drained;
    return result != CUDA_SUCCESS ? result : unmapped;
}

static CUresult report_lack(struct raw *raw)
{
    (void)snprintf(raw->reason, sizeof raw->reason, "%s", lack);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult run_backing(struct raw *raw, unsigned variant, double *ret_us)
{
    (void)variant;
    CUmemGenericAllocationHandle handle;
    if (lack[0] != '\0')
        return report_lack(raw);
    uint64_t start_ns = raw_clock_ns(), from_ns = start_ns;
    CUresult result =
        raw_did(raw, "cuMemCreate", raw->call.cuMemCreate(&handle, raw->granule_bytes, &raw->properties, 0));
    lap(&ret_us[CREATE], &from_ns);
    if (result != CUDA_SUCCESS)
        return result;
    result = use(raw, handle, &from_ns, ret_us);
    CUresult released = raw_did(raw, "cuMemRelease", raw->call.cuMemRelease(handle));
    lap(&ret_us[RELEASE], &from_ns);
    ret_us[ALL] = raw_us_since(start_ns);
    return result != CUDA_SUCCESS ? result : released;
}

static CUresult run_again(struct raw *raw, unsigned variant, double *ret_us)
{
    if (lack[0] != '\0')
        return report_lack(raw);
    uint64_t start_ns = raw_clock_ns();
    CUresult result = attach(raw, second_place(raw), shared,
                             variant ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ);
    if (result == CUDA_SUCCESS)
        result = unmap(raw, second_place(raw));
    *ret_us = raw_us_since(start_ns);
    return result;
}

/* ---- facts ---- */

#define SOILED_BYTES (64 * MIB)
#define INSPECTED_MAX 16u

/* Marks memory dirty with a pattern that the driver's own tools do not leave. The driver reuses most of it
 * next. */
static void mark_dirty(struct raw *raw)
{
    CUdeviceptr address;
    if (raw->call.cuMemAlloc == NULL || raw->call.cuMemFree == NULL ||
        raw->call.cuMemAlloc(&address, SOILED_BYTES) != CUDA_SUCCESS)
        return;
    (void)raw->call.cuMemsetD8Async(address, 0xa5, SOILED_BYTES, raw->stream);
    (void)raw->call.cuStreamSynchronize(raw->stream);
    (void)raw->call.cuMemFree(address);
}

/* Returns 1 if all bytes are zero, 0 if not, -1 if they could not be read. */
static int reads_zero(struct raw *raw, CUdeviceptr address, unsigned char *bytes)
{
    if (raw->call.cuMemcpyDtoHAsync == NULL)
        return -1;
    CUresult result = raw->call.cuMemcpyDtoHAsync(bytes, address, raw->granule_bytes, raw->stream);
    CUresult drained = raw->call.cuStreamSynchronize(raw->stream);
    if (result != CUDA_SUCCESS || drained != CUDA_SUCCESS)
        return -1;
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, raw->granule_bytes - 1) == 0;
}

/* Creates granules that are live together, so that they are distinct. true says that these granules were
 * zero, not that all are. */
static void inspect_fresh_memory(struct raw *raw)
{
    CUmemGenericAllocationHandle handles[INSPECTED_MAX];
    unsigned made = 0, zero = 0, inspected = 0;
    unsigned char *bytes = malloc(raw->granule_bytes);
    if (bytes == NULL)
        return;
    mark_dirty(raw);
    for (; made < INSPECTED_MAX; made++)
        if (raw->call.cuMemCreate(&handles[made], raw->granule_bytes, &raw->properties, 0) != CUDA_SUCCESS)
            break;
    for (unsigned i = 0; i < made; i++) {
        if (attach(raw, place, handles[i], CU_MEM_ACCESS_FLAGS_PROT_READWRITE) != CUDA_SUCCESS)
            continue;
        int found = reads_zero(raw, place, bytes);
        inspected += found >= 0;
        zero += found > 0;
        (void)unmap(raw, place); /* a mapping that stays makes the next call fail, which is reported */
    }
    for (unsigned i = 0; i < made; i++)
        (void)raw->call.cuMemRelease(handles[i]);
    free(bytes);
    raw_fact(raw, "created_memory", json_pack("{s:i, s:i}", "pieces", (int)inspected, "zero", (int)zero));
}

static void report_facts(struct raw *raw)
{
    double us;
    bool taken = run_again(raw, 0, &us) == CUDA_SUCCESS;
    raw_fact(raw, "read_access", json_boolean(taken));
    if (!taken)
        raw_fact(raw, "read_access_refusal", json_string(raw->reason));
    inspect_fresh_memory(raw);
}

/* ---- set-up ---- */

/* Returns false with the text in `reason`. */
static bool make_places(struct raw *raw)
{
    if (!has_functions(raw)) {
        (void)snprintf(raw->reason, sizeof raw->reason, "no virtual memory management");
        return false;
    }
    (void)snprintf(piece_text, sizeof piece_text, "%llu MiB", (unsigned long long)(raw->granule_bytes / MIB));
    return raw_did(raw, "cuMemAddressReserve",
                   raw->call.cuMemAddressReserve(&place, 2 * raw->granule_bytes, 0, 0, 0)) == CUDA_SUCCESS &&
           raw_did(raw, "cuMemCreate",
                   raw->call.cuMemCreate(&shared, raw->granule_bytes, &raw->properties, 0)) == CUDA_SUCCESS;
}

void raw_virtual(struct raw *raw)
{
    static const struct raw_case cases[] = {
        {{[CREATE] = "raw/cuMemCreate",
          [MAP] = "raw/cuMemMap",
          [ACCESS] = "raw/cuMemSetAccess",
          [FILL] = "raw/fill with zero, waited for",
          [UNMAP] = "raw/cuMemUnmap",
          [RELEASE] = "raw/cuMemRelease",
          [ALL] = "raw/create, map, access, fill, unmap, release"},
         piece_text,
         "us",
         run_backing,
         0,
         0},
        {{"raw/map, access for reading, unmap"}, piece_text, "us", run_again, 0, 0},
        {{"raw/map, access, unmap"}, piece_text, "us", run_again, 1, 0},
    };
    if (!make_places(raw))
        (void)snprintf(lack, sizeof lack, "%s", raw->reason);
    else
        report_facts(raw);
    raw_measure(raw, cases, sizeof cases / sizeof *cases);
    if (shared != 0)
        (void)raw->call.cuMemRelease(shared); /* here and below: the program ends soon */
    if (place != 0)
        (void)raw->call.cuMemAddressFree(place, 2 * raw->granule_bytes);
}

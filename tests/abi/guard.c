/* SPDX-License-Identifier: MIT */
/*
 * A call goes like this: `begin`; each argument by lend_in, lend_out or lend_bytes; the provider's function,
 * once more if try_again() says so; `end`, which gives everything back to the core's own memory.
 */
#include "guard.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TAIL_BYTES 16u /* what a newer host's structs have more than this core's */
#define NEXT_BYTES 8u  /* what next.py appends to a struct */
#define LOANS_MAX 4u
#define NAMES_MAX 32u
#define TABLES_MAX 10u
#define PATTERN 0x5a

static const struct moor_abi_provider *inner;
static uint32_t tail_bytes;  /* 0, or TAIL_BYTES for a newer host */
static uint32_t known_bytes; /* of a tail: a provider of a newer minor knows these, too */
static struct moor_abi_host *lent_host;
static const char *passed[NAMES_MAX];
static uint32_t passed_count;

static void must(bool holds, const char *name, const char *rule)
{
    cr_assert(holds, "guard: %s: %s", name, rule);
}

bool guard_has_passed(const char *name)
{
    for (uint32_t i = 0; i < passed_count; i++)
        if (strcmp(passed[i], name) == 0)
            return true;
    return false;
}

/* ---- memory that ends before a hole ---- */

static size_t pages_of(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* bytes: a multiple of 4; the result is aligned to 8 if it is one of 8. */
static unsigned char *edge_create(size_t bytes)
{
    size_t length = pages_of(bytes);
    size_t hole = pages_of(1);
    unsigned char *pages =
        mmap(NULL, length + hole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(pages != MAP_FAILED && mprotect(pages + length, hole, PROT_NONE) == 0, "guard", "no memory");
    return pages + length - bytes;
}

static void edge_protect(unsigned char *edge, size_t bytes, int protection)
{
    size_t length = pages_of(bytes);
    must(mprotect(edge + bytes - length, length, protection) == 0, "guard", "mprotect failed");
}

static void edge_destroy(unsigned char *edge, size_t bytes)
{
    size_t length = pages_of(bytes);
    (void)munmap(edge + bytes - length, length + pages_of(1));
}

static bool is_pattern(const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != PATTERN)
            return false;
    return true;
}

/* ---- loans ---- */

enum loan_kind {
    LOAN_IN,    /* a struct that is read */
    LOAN_OUT,   /* a struct that is filled */
    LOAN_BYTES, /* a result without struct_size */
    LOAN_ERROR, /* the record: filled on failure, where all else is filled on success */
};

struct loan {
    enum loan_kind kind;
    void *own;           /* the core's */
    size_t own_bytes;    /* of it */
    unsigned char *lent; /* what the provider sees */
    size_t lent_bytes;
};

struct call {
    const char *name;
    struct loan loans[LOANS_MAX];
    uint32_t loan_count;
    bool is_spoilt; /* in-structs end in a byte that is not zero */
    struct moor_abi_error *error;
};

/* As the provider is to find it. */
static void loan_fill(const struct loan *loan, bool is_spoilt)
{
    unsigned char *tail = loan->lent + loan->own_bytes;
    size_t length = loan->lent_bytes - loan->own_bytes;
    memcpy(loan->lent, loan->own, loan->own_bytes);
    memset(tail, loan->kind == LOAN_IN ? 0 : PATTERN, length);
    if (loan->kind != LOAN_BYTES) {
        uint32_t size = (uint32_t)loan->lent_bytes;
        memcpy(loan->lent, &size, sizeof size);
    }
    if (loan->kind != LOAN_IN)
        return;
    if (is_spoilt)
        loan->lent[loan->lent_bytes - 1] = 1;
    edge_protect(loan->lent, loan->lent_bytes, PROT_READ);
}

static void *lend(struct call *call, enum loan_kind kind, void *own, size_t own_bytes, size_t more_bytes)
{
    must(call->loan_count < LOANS_MAX, call->name, "LOANS_MAX is too small");
    struct loan *loan = &call->loans[call->loan_count++];
    *loan =
        (struct loan){.kind = kind, .own = own, .own_bytes = own_bytes, .lent_bytes = own_bytes + more_bytes};
    loan->lent = edge_create(loan->lent_bytes);
    loan_fill(loan, call->is_spoilt);
    return loan->lent;
}

static uint32_t struct_size_of(const void *pointer)
{
    uint32_t size;
    memcpy(&size, pointer, sizeof size);
    return size;
}

static const void *lend_in(struct call *call, const void *args)
{
    call->is_spoilt = tail_bytes != 0;
    return lend(call, LOAN_IN, (void *)(uintptr_t)args, struct_size_of(args), tail_bytes); /* only read */
}

static void *lend_out(struct call *call, void *out)
{
    return lend(call, LOAN_OUT, out, struct_size_of(out), tail_bytes);
}

static void *lend_bytes(struct call *call, void *out, size_t bytes)
{
    return lend(call, LOAN_BYTES, out, bytes, 0);
}

static struct call begin(const char *name, struct moor_abi_error *error)
{
    struct call call = {.name = name};
    call.error = lend(&call, LOAN_ERROR, error, struct_size_of(error), tail_bytes);
    if (!guard_has_passed(name)) {
        must(passed_count < NAMES_MAX, name, "NAMES_MAX is too small");
        passed[passed_count++] = name;
    }
    return call;
}

/* Outputs are the provider's to write on success, the record on failure. */
static bool is_filled(const struct loan *loan, int32_t status)
{
    return loan->kind != LOAN_IN && (status == MOOR_OK) == (loan->kind != LOAN_ERROR);
}

/* Whether the provider was right to leave it alone, or to fill it. */
static void check_loan(const struct call *call, const struct loan *loan, int32_t status)
{
    if (loan->kind == LOAN_IN)
        return;
    bool has_size = loan->kind != LOAN_BYTES;
    size_t skip = has_size ? sizeof(uint32_t) : 0;
    must(!has_size || struct_size_of(loan->lent) == loan->lent_bytes, call->name, "changed struct_size");
    if (loan->lent_bytes > loan->own_bytes)
        must(is_pattern(loan->lent + loan->own_bytes + known_bytes, tail_bytes - known_bytes), call->name,
             "wrote what it does not know");
    must(is_filled(loan, status) ||
             memcmp(loan->lent + skip, (const char *)loan->own + skip, loan->own_bytes - skip) == 0,
         call->name, status == MOOR_OK ? "wrote the error record on success" : "wrote an output on failure");
    if (loan->kind == LOAN_ERROR && status != MOOR_OK)
        must(memchr(call->error->text, '\0', sizeof call->error->text) != NULL, call->name,
             "its error text has no end");
}

static void give_back(const struct loan *loan, int32_t status)
{
    size_t skip = loan->kind == LOAN_BYTES ? 0 : sizeof(uint32_t);
    if (is_filled(loan, status))
        memcpy((char *)loan->own + skip, loan->lent + skip, loan->own_bytes - skip);
    edge_destroy(loan->lent, loan->lent_bytes);
}

static void check_loans(const struct call *call, int32_t status)
{
    for (uint32_t i = 0; i < call->loan_count; i++)
        check_loan(call, &call->loans[i], status);
}

/* After a call with in-structs: true if they were spoilt, and now are not any more. */
static bool try_again(struct call *call, int32_t status)
{
    if (!call->is_spoilt)
        return false;
    check_loans(call, status);
    must(status == MOOR_INVALID, call->name, "took an in-struct with unknown bytes that are not zero");
    call->is_spoilt = false;
    for (uint32_t i = 0; i < call->loan_count; i++) {
        edge_protect(call->loans[i].lent, call->loans[i].lent_bytes, PROT_READ | PROT_WRITE);
        loan_fill(&call->loans[i], call->is_spoilt);
    }
    return true;
}

static int32_t end(struct call *call, int32_t status)
{
    check_loans(call, status);
    for (uint32_t i = 0; i < call->loan_count; i++)
        give_back(&call->loans[i], status);
    return status;
}

/* ---- base ---- */

/* A newer host offers more, which an older provider does not read: as in the other direction. */
static void lend_host(const struct moor_abi_host *host)
{
    must(lent_host == NULL, "base.init", "one instance at a time");
    size_t bytes = host->prefix.struct_size + tail_bytes;
    unsigned char *edge = edge_create(bytes);
    memset(edge, PATTERN, bytes);
    memcpy(edge, host, host->prefix.struct_size);
    lent_host = (struct moor_abi_host *)(void *)edge;
    lent_host->prefix.struct_size = (uint32_t)bytes;
    lent_host->prefix.minor += tail_bytes != 0;
    edge_protect(edge, bytes, PROT_READ);
}

static void take_host_back(void)
{
    edge_destroy((unsigned char *)lent_host, lent_host->prefix.struct_size);
    lent_host = NULL;
}

static int32_t guard_init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                          struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    struct call call = begin("base.init", error);
    struct moor_abi_instance **ret = lend_bytes(&call, ret_instance, sizeof *ret_instance);
    lend_host(host);
    if (inner->prefix.minor > negotiated_minor)
        negotiated_minor = lent_host->prefix.minor;
    int32_t status = inner->base->init(lent_host, negotiated_minor, ret, call.error);
    if (status != MOOR_OK)
        take_host_back();
    return end(&call, status);
}

static int32_t guard_shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    struct call call = begin("base.shutdown", error);
    int32_t status = inner->base->shutdown(instance, call.error);
    take_host_back();
    return end(&call, status);
}

static int32_t guard_device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                                  struct moor_abi_error *error)
{
    struct call call = begin("base.device_count", error);
    uint32_t *ret = lend_bytes(&call, ret_count, sizeof *ret_count);
    return end(&call, inner->base->device_count(instance, ret, call.error));
}

static int32_t guard_device_info(struct moor_abi_instance *instance, uint32_t device,
                                 struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    struct call call = begin("base.device_info", error);
    void *ret = lend_out(&call, ret_info);
    return end(&call, inner->base->device_info(instance, device, ret, call.error));
}

static int32_t guard_domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                                 struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    struct call call = begin("base.domain_info", error);
    void *ret = lend_out(&call, ret_info);
    return end(&call, inner->base->domain_info(instance, device, domain, ret, call.error));
}

static int32_t guard_context_open(struct moor_abi_instance *instance, uint32_t device,
                                  struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct call call = begin("base.context_open", error);
    struct moor_abi_context **ret = lend_bytes(&call, ret_context, sizeof *ret_context);
    return end(&call, inner->base->context_open(instance, device, ret, call.error));
}

static int32_t guard_context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    struct call call = begin("base.context_close", error);
    return end(&call, inner->base->context_close(context, call.error));
}

static int32_t guard_context_native(struct moor_abi_context *context, uint64_t *ret_native,
                                    struct moor_abi_error *error)
{
    struct call call = begin("base.context_native", error);
    uint64_t *ret = lend_bytes(&call, ret_native, sizeof *ret_native);
    return end(&call, inner->base->context_native(context, ret, call.error));
}

static int32_t guard_get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                                   const void **ret_table, struct moor_abi_error *error)
{
    struct call call = begin("base.get_extension", error);
    const void **ret = lend_bytes(&call, ret_table, sizeof *ret_table);
    return end(&call, inner->base->get_extension(instance, name, version, ret, call.error));
}

/* ---- alloc ---- */

static int32_t guard_footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                               uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct call call = begin("alloc.footprint", error);
    const void *in = lend_in(&call, args);
    uint64_t *ret = lend_bytes(&call, ret_bytes, sizeof *ret_bytes);
    int32_t status;
    do
        status = inner->alloc->footprint(context, in, ret, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                              struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct call call = begin("alloc.allocate", error);
    const void *in = lend_in(&call, args);
    void *ret = lend_out(&call, ret_allocation);
    int32_t status;
    do
        status = inner->alloc->allocate(context, in, ret, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

/* ---- stream ---- */

static int32_t guard_stream_create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                                   struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    struct call call = begin("stream.create", error);
    const void *in = lend_in(&call, args);
    struct moor_abi_stream **ret = lend_bytes(&call, ret_stream, sizeof *ret_stream);
    int32_t status;
    do
        status = inner->stream->create(context, in, ret, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_stream_destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct call call = begin("stream.destroy", error);
    return end(&call, inner->stream->destroy(stream, call.error));
}

static int32_t guard_record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct call call = begin("stream.record", error);
    uint64_t *ret = lend_bytes(&call, ret_value, sizeof *ret_value);
    return end(&call, inner->stream->record(stream, ret, call.error));
}

static int32_t guard_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                               struct moor_abi_error *error)
{
    struct call call = begin("stream.watermark", error);
    uint64_t *ret = lend_bytes(&call, ret_value, sizeof *ret_value);
    return end(&call, inner->stream->watermark(stream, ret, call.error));
}

static int32_t guard_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                          struct moor_abi_error *error)
{
    struct call call = begin("stream.wait", error);
    return end(&call, inner->stream->wait(stream, value, deadline_ns, call.error));
}

static int32_t guard_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other,
                                 uint64_t value, struct moor_abi_error *error)
{
    struct call call = begin("stream.wait_stream", error);
    return end(&call, inner->stream->wait_stream(stream, other, value, call.error));
}

static int32_t guard_host_function(struct moor_abi_stream *stream, moor_abi_host_function function,
                                   void *user, struct moor_abi_error *error)
{
    struct call call = begin("stream.host_function", error);
    return end(&call, inner->stream->host_function(stream, function, user, call.error));
}

static int32_t guard_stream_native(struct moor_abi_stream *stream, uint64_t *ret_native,
                                   struct moor_abi_error *error)
{
    struct call call = begin("stream.native", error);
    uint64_t *ret = lend_bytes(&call, ret_native, sizeof *ret_native);
    return end(&call, inner->stream->native(stream, ret, call.error));
}

/* ---- release: arrays, whose elements may grow ---- */

/* What a newer host adds to a point is nothing that an older provider can check. */
static struct moor_abi_fence_point *lend_points(const struct moor_abi_release *release, uint32_t stride)
{
    unsigned char *points = edge_create((size_t)release->point_count * stride);
    for (uint32_t i = 0; i < release->point_count; i++)
        memcpy(points + (size_t)i * stride, (const char *)release->points + (size_t)i * release->point_stride,
               MOOR_ABI_FENCE_POINT_SIZE);
    edge_protect(points, (size_t)release->point_count * stride, PROT_READ);
    return (struct moor_abi_fence_point *)(void *)points;
}

static int32_t guard_release(struct moor_abi_context *context, const struct moor_abi_release *release,
                             struct moor_abi_error *error)
{
    struct moor_abi_release with_points = *release;
    struct call call = begin("release.release", error);
    if (release->point_count > 0) {
        with_points.point_stride = MOOR_ABI_FENCE_POINT_SIZE + tail_bytes;
        with_points.points = lend_points(release, with_points.point_stride);
    }
    const void *in = lend_in(&call, &with_points);
    int32_t status;
    do
        status = inner->release->release(context, in, call.error);
    while (try_again(&call, status));
    if (release->point_count > 0)
        edge_destroy((unsigned char *)(uintptr_t)with_points.points,
                     (size_t)release->point_count * with_points.point_stride);
    return end(&call, status);
}

static int32_t guard_reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                          uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                          struct moor_abi_error *error)
{
    struct call call = begin("release.reap", error);
    uint32_t *ret = lend_bytes(&call, ret_count, sizeof *ret_count);
    uint32_t lent_stride = stride + tail_bytes;
    size_t lent_bytes = (size_t)capacity * lent_stride;
    unsigned char *lent = edge_create(lent_bytes);
    memset(lent, PATTERN, lent_bytes);
    int32_t status = inner->release->reap(context, (struct moor_abi_completion *)(void *)lent, lent_stride,
                                          capacity, deadline_ns, ret, call.error);
    uint32_t count = status == MOOR_OK ? *ret : 0;
    must(count <= capacity, call.name, "told more than there is room for");
    for (uint32_t i = 0; i < capacity; i++) {
        const unsigned char *element = lent + (size_t)i * lent_stride;
        uint32_t filled = i < count ? MOOR_ABI_COMPLETION_SIZE + known_bytes : 0;
        must(is_pattern(element + filled, lent_stride - filled), call.name, "wrote what it did not tell");
        if (i < count)
            memcpy((char *)completions + (size_t)i * stride, element, MOOR_ABI_COMPLETION_SIZE);
    }
    edge_destroy(lent, lent_bytes);
    return end(&call, status);
}

/* ---- copy, virtual, shared, pinned, stats ---- */

static int32_t guard_copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                          struct moor_abi_error *error)
{
    struct call call = begin("copy.copy", error);
    const void *in = lend_in(&call, args);
    int32_t status;
    do
        status = inner->copy->copy(stream, in, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                          struct moor_abi_error *error)
{
    struct call call = begin("copy.fill", error);
    const void *in = lend_in(&call, args);
    int32_t status;
    do
        status = inner->copy->fill(stream, in, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                             struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    struct call call = begin("virtual_.reserve", error);
    const void *in = lend_in(&call, args);
    void *ret = lend_out(&call, ret_range);
    int32_t status;
    do
        status = inner->virtual_->reserve(context, in, ret, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_commit(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                            uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    struct call call = begin("virtual_.commit", error);
    uint64_t *ret = lend_bytes(&call, ret_actual_bytes, sizeof *ret_actual_bytes);
    return end(&call, inner->virtual_->commit(context, range, offset_bytes, length_bytes, ret, call.error));
}

static int32_t guard_committed(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                               uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct call call = begin("virtual_.committed", error);
    uint64_t *ret = lend_bytes(&call, ret_bytes, sizeof *ret_bytes);
    return end(&call,
               inner->virtual_->committed(context, range, offset_bytes, length_bytes, ret, call.error));
}

static int32_t guard_segment_create(struct moor_abi_context *context,
                                    const struct moor_abi_segment_args *args,
                                    struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    struct call call = begin("shared.create", error);
    const void *in = lend_in(&call, args);
    void *ret = lend_out(&call, ret_segment);
    int32_t status;
    do
        status = inner->shared->create(context, in, ret, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                         struct moor_abi_error *error)
{
    struct call call = begin("shared.map", error);
    const void *in = lend_in(&call, args);
    int32_t status;
    do
        status = inner->shared->map(context, in, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                             struct moor_abi_error *error)
{
    struct call call = begin("shared.protect", error);
    const void *in = lend_in(&call, args);
    int32_t status;
    do
        status = inner->shared->protect(context, in, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                         uint64_t *ret_handle, struct moor_abi_error *error)
{
    struct call call = begin("pinned.pin", error);
    const void *in = lend_in(&call, args);
    uint64_t *ret = lend_bytes(&call, ret_handle, sizeof *ret_handle);
    int32_t status;
    do
        status = inner->pinned->pin(context, in, ret, call.error);
    while (try_again(&call, status));
    return end(&call, status);
}

static int32_t guard_stats(struct moor_abi_context *context, uint32_t domain,
                           struct moor_abi_stats *ret_stats, struct moor_abi_error *error)
{
    struct call call = begin("stats.stats", error);
    void *ret = lend_out(&call, ret_stats);
    return end(&call, inner->stats->stats(context, domain, ret, call.error));
}

/* ---- the tables ---- */

static const struct moor_abi_base_table base_table = {
    .struct_size = MOOR_ABI_BASE_TABLE_SIZE,
    .init = guard_init,
    .shutdown = guard_shutdown,
    .device_count = guard_device_count,
    .device_info = guard_device_info,
    .domain_info = guard_domain_info,
    .context_open = guard_context_open,
    .context_close = guard_context_close,
    .context_native = guard_context_native,
    .get_extension = guard_get_extension,
};

static const struct moor_abi_alloc_table alloc_table = {
    .struct_size = MOOR_ABI_ALLOC_TABLE_SIZE, .footprint = guard_footprint, .allocate = guard_allocate};

static const struct moor_abi_stream_table stream_table = {
    .struct_size = MOOR_ABI_STREAM_TABLE_SIZE,
    .create = guard_stream_create,
    .destroy = guard_stream_destroy,
    .record = guard_record,
    .watermark = guard_watermark,
    .wait = guard_wait,
    .wait_stream = guard_wait_stream,
    .host_function = guard_host_function,
    .native = guard_stream_native,
};

static const struct moor_abi_release_table release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE, .release = guard_release, .reap = guard_reap};

static const struct moor_abi_copy_table copy_table = {
    .struct_size = MOOR_ABI_COPY_TABLE_SIZE, .copy = guard_copy, .fill = guard_fill};

static const struct moor_abi_virtual_table virtual_table = {.struct_size = MOOR_ABI_VIRTUAL_TABLE_SIZE,
                                                            .reserve = guard_reserve,
                                                            .commit = guard_commit,
                                                            .committed = guard_committed};

static const struct moor_abi_shared_table shared_table = {.struct_size = MOOR_ABI_SHARED_TABLE_SIZE,
                                                          .create = guard_segment_create,
                                                          .map = guard_map,
                                                          .protect = guard_protect};

static const struct moor_abi_pinned_table pinned_table = {.struct_size = MOOR_ABI_PINNED_TABLE_SIZE,
                                                          .pin = guard_pin};

static const struct moor_abi_stats_table stats_table = {.struct_size = MOOR_ABI_STATS_TABLE_SIZE,
                                                        .stats = guard_stats};

/* What the core is given once and for all. */
static struct {
    unsigned char *edge;
    size_t bytes;
} given[TABLES_MAX];
static uint32_t given_count;

static void *give(const void *from, size_t bytes)
{
    must(given_count < TABLES_MAX, "guard_wrap", "TABLES_MAX is too small");
    unsigned char *edge = edge_create(bytes);
    memcpy(edge, from, bytes);
    edge_protect(edge, bytes, PROT_READ);
    given[given_count].edge = edge;
    given[given_count].bytes = bytes;
    given_count++;
    return edge;
}

void guard_hide_tables(void)
{
    for (uint32_t i = 0; i < given_count; i++)
        edge_protect(given[i].edge, given[i].bytes, PROT_NONE);
}

/* Ours, where the provider has one. */
static const void *table_for(uint64_t capability, const void *table, size_t bytes)
{
    return (inner->prefix.capabilities & capability) == capability ? give(table, bytes) : NULL;
}

const struct moor_abi_provider *guard_wrap(const struct moor_abi_provider *provider, enum guard_host host)
{
    must(inner == NULL, "guard_wrap", "one guard in a process");
    inner = provider;
    tail_bytes = host == GUARD_NEWER_HOST ? TAIL_BYTES : 0;
    known_bytes = tail_bytes != 0 && inner->prefix.minor > MOOR_ABI_MINOR ? NEXT_BYTES : 0;
    const struct moor_abi_provider wrapped = {
        .prefix = MOOR_ABI_PREFIX(inner->prefix.capabilities & MOOR_ABI_CAPS_1_0, inner->prefix.flags),
        .name = inner->name,
        .vendor = inner->vendor,
        .version = inner->version,
        .base = table_for(0, &base_table, sizeof base_table),
        .alloc = table_for(MOOR_ABI_CAP_ALLOC, &alloc_table, sizeof alloc_table),
        .stream = table_for(MOOR_ABI_CAP_STREAM, &stream_table, sizeof stream_table),
        .release = table_for(MOOR_ABI_CAP_RELEASE, &release_table, sizeof release_table),
        .copy = table_for(MOOR_ABI_CAP_COPY, &copy_table, sizeof copy_table),
        .virtual_ = table_for(MOOR_ABI_CAP_VIRTUAL, &virtual_table, sizeof virtual_table),
        .shared = table_for(MOOR_ABI_CAP_SHARED, &shared_table, sizeof shared_table),
        .pinned = table_for(MOOR_ABI_CAP_PINNED, &pinned_table, sizeof pinned_table),
        .stats = table_for(MOOR_ABI_CAP_STATS, &stats_table, sizeof stats_table),
    };
    return give(&wrapped, sizeof wrapped);
}

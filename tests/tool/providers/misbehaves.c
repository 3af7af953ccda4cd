/* SPDX-License-Identifier: MIT */
/*
 * The mock with a watermark that obeys the setting `misbehaves`. Only checks that read a watermark are
 * affected.
 */
#include <moorage/kit/check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The mock's sources are compiled with this name for their entry. The note is theirs too. */
const struct moor_abi_provider *mock_entry(void);

static void crash(void)
{
    (void)raise(SIGSEGV);
}

static void end(void)
{
    exit(0);
}

static void execute(void)
{
    (void)execl("/bin/true", "true", (char *)NULL);
}

static void close_files(void)
{
    closefrom(3);
}

static void hang(void)
{
    for (;;)
        (void)pause();
}

static void stop(void)
{
    (void)raise(SIGSTOP);
}

/* Moves from the process group that the tool kills to the tool's own group. */
static void move_away(void)
{
    if (setpgid(0, getpgid(getppid())) == 0)
        hang();
}

/* Exits, and leaves a process of another session that keeps the files open. */
static void leave_a_daemon(void)
{
    if (fork() == 0) {
        (void)setsid();
        for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
            (void)close(file); /* closes every file of the test */
        (void)sleep(3);
        _exit(0);
    }
    exit(0);
}

static const char *misbehaviour = "";

/* Continues in two processes, of which the other one is ahead and fails. */
static void go_on_twice(void)
{
    if (fork() == 0)
        misbehaviour = "counts wrong";
    else
        (void)usleep(50000);
}

static void write_everywhere(void)
{
    static const unsigned char junk[2000] = {0xff, 0xff, 0xff, 0xff};
    for (int file = 3; file < 32; file++) {
        (void)!write(file, junk, 5);
        (void)!write(file, junk, sizeof junk);
    }
}

static void print_much(void)
{
    for (int line = 0; line < 100000; line++)
        puts("a provider prints this, and it prints it again");
}

static void read_input(void)
{
    (void)getchar();
}

static const struct {
    const char *name;
    void (*act)(void);
} acts[] = {
    {"crashes", crash},
    {"ends", end},
    {"executes", execute},
    {"closes files", close_files},
    {"hangs", hang},
    {"stops", stop},
    {"moves away", move_away},
    {"leaves a daemon", leave_a_daemon},
    {"goes on twice", go_on_twice},
    {"writes everywhere", write_everywhere},
    {"prints much", print_much},
    {"reads input", read_input},
};

static int32_t init_and_read(const struct moor_abi_host *host, uint32_t negotiated_minor,
                             struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    const char *setting = host->config(host->user, "misbehaves");
    if (setting)
        misbehaviour = setting;
    puts("a provider prints this");
    host->log(host->user, MOOR_ABI_LOG_INFO, "a provider logs this");
    return mock_entry()->base->init(host, negotiated_minor, ret_instance, error);
}

static int32_t misbehave(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    int32_t status = mock_entry()->stream->watermark(stream, ret_value, error);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (strcmp(misbehaviour, acts[i].name) == 0)
            acts[i].act();
    if (strcmp(misbehaviour, "fails") == 0)
        return moor_kit_fail(error, MOOR_PROVIDER, 7, "two lines,\nnot \xff UTF-8");
    *ret_value += strcmp(misbehaviour, "counts wrong") == 0;
    return status;
}

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    static struct moor_abi_base_table base;
    static struct moor_abi_stream_table stream;
    static struct moor_abi_provider changed;
    base = *mock_entry()->base;
    base.init = init_and_read;
    stream = *mock_entry()->stream;
    stream.watermark = misbehave;
    changed = *mock_entry();
    changed.base = &base;
    changed.stream = &stream;
    return &changed;
}

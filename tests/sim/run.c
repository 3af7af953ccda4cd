/* SPDX-License-Identifier: MIT */
#include "run.h"

#include <errno.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_S 20u       /* limit between two alarms */
#define HANG_AGAIN_S 10u /* the same when a sequence is run again */
#define CHECK_EVERY 256u /* operations between two full checks and alarms */
#define PROGRESS_EVERY 65536u
#define SPARE_RELEASES 64u /* free releases that one operation may need */

struct sim_result *sim_result_create(void)
{
    void *memory =
        mmap(NULL, sizeof(struct sim_result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void sim_result_destroy(struct sim_result *result)
{
    (void)munmap(result, sizeof *result); /* mapped by sim_result_create */
}

/* ---- one operation ---- */

static uint64_t fold(uint64_t digest, uint64_t value)
{
    return (digest ^ value) * UINT64_C(0x100000001b3); /* FNV-1a, by words */
}

static void digest_step(const struct sim_world *world, const struct sim_op *op, struct sim_result *result)
{
    uint64_t digest = fold(fold(result->totals.digest, op->kind), (uint64_t)world->now.status);
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        digest = fold(fold(digest, world->authorities[i].seen.charged_bytes),
                      world->authorities[i].seen.pending_bytes);
    result->totals.digest = fold(digest, world->control->now_ns(world->control->mock));
}

static void run_op(struct sim_world *world, const struct sim_op *op, unsigned int hang_s,
                   struct sim_result *result)
{
    if (world->release_count > SIM_RELEASES - SPARE_RELEASES)
        sim_let_run(world);
    result->totals.steps++;
    result->totals.kinds[op->kind]++;
    world->now.status = MOOR_OK;
    world->now.effective = false;
    memset(world->places, 0, sizeof world->places);
    sim_kinds[op->kind]->run(world, op);
    result->totals.effective[op->kind] += world->now.effective;
    sim_settle(world);
    sim_check_accounts(world);
    if (result->totals.steps % CHECK_EVERY == 0) {
        sim_check_all(world);
        (void)alarm(hang_s);
    }
    digest_step(world, op, result);
}

/* ---- one world ---- */

struct life {
    const struct sim_run *run; /* NULL: run the operations of the sequence */
    struct sim_random random;
    uint64_t end; /* number of steps */
    unsigned int hang_s;
};

/* Returns false at the end of the sequence or of the run. */
static bool next_op(const struct life *life, struct sim_random *random, const struct sim_world *world,
                    uint32_t index, struct sim_result *result)
{
    struct sim_sequence *sequence = &result->sequence;
    if (!life->run)
        return index < sequence->count;
    if (index == sequence->profile->world_steps || result->totals.steps == life->end)
        return false;
    sequence->ops[index] = sim_draw_op(sequence->profile, world, random);
    if (life->run->bypass_step && result->totals.steps + 1 == life->run->bypass_step)
        sequence->ops[index] = (struct sim_op){.kind = SIM_BYPASS};
    sequence->count = index + 1; /* before it runs, so that a crash is in the sequence */
    return true;
}

static void show_progress(const struct life *life, const struct sim_result *result)
{
    if (life->run && life->run->shows_progress && result->totals.steps % PROGRESS_EVERY == 0)
        fprintf(stderr, "\r%llu of %llu steps", (unsigned long long)result->totals.steps,
                (unsigned long long)life->end);
}

static void live(const char *path, const struct life *life, const struct sim_foreign *foreign,
                 struct sim_world *world, struct sim_result *result)
{
    struct sim_sequence *sequence = &result->sequence;
    struct sim_geometry geometry = sim_draw_geometry(sequence->profile, sequence->seed);
    struct sim_random random = {sim_mix(sequence->seed)};
    bool good = sim_world_create(world, path, &geometry, sequence->seed, foreign);
    for (uint32_t i = 0; good && next_op(life, &random, world, i, result); i++) {
        run_op(world, &sequence->ops[i], life->hang_s, result);
        show_progress(life, result);
        good = world->failure[0] == '\0';
    }
    if (good && sequence->profile->loses_a_device)
        sim_world_lose(world, (uint32_t)(sequence->seed % geometry.devices));
    else if (good)
        sim_world_destroy(world);
    result->totals.checks += world->checks;
    result->totals.worlds++;
    result->failed = world->failure[0] != '\0';
    memcpy(result->failure, world->failure, sizeof result->failure);
}

/* ---- the process ---- */

static void live_all(const char *path, const struct life *life, struct sim_result *result)
{
    static struct sim_world world; /* static because it is too large for the stack */
    struct sim_foreign foreign;
    uint64_t seed = life->run ? life->run->seed : 0;
    (void)alarm(life->hang_s);
    result->failed = !sim_foreign_create(path, &foreign, result->failure, sizeof result->failure);
    do {
        if (life->run) {
            result->sequence.seed = sim_mix(seed + result->totals.worlds * UINT64_C(0x9e3779b97f4a7c15));
            result->sequence.count = 0;
        }
        if (!result->failed)
            live(path, life, &foreign, &world, result);
    } while (!result->failed && life->run && result->totals.steps < life->end);
    if (life->run && life->run->shows_progress)
        fputs("\r\033[K", stderr);
    result->ended = true;
}

static void report_crash(int status, struct sim_result *result)
{
    result->failed = true;
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    result->hung = number == SIGALRM;
    if (result->hung)
        (void)snprintf(result->failure, sizeof result->failure, "expected the run to continue, saw a hang");
    else
        (void)snprintf(result->failure, sizeof result->failure,
                       "expected the run to continue, saw the process end (%s)",
                       number ? sigabbrev_np(number) : "exit");
}

static void in_a_process(const char *path, const struct life *life, struct sim_result *result)
{
    int status = 0;
    (void)fflush(NULL); /* else the child prints buffered output again */
    pid_t child = fork();
    if (child == 0) {
        live_all(path, life, result);
        _exit(0);
    }
    if (child < 0) {
        result->failed = true;
        (void)snprintf(result->failure, sizeof result->failure, "fork: no process could be made");
        return;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!result->ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        report_crash(status, result);
}

static void begin(struct sim_result *result)
{
    result->ended = result->failed = result->hung = false;
    result->failure[0] = '\0';
    result->totals = (struct sim_totals){.digest = UINT64_C(0xcbf29ce484222325)};
}

void sim_run(const struct sim_run *run, struct sim_result *result)
{
    struct life life = {.run = run, .end = run->steps, .hang_s = HANG_S};
    begin(result);
    result->sequence.profile = run->profile;
    in_a_process(run->path, &life, result);
}

void sim_run_again(const char *path, struct sim_result *result)
{
    struct life life = {.run = NULL, .hang_s = HANG_AGAIN_S};
    begin(result);
    in_a_process(path, &life, result);
}

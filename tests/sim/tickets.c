/* SPDX-License-Identifier: MIT */
/* The state of the host's tickets. */
#include "world.h"

bool sim_ticket_is_open(const struct sim_ticket *ticket)
{
    return ticket->handle && !ticket->served && !ticket->ended;
}

uint32_t sim_open_tickets(const struct sim_world *world, int pool)
{
    uint32_t count = 0;
    for (int i = 0; i < SIM_TICKETS; i++) {
        const struct sim_ticket *ticket = &world->tickets[i];
        bool is_of_pool = false;
        for (uint32_t j = 0; j < ticket->count; j++)
            is_of_pool |= world->holders[ticket->parts[j].holder].authority == pool;
        count += sim_ticket_is_open(ticket) && is_of_pool;
    }
    return count;
}

bool sim_someone_waits(const struct sim_world *world)
{
    for (int i = 0; i < SIM_TICKETS; i++)
        if (sim_ticket_is_open(&world->tickets[i]))
            return true;
    return false;
}

/* No check is counted, because the number of calls may depend on time. */
void sim_observe_tickets(struct sim_world *world)
{
    for (int i = 0; i < SIM_TICKETS; i++) {
        struct sim_ticket *ticket = &world->tickets[i];
        struct moor_ticket_stats stats = {0};
        if (!sim_ticket_is_open(ticket) ||
            moor_ticket_get_stats(world->runtime, ticket->handle, &stats) != MOOR_OK || !stats.served)
            continue;
        ticket->served = true;
        for (uint32_t j = 0; j < ticket->count; j++)
            world->holders[ticket->parts[j].holder].reserved += ticket->parts[j].bytes;
    }
}

/* The account's two passes over events: what a thread does at any instant, and why a device is idle in each of its gaps
   (boundby.attribution.gaps). tests/native/twins.py says the same with NumPy. */

#include "native.h"

#define NEVER INT64_MAX

/* Layers of intervals, the later over the earlier: each sets a state, or one for each of its intervals, but over
   ``spared``. Starts ascend; of intervals that overlap the latest counts. INT64_MIN and INT64_MAX are no instants. */
typedef struct {
    const int64_t *start, *end, *value; /* value: NULL where the layer has one state */
    int64_t count, state, spared;
    int64_t begun; /* how many of its intervals have, at the instant that is looked at */
    int64_t next, held; /* when it changes; the state it sets meanwhile, NOTHING outside */
} Layer;

enum { MOST_LAYERS = 16, NOT_IN_ORDER = -1, NOTHING = -1 };

/* Go on to an instant; 0 where starts are not in order. */
static inline int advance(Layer *layer, int64_t now) {
    while (layer->begun < layer->count && layer->start[layer->begun] == now) layer->begun++;
    layer->next = layer->begun < layer->count ? layer->start[layer->begun] : NEVER;
    layer->held = NOTHING;
    int64_t latest = layer->begun - 1;
    if (latest >= 0 && now < layer->end[latest]) {
        layer->held = layer->value ? layer->value[latest] : layer->state;
        if (layer->end[latest] < layer->next) layer->next = layer->end[latest];
    }
    return layer->next > now;
}

/* The states of a thread: a step function, at the instants where it changes. How many steps, or NOT_IN_ORDER. */
EXPORT int64_t boundby_states(const int64_t *starts, const int64_t *ends, const int64_t *values, const int64_t *counts,
                              const int64_t *states, const int64_t *spared, int64_t layers, int64_t otherwise,
                              const int64_t *extra, int64_t extras, int64_t *time, int64_t *value) {
    Layer all[MOST_LAYERS];
    int64_t upcoming = NEVER; /* when any layer changes next */
    if (layers > MOST_LAYERS) return NOT_IN_ORDER;
    for (int64_t number = 0; number < layers; number++) {
        Layer *layer = all + number;
        *layer = (Layer){(const int64_t *)(intptr_t)starts[number], (const int64_t *)(intptr_t)ends[number],
                         (const int64_t *)(intptr_t)values[number], counts[number], states[number],
                         spared[number], 0, 0, 0};
        if (!advance(layer, INT64_MIN)) return NOT_IN_ORDER;
        if (layer->next < upcoming) upcoming = layer->next;
    }
    int64_t found = 0, latest = NOTHING, seen = 0;
    for (;;) {
        int64_t now = seen < extras && extra[seen] < upcoming ? extra[seen] : upcoming;
        if (now == NEVER) return found;
        while (seen < extras && extra[seen] == now) seen++;
        if (seen < extras && extra[seen] < now) return NOT_IN_ORDER;
        int64_t state = otherwise;
        upcoming = NEVER;
        for (Layer *layer = all; layer < all + layers; layer++) {
            if (layer->next == now && !advance(layer, now)) return NOT_IN_ORDER;
            if (layer->next < upcoming) upcoming = layer->next;
            if (layer->held != NOTHING && state != layer->spared) state = layer->held;
        }
        if (state == latest) continue;
        time[found] = now;
        value[found++] = latest = state;
    }
}

typedef struct {
    Idle *idle;
    int64_t raws, pieces, asleep, is_full;
    int64_t is_direct, synced; /* no wait delayed the gap's launch; how much of it is in sync all the same */
    int64_t state_near, block_near, wait_near, reach_near;
} Walk;

static int64_t region_at(Idle *idle, int64_t range) {
    return range >= 0 && range < idle->ranges ? idle->region_of_range[range] : 0;
}

static void write_piece(Walk *p, int64_t start, int64_t end, int64_t cause, int64_t region, int64_t owner) {
    Idle *idle = p->idle;
    if (end <= start) return;
    if (p->pieces >= idle->room) {
        p->is_full = 1;
        return;
    }
    idle->piece_start[p->pieces] = start;
    idle->piece_end[p->pieces] = end;
    idle->piece_cause[p->pieces] = (int8_t)cause;
    idle->piece_region[p->pieces] = (int32_t)region;
    idle->piece_thread[p->pieces++] = (int32_t)idle->owner_thread[owner];
}

/* A piece with its region: the one known, else the one open on its thread, cut where that changes. */
static void own(Walk *p, int64_t start, int64_t end, int64_t cause, int64_t region, int64_t owner) {
    Idle *idle = p->idle;
    if (end <= start) return;
    if (region != NOTHING) {
        write_piece(p, start, end, cause, region, owner);
        return;
    }
    const int64_t *time = (const int64_t *)(intptr_t)idle->owner_times[owner];
    const int64_t *range = (const int64_t *)(intptr_t)idle->owner_ranges[owner];
    int64_t steps = idle->owner_steps[owner], near = place(time, steps, start, 1, idle->owner_near[owner]);
    for (;; near++) {
        int64_t until = near < steps && time[near] < end ? time[near] : end;
        write_piece(p, start, until, cause, region_at(idle, near > 0 ? range[near - 1] : NOTHING), owner);
        start = until;
        if (start == end) break;
    }
    idle->owner_near[owner] = near;
}

/* The longest wait that delayed a gap's launch, of equals the latest, into ``blamed``; the region in which it began. No
   wait at all: ``is_direct``. */
static int64_t blame(Walk *p, int64_t gap, int64_t since, int64_t until) {
    Idle *idle = p->idle;
    int64_t most = 0, longest = NOTHING;
    int64_t stop = p->wait_near = place(idle->wait_start, idle->waits, until, 0, p->wait_near);
    int64_t first = p->reach_near = place(idle->wait_reach, idle->waits, since, 1, p->reach_near);
    p->is_direct = first >= stop;
    if (first < stop - idle->latest_waits) first = stop - idle->latest_waits;
    for (int64_t wait = first; wait < stop; wait++) {
        int64_t from = idle->wait_start[wait] > since ? idle->wait_start[wait] : since;
        int64_t to = idle->wait_end[wait] < until ? idle->wait_end[wait] : until;
        if (to - from > 0 && to - from >= most) {
            most = to - from;
            longest = wait;
        }
    }
    idle->blamed[gap] = NOTHING;
    if (longest == NOTHING) return NOTHING;
    idle->blamed[gap] = (int32_t)idle->wait_call[longest];
    int64_t begin = idle->wait_start[longest], owner = idle->wait_owner[longest];
    const int64_t *time = (const int64_t *)(intptr_t)idle->owner_times[owner];
    int64_t near = place(time, idle->owner_steps[owner], begin, 1, idle->owner_near[owner]);
    return region_at(idle, near > 0 ? ((const int64_t *)(intptr_t)idle->owner_ranges[owner])[near - 1] : NOTHING);
}

static int64_t blocked_until(Walk *p, int64_t now) {
    Idle *idle = p->idle;
    int64_t near = p->block_near = place(idle->block_start, idle->blocks, now, 1, p->block_near);
    int64_t over = near > 0 ? idle->block_end[near - 1] - now : 0;
    return idle->block_before[near] - (over > 0 ? over : 0);
}

/* A piece of the gap, to be owned once the wait that is to blame is known to cost it something, or at once. */
static void add_raw(Walk *p, int64_t start, int64_t end, int64_t state, int64_t owner, int64_t region) {
    Idle *idle = p->idle;
    if (end <= start) return;
    if (p->is_direct) {
        if (state == idle->sync) p->synced += end - start;
        own(p, start, end, state, region, owner);
        return;
    }
    if (p->raws >= idle->raw_room) {
        p->is_full = 1;
        return;
    }
    idle->raw_start[p->raws] = start;
    idle->raw_end[p->raws] = end;
    idle->raw_state[p->raws] = state;
    idle->raw_owner[p->raws] = owner;
    idle->raw_region[p->raws++] = region;
}

/* Time in which the thread sleeps: whoever of the others runs is responsible, the first that does. */
static void chase(Walk *p, int64_t start, int64_t end, int64_t state) {
    Idle *idle = p->idle;
    while (start < end) {
        int64_t until = end, held = NOTHING, owner = 0;
        for (int64_t other = 0; other < idle->others && held == NOTHING; other++) {
            const int64_t *time = (const int64_t *)(intptr_t)idle->other_times[other];
            int64_t steps = idle->other_steps[other], near = place(time, steps, start, 1, idle->other_near[other]);
            idle->other_near[other] = near;
            if (near < steps && time[near] < until) until = time[near];
            if (near > 0) held = ((const int64_t *)(intptr_t)idle->other_states[other])[near - 1];
            owner = idle->other_owner[other];
        }
        if (held == NOTHING) {
            p->asleep++;
            held = state == idle->elsewhere ? idle->awake : state;
            owner = 0;
        }
        add_raw(p, start, until, held, owner, NOTHING);
        start = until;
    }
}

/* The states of the responsible thread. */
static void host_pieces(Walk *p, int64_t start, int64_t end) {
    Idle *idle = p->idle;
    if (end <= start) return;
    int64_t near = place(idle->state_time, idle->states, start, 1, p->state_near);
    for (; start < end; near++) {
        int64_t until = near < idle->states && idle->state_time[near] < end ? idle->state_time[near] : end;
        int64_t state = near > 0 ? idle->state[near - 1] : NOTHING;
        if (state == idle->host_blocked || state == idle->elsewhere) chase(p, start, until, state);
        else add_raw(p, start, until, state, 0, NOTHING);
        start = until;
        if (start == end) break;
    }
    p->state_near = near;
}

/* Pieces of every gap, the waits that are to blame for it. 0; NOTHING where room was wanting. */
EXPORT int64_t boundby_idle(Idle *idle) {
    Walk pass = {.idle = idle}, *p = &pass;
    for (int64_t gap = 0; gap < idle->gaps; gap++) {
        int64_t start = idle->start[gap], end = idle->end[gap], since = idle->since[gap], launch = idle->launch[gap];
        int64_t launched = launch < 0 ? NEVER : idle->call_end[launch], delayed = launch < 0 ? NEVER : idle->call_start[launch];
        int64_t region = idle->operation[gap] < 0 ? 0 : idle->launch_region[idle->operation[gap]];
        if (delayed > end) delayed = end;
        if (delayed < since) delayed = since; /* waits after that delayed something else */
        int64_t host_end = launched < start ? start : launched > end ? end : launched;
        int64_t arrive_end = (launched < end ? launched : end) + idle->launch_limit;
        arrive_end = arrive_end < host_end ? host_end : arrive_end > end ? end : arrive_end;
        p->raws = p->synced = 0;
        int64_t waiting = blame(p, gap, since, delayed), budget = 0;
        if (!p->is_direct) budget = blocked_until(p, delayed) - blocked_until(p, since);
        host_pieces(p, start, host_end);
        add_raw(p, host_end, arrive_end, idle->cuda_api, 0, region);
        idle->cost[gap] = p->synced;
        for (int64_t raw = 0; raw < p->raws; raw++)
            if (idle->raw_state[raw] == idle->sync) budget -= idle->raw_end[raw] - idle->raw_start[raw];
        for (int64_t raw = 0; raw < p->raws; raw++) {
            int64_t from = idle->raw_start[raw], to = idle->raw_end[raw], taken = to - from;
            if (idle->raw_state[raw] != idle->sync) {
                taken = budget < 0 ? 0 : budget > taken ? taken : budget;
                budget -= to - from; /* below 0: spent */
            }
            int64_t own_region = idle->raw_region[raw], owner = idle->raw_owner[raw];
            idle->cost[gap] += taken;
            own(p, from, from + taken, idle->sync, waiting != NOTHING ? waiting : own_region, owner);
            own(p, from + taken, to, idle->raw_state[raw], own_region, owner);
        }
        own(p, arrive_end, end, idle->device_wait, region, 0);
    }
    idle->found[0] = p->pieces;
    idle->found[1] = p->asleep;
    return p->is_full ? NOTHING : 0;
}

/* Of each gap of a device the operation that follows it, or NOTHING; the one that tells who is responsible; and when the
   one that ended last before it was launched, ``low`` without one. ``by_end``: operations in order of their ends, of
   equals that of their launches; ``end`` is in that order. */
EXPORT int64_t boundby_gaps(const int64_t *gap_start, const int64_t *gap_end, int64_t gaps, const int64_t *start,
                            const int64_t *end, const int64_t *by_end, int64_t is_sorted, int64_t count,
                            const int64_t *launched, int64_t low, int32_t *following, int32_t *telling, int64_t *since) {
    int64_t next = 0, last = 0;
    for (int64_t gap = 0; gap < gaps; gap++) {
        next = place(start, count, gap_end[gap], 0, next);
        last = place(end, count, gap_start[gap], 1, last);
        int64_t previous = last == 0 ? NOTHING : is_sorted ? last - 1 : by_end[last - 1];
        following[gap] = next < count ? (int32_t)next : NOTHING;
        telling[gap] = next < count ? (int32_t)next : previous < 0 ? 0 : (int32_t)previous;
        since[gap] = previous < 0 ? low : launched[previous];
    }
    return gaps;
}

/* Write a number into a column of so many bytes each, 1, 2 or 4. */
static inline void write_number(void *column, int64_t width, int64_t row, int32_t value) {
    if (width == 1) ((int8_t *)column)[row] = (int8_t)value;
    else if (width == 2) ((int16_t *)column)[row] = (int16_t)value;
    else ((int32_t *)column)[row] = value;
}

/* Two tables of segments as one: when each begins and, behind the last, when that ends; its cause, region and thread.
   0 where there is time between two of them, or time that is in two. */
EXPORT int64_t boundby_weave(const Side *one, const Side *other, int64_t *bounds, int8_t *cause, void *region,
                             int64_t region_width, void *thread, int64_t thread_width) {
    const Side a = *one, b = *other; /* bytes that are written could be theirs, if they were not copies */
    int64_t left = 0, right = 0, size = a.count + b.count, until = 0;
    for (int64_t place = 0; place < size; place++) {
        int is_left = right == b.count || (left < a.count && a.start[left] <= b.start[right]);
        int64_t row = is_left ? left++ : right++, start = is_left ? a.start[row] : b.start[row];
        if (place && until != start) return 0;
        bounds[place] = start;
        until = is_left ? a.end[row] : b.end[row];
        cause[place] = is_left ? a.cause[row] : b.cause[row];
        write_number(region, region_width, place, is_left ? a.region[row] : b.region[row]);
        write_number(thread, thread_width, place, is_left ? a.thread[row] : b.thread[row]);
    }
    if (size) bounds[size] = until;
    return 1;
}

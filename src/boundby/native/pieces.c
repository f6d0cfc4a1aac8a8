/* What the host did in the interval before each node of the replay's graph, and where: `_cut_pieces` of
   boundby.replay.host_nodes, in one pass. */

#include "native.h"

typedef struct { /* Intervals (native/pieces.py): disjoint, in order */
    const int64_t *start, *end;
    int64_t count;
    int64_t near; /* the first that ends after the instant that is looked at */
} Set;

/* Whether an instant lies in the set; ``until`` comes down to where that changes. */
static inline int lies_in(Set *set, int64_t now, int64_t *until) {
    set->near = place(set->end, set->count, now, 1, set->near);
    if (set->near == set->count) return 0;
    int inside = set->start[set->near] <= now;
    int64_t next = inside ? set->end[set->near] : set->start[set->near];
    if (next < *until) *until = next;
    return inside;
}

typedef struct { /* Intervals */
    int64_t count;
    const int64_t *low, *high;
    const int64_t *node;
    int64_t steps; /* the thread's ranges over time */
    const int64_t *step_time, *step_range;
    int64_t ranges;
    const int64_t *region_of_range;
    int64_t sleeps;
    const int64_t *sleep_start, *sleep_end;
    int64_t compilations;
    const int64_t *compile_start, *compile_end;
    int64_t ends; /* of calls, ascending */
    const int64_t *call_end;
    int64_t dispatch_ns, root, cuda_api, cpu, host_blocked, init;
    int64_t room;
    int32_t *piece_node, *piece_ns;
    int8_t *piece_cause;
    int32_t *piece_region;
} Intervals;

typedef struct {
    const Intervals *of;
    int64_t found;
} Output;

/* A piece, or more of them where 32 bits do not hold it. */
static inline void add(Output *out, int64_t node, int64_t ns, int64_t cause, int64_t region) {
    const Intervals *of = out->of;
    for (; ns > 0; ns -= INT32_MAX, out->found++)
        if (out->found < of->room) {
            of->piece_node[out->found] = (int32_t)node;
            of->piece_ns[out->found] = ns < INT32_MAX ? (int32_t)ns : INT32_MAX;
            of->piece_cause[out->found] = (int8_t)cause;
            of->piece_region[out->found] = (int32_t)region;
        }
}

/* How many pieces there are, of which those that have room are written; -1 where a range is not known. */
EXPORT int64_t boundby_pieces(const Intervals *of) {
    Output out = {of, 0};
    Set asleep = {of->sleep_start, of->sleep_end, of->sleeps, 0};
    Set compiling = {of->compile_start, of->compile_end, of->compilations, 0};
    int64_t step = 0, call = 0;
    for (int64_t row = 0; row < of->count; row++) {
        int64_t now = of->low[row], high = of->high[row], last = INT64_MIN;
        call = place(of->call_end, of->ends, now, 1, call);
        if (call > 0) last = of->call_end[call - 1] + of->dispatch_ns;
        while (now < high) {
            int64_t until = high, region = of->root;
            step = place(of->step_time, of->steps, now, 1, step);
            if (step < of->steps && of->step_time[step] < until) until = of->step_time[step];
            int64_t range = step > 0 ? of->step_range[step - 1] : -1;
            if (range >= of->ranges) return -1;
            if (range >= 0) region = of->region_of_range[range];
            int sleeps = lies_in(&asleep, now, &until), compiles = lies_in(&compiling, now, &until);
            int64_t dispatch = 0;
            if (!sleeps && !compiles && last > now) dispatch = (last < until ? last : until) - now;
            add(&out, of->node[row], dispatch, of->cuda_api, region);
            add(&out, of->node[row], until - now - dispatch,
                compiles ? of->init : sleeps ? of->host_blocked : of->cpu, region);
            now = until;
        }
    }
    return out.found;
}

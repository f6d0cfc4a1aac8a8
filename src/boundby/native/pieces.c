/* What the host did in the interval before each node of the replay's graph, and where, in one pass; and for how long
   the account says otherwise. */

#include "native.h"

/* How many pieces there are, of which those that have room are written; -1 where a range is not known. */
EXPORT int64_t boundby_pieces(const Intervals *of) {
    int64_t found = 0, step = 0, state = 0;
    for (int64_t row = 0; row < of->count; row++) {
        int64_t now = of->low[row], high = of->high[row];
        while (now < high) {
            int64_t until = high, region = of->root;
            step = place(of->step_time, of->steps, now, 1, step);
            if (step < of->steps && of->step_time[step] < until) until = of->step_time[step];
            int64_t range = step > 0 ? of->step_range[step - 1] : -1;
            if (range >= of->ranges) return -1;
            if (range >= 0) region = of->region_of_range[range];
            state = place(of->state_time, of->states, now, 1, state);
            if (state < of->states && of->state_time[state] < until) until = of->state_time[state];
            int64_t cause = state > 0 ? of->state[state - 1] : of->otherwise;
            if (until - now > INT32_MAX) until = now + INT32_MAX; /* a piece that 32 bits do not hold is several */
            if (found < of->room) {
                of->piece_node[found] = (int32_t)of->node[row];
                of->piece_ns[found] = (int32_t)(until - now);
                of->piece_cause[found] = (int8_t)cause;
                of->piece_region[found] = (int32_t)region;
            }
            found++;
            now = until;
        }
    }
    return found;
}

/* For how long pieces of one thread, in order of their nodes, have another cause than the account's segments of that
   thread: into ``differing_ns``, by the account's cause and the pieces'. Segments with a cause below 0 say nothing. */
EXPORT int64_t boundby_differing(const int64_t *low, const int32_t *piece_node, const int32_t *piece_ns,
                                 const int8_t *piece_cause, int64_t pieces, const int64_t *start, const int64_t *end,
                                 const int8_t *cause, const void *thread, int64_t thread_width, int64_t segments,
                                 int64_t number, int64_t causes, int64_t *differing_ns) {
    int64_t until = 0, near = 0;
    for (int64_t row = 0; row < pieces; row++) {
        int64_t now = row > 0 && piece_node[row] == piece_node[row - 1] ? until : low[piece_node[row]];
        until = now + piece_ns[row];
        near = place(end, segments, now, 1, near);
        for (int64_t at = near; at < segments && start[at] < until; at++) {
            if (cause[at] < 0 || cause[at] == piece_cause[row]) continue;
            if (element(thread, thread_width, at) != number) continue;
            int64_t from = start[at] > now ? start[at] : now, to = end[at] < until ? end[at] : until;
            differing_ns[cause[at] * causes + piece_cause[row]] += to - from;
        }
    }
    return pieces;
}

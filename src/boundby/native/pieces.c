/* What the host did in the interval before each node of the replay's graph, and where, in one pass. */

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

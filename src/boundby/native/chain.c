/* A job replayed, many variants side by side: see chain.py. */

#include "native.h"

static void own(const Course *course, const Variants *run, int64_t slot) {
    const int64_t count = run->variants;
    for (int64_t one = 0; one < count; one++) run->own_ns[one] = 0;
    for (int64_t row = course->work_at[slot]; row < course->work_at[slot + 1]; row++) {
        const double *factor = run->factor + (int64_t)course->cell[row] * count;
        for (int64_t one = 0; one < count; one++) run->own_ns[one] += course->work_ns[row] * factor[one];
    }
}

EXPORT int64_t boundby_chain(const Course *course, const Variants *run) {
    const int64_t count = run->variants;
    for (int64_t place = 0; place < run->events; place++) {
        const int64_t event = course->order[place], rank = course->rank[event];
        const int64_t met = course->instance[event], queue = course->queue[event];
        double *time = run->time_ns + rank * count;
        own(course, run, event + rank); /* before an event of a rank there is one tail for each rank before it */
        for (int64_t one = 0; one < count; one++) time[one] += run->own_ns[one] + course->fixed_ns[event];
        if (course->is_join[event]) {
            for (int64_t one = 0; met >= 0 && one < count; one++) {
                const double end = run->latest_ns[met * count + one] + run->transfer_ns[met * count + one] + course->lag_ns[event];
                if (end > time[one]) time[one] = end;
            }
            continue;
        }
        for (int64_t one = 0; met >= 0 && one < count; one++) {
            double begun = time[one];
            if (queue >= 0) {
                const int64_t last = queue * count + one;
                const double behind = run->latest_ns[last] + run->transfer_ns[last] + course->lag_ns[event];
                if (behind > begun) begun = behind;
            }
            if (begun > run->latest_ns[met * count + one]) run->latest_ns[met * count + one] = begun;
        }
    }
    for (int64_t rank = 0; rank < course->ranks; rank++) {
        own(course, run, course->tail[rank]);
        for (int64_t one = 0; one < count; one++) run->time_ns[rank * count + one] += run->own_ns[one];
    }
    return 0;
}

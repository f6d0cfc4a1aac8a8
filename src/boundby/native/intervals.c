/* Sets of intervals and step functions, one pass each: what boundby.model.intervals and boundby.model.step_function do
   with NumPy. Who asks in order finds the next answer beside the last one. Callers vouch for the lengths. */

#include "native.h"

EXPORT int64_t boundby_places(const int64_t *values, int64_t count, const int64_t *wanted, int64_t queries,
                              int64_t right, int64_t *found) {
    int64_t near = 0;
    for (int64_t row = 0; row < queries; row++) found[row] = near = place(values, count, wanted[row], right != 0, near);
    return queries;
}

/* The union of intervals that stand in order of start, touching ones joined; -1 where they are not in order. It may be
   written over the intervals themselves. */
EXPORT int64_t boundby_union(const int64_t *start, const int64_t *end, int64_t count, int64_t *from, int64_t *to) {
    int64_t found = 0, latest = INT64_MIN;
    for (int64_t row = 0; row < count; row++) {
        int64_t begin = start[row], finish = end[row];
        if (finish <= begin) continue;
        if (begin < latest) return -1;
        latest = begin;
        if (found && begin <= to[found - 1]) {
            if (finish > to[found - 1]) to[found - 1] = finish;
        } else {
            from[found] = begin;
            to[found++] = finish;
        }
    }
    return found;
}

EXPORT int64_t boundby_contains(const int64_t *start, const int64_t *end, int64_t count, const int64_t *time,
                                int64_t queries, int64_t *found) {
    int64_t near = 0;
    for (int64_t row = 0; row < queries; row++) {
        near = place(start, count, time[row], 1, near);
        found[row] = near > 0 && time[row] < end[near - 1] ? near - 1 : -1;
    }
    return queries;
}

/* Covered nanoseconds before each instant; ``before`` has those before each interval, and one more: all. */
EXPORT int64_t boundby_covered(const int64_t *start, const int64_t *end, const int64_t *before, int64_t count,
                               const int64_t *time, int64_t queries, int64_t *covered) {
    int64_t near = 0;
    for (int64_t row = 0; row < queries; row++) {
        near = place(start, count, time[row], 1, near);
        int64_t over = near > 0 ? end[near - 1] - time[row] : 0;
        covered[row] = before[near] - (over > 0 ? over : 0);
    }
    return queries;
}

/* Pieces of a's intervals in b's. How many there are, of which those that have room are written. */
EXPORT int64_t boundby_overlay(const int64_t *a_start, const int64_t *a_end, int64_t a_count, const int64_t *b_start,
                               const int64_t *b_end, int64_t b_count, int64_t room, int64_t *start, int64_t *end,
                               int64_t *left, int64_t *right) {
    int64_t found = 0, first = 0, stop = 0;
    for (int64_t row = 0; row < a_count; row++) {
        first = place(b_end, b_count, a_start[row], 1, first);
        stop = place(b_start, b_count, a_end[row], 0, stop);
        for (int64_t other = first; other < stop; other++, found++) {
            if (found >= room) continue;
            start[found] = a_start[row] > b_start[other] ? a_start[row] : b_start[other];
            end[found] = a_end[row] < b_end[other] ? a_end[row] : b_end[other];
            left[found] = row;
            right[found] = other;
        }
    }
    return found;
}

/* Pieces of intervals (in any order) cut where a step function steps, and its value on each; counted as above. */
EXPORT int64_t boundby_cut(const int64_t *start, const int64_t *end, int64_t count, const int64_t *time,
                           const int64_t *value, int64_t steps, int64_t room, int64_t *from, int64_t *to, int64_t *row_of,
                           int64_t *held) {
    int64_t found = 0, first = 0, stop = 0;
    for (int64_t row = 0; row < count; row++) {
        first = place(time, steps, start[row], 1, first);
        stop = place(time, steps, end[row], 0, stop);
        int64_t last = stop > first ? stop : first; /* the step that begins behind the last piece */
        for (int64_t step = first; step <= last; step++, found++) {
            if (found >= room) continue;
            from[found] = step == first ? start[row] : time[step - 1];
            to[found] = step == last ? end[row] : time[step];
            row_of[found] = row;
            held[found] = step > 0 ? value[step - 1] : -1;
        }
    }
    return found;
}

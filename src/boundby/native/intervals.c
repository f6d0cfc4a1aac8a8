/* Sets of intervals, step functions and order statistics, one pass each: what boundby.model.intervals, .step_function,
   .arrays and boundby.stats.instances do with NumPy. Who asks in order finds the next answer beside the last one. Callers vouch for the lengths. */

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

/* Values in the order of their groups (so many bytes a group); ``next``: where each group's first one goes. -1 where a
   group is none of them. */
EXPORT int64_t boundby_group(const void *group, int64_t width, const int64_t *value, int64_t count, int64_t *next,
                             int64_t groups, int64_t *grouped) {
    for (int64_t row = 0; row < count; row++) {
        int64_t into = element(group, width, row);
        if (into < 0 || into >= groups || next[into] < 0 || next[into] >= count) return -1;
        grouped[next[into]++] = value[row];
    }
    return count;
}

/* Bring values that are below a pivot (``or_same``: or it) to the front of a slice; where they end. Without a branch. */
static int64_t partition(int64_t *values, int64_t low, int64_t stop, int64_t pivot, int or_same) {
    int64_t end = low, limit = or_same ? pivot : pivot - 1;
    if (!or_same && pivot == INT64_MIN) return low;
    for (int64_t at = low; at < stop; at++) {
        int64_t value = values[at];
        values[at] = values[end];
        values[end] = value;
        end += value <= limit;
    }
    return end;
}

enum { DRAWN = 63, MANY = 1 << 14 };

/* A value of a slice that most probably lies a little above that of a rank, or (not ``over``) below. Drawn, so that no
   order is a bad one. */
static int64_t near_rank(const int64_t *values, int64_t low, int64_t stop, int64_t rank, int over, uint64_t *seed) {
    int64_t drawn[DRAWN], many = stop - low < MANY ? 3 : DRAWN, wanted = 1;
    for (int64_t number = 0; number < many; number++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        int64_t value = values[low + (int64_t)((*seed >> 33) % (uint64_t)(stop - low))], at = number;
        for (; at > 0 && drawn[at - 1] > value; at--) drawn[at] = drawn[at - 1];
        drawn[at] = value;
    }
    if (many > 3) wanted = (int64_t)((double)(rank - low) / (double)(stop - low) * DRAWN) + (over ? 6 : -6);
    return drawn[wanted < 0 ? 0 : wanted >= many ? many - 1 : wanted];
}

/* Bring the value of a rank to its place, smaller ones before it. */
static void select_rank(int64_t *values, int64_t low, int64_t stop, int64_t rank, uint64_t *seed) {
    while (stop - low > 1) {
        int over = rank - low <= (stop - low) / 2; /* the larger side goes first, and then only one pass is needed */
        int64_t pivot = near_rank(values, low, stop, rank, over, seed), end = partition(values, low, stop, pivot, !over);
        if (over && rank < end) {
            stop = end;
        } else if (over) {
            low = partition(values, end, stop, pivot, 1);
            if (rank < low) return;
        } else if (rank >= end) {
            low = end;
        } else {
            stop = partition(values, low, end, pivot, 0);
            if (rank >= stop) return;
        }
    }
}

/* Bring the least value of a slice to a place of it (``most``: the greatest). */
static void bring(int64_t *values, int64_t low, int64_t stop, int most, int64_t to) {
    int64_t best = low;
    for (int64_t at = low + 1; at < stop; at++)
        if (most ? values[at] > values[best] : values[at] < values[best]) best = at;
    int64_t value = values[best];
    values[best] = values[to];
    values[to] = value;
}

/* Add up the values of each group (so many bytes a group), less those of ``since``; without ``value`` count them. -1
   where a group is none. */
EXPORT int64_t boundby_sums(const void *group, int64_t width, const int64_t *value, const int64_t *since, int64_t count,
                            int64_t groups, int64_t *total) {
    for (int64_t row = 0; row < count; row++) {
        int64_t into = element(group, width, row);
        if (into < 0 || into >= groups) return -1;
        total[into] += value ? value[row] - (since ? since[row] : 0) : 1;
    }
    return count;
}

/* Add one, and how long the row takes (without a start: the end is that), to the two numbers of each pair of a group and a
   label (so many bytes each, from the lowest on). -1 where one is none. */
EXPORT int64_t boundby_tally(const void *group, int64_t group_width, int64_t low, int64_t groups, const void *label,
                             int64_t label_width, int64_t least, int64_t labels, const int64_t *start,
                             const int64_t *end, int64_t count, int64_t *total) {
    for (int64_t row = 0; row < count; row++) {
        int64_t into = element(group, group_width, row) - low, told = element(label, label_width, row) - least;
        if (into < 0 || into >= groups || told < 0 || told >= labels) return -1;
        total[2 * (into * labels + told)] += 1;
        total[2 * (into * labels + told) + 1] += start ? end[row] - start[row] : end[row];
    }
    return count;
}

/* How many operations were launched before each launch, and had not started then. Launches and starts ascend. */
EXPORT int64_t boundby_queued(const int64_t *launches, const int64_t *starts, int64_t count, const int64_t *launch,
                              int64_t queries, int64_t *depth) {
    int64_t launched = 0, started = 0;
    for (int64_t row = 0; row < queries; row++) {
        launched = place(launches, count, launch[row], 0, launched);
        started = place(starts, count, launch[row], 1, started);
        depth[row] = launched > started ? launched - started : 0;
    }
    return queries;
}

/* Of each slice of the values (which it reorders; of slices that nest, inner ones come first) those of these ranks, most
   quickly where they ascend. -1 where a slice or rank lies outside. */
EXPORT int64_t boundby_ranks(int64_t *values, int64_t count, const int64_t *first, const int64_t *stop, int64_t slices,
                             const int64_t *rank, int64_t ranks, int64_t *found) {
    uint64_t seed = 1;
    for (int64_t slice = 0; slice < slices; slice++) {
        int64_t low = first[slice], end = stop[slice];
        if (low < 0 || end > count) return -1;
        for (int64_t number = slice * ranks; number < (slice + 1) * ranks; number++) {
            int64_t place = first[slice] + rank[number];
            if (place < first[slice] || place >= end) return -1;
            if (place < low - 1) low = first[slice];
            if (place == low) bring(values, low, end, 0, place);
            else if (place > low && place == end - 1) bring(values, low, end, 1, place);
            else if (place > low) select_rank(values, low, end, place, &seed);
            found[number] = values[place];
            low = place + 1;
        }
    }
    return slices;
}

enum { WIDTH = 16, MOST_LEVELS = 17 };

/* The sum of values and the greatest of them: of a slice, or of each block of a level of blocks of blocks. */
typedef struct {
    int64_t sum, most;
} Summary;

static inline Summary joined(Summary one, Summary other) {
    return (Summary){one.sum + other.sum, one.most > other.most ? one.most : other.most};
}

/* Values one by one (how long intervals are; without ``start`` the numbers in ``end``), and of every 16 of them, of every
   16 of those, and so on, a summary. */
typedef struct {
    const int64_t *start, *end;
    const Summary *level[MOST_LEVELS];
    int64_t levels;
} Blocks;

/* Of the values of a slice or, above, of blocks, and of what is known already. */
static inline Summary added(const Blocks *blocks, int64_t level, int64_t low, int64_t high, Summary all) {
    for (int64_t at = low; level && at < high; at++) all = joined(all, blocks->level[level][at]);
    for (int64_t at = low; !level && at < high; at++) {
        int64_t value = blocks->end[at] - (blocks->start ? blocks->start[at] : 0);
        all = joined(all, (Summary){value, value});
    }
    return all;
}

static Blocks make_blocks(const int64_t *start, const int64_t *end, int64_t count, Summary *room) {
    Blocks blocks = {start, end, {0}, 1};
    for (int64_t size = count; size > WIDTH; blocks.levels++) {
        int64_t number = (size + WIDTH - 1) / WIDTH;
        for (int64_t block = 0; block < number; block++) {
            int64_t stop = (block + 1) * WIDTH < size ? (block + 1) * WIDTH : size;
            room[block] = added(&blocks, blocks.levels - 1, block * WIDTH, stop, (Summary){0, INT64_MIN});
        }
        blocks.level[blocks.levels] = room;
        room += number;
        size = number;
    }
    return blocks;
}

static Summary summary(const Blocks *blocks, int64_t low, int64_t high, Summary all) {
    for (int64_t up = 0; low < high; up++) {
        int is_last = up + 1 == blocks->levels || high - low <= 2 * WIDTH;
        int64_t first = is_last ? high : (low + WIDTH - 1) / WIDTH * WIDTH, last = is_last ? high : high / WIDTH * WIDTH;
        all = added(blocks, up, low, first, all);
        all = added(blocks, up, last, high, all);
        low = first / WIDTH;
        high = is_last ? low : last / WIDTH;
    }
    return all;
}

/* The greatest value of each slice, 0 of an empty one. ``room``: two numbers for each of count / 15 + 17 summaries. -1
   where a slice lies outside. */
EXPORT int64_t boundby_greatest(const int64_t *values, int64_t count, const int64_t *first, const int64_t *stop,
                                int64_t slices, Summary *room, int64_t *found) {
    Blocks blocks = make_blocks(0, values, count, room);
    for (int64_t slice = 0; slice < slices; slice++) {
        int64_t low = first[slice], high = stop[slice];
        if (low < high && (low < 0 || high > count)) return -1;
        found[slice] = low < high ? summary(&blocks, low, high, (Summary){0, INT64_MIN}).most : 0;
    }
    return slices;
}

/* Of each [low, high) how many of the intervals, which ascend and are disjoint, reach into it, for how long together, and
   for how long at most. ``room`` as above. */
EXPORT int64_t boundby_inside(const int64_t *start, const int64_t *end, int64_t count, const int64_t *low,
                              const int64_t *high, int64_t queries, Summary *room, int64_t *number, int64_t *covered,
                              int64_t *longest) {
    Blocks blocks = make_blocks(start, end, count, room);
    int64_t first = 0, stop = 0;
    for (int64_t row = 0; row < queries; row++) {
        first = place(end, count, low[row], 1, first);
        stop = place(start, count, high[row], 0, stop);
        Summary all = {0, 0};
        number[row] = high[row] > low[row] && stop > first ? stop - first : 0;
        for (int64_t side = 0; side < 2 && side < number[row]; side++) { /* the first and the last one may be cut */
            int64_t at = side ? stop - 1 : first, from = start[at], to = end[at];
            if (from < low[row]) from = low[row];
            if (to > high[row]) to = high[row];
            all = joined(all, (Summary){to - from, to - from});
        }
        if (number[row] > 2) all = summary(&blocks, first + 1, stop - 1, all);
        covered[row] = all.sum;
        longest[row] = all.most;
    }
    return queries;
}

/* Ranges in order of start, then -end, nested: of each its parent (NOTHING), and which is innermost from when on (two
   steps for each at most). How many steps; -1 where ranges overlap without nesting, have no length or no order. */
EXPORT int64_t boundby_nest(const int64_t *start, const int64_t *end, int64_t count, int64_t *parent, int64_t *time,
                            int64_t *innermost) {
    int64_t open = -1, found = 0, now = 0, value = -1, latest = -1, row = 0;
    for (int64_t steps = 0; steps < 2 * count; steps++) {
        int64_t when, what;
        int is_end = open >= 0 && (row == count || end[open] <= start[row]);
        if (open < 0 && row == count) break;
        if (is_end) { /* its parent takes over */
            when = end[open];
            what = open = parent[open];
        } else {
            if (end[row] < start[row] || (open >= 0 && end[row] > end[open])) return -1;
            if (row && start[row] < start[row - 1]) return -1;
            if (end[row] == start[row]) { /* without length it is innermost at no instant */
                parent[row++] = open;
                continue;
            }
            when = start[row];
            parent[row] = open;
            what = open = row++;
        }
        if (steps && when != now && value != latest) { /* of several at one instant the last one holds */
            time[found] = now;
            innermost[found++] = latest = value;
        }
        now = when;
        value = what;
    }
    if (count && value != latest) {
        time[found] = now;
        innermost[found++] = value;
    }
    return found;
}

/* The first row of each number (of a process and its call, so many bytes each) among launches or, where there is none,
   among other calls; -1 without one. ``row_of``: room for all numbers up to the highest. */
EXPORT int64_t boundby_numbered(const void *key, int64_t width, const uint8_t *launches, int64_t count, int64_t high,
                                int32_t *row_of) {
    for (int64_t place = 0; place <= high; place++) row_of[place] = -1;
    for (int64_t row = 0; row < count; row++) {
        int64_t number = element(key, width, row);
        if (number < 0 || number > high) return -1;
        int64_t known = row_of[number];
        if (known < 0 || (launches[row] && !launches[known])) row_of[number] = (int32_t)row;
    }
    return count;
}

/* Of each number wanted that row. */
EXPORT int64_t boundby_join(const int32_t *row_of, int64_t high, const int32_t *process, const void *correlation,
                            int64_t width, int64_t wanted, int64_t none, int64_t stride, int32_t *found) {
    for (int64_t row = 0; row < wanted; row++) {
        int64_t told = element(correlation, width, row), number = process[row] * stride + told;
        int is_asked = told != none && process[row] >= 0 && number >= 0 && number <= high;
        found[row] = is_asked ? row_of[number] : -1;
    }
    return wanted;
}

/* A row's value of a column of any type, in a loop for each: who loops takes the type out of it. */
#define FOR_EACH_WIDTH(width, LOOP) \
    if ((width) == 8) LOOP(int64_t) \
    else if ((width) == 4) LOOP(int32_t) \
    else if ((width) == 2) LOOP(int16_t) \
    else LOOP(int8_t)

/* The values of some rows, ``missing`` where a row is negative. -1 where a row lies behind the last. */
EXPORT int64_t boundby_pick(const void *values, int64_t width, int64_t size, const void *rows, int64_t row_width,
                            int64_t count, int64_t missing, void *found) {
#define PICK(VALUE, ROW) \
    for (int64_t place = 0; place < count; place++) { \
        int64_t row = ((const ROW *)rows)[place]; \
        if (row >= size) return -1; \
        ((VALUE *)found)[place] = row < 0 ? (VALUE)missing : ((const VALUE *)values)[row]; \
    }
#define PICK_BY_LONG(VALUE) { PICK(VALUE, int64_t) }
#define PICK_BY_INT(VALUE) { PICK(VALUE, int32_t) }
#define PICK_BY_SHORT(VALUE) { PICK(VALUE, int16_t) }
#define PICK_BY_BYTE(VALUE) { PICK(VALUE, int8_t) }
    if (row_width == 8) {
        FOR_EACH_WIDTH(width, PICK_BY_LONG)
    } else if (row_width == 4) {
        FOR_EACH_WIDTH(width, PICK_BY_INT)
    } else if (row_width == 2) {
        FOR_EACH_WIDTH(width, PICK_BY_SHORT)
    } else {
        FOR_EACH_WIDTH(width, PICK_BY_BYTE)
    }
    return count;
}

/* Mark which values there are, from the lowest on. -1 where one lies outside. */
EXPORT int64_t boundby_seen(const void *values, int64_t width, int64_t count, int64_t low, int64_t span, uint8_t *seen) {
#define SEE(VALUE) \
    for (int64_t row = 0; row < count; row++) { \
        uint64_t place = (uint64_t)((const VALUE *)values)[row] - (uint64_t)low; \
        if (place >= (uint64_t)span) return -1; \
        seen[place] = 1; \
    }
    FOR_EACH_WIDTH(width, SEE)
    return count;
}

enum { AT_ONCE = 512 };

/* 2 where each value lies above the one before it, 1 where none lies below it, else 0. */
EXPORT int64_t boundby_order(const void *values, int64_t width, int64_t count) {
    int64_t below = 0, same = 0;
    for (int64_t begin = 1; begin < count && !below; begin += AT_ONCE) {
        int64_t stop = count - begin < AT_ONCE ? count : begin + AT_ONCE;
#define IN_ORDER(VALUE) \
    for (int64_t row = begin; row < stop; row++) { \
        VALUE last = ((const VALUE *)values)[row - 1], value = ((const VALUE *)values)[row]; \
        below |= value < last; \
        same |= value == last; \
    }
        FOR_EACH_WIDTH(width, IN_ORDER)
    }
    return below ? 0 : 2 - same;
}

/* Number the distinct rows of some columns (so many bytes each value) in the order in which they come: of each row its
   number, of each number the first row and its hash. How many there are; -1 where they fill more than half of the slots
   (a power of two, all 0), or where rows that differ have one hash. */
EXPORT int64_t boundby_distinct(const int64_t *columns, const int64_t *widths, int64_t width, int64_t count,
                                int32_t *slots, int64_t size, int64_t *first, int64_t *hashes, int64_t *number) {
    int64_t found = 0;
    for (int64_t begin = 0; begin < count; begin += AT_ONCE) {
        uint64_t hash[AT_ONCE];
        int64_t rows = count - begin < AT_ONCE ? count - begin : AT_ONCE;
        for (int64_t row = 0; row < rows; row++) hash[row] = 0x9E3779B97F4A7C15u;
        for (int64_t at = 0; at < width; at++) {
            const void *column = (const void *)(intptr_t)columns[at];
#define HASH(VALUE) \
    for (int64_t row = 0; row < rows; row++) { \
        uint64_t mixed = (hash[row] ^ (uint64_t)((const VALUE *)column)[begin + row]) * 0xBF58476D1CE4E5B9u; \
        hash[row] = mixed ^ mixed >> 29; \
    }
            FOR_EACH_WIDTH(widths[at], HASH)
        }
        for (int64_t row = 0; row < rows; row++) {
            for (uint64_t slot = hash[row];; slot++) {
                int64_t known = (int64_t)slots[slot & (uint64_t)(size - 1)] - 1;
                if (known < 0) {
                    if (2 * found >= size) return -1;
                    known = found;
                    first[found] = begin + row;
                    hashes[found++] = (int64_t)hash[row];
                    slots[slot & (uint64_t)(size - 1)] = (int32_t)found;
                }
                if ((uint64_t)hashes[known] == hash[row]) {
                    number[begin + row] = known;
                    break;
                }
            }
        }
        for (int64_t at = 0; at < width; at++) {
            const void *column = (const void *)(intptr_t)columns[at];
            int64_t differ = 0;
#define COMPARE(VALUE) { \
    const VALUE *value = column; \
    for (int64_t row = begin; row < begin + rows; row++) differ |= value[row] != value[first[number[row]]]; \
}
            FOR_EACH_WIDTH(widths[at], COMPARE)
            if (differ) return -1;
        }
    }
    return found;
}

/* Where groups of rows begin that are drawn as one: one as long as the resolution stands alone, others join those of the
   same stretch of time. How many; it stops at ``most``. */
EXPORT int64_t boundby_groups(const int64_t *start, const int64_t *end, int64_t count, int64_t resolution, int64_t most,
                              int64_t *first) {
    int64_t found = 0, low = 0;
    int is_alone = 1;
    for (int64_t row = 0; row < count && found < most; row++) {
        int is_long = end[row] - start[row] >= resolution;
        int is_same = !is_alone && (uint64_t)start[row] - (uint64_t)low < (uint64_t)resolution;
        if (!is_same) low = start[row] - ((start[row] % resolution) + resolution) % resolution;
        if (is_long || is_alone || !is_same) first[found++] = row;
        is_alone = is_long;
    }
    return found;
}

/* Of rows that stand group by group the value that holds most of each one's time (of equals the smallest), when the last
   of its rows ends, and how long they take together. Values (so many bytes each): 0 to ``size``; ``total``: as many
   zeros. -1 where a value is none of them, or a group has no row. */
EXPORT int64_t boundby_heaviest(const int64_t *first, int64_t groups, int64_t count, const void *value, int64_t width,
                                const int64_t *start, const int64_t *end, int64_t size, int64_t *total, int64_t *found,
                                int64_t *until, int64_t *covered) {
    for (int64_t group = 0; group < groups; group++) {
        int64_t stop = group + 1 < groups ? first[group + 1] : count, best = -1, most = -1, last = INT64_MIN, sum = 0;
        if (first[group] < 0 || first[group] >= stop || stop > count) return -1;
        for (int64_t row = first[group]; row < stop; row++) {
            int64_t one = element(value, width, row), length = end[row] - start[row];
            if (one < 0 || one >= size) return -1;
            total[one] += length;
            sum += length;
            if (end[row] > last) last = end[row];
        }
        for (int64_t row = first[group]; row < stop; row++) {
            int64_t one = element(value, width, row), own = total[one];
            total[one] = 0; /* another row of this value changes nothing */
            if (best < 0 || own > most || (own == most && one < best)) best = one, most = own;
        }
        found[group] = best;
        until[group] = last;
        covered[group] = sum;
    }
    return groups;
}

/* Nanoseconds of each cause of disjoint ascending segments between neighbouring edges, added to bins by causes. -1 where
   a cause is none. */
EXPORT int64_t boundby_bins(const int64_t *start, const int64_t *end, const int8_t *cause, int64_t count,
                            const int64_t *edges, int64_t bins, int64_t causes, int64_t *total) {
    int64_t bin = 0;
    for (int64_t row = 0; row < count; row++) {
        if (cause[row] < 0 || cause[row] >= causes) return -1;
        while (bin < bins && edges[bin + 1] <= start[row]) bin++;
        for (int64_t at = bin; at < bins && edges[at] < end[row]; at++) {
            int64_t low = start[row] > edges[at] ? start[row] : edges[at];
            total[at * causes + cause[row]] += (end[row] < edges[at + 1] ? end[row] : edges[at + 1]) - low;
        }
    }
    return count;
}

/* Values with 0 in some places, where ``most`` says so only in place of what is above it. */
EXPORT int64_t boundby_blank(const int64_t *values, const uint8_t *where, int64_t count, int64_t most, int64_t *found) {
    for (int64_t row = 0; row < count; row++) {
        int64_t value = values[row], left = most && value < 0 ? value : 0;
        found[row] = where[row] ? left : value;
    }
    return count;
}

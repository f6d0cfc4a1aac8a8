/* What Python passes as one: columns by name, which boundby.model.library reads here. A pointer is a column, int64_t a
   number. Every index in a column was checked before. */

#ifndef BOUNDBY_STRUCTS_H
#define BOUNDBY_STRUCTS_H

#include <stdint.h>

/* A device's gaps for which one thread is responsible, in order of time, and what is known of that time. Threads are
   numbers into the ``owner`` columns, the responsible one 0. Columns of addresses hold pointers to columns. */
typedef struct {
    int64_t gaps;
    const int64_t *start, *end, *since; /* since: when the operation before was launched */
    const int32_t *launch, *operation; /* the call that ends it and what that launched, or NOTHING */
    const int64_t *call_start, *call_end;
    const int32_t *launch_region; /* of each operation */
    int64_t states;
    const int64_t *state_time, *state;
    int64_t others; /* threads that may run while it sleeps, in the order in which they are asked */
    const int64_t *other_times, *other_states, *other_steps, *other_owner;
    int64_t *other_near;
    int64_t owners;
    const int64_t *owner_times, *owner_ranges, *owner_steps, *owner_thread;
    int64_t *owner_near;
    int64_t ranges;
    const int64_t *region_of_range;
    int64_t blocks; /* when it or those that it takes turns with waited for the device; see boundby_covered */
    const int64_t *block_start, *block_end, *block_before;
    int64_t waits; /* the same by wait; reach: the latest end so far */
    const int64_t *wait_start, *wait_end, *wait_reach, *wait_call, *wait_owner;
    int64_t latest_waits, launch_limit;
    int64_t sync, cuda_api, device_wait, host_blocked, elsewhere, awake; /* states; awake: what elsewhere becomes */
    int64_t raw_room; /* for the pieces of one gap */
    int64_t *raw_start, *raw_end, *raw_state, *raw_owner, *raw_region;
    int64_t room;
    int64_t *piece_start, *piece_end;
    int8_t *piece_cause;
    int32_t *piece_region, *piece_thread;
    int32_t *blamed; /* of each gap */
    int64_t *cost; /* how much of each is ``sync`` */
    int64_t *found; /* pieces, and those of them in which every thread sleeps */
} Idle;

typedef struct { /* segments in order of time */
    int64_t count;
    const int64_t *start, *end;
    const int8_t *cause;
    const int32_t *region, *thread;
} Side;

/* Intervals before nodes of one thread, and what is known of that time. */
typedef struct {
    int64_t count;
    const int64_t *low, *high;
    const int64_t *node;
    int64_t steps; /* the thread's ranges over time */
    const int64_t *step_time, *step_range;
    int64_t ranges;
    const int64_t *region_of_range;
    int64_t states; /* what is done for the thread over time: causes */
    const int64_t *state_time, *state;
    int64_t otherwise, root; /* cause and region where nothing is known */
    int64_t room;
    int32_t *piece_node, *piece_ns;
    int8_t *piece_cause;
    int32_t *piece_region;
} Intervals;

typedef struct {
    const int32_t *chain;
    const int64_t *node_begin_ns, *node_end_ns;
    const int32_t *follows;
    const int64_t *follow_lag_ns;
    const int32_t *wait_at, *wait_for;
    const uint8_t *waits_for_start;
    const int32_t *queue_slot;
    const int64_t *queue_slot_lag_ns;
    const int32_t *launch;
    const uint8_t *from_call_end;
    const int32_t *before;
    const int32_t *after_at, *after_what;
    const int64_t *start_ns;
    const int64_t *unexplained_lead_ns;
    const int32_t *lane, *lane_first, *lane_stop;
    const int32_t *kind;
    const uint8_t *excludes;
    int64_t kinds;
} Links;

typedef struct {
    const int64_t *interval_ns;
    const int64_t *call_ns;
    const uint8_t *waits;
    const int64_t *wait_lag_ns;
    const int64_t *launch_latency_ns;
    const int64_t *switch_ns;
    const int64_t *unexplained_delay_ns;
    const int64_t *duration_ns;
    int64_t has_queue_limit;
} Costs;

typedef struct {
    const int32_t *order;
    int64_t events;
    int64_t calibrates, keeps_turns;
    int64_t *delay_ns, *lead_ns;
    int64_t *interval_ns, *call_ns, *wait_lag_ns, *follow_lag_ns, *queue_slot_lag_ns;
    int64_t *call_start, *call_end;
    int64_t *start, *end, *turn;
    int64_t *clock;
    uint8_t *begun;
    int64_t *lane_end;
    int32_t *lane_kind;
    int64_t *block_end;
    int64_t *front;
} Pass;

/* Where times of nodes and operations are kept from their event to the last one that needs them, and on the way places
   that are free. */
typedef struct {
    int32_t *spare, *node, *row;
} Slots;

/* Several passes at once. What has one value for each pass has them side by side; what is or is not in each of them is
   told by bits. Times are counted from ``origin``. */
typedef struct {
    const int32_t *order;
    int64_t events, origin;
    const int64_t *columns; /* where those of each column_t are */
    int64_t unlimited; /* passes in which queues are not limited */
    int64_t pieces;
    const int32_t *piece_at;
    const int32_t *node_slot, *row_slot;
    double *times, *clock; /* of each slot: starts, then ends; of each chain */
    uint8_t *begun;
    int64_t *lane_end;
    int32_t *lane_kind;
    int64_t *block_end, *front;
    int64_t lanes;
    const int32_t *window;
    double *first, *last, *kept;
    int64_t at_once; /* 2, 8 or 16 */
    int64_t is_wide; /* registers hold four numbers */
} Many;

/* What comes after each event of an order, by their places in it: next_at[place]:next_at[place + 1] of ``next``; how many
   events each comes after, and how many of these are no operations. Then the state on the way: how many events each still
   has to wait for, when it would happen, and a heap of those that can. */
typedef struct {
    const int32_t *next_at, *next;
    const int32_t *after, *after_nodes;
    int64_t is_whole; /* nothing that an event needs comes after it in the order */
    int32_t *pending;
    int64_t *key;
    int32_t *heap;
} Turns;

/* The waits that boundby_find_late looks at, and what it found: of each entry of Links.wait_for. */
typedef struct {
    const int64_t *call_start, *call_end, *turn;
    uint8_t *is_late;
    int64_t nodes;
} Late;

typedef struct {
    const int32_t *order, *turn_at;
    const int32_t *rank, *instance, *queue;
    const uint8_t *is_join;
    const double *lag_ns, *fixed_ns;
    const int64_t *work_at;
    const int32_t *cell;
    const double *work_ns;
    const int32_t *tail;
    int64_t ranks;
} Course;

typedef struct {
    const double *factor;      /* cells x variants */
    const double *transfer_ns; /* instances x variants */
    double *time_ns;           /* ranks x variants: in and out */
    double *latest_ns;         /* instances x variants, -infinity at first */
    double *own_ns;            /* variants */
    int64_t events, variants;
} Variants;

typedef struct {
    int64_t state; /* in and out: 0 at first */
    int64_t used;  /* how far the piece was understood */
    int64_t bad;   /* 1 where it is no JSON from there on */
    int64_t rows, entries, texts, tops;
} Found;

typedef struct {
    const uint8_t *text;
    int64_t length;
    const uint8_t *key_text;
    const int32_t *key_at;
    int64_t keys;
    int32_t *key_slot; /* of 1024 */
    int64_t most_rows;
    int8_t *phase;
    int32_t *category, *name;
    int64_t *pid, *tid, *start_ns, *duration_ns;
    int64_t most_entries;
    int32_t *entry_row;
    int8_t *entry_key, *entry_kind;
    int64_t *entry_value;
    int64_t slots, most_texts;
    int32_t *slot;
    int64_t *text_at, *text_length, *text_hash;
    int64_t most_tops;
    int64_t *top_key, *top_key_length, *top_value, *top_value_length;
    Found *found;
} Piece;

typedef struct {
    const uint8_t *pages; /* one after the other, as many bytes each as a page has */
    int64_t count, page_size, usable;
    const int32_t *output; /* of each column of the table: its row in ``values``, or NONE */
    int64_t columns, outputs;
    int64_t rowid_column; /* stands for the row's number, or NONE */
    int64_t text_column;  /* holds texts: their numbers come out; or NONE */
    const uint8_t *has_default, *is_decimal;
    const int64_t *values; /* of each output the address of its column; 0: no room for it, while it is even */
    uint8_t *is_even;      /* of each output whether all rows so far hold its ``first`` value; none of it is written then */
    int64_t *first;
    int64_t capacity;
    int64_t *deferred_row, *deferred_rowid; /* rows of which something wanted lies on another page */
    int64_t deferred_room;
    int32_t *slots;                         /* hash table of the distinct texts: a number, or NONE */
    int64_t slots_size;                     /* a power of two */
    int64_t *text_end;                      /* of each distinct text, where it ends in ``texts`` */
    uint8_t *texts;
    int64_t texts_size;
    int64_t *state; /* as named below */
} Leaves;

#endif

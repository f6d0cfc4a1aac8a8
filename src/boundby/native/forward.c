/* The forward pass of the replay: when would everything have happened, with these costs?

   The same as plain() in forward.py, line by line, which is its specification and judges it in the tests. The structs
   hold the fields of the dataclasses there, in their order. Every index was checked there: nothing is checked here. */

#include "native.h"

typedef struct { /* Links */
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
} links_t;

typedef struct { /* Costs */
  const int64_t *interval_ns;
  const int64_t *call_ns;
  const uint8_t *waits;
  const int64_t *wait_lag_ns;
  const int64_t *launch_latency_ns;
  const int64_t *switch_ns;
  const int64_t *unexplained_delay_ns;
  const int64_t *duration_ns;
  int64_t has_queue_limit;
} costs_t;

typedef struct { /* Pass */
  const int32_t *order;
  int64_t events;
  int64_t calibrates, keeps_turns;
  int64_t *delay_ns, *lead_ns;
  int64_t *begin_delay_ns, *end_delay_ns;
  int64_t *call_start, *call_end;
  int64_t *start, *end, *turn;
  int64_t *clock;
  uint8_t *begun;
  int64_t *lane_end;
  int32_t *lane_kind;
  int64_t *block_end;
  int64_t *front;
} pass_t;

static const int64_t NEVER = -((int64_t)1 << 62);
enum { FIRST_KERNEL = 3, BLOCK = 32 };

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* A node begins: after the one before it on its chain, its waker, and room in its stream's queue. */
static inline int64_t begins_at(const links_t *l, const costs_t *c, const pass_t *p, int32_t node) {
  int32_t chain = l->chain[node], waker = l->follows[node], slot = l->queue_slot[node];
  int64_t now;
  if (p->begun[chain])
    now = p->clock[chain] + c->interval_ns[node];
  else
    now = waker >= 0 ? NEVER : l->node_begin_ns[node];
  if (waker >= 0) now = later(now, p->call_end[waker] + l->follow_lag_ns[node]);
  if (c->has_queue_limit && slot >= 0) now = later(now, p->end[slot] + l->queue_slot_lag_ns[node]);
  return now;
}

static inline void begin_node(const links_t *l, const costs_t *c, const pass_t *p, int32_t node) {
  int32_t chain = l->chain[node];
  int64_t now = begins_at(l, c, p, node);
  p->begun[chain] = 1;
  if (p->calibrates) {
    p->begin_delay_ns[node] = l->node_begin_ns[node] - now;
    now = l->node_begin_ns[node];
  }
  p->call_start[node] = now;
  p->call_end[node] = p->clock[chain] = now + c->call_ns[node];
}

/* A node that waits ends: not before the operations it waits for. */
static inline int64_t ends_at(const links_t *l, const costs_t *c, const pass_t *p, int32_t node) {
  int32_t chain = l->chain[node];
  int64_t done = p->call_end[node];
  if (!c->waits[node]) return done;
  for (int32_t edge = l->wait_at[node]; edge < l->wait_at[node + 1]; edge++) {
    int32_t row = l->wait_for[edge], other = l->launch[row];
    if (other >= 0 && l->chain[other] != chain && p->call_start[other] > p->call_start[node])
      continue; /* another thread launches it after this call now */
    done = later(done, (l->waits_for_start[node] ? p->start[row] : p->end[row]) + c->wait_lag_ns[node]);
  }
  return done;
}

static inline void end_node(const links_t *l, const costs_t *c, const pass_t *p, int32_t node) {
  if (!c->waits[node]) return;
  int32_t chain = l->chain[node];
  int64_t done = ends_at(l, c, p, node);
  if (p->calibrates) {
    p->end_delay_ns[node] = l->node_end_ns[node] - done;
    done = l->node_end_ns[node];
  }
  p->call_end[node] = done;
  p->clock[chain] = later(p->clock[chain], done);
}

/* When an operation that is ready at a time finds room on its device among the operations of other lanes. */
static inline int64_t find_room(const links_t *l, const pass_t *p, int32_t row, int64_t ready) {
  int32_t lane = l->lane[row], first = l->lane_first[lane], kind = l->kind[row];
  int64_t room = ready, start = ready;
  if (kind >= FIRST_KERNEL && p->front[first] > room)
    room = p->front[first]; /* none overtakes a kernel that waits for room */
  for (int32_t other = first; other < l->lane_stop[lane]; other++) {
    if (other % BLOCK == 0 && p->block_end[other / BLOCK] <= room) {
      other += BLOCK - 1; /* nothing in this block of lanes ends later */
      continue;
    }
    if (other != lane && p->lane_end[other] > room && l->excludes[kind * l->kinds + p->lane_kind[other]])
      room = p->lane_end[other];
  }
  if (p->calibrates) p->lead_ns[row] = later(0, room - later(l->start_ns[row], ready));
  start = later(start, room - (p->calibrates ? p->lead_ns : l->unexplained_lead_ns)[row]);
  if (kind >= FIRST_KERNEL && start > p->front[first]) p->front[first] = start;
  return start;
}

/* When an operation is ready: launched, and what it comes after is done. */
static inline int64_t ready_at(const links_t *l, const costs_t *c, const pass_t *p, int32_t row) {
  int32_t node = l->launch[row], before = l->before[row];
  int64_t ready = NEVER;
  if (node < 0 && before < 0) return l->start_ns[row];
  if (node >= 0)
    ready = (l->from_call_end[row] ? p->call_end[node] : p->call_start[node]) + c->launch_latency_ns[row];
  if (before >= 0) ready = later(ready, p->end[before] + c->switch_ns[row]);
  for (int32_t edge = l->after_at[row]; edge < l->after_at[row + 1]; edge++)
    ready = later(ready, p->end[l->after_what[edge]] + c->switch_ns[row]);
  return ready;
}

static inline void run_operation(const links_t *l, const costs_t *c, const pass_t *p, int32_t row) {
  int32_t node = l->launch[row], before = l->before[row], lane = l->lane[row];
  int64_t ready = ready_at(l, c, p, row), start = ready, delay = 0;
  if (node >= 0 || before >= 0) {
    start = lane >= 0 ? find_room(l, p, row, ready) : ready;
    if (p->calibrates) p->delay_ns[row] = l->start_ns[row] - start;
    delay = (p->calibrates ? p->delay_ns : c->unexplained_delay_ns)[row];
    start += delay;
  }
  p->start[row] = start;
  p->end[row] = start + c->duration_ns[row];
  if (!p->keeps_turns) return;
  /* Its turn comes when it is ready and what nothing explains has passed; never before what it follows. */
  int64_t due = ready + delay < start ? ready + delay : start;
  if (node >= 0) due = later(due, p->call_start[node]);
  if (before >= 0) due = later(due, p->start[before]);
  p->turn[row] = due;
  if (lane < 0) return;
  p->lane_end[lane] = p->end[row];
  p->block_end[lane / BLOCK] = later(p->block_end[lane / BLOCK], p->end[row]);
  p->lane_kind[lane] = l->kind[row];
}

static inline void happen(const links_t *l, const costs_t *c, const pass_t *p, int32_t event) {
  if (event < 0)
    run_operation(l, c, p, ~event);
  else if (event & 1)
    end_node(l, c, p, event >> 1);
  else
    begin_node(l, c, p, event >> 1);
}

/* Take pieces from the intervals before their nodes. */
EXPORT int64_t boundby_shorten(int64_t *left, int64_t nodes, const int32_t *node, const int64_t *ns, const uint8_t *mine,
                               int64_t pieces) {
  for (int64_t piece = 0; piece < pieces; piece++) {
    if (!mine[piece]) continue;
    if (node[piece] < 0 || node[piece] >= nodes) return -1;
    left[node[piece]] -= ns[piece];
  }
  return pieces;
}

EXPORT void boundby_forward(const links_t *l, const costs_t *c, const pass_t *p) {
  for (int64_t index = 0; index < p->events; index++) happen(l, c, p, p->order[index]);
}

typedef struct { /* Slots */
  int32_t *node_last, *row_last, *spare, *node, *row;
} slots_t;

/* An event needs something: when for the last time is found out first; then its slot is free. 0: it is not there yet. */
static inline int need(int32_t *last, const int32_t *slot, int32_t which, int64_t now, int is_first, int32_t *spare,
                       int64_t *free) {
  if (which < 0) return 1;
  if (is_first) {
    last[which] = (int32_t)now;
    return 1;
  }
  if (slot[which] < 0) return 0;
  if (last[which] != now) return 1;
  last[which] = -1;
  spare[(*free)++] = slot[which];
  return 1;
}

/* A slot for the times of each node and operation, from its event to the last one that needs them. How many slots that
   takes; -1 where an event needs what happens only after it in the order, or does not happen once. Slots: all -1. */
EXPORT int64_t boundby_slots(const links_t *l, const int32_t *order, int64_t events, int64_t nodes, int64_t rows,
                             const slots_t *s) {
  int64_t free = 0, used = 0, made = 0;
#define NEED_NODE(which) need(s->node_last, s->node, which, now, is_first, s->spare, &free)
#define NEED_ROW(which) need(s->row_last, s->row, which, now, is_first, s->spare, &free)
  for (int is_first = 1; is_first >= 0; is_first--)
    for (int64_t now = 0; now < events; now++) {
      int32_t event = order[now], at = event < 0 ? ~event : event >> 1;
      int is_there = 1;
      if (!is_first && (event < 0 || !(event & 1))) {
        int32_t *slot = (event < 0 ? s->row : s->node) + at;
        if (*slot >= 0) return -1;
        *slot = free ? s->spare[--free] : (int32_t)used++;
        made++;
      }
      if (event < 0) {
        is_there &= NEED_NODE(l->launch[at]) & NEED_ROW(l->before[at]);
        for (int32_t edge = l->after_at[at]; edge < l->after_at[at + 1]; edge++) is_there &= NEED_ROW(l->after_what[edge]);
        NEED_ROW(at);
      } else {
        if (event & 1)
          for (int32_t edge = l->wait_at[at]; edge < l->wait_at[at + 1]; edge++) {
            int32_t row = l->wait_for[edge];
            is_there &= NEED_NODE(l->launch[row]) & NEED_ROW(row);
          }
        else
          is_there &= NEED_NODE(l->follows[at]) & NEED_ROW(l->queue_slot[at]);
        is_there &= NEED_NODE(at);
      }
      if (!is_there) return -1;
    }
  return made == nodes + rows ? used : -1;
}

enum { AT_ONCE = 8 };
/* Two passes, of which processors add both at once; all of them (``k``: which two), written out, so that what is worked
   out stays in registers. */
typedef double pair_t __attribute__((vector_size(16), aligned(8), may_alias));
#define EACH(...) { { enum { k = 0 }; __VA_ARGS__; } { enum { k = 1 }; __VA_ARGS__; } \
  { enum { k = 2 }; __VA_ARGS__; } { enum { k = 3 }; __VA_ARGS__; } }
#define EVERY for (int n = 0; n < AT_ONCE; n++)
typedef pair_t all_t[AT_ONCE / 2];

#ifdef __SSE2__
#define latest __builtin_ia32_maxpd
#define earliest __builtin_ia32_minpd
#else
static inline pair_t latest(pair_t a, pair_t b) {
  return (pair_t){a[0] > b[0] ? a[0] : b[0], a[1] > b[1] ? a[1] : b[1]};
}
static inline pair_t earliest(pair_t a, pair_t b) { return -latest(-a, -b); }
#endif

enum { INTERVAL, CALL, WAIT_LAG, LATENCY, SWITCH, DELAY, DURATION, COSTS };
#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef struct { /* Many */
  const int32_t *order;
  int64_t events, origin;
  const int64_t *costs; /* of each cost: where the columns of cost_t are */
  const uint8_t *waits;
  int64_t unlimited;
  int64_t pieces;
  const int32_t *piece_at, *piece;
  const int64_t *piece_ns;
  const uint8_t *piece_passes;
  const int32_t *node_slot, *row_slot;
  all_t *times, *clock;
  uint8_t *begun;
  int64_t *lane_end;
  int32_t *lane_kind;
  int64_t *block_end, *front;
  int64_t lanes;
  const int32_t *window;
  all_t *first, *last, *kept;
} many_t;

typedef struct { /* what was measured; what is left of it in some passes (0: nothing), and in which (bits; 0: none) */
  const int64_t *measured, *left;
  const uint8_t *passes;
} cost_t;

typedef struct {
  cost_t cost[COSTS];
  all_t is_in[256]; /* of eight passes as bits: 1 for each that is among them */
} shared_t;

/* A time and a cost, in each pass. */
ALWAYS_INLINE void add(const shared_t *s, const cost_t *c, int64_t at, const pair_t *from, pair_t *to) {
  double measured = (double)c->measured[at], less = 0;
  uint8_t passes = c->passes ? c->passes[at] : 0;
  if (!passes) {
    EACH(to[k] = from[k] + measured)
    return;
  }
  less = measured - (c->left ? (double)c->left[at] : 0);
  const pair_t *is_in = s->is_in[passes];
  EACH(to[k] = from[k] + (measured - less * is_in[k]))
}

/* As begin_node, end_node and run_operation, of all passes; ``mine``: their starts, then their ends. */
ALWAYS_INLINE void begin_nodes(const links_t *l, const shared_t *s, const many_t *m, int32_t node, all_t *mine) {
  int32_t chain = l->chain[node], waker = l->follows[node], slot = l->queue_slot[node];
  pair_t *clock = m->clock[chain];
  all_t now, end;
  if (m->begun[chain]) {
    add(s, &s->cost[INTERVAL], node, clock, now);
    for (int32_t at = m->pieces ? m->piece_at[node] : 0; m->pieces && at < m->piece_at[node + 1]; at++) {
      int32_t piece = m->piece[at];
      if (!m->piece_passes[piece]) continue;
      const pair_t *is_in = s->is_in[m->piece_passes[piece]];
      double ns = (double)m->piece_ns[piece];
      EACH(now[k] -= ns * is_in[k])
    }
  } else {
    double begin = waker >= 0 ? (double)NEVER : (double)(l->node_begin_ns[node] - m->origin);
    EACH(now[k] = (pair_t){begin, begin})
  }
  m->begun[chain] = 1;
  if (waker >= 0) {
    const pair_t *woken = m->times[2 * (int64_t)m->node_slot[waker] + 1];
    double lag_ns = (double)l->follow_lag_ns[node];
    EACH(now[k] = latest(now[k], woken[k] + lag_ns))
  }
  if (slot >= 0) {
    const pair_t *room = m->times[2 * (int64_t)m->row_slot[slot] + 1];
    double lag_ns = (double)l->queue_slot_lag_ns[node];
    if (m->unlimited)
      EACH(now[k] = latest(now[k], room[k] + lag_ns + s->is_in[m->unlimited][k] * (double)NEVER))
    else
      EACH(now[k] = latest(now[k], room[k] + lag_ns))
  }
  add(s, &s->cost[CALL], node, now, end);
  EACH(mine[0][k] = now[k])
  EACH(mine[1][k] = clock[k] = end[k])
}

ALWAYS_INLINE void end_nodes(const links_t *l, const shared_t *s, const many_t *m, int32_t node, all_t *mine) {
  if (!m->waits[node]) return;
  int32_t chain = l->chain[node];
  const pair_t *waits = s->is_in[m->waits[node]];
  pair_t *clock = m->clock[chain];
  all_t done, own;
  EACH(done[k] = own[k] = mine[1][k])
  for (int32_t edge = l->wait_at[node]; edge < l->wait_at[node + 1]; edge++) {
    int32_t row = l->wait_for[edge], other = l->launch[row];
    all_t then;
    add(s, &s->cost[WAIT_LAG], node, m->times[2 * (int64_t)m->row_slot[row] + !l->waits_for_start[node]], then);
    if (other >= 0 && l->chain[other] != chain) {
      const double *launched = (double *)m->times[2 * (int64_t)m->node_slot[other]], *begun = (double *)mine[0];
      EVERY if (launched[n] > begun[n]) ((double *)then)[n] = (double)NEVER;
    }
    EACH(done[k] = latest(done[k], then[k]))
  }
  EACH(done[k] = own[k] + (done[k] - own[k]) * waits[k])
  EACH(mine[1][k] = done[k])
  EACH(clock[k] = latest(clock[k], done[k] + (1 - waits[k]) * (double)NEVER))
}

ALWAYS_INLINE void run_operations(const links_t *l, const shared_t *s, const many_t *m, const pass_t *p, int32_t row,
                                  all_t *mine) {
  int32_t node = l->launch[row], before = l->before[row], lane = l->lane[row], window = m->window[row];
  all_t now, end;
  if (node < 0 && before < 0) {
    double start = (double)(l->start_ns[row] - m->origin);
    EACH(now[k] = (pair_t){start, start})
  } else {
    EACH(now[k] = (pair_t){(double)NEVER, (double)NEVER})
    if (node >= 0)
      add(s, &s->cost[LATENCY], row, m->times[2 * (int64_t)m->node_slot[node] + l->from_call_end[row]], now);
    for (int32_t edge = l->after_at[row] - 1; edge < l->after_at[row + 1]; edge++) {
      int32_t other = edge < l->after_at[row] ? before : l->after_what[edge];
      if (other < 0) continue;
      all_t then;
      add(s, &s->cost[SWITCH], row, m->times[2 * (int64_t)m->row_slot[other] + 1], then);
      EACH(now[k] = latest(now[k], then[k]))
    }
    if (lane >= 0) EVERY ((double *)now)[n] = (double)find_room(l, p + n, row, (int64_t)((double *)now)[n]);
    if (s->cost[DELAY].measured[row] || s->cost[DELAY].passes) add(s, &s->cost[DELAY], row, now, now);
  }
  add(s, &s->cost[DURATION], row, now, end);
  EACH(mine[0][k] = now[k])
  EACH(mine[1][k] = end[k])
  if (lane >= 0) EVERY {
    int64_t ns = (int64_t)((double *)end)[n];
    p[n].lane_end[lane] = ns;
    p[n].block_end[lane / BLOCK] = later(p[n].block_end[lane / BLOCK], ns);
    p[n].lane_kind[lane] = l->kind[row];
  }
  if (window >= 0) {
    pair_t *first = m->first[window], *last = m->last[window];
    EACH(first[k] = earliest(first[k], now[k]))
    EACH(last[k] = latest(last[k], end[k]))
  } else if (window < -1) {
    all_t *kept = m->kept + 2 * (-2 - (int64_t)window);
    EACH(kept[0][k] = now[k]; kept[1][k] = end[k])
  }
}

/* The same as boundby_forward for AT_ONCE costs at once, of which only each window's begin and end is left. Times are
   whole numbers, counted from ``origin``, all of them so small that a double holds them: eight are added at once. */
EXPORT void boundby_forward_many(const links_t *l, const many_t *m) {
  shared_t s;
  pass_t p[AT_ONCE];
  for (int cost = 0; cost < COSTS; cost++)
    s.cost[cost] = (cost_t){.measured = (const int64_t *)(intptr_t)m->costs[3 * cost],
                           .left = (const int64_t *)(intptr_t)m->costs[3 * cost + 1],
                           .passes = (const uint8_t *)(intptr_t)m->costs[3 * cost + 2]};
  for (int bits = 0; bits < 256; bits++) EVERY ((double *)s.is_in[bits])[n] = bits >> n & 1;
  EVERY p[n] = (pass_t){.lane_end = m->lane_end + n * m->lanes,
                        .lane_kind = m->lane_kind + n * m->lanes,
                        .block_end = m->block_end + n * m->lanes,
                        .front = m->front + n * m->lanes};
  for (int64_t index = 0; index < m->events; index++) {
    int32_t event = m->order[index], at = event < 0 ? ~event : event >> 1;
    all_t *mine = m->times + 2 * (int64_t)(event < 0 ? m->row_slot : m->node_slot)[at];
    if (event < 0)
      run_operations(l, &s, m, p, at, mine);
    else if (event & 1)
      end_nodes(l, &s, m, at, mine);
    else
      begin_nodes(l, &s, m, at, mine);
  }
}

typedef struct { /* Turns */
  const int32_t *next_at, *next;
  int32_t *pending;
  int64_t *key;
  int32_t *heap;
} turns_t;

/* Whether nothing hangs on an edge between two events with these costs. */
static inline int is_void(const costs_t *c, int32_t event, int32_t following) {
  if (event >= 0 || following < 0) return 0;
  return following & 1 ? !c->waits[following >> 1] : !c->has_queue_limit;
}

static inline int comes_first(const int64_t *key, int32_t one, int32_t other) {
  return key[one] < key[other] || (key[one] == key[other] && one < other);
}

static inline void enter(const links_t *l, const costs_t *c, const pass_t *p, const turns_t *t, int64_t size,
                         int32_t place) {
  int32_t event = p->order[place];
  if (event >= 0)
    t->key[place] = event & 1 ? ends_at(l, c, p, event >> 1) : begins_at(l, c, p, event >> 1);
  else {
    int32_t row = ~event, node = l->launch[row], before = l->before[row];
    int64_t due = ready_at(l, c, p, row);
    if (node >= 0 || before >= 0) due += c->unexplained_delay_ns[row];
    if (node >= 0) due = later(due, p->call_start[node]);
    if (before >= 0) due = later(due, p->start[before]);
    t->key[place] = due;
  }
  while (size > 0) {
    int64_t parent = (size - 1) / 2;
    if (comes_first(t->key, t->heap[parent], place)) break;
    t->heap[size] = t->heap[parent];
    size = parent;
  }
  t->heap[size] = place;
}

static inline int32_t leave(const turns_t *t, int64_t size) {
  int32_t first = t->heap[0], last = t->heap[size - 1];
  int64_t hole = 0;
  for (int64_t child = 1; child < size - 1; child = 2 * hole + 1) {
    if (child + 1 < size - 1 && comes_first(t->key, t->heap[child + 1], t->heap[child])) child++;
    if (comes_first(t->key, last, t->heap[child])) break;
    t->heap[hole] = t->heap[child];
    hole = child;
  }
  t->heap[hole] = last;
  return first;
}

/* The same, each event in its turn: what it comes after has happened, and nothing else can happen before it. */
EXPORT void boundby_in_turns(const links_t *l, const costs_t *c, const pass_t *p, const turns_t *t) {
  int64_t size = 0;
  for (int64_t place = 0; place < p->events; place++)
    for (int32_t edge = t->next_at[place]; edge < t->next_at[place + 1]; edge++)
      if (!is_void(c, p->order[place], p->order[t->next[edge]])) t->pending[t->next[edge]]++;
  for (int64_t place = 0; place < p->events; place++)
    if (t->pending[place] == 0) enter(l, c, p, t, size++, (int32_t)place);
  while (size) {
    int32_t place = leave(t, size--);
    happen(l, c, p, p->order[place]);
    for (int32_t edge = t->next_at[place]; edge < t->next_at[place + 1]; edge++)
      if (!is_void(c, p->order[place], p->order[t->next[edge]]) && --t->pending[t->next[edge]] == 0)
        enter(l, c, p, t, size++, t->next[edge]);
  }
}

typedef struct { /* Late */
  const int64_t *call_start, *call_end, *turn;
  uint8_t *is_late;
  int64_t nodes;
} late_t;

/* Which waits are for operations that have their turn only after the wait is over, though launched before. */
EXPORT void boundby_find_late(const links_t *l, const costs_t *c, const late_t *f) {
  for (int64_t node = 0; node < f->nodes; node++) {
    int64_t end = f->call_end[node];
    if (c->waits[node])
      for (int32_t edge = l->wait_at[node]; edge < l->wait_at[node + 1]; edge++) {
        int32_t row = l->wait_for[edge], launch = l->launch[row];
        f->is_late[edge] = f->turn[row] >= end && (launch < 0 || f->call_start[launch] < end);
      }
  }
}

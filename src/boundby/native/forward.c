/* The forward pass of the replay: when would everything have happened, with these costs?

   tests/native/twins.py says the same in Python, line by line, and judges it. Every index was checked in forward.py:
   nothing is checked here. */

#include "native.h"
#ifdef __x86_64__
#include <cpuid.h>
#endif

static const int64_t NEVER = -((int64_t)1 << 62);
enum { FIRST_KERNEL = 3, BLOCK = 32 };

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* A node begins: after the one before it on its chain, its waker, and room in its stream's queue. */
static inline int64_t begins_at(const Links *l, const Costs *c, const Pass *p, int32_t node) {
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

static inline void begin_node(const Links *l, const Costs *c, const Pass *p, int32_t node) {
  int32_t chain = l->chain[node];
  int64_t now = begins_at(l, c, p, node);
  p->begun[chain] = 1;
  if (p->calibrates) {
    int64_t delay = l->node_begin_ns[node] - now;
    p->interval_ns[node] += delay;
    if (l->follows[node] >= 0) p->follow_lag_ns[node] += delay;
    if (l->queue_slot[node] >= 0) p->queue_slot_lag_ns[node] += delay;
    now = l->node_begin_ns[node];
  }
  p->call_start[node] = now;
  p->call_end[node] = p->clock[chain] = now + c->call_ns[node];
}

/* A node that waits ends: not before the operations it waits for. */
static inline int64_t ends_at(const Links *l, const Costs *c, const Pass *p, int32_t node) {
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

static inline void end_node(const Links *l, const Costs *c, const Pass *p, int32_t node, int64_t done) {
  if (!c->waits[node]) return;
  int32_t chain = l->chain[node];
  if (p->calibrates) {
    p->call_ns[node] += l->node_end_ns[node] - done;
    p->wait_lag_ns[node] += l->node_end_ns[node] - done;
    done = l->node_end_ns[node];
  }
  p->call_end[node] = done;
  p->clock[chain] = later(p->clock[chain], done);
}

/* When an operation that is ready at a time finds room on its device among the operations of other lanes. */
static inline int64_t find_room(const Links *l, const Pass *p, int32_t row, int64_t ready) {
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
static inline int64_t ready_at(const Links *l, const Costs *c, const Pass *p, int32_t row) {
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

static inline void run_operation(const Links *l, const Costs *c, const Pass *p, int32_t row) {
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

static inline void happen(const Links *l, const Costs *c, const Pass *p, int32_t event) {
  if (event < 0)
    run_operation(l, c, p, ~event);
  else if (event & 1)
    end_node(l, c, p, event >> 1, ends_at(l, c, p, event >> 1));
  else
    begin_node(l, c, p, event >> 1);
}

/* Take pieces from the intervals before their nodes. */
EXPORT int64_t boundby_shorten(int64_t *left, int64_t nodes, const int32_t *at, const int32_t *ns, const uint8_t *mine) {
  for (int64_t node = 0; node < nodes; node++)
    for (int32_t piece = at[node]; piece < at[node + 1]; piece++)
      if (mine[piece]) left[node] -= ns[piece];
  return nodes;
}

EXPORT int64_t boundby_forward(const Links *l, const Costs *c, const Pass *p) {
  for (int64_t index = 0; index < p->events; index++) happen(l, c, p, p->order[index]);
  return 0;
}

/* Something is needed: who needs it last takes a slot for it (-2 - slot, until it is made). 0: it is made only later. */
static inline int need(int32_t *slot, int32_t *spare, int64_t *free, int64_t *used) {
  if (*slot == -1) *slot = -2 - (*free ? spare[--*free] : (int32_t)(*used)++);
  return *slot < 0;
}

/* A slot for the times of each node and operation, from its event to the last one that needs them, looked for from the
   last event on. How many slots that takes; -1 where an event needs what happens only after it in the order, or does not
   happen once. Slots: -1; of the first ``used`` those whose times are asked for in the end, -2 - slot. */
EXPORT int64_t boundby_slots(const Links *l, const int32_t *order, int64_t events, int64_t nodes, int64_t rows,
                             const Slots *s, int64_t used) {
  int64_t free = 0, made = 0;
#define NEED(column, which) ((which) < 0 || need((column) + (which), s->spare, &free, &used))
#define NEED_NODE(which) NEED(s->node, which)
#define NEED_ROW(which) NEED(s->row, which)
  for (int64_t now = events - 1; now >= 0; now--) {
    int32_t event = order[now], at = event < 0 ? ~event : event >> 1, *slot = (event < 0 ? s->row : s->node) + at;
    int is_there = NEED(slot, 0);
    if (is_there && (event < 0 || !(event & 1))) {
      *slot = -2 - *slot;
      s->spare[free++] = *slot;
      made++;
    }
    if (event < 0) {
      is_there &= NEED_NODE(l->launch[at]) & NEED_ROW(l->before[at]);
      for (int32_t edge = l->after_at[at]; edge < l->after_at[at + 1]; edge++) is_there &= NEED_ROW(l->after_what[edge]);
    } else if (event & 1)
      for (int32_t edge = l->wait_at[at]; edge < l->wait_at[at + 1]; edge++) {
        int32_t row = l->wait_for[edge];
        is_there &= NEED_NODE(l->launch[row]) & NEED_ROW(row);
      }
    else
      is_there &= NEED_NODE(l->follows[at]) & NEED_ROW(l->queue_slot[at]);
    if (!is_there) return -1;
  }
  return made == nodes + rows ? used : -1;
}

enum { INTERVAL, CALL, WAIT_LAG, LATENCY, SWITCH, DELAY, DURATION, WAITS, PIECES, COLUMNS };
#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef struct { /* what was measured; what is left of it in some passes (0: nothing), and in which (bits; 0: none) */
  const int64_t *measured, *left;
  const uint8_t *passes[2]; /* the first eight and the rest */
} column_t;

/* Several passes at once, in as many registers as they take (many.h): two passes, eight, and eight or sixteen where
   registers hold four numbers. */
#define AT_ONCE 2
#define WIDTH 2
#define OWN(name) name##_two
#define TARGET
#include "many.h"
#define AT_ONCE 8
#define WIDTH 2
#define OWN(name) name##_eight
#define TARGET
#include "many.h"
#ifdef __x86_64__
#define AT_ONCE 8
#define WIDTH 4
#define OWN(name) name##_wide
#define TARGET __attribute__((target("avx2")))
#include "many.h"
#define AT_ONCE 16
#define WIDTH 4
#define OWN(name) name##_widest
#define TARGET __attribute__((target("avx2")))
#include "many.h"
#endif

/* Whether the processor's registers hold four numbers (AVX2), and the system keeps them: __builtin_cpu_supports says no
   where zig has built the library. */
EXPORT int64_t boundby_is_wide(void) {
#ifdef __x86_64__
  uint32_t a, b, c, d, kept;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
  return (kept & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_AVX2;
#else
  return 0;
#endif
}

/* The same as boundby_forward for several costs at once, of which only each window's begin and end is left. Times are
   whole numbers, counted from ``origin``, all of them so small that a double holds them. */
EXPORT int64_t boundby_forward_many(const Links *l, const Many *m) {
  if (m->at_once == 2)
    forward_two(l, m);
#ifdef __x86_64__
  else if (m->at_once == 16)
    forward_widest(l, m);
  else if (m->is_wide)
    forward_wide(l, m);
#endif
  else
    forward_eight(l, m);
  return 0;
}

/* Whether nothing hangs on an edge between two events with these costs. */
static inline int is_void(const Costs *c, int32_t event, int32_t following) {
  if (event >= 0 || following < 0) return 0;
  return following & 1 ? !c->waits[following >> 1] : !c->has_queue_limit;
}

/* How many events one comes after with these costs. */
static inline int32_t comes_after(const Costs *c, const Pass *p, const Turns *t, int64_t place) {
  return (is_void(c, ~0, p->order[place]) ? t->after_nodes : t->after)[place];
}

static inline int comes_first(const int64_t *key, int32_t one, int32_t other) {
  return key[one] < key[other] || (key[one] == key[other] && one < other);
}

static inline void enter(const Links *l, const Costs *c, const Pass *p, const Turns *t, int64_t size,
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

static inline int32_t leave(const Turns *t, int64_t size) {
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
EXPORT int64_t boundby_in_turns(const Links *l, const Costs *c, const Pass *p, const Turns *t) {
  int64_t size = 0;
  for (int64_t place = 0; place < p->events; place++) t->pending[place] = comes_after(c, p, t, place);
  for (int64_t place = 0; place < p->events; place++)
    if (t->pending[place] == 0) enter(l, c, p, t, size++, (int32_t)place);
  while (size) {
    int32_t place = leave(t, size--), event = p->order[place];
    if (t->is_whole && event >= 0 && event & 1)
      end_node(l, c, p, event >> 1, t->key[place]); /* looked for when it entered, and the same still */
    else
      happen(l, c, p, event);
    for (int32_t edge = t->next_at[place]; edge < t->next_at[place + 1]; edge++)
      if (!is_void(c, event, p->order[t->next[edge]]) && --t->pending[t->next[edge]] == 0)
        enter(l, c, p, t, size++, t->next[edge]);
  }
  return 0;
}

/* Which waits are for operations that have their turn only after the wait is over, though launched before. */
EXPORT int64_t boundby_find_late(const Links *l, const Costs *c, const Late *f) {
  for (int64_t node = 0; node < f->nodes; node++) {
    int64_t end = f->call_end[node];
    if (c->waits[node])
      for (int32_t edge = l->wait_at[node]; edge < l->wait_at[node + 1]; edge++) {
        int32_t row = l->wait_for[edge], launch = l->launch[row];
        f->is_late[edge] = f->turn[row] >= end && (launch < 0 || f->call_start[launch] < end);
      }
  }
  return 0;
}

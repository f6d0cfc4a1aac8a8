/* AT_ONCE passes at once, for forward.c, which includes this for each AT_ONCE, WIDTH (how many numbers a register holds),
   OWN (names) and TARGET (of which processors). All registers (``k``: which) are written out, so that what is worked
   out stays in them. */

#define vector_t OWN(vector)
#define all_t OWN(all)
#define shared_t OWN(shared)
#define latest OWN(latest)
#define earliest OWN(earliest)
#define HERE ALWAYS_INLINE TARGET

typedef double vector_t __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
typedef vector_t all_t[AT_ONCE / WIDTH];
#define ONE(which, ...) { enum { k = which }; __VA_ARGS__; }
#if AT_ONCE == WIDTH
#define EACH(...) { ONE(0, __VA_ARGS__) }
#elif AT_ONCE == 2 * WIDTH
#define EACH(...) { ONE(0, __VA_ARGS__) ONE(1, __VA_ARGS__) }
#else
#define EACH(...) { ONE(0, __VA_ARGS__) ONE(1, __VA_ARGS__) ONE(2, __VA_ARGS__) ONE(3, __VA_ARGS__) }
#endif
#define EVERY for (int n = 0; n < AT_ONCE; n++)

#if WIDTH == 4
HERE vector_t latest(vector_t a, vector_t b) { return __builtin_ia32_maxpd256(a, b); }
HERE vector_t earliest(vector_t a, vector_t b) { return __builtin_ia32_minpd256(a, b); }
#elif defined(__SSE2__)
HERE vector_t latest(vector_t a, vector_t b) { return __builtin_ia32_maxpd(a, b); }
HERE vector_t earliest(vector_t a, vector_t b) { return __builtin_ia32_minpd(a, b); }
#else
HERE vector_t latest(vector_t a, vector_t b) { return (vector_t){a[0] > b[0] ? a[0] : b[0], a[1] > b[1] ? a[1] : b[1]}; }
HERE vector_t earliest(vector_t a, vector_t b) { return -latest(-a, -b); }
#endif

typedef struct {
  column_t column[COLUMNS];
  vector_t is_in[1 << WIDTH]; /* of the passes of a register as bits: 1 for each that is among them */
} shared_t;

static const vector_t OWN(nothing) = {0};

#define IS_IN(passes) s->is_in[(passes) >> WIDTH * k & ((1 << WIDTH) - 1)]

/* In which passes there is less of a column, as bits. */
HERE uint32_t OWN(passes)(const column_t *c, int64_t at) {
  uint32_t passes = c->passes[0] ? c->passes[0][at] : 0;
  return AT_ONCE > 8 && c->passes[1] ? passes | (uint32_t)c->passes[1][at] << 8 : passes;
}

/* Times of a slot. */
HERE vector_t *OWN(at)(double *times, int64_t which) { return (vector_t *)(times + AT_ONCE * which); }

/* A cost, in each pass. */
HERE void OWN(cost)(const shared_t *s, int which, int64_t at, vector_t *to) {
  const column_t *c = &s->column[which];
  double measured = (double)c->measured[at];
  uint32_t passes = OWN(passes)(c, at);
  if (!passes) {
    EACH(to[k] = OWN(nothing) + measured)
    return;
  }
  double less = measured - (c->left ? (double)c->left[at] : 0);
  EACH(to[k] = measured - less * IS_IN(passes))
}

/* A time and a cost. */
HERE void OWN(add)(const shared_t *s, int which, int64_t at, const vector_t *from, vector_t *to) {
  all_t cost;
  OWN(cost)(s, which, at, cost);
  EACH(to[k] = from[k] + cost[k])
}

/* As begin_node, end_node and run_operation, of all passes; ``mine``: their starts, then their ends. */
HERE void OWN(begin)(const Links *l, const shared_t *s, const Many *m, int32_t node, vector_t *mine) {
  int32_t chain = l->chain[node], waker = l->follows[node], slot = l->queue_slot[node];
  vector_t *clock = OWN(at)(m->clock, chain);
  all_t now, cost;
  if (m->begun[chain]) {
    OWN(cost)(s, INTERVAL, node, cost);
    for (int32_t at = m->pieces ? m->piece_at[node] : 0; m->pieces && at < m->piece_at[node + 1]; at++) {
      double ns = (double)((const int32_t *)s->column[PIECES].measured)[at];
      uint32_t passes = OWN(passes)(&s->column[PIECES], at);
      EACH(cost[k] -= ns * IS_IN(passes))
    }
    EACH(now[k] = clock[k] + cost[k])
  } else {
    double begin = waker >= 0 ? (double)NEVER : (double)(l->node_begin_ns[node] - m->origin);
    EACH(now[k] = OWN(nothing) + begin)
    m->begun[chain] = 1;
  }
  if (waker >= 0) {
    const vector_t *woken = OWN(at)(m->times, 2 * (int64_t)m->node_slot[waker] + 1);
    double lag_ns = (double)l->follow_lag_ns[node];
    EACH(now[k] = latest(now[k], woken[k] + lag_ns))
  }
  if (slot >= 0) {
    const vector_t *room = OWN(at)(m->times, 2 * (int64_t)m->row_slot[slot] + 1);
    double lag_ns = (double)l->queue_slot_lag_ns[node];
    if (m->unlimited)
      EACH(now[k] = latest(now[k], room[k] + lag_ns + IS_IN(m->unlimited) * (double)NEVER))
    else
      EACH(now[k] = latest(now[k], room[k] + lag_ns))
  }
  OWN(cost)(s, CALL, node, cost);
  EACH(mine[k] = now[k])
  mine += AT_ONCE / WIDTH;
  EACH(mine[k] = clock[k] = now[k] + cost[k])
}

HERE void OWN(end)(const Links *l, const shared_t *s, const Many *m, int32_t node, vector_t *mine) {
  uint32_t waits = OWN(passes)(&s->column[WAITS], node);
  if (!waits) return;
  int32_t chain = l->chain[node];
  const double *begun = (double *)mine;
  vector_t *clock = OWN(at)(m->clock, chain);
  all_t done, own;
  mine += AT_ONCE / WIDTH;
  EACH(done[k] = own[k] = mine[k])
  for (int32_t edge = l->wait_at[node]; edge < l->wait_at[node + 1]; edge++) {
    int32_t row = l->wait_for[edge], other = l->launch[row];
    all_t then;
    OWN(add)(s, WAIT_LAG, node, OWN(at)(m->times, 2 * (int64_t)m->row_slot[row] + !l->waits_for_start[node]), then);
    if (other >= 0 && l->chain[other] != chain) {
      const double *launched = (double *)OWN(at)(m->times, 2 * (int64_t)m->node_slot[other]);
      EVERY if (launched[n] > begun[n]) ((double *)then)[n] = (double)NEVER;
    }
    EACH(done[k] = latest(done[k], then[k]))
  }
  EACH(done[k] = own[k] + (done[k] - own[k]) * IS_IN(waits))
  EACH(mine[k] = done[k])
  EACH(clock[k] = latest(clock[k], done[k] + (1 - IS_IN(waits)) * (double)NEVER))
}

HERE void OWN(run)(const Links *l, const shared_t *s, const Many *m, const Pass *p, int32_t row, vector_t *mine) {
  int32_t node = l->launch[row], before = l->before[row], lane = l->lane[row], window = m->window[row];
  all_t now, end;
  if (node < 0 && before < 0) {
    double start = (double)(l->start_ns[row] - m->origin);
    EACH(now[k] = OWN(nothing) + start)
  } else {
    EACH(now[k] = OWN(nothing) + (double)NEVER)
    if (node >= 0)
      OWN(add)(s, LATENCY, row, OWN(at)(m->times, 2 * (int64_t)m->node_slot[node] + l->from_call_end[row]), now);
    all_t then;
    if (before >= 0) {
      OWN(add)(s, SWITCH, row, OWN(at)(m->times, 2 * (int64_t)m->row_slot[before] + 1), then);
      EACH(now[k] = latest(now[k], then[k]))
    }
    for (int32_t edge = l->after_at[row]; edge < l->after_at[row + 1]; edge++) {
      OWN(add)(s, SWITCH, row, OWN(at)(m->times, 2 * (int64_t)m->row_slot[l->after_what[edge]] + 1), then);
      EACH(now[k] = latest(now[k], then[k]))
    }
    if (lane >= 0) EVERY ((double *)now)[n] = (double)find_room(l, p + n, row, (int64_t)((double *)now)[n]);
    if (s->column[DELAY].measured[row] || OWN(passes)(&s->column[DELAY], row)) OWN(add)(s, DELAY, row, now, now);
  }
  OWN(add)(s, DURATION, row, now, end);
  EACH(mine[k] = now[k])
  mine += AT_ONCE / WIDTH;
  EACH(mine[k] = end[k])
  if (lane >= 0) EVERY {
    int64_t ns = (int64_t)((double *)end)[n];
    p[n].lane_end[lane] = ns;
    p[n].block_end[lane / BLOCK] = later(p[n].block_end[lane / BLOCK], ns);
    p[n].lane_kind[lane] = l->kind[row];
  }
  if (window >= 0) {
    vector_t *first = OWN(at)(m->first, window), *last = OWN(at)(m->last, window);
    EACH(first[k] = earliest(first[k], now[k]); last[k] = latest(last[k], end[k]))
  } else if (window < -1) {
    vector_t *begin = OWN(at)(m->kept, 2 * (-2 - (int64_t)window)), *finish = begin + AT_ONCE / WIDTH;
    EACH(begin[k] = now[k]; finish[k] = end[k])
  }
}

static TARGET void OWN(forward)(const Links *links, const Many *many) {
  const Links own_links = *links, *l = &own_links; /* nothing that is written is one of these: they need not be */
  const Many own_many = *many, *m = &own_many;     /* read again */
  shared_t s;
  Pass p[AT_ONCE];
  const int64_t *from = m->columns;
  for (int column = 0; column < COLUMNS; column++, from += 4)
    s.column[column] = (column_t){(const int64_t *)(intptr_t)from[0], (const int64_t *)(intptr_t)from[1],
                                  {(const uint8_t *)(intptr_t)from[2], (const uint8_t *)(intptr_t)from[3]}};
  for (int bits = 0; bits < 1 << WIDTH; bits++)
    for (int n = 0; n < WIDTH; n++) ((double *)&s.is_in[bits])[n] = bits >> n & 1;
  EVERY p[n] = (Pass){.lane_end = m->lane_end + n * m->lanes,
                        .lane_kind = m->lane_kind + n * m->lanes,
                        .block_end = m->block_end + n * m->lanes,
                        .front = m->front + n * m->lanes};
  for (int64_t index = 0; index < m->events; index++) {
    int32_t event = m->order[index], at = event < 0 ? ~event : event >> 1;
    vector_t *mine = OWN(at)(m->times, 2 * (int64_t)(event < 0 ? m->row_slot : m->node_slot)[at]);
    if (event < 0)
      OWN(run)(l, &s, m, p, at, mine);
    else if (event & 1)
      OWN(end)(l, &s, m, at, mine);
    else
      OWN(begin)(l, &s, m, at, mine);
  }
}

#undef vector_t
#undef all_t
#undef shared_t
#undef latest
#undef earliest
#undef HERE
#undef ONE
#undef EACH
#undef EVERY
#undef IS_IN
#undef AT_ONCE
#undef WIDTH
#undef OWN
#undef TARGET

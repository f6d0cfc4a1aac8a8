/* Rows of an SQLite table, straight from the leaf pages of its B-tree (https://www.sqlite.org/fileformat2.html).

   The bytes are anybody's: they are read through the cursor below alone, which never leaves the page. Whatever is not as
   SQLite itself writes it ends the reading with NOT_PLAIN: SQLite is asked then, which is also what judges this file. */

#include "native.h"

enum { NEXT_PAGE, ROWS, DEFERRED, TEXTS, HASHED, HAS_LAST, LAST_ROWID }; /* places in ``state`` */
enum { DONE, NOT_PLAIN, NO_ROOM, NO_TEXT_ROOM };
enum { NONE = -1, LEAF = 13, PAGE_HEADER = 8, MOST_OUTPUTS = 32 };
static const int64_t MISSING = INT64_MIN;

#define IS_LITTLE_ENDIAN (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

typedef struct {
  const uint8_t *at, *end;
} cursor_t;

/* One byte; past the end nothing moves and the answer is negative. */
static inline int byte_of(cursor_t *c) { return c->at < c->end ? *c->at++ : -1; }

/* SQLite's integer of one to nine bytes; 0 where the cursor ends in it. */
static inline int varint(cursor_t *c, uint64_t *value) {
  uint64_t found = 0;
  for (int place = 0; place < 9; place++) {
    int byte = byte_of(c);
    if (byte < 0) return 0;
    if (place == 8) {
      *value = found << 8 | (uint64_t)byte;
      return 1;
    }
    found = found << 7 | (uint64_t)(byte & 0x7f);
    if (byte < 0x80) break;
  }
  *value = found;
  return 1;
}

static inline uint64_t eight(const uint8_t *at) {
  uint64_t value;
  __builtin_memcpy(&value, at, 8); /* one instruction */
  return value;
}

/* The big-endian number of 1 to 8 bytes, all of which are there and lie before ``end``. */
static inline int64_t number(const uint8_t *at, int64_t size, const uint8_t *end) {
#if IS_LITTLE_ENDIAN
  if (end - at >= 8) return (int64_t)__builtin_bswap64(eight(at)) >> (64 - 8 * size);
#endif
  uint64_t value = at[0] & 0x80 ? ~(uint64_t)0 : 0;
  for (int64_t place = 0; place < size; place++) value = value << 8 | at[place];
  return (int64_t)value;
}

static inline int is_same(const uint8_t *a, const uint8_t *b, int64_t size) {
  int64_t place = 0;
  for (; place + 8 <= size; place += 8)
    if (eight(a + place) != eight(b + place)) return 0;
  for (; place < size; place++)
    if (a[place] != b[place]) return 0;
  return 1;
}

static inline int64_t first_slot(const uint8_t *text, int64_t size, int64_t mask) {
  uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)size;
  for (int64_t place = 0; place < size; place++) hash = (hash ^ text[place]) * 0x100000001b3u;
  return (int64_t)(hash ^ hash >> 32) & mask;
}

/* The slot of a text: the one that holds its number, or the empty one where that belongs. */
static int64_t slot_of(const Leaves *l, const uint8_t *text, int64_t size) {
  int64_t mask = l->slots_size - 1, slot = first_slot(text, size, mask);
  for (; l->slots[slot] != NONE; slot = (slot + 1) & mask) {
    int64_t other = l->slots[slot], begin = other ? l->text_end[other - 1] : 0;
    if (l->text_end[other] - begin == size && is_same(l->texts + begin, text, size)) break;
  }
  return slot;
}

/* The number of a text among the distinct ones, a new one where it is new; NONE: there is no room for it. */
static int64_t text_number(const Leaves *l, const uint8_t *text, int64_t size) {
  int64_t slot = slot_of(l, text, size), known = l->state[TEXTS], used = known ? l->text_end[known - 1] : 0;
  if (l->slots[slot] != NONE) return l->slots[slot];
  if (2 * (known + 1) > l->slots_size || size > l->texts_size - used) return NONE;
  for (int64_t place = 0; place < size; place++) l->texts[used + place] = text[place];
  l->text_end[known] = used + size;
  l->slots[slot] = (int32_t)known;
  l->state[TEXTS] = l->state[HASHED] = known + 1;
  return known;
}

typedef struct { /* where the wanted columns of a row are, worked out from its header; rows alike share it */
  const uint8_t *header; /* behind its size, which takes some of its bytes */
  int64_t header_size, types_size, payload_size;
  int64_t end; /* of the last wanted column in the payload */
  int64_t at[MOST_OUTPUTS], size[MOST_OUTPUTS];
  int64_t type[MOST_OUTPUTS];
  const uint8_t *body;                                   /* of the row that the rest was planned by; NULL: no plan */
  int64_t evens, even_at[MOST_OUTPUTS];                  /* outputs that are even: where their bytes are */
  uint64_t even_mask[MOST_OUTPUTS];
  int64_t others, other_at[MOST_OUTPUTS];                /* the others: their bytes, by how much to move them */
  int64_t shift[MOST_OUTPUTS], kept[MOST_OUTPUTS], fixed[MOST_OUTPUTS]; /* what to keep of them, what to add */
  int64_t *column[MOST_OUTPUTS];
} layout_t;

enum { ABSENT = 0, ZERO = 8, ONE = 9, REAL = 7, FIRST_TEXT = 12 };

static int64_t size_of(uint64_t type) {
  static const uint8_t sizes[FIRST_TEXT] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
  return type < FIRST_TEXT ? sizes[type] : (int64_t)((type - FIRST_TEXT) / 2);
}

/* Read a row's header, of which all bytes are there. */
static int read_layout(const Leaves *l, layout_t *y, cursor_t header, int64_t header_size, int64_t payload_size) {
  int64_t column = 0, at = header_size;
  y->header = header.at;
  y->body = 0;
  y->header_size = header_size;
  y->types_size = header.end - header.at;
  y->payload_size = payload_size;
  y->end = 0;
  for (; header.at < header.end; column++) {
    uint64_t type;
    if (!varint(&header, &type) || type == 10 || type == 11 || column >= l->columns) return 0;
    if (type > (uint64_t)1 << 40) return 0;
    int64_t output = l->output[column], size = size_of(type), length = size;
    if (output != NONE) {
      int is_text = column == l->text_column && type >= FIRST_TEXT;
      if (column == l->rowid_column) type = ABSENT, size = 0; /* what stands there means nothing */
      if (!is_text && ((type == REAL && !l->is_decimal[column]) || type >= FIRST_TEXT)) return 0;
      if (column == l->text_column && type != ABSENT && !is_text) return 0;
      y->at[output] = at, y->size[output] = size, y->type[output] = (int64_t)type;
      if (at + size > y->end) y->end = at + size;
    }
    at += length;
  }
  for (; column < l->columns; column++) { /* added after the row was written */
    int64_t output = l->output[column];
    if (output == NONE) continue;
    if (l->has_default[column]) return 0;
    y->at[output] = header_size, y->size[output] = 0, y->type[output] = ABSENT;
  }
  return at == payload_size;
}

/* How many bytes of a payload stand on the leaf page itself. */
static inline int64_t local_size(const Leaves *l, int64_t payload) {
  int64_t most = l->usable - 35, least = (l->usable - 12) * 32 / 255 - 23;
  if (payload <= most) return payload;
  int64_t local = least + (payload - least) % (l->usable - 4);
  return local <= most ? local : least;
}

/* A value of another row than the first that differs from all before, which are written now; 0: there is no room. */
static int write_even(const Leaves *l, int64_t output, int64_t rows) {
  int64_t *column = (int64_t *)(intptr_t)l->values[output];
  if (!column) return 0;
  for (int64_t row = 0; row < rows; row++) column[row] = l->first[output];
  l->is_even[output] = 0;
  return 1;
}

/* How to read rows with the same header as this one, of which all bytes are there and eight more. */
static void plan(const Leaves *l, layout_t *y, const uint8_t *body) {
  y->evens = y->others = 0;
  for (int64_t output = 0; output < l->outputs; output++) {
    int64_t type = y->type[output], is_number = type != ABSENT && type != ZERO && type != ONE;
    if (l->is_even[output] && is_number) {
      uint64_t mask = ~(uint64_t)0 >> (64 - 8 * y->size[output]);
      int64_t behind = y->evens ? y->at[output] - y->even_at[y->evens - 1] : -1; /* seen with the one before? */
      if (behind >= 0 && behind + y->size[output] <= 8) {
        y->even_mask[y->evens - 1] |= mask << 8 * behind;
      } else {
        y->even_at[y->evens] = y->at[output];
        y->even_mask[y->evens++] = mask;
      }
    } else if (!l->is_even[output]) {
      y->other_at[y->others] = is_number ? y->at[output] : 0;
      y->shift[y->others] = is_number ? 64 - 8 * y->size[output] : 0;
      y->kept[y->others] = is_number ? -1 : 0;
      y->fixed[y->others] = is_number || type == ZERO ? 0 : type == ONE ? 1 : MISSING;
      y->column[y->others++] = (int64_t *)(intptr_t)l->values[output];
    }
  }
  y->body = body;
}

/* Read a row by plan; 0 where an even output is so no longer, and nothing is read. */
static int read_planned(const layout_t *y, const uint8_t *body, int64_t row) {
  uint64_t differ = 0;
  for (int64_t even = 0; even < y->evens; even++)
    differ |= (eight(body + y->even_at[even]) ^ eight(y->body + y->even_at[even])) & y->even_mask[even];
  if (differ) return 0;
  for (int64_t other = 0; other < y->others; other++) {
    int64_t value = (int64_t)__builtin_bswap64(eight(body + y->other_at[other])) >> y->shift[other];
    y->column[other][row] = (value & y->kept[other]) | y->fixed[other];
  }
  return 1;
}

/* One row, its cell at the cursor. */
static int read_row(const Leaves *l, layout_t *y, cursor_t cell) {
  uint64_t payload, key, header_size;
  if (!varint(&cell, &payload) || !varint(&cell, &key) || payload > (uint64_t)1 << 40) return NOT_PLAIN;
  int64_t rowid = (int64_t)key, row = l->state[ROWS], local = local_size(l, (int64_t)payload);
  if (l->state[HAS_LAST] && rowid <= l->state[LAST_ROWID]) return NOT_PLAIN;
  if (local + ((int64_t)payload > local ? 4 : 0) > cell.end - cell.at) return NOT_PLAIN;
  const uint8_t *body = cell.at;
  cursor_t header = {body, body + local};
  if (!varint(&header, &header_size) || header_size > payload) return NOT_PLAIN;
  int is_deferred = (int64_t)header_size > local;
  if (!is_deferred) {
    header.end = body + header_size;
    int64_t size = header.end - header.at;
    if (size < 0) return NOT_PLAIN;
    if (y->header == 0 || y->header_size != (int64_t)header_size || y->types_size != size ||
        y->payload_size != (int64_t)payload || !is_same(y->header, header.at, size)) {
      if (!read_layout(l, y, header, (int64_t)header_size, (int64_t)payload)) return NOT_PLAIN;
    }
    is_deferred = y->end > local;
  }
  if (is_deferred) {
    l->deferred_row[l->state[DEFERRED]] = row;
    l->deferred_rowid[l->state[DEFERRED]++] = rowid;
  }
  int may_plan = IS_LITTLE_ENDIAN && !is_deferred && l->text_column == NONE && cell.end - body >= y->end + 8;
  int is_read = may_plan && y->body && read_planned(y, body, row);
  if (!is_read) y->body = 0;
  for (int64_t output = is_read ? l->outputs : 0; output < l->outputs; output++) {
    int64_t value = MISSING, type = is_deferred ? ABSENT : y->type[output];
    if (type >= FIRST_TEXT) {
      value = text_number(l, body + y->at[output], y->size[output]);
      if (value == NONE) return NO_TEXT_ROOM;
    } else if (type == ZERO || type == ONE)
      value = type == ONE;
    else if (type != ABSENT)
      value = number(body + y->at[output], y->size[output], cell.end);
    if (l->is_even[output]) {
      if (row == 0) l->first[output] = value;
      if (value == l->first[output] && !is_deferred) continue;
      if (!write_even(l, output, row)) return NO_ROOM;
    }
    ((int64_t *)(intptr_t)l->values[output])[row] = value;
  }
  if (l->rowid_column != NONE && l->output[l->rowid_column] != NONE)
    ((int64_t *)(intptr_t)l->values[l->output[l->rowid_column]])[row] = rowid;
  if (may_plan && !is_read) plan(l, y, body);
  l->state[ROWS] = row + 1;
  l->state[HAS_LAST] = 1;
  l->state[LAST_ROWID] = rowid;
  return DONE;
}

static int read_page(const Leaves *l, layout_t *y, const uint8_t *page) {
  int64_t cells = page[3] << 8 | page[4], first = PAGE_HEADER + 2 * cells;
  if (page[0] != LEAF || first > l->usable) return NOT_PLAIN;
  if (cells > l->capacity - l->state[ROWS] || cells > l->deferred_room - l->state[DEFERRED]) return NO_ROOM;
  for (int64_t cell = 0; cell < cells; cell++) {
    const uint8_t *pointer = page + PAGE_HEADER + 2 * cell;
    int64_t at = pointer[0] << 8 | pointer[1];
    if (at < first || at >= l->usable) return NOT_PLAIN;
    int found = read_row(l, y, (cursor_t){page + at, page + l->usable});
    if (found != DONE) return found;
  }
  return DONE;
}

/* Read pages from ``state`` on, until all are read or something ends it; pages are read whole or not at all. */
EXPORT int64_t boundby_leaves(const Leaves *l) {
  layout_t layout = {0};
  if (l->outputs > MOST_OUTPUTS) return NOT_PLAIN;
  for (; l->state[HASHED] < l->state[TEXTS]; l->state[HASHED]++) { /* the table is a new one, with more room */
    int64_t text = l->state[HASHED], begin = text ? l->text_end[text - 1] : 0;
    l->slots[slot_of(l, l->texts + begin, l->text_end[text] - begin)] = (int32_t)text;
  }
  while (l->state[NEXT_PAGE] < l->count) {
    int64_t rows = l->state[ROWS], deferred = l->state[DEFERRED];
    int64_t has_last = l->state[HAS_LAST], last = l->state[LAST_ROWID];
    int found = read_page(l, &layout, l->pages + l->state[NEXT_PAGE] * l->page_size);
    if (found != DONE) {
      l->state[ROWS] = rows, l->state[DEFERRED] = deferred;
      l->state[HAS_LAST] = has_last, l->state[LAST_ROWID] = last;
      return found;
    }
    l->state[NEXT_PAGE]++;
  }
  return DONE;
}

/* Of texts that lie one after the other, each beginning at its ``offset``: the number of each among the distinct ones, in
   order of first sight, and the row where each of those stood ``first``. Answers how many there are; NONE: more than half
   as many as there are slots, a power of two. */
EXPORT int64_t boundby_distinct_texts(const uint8_t *texts, const int32_t *offset, int64_t rows, int32_t *slots,
                                      int64_t slots_size, int32_t *number, int32_t *first) {
  int64_t known = 0, mask = slots_size - 1;
  for (int64_t row = 0; row < rows; row++) {
    const uint8_t *text = texts + offset[row];
    int64_t size = offset[row + 1] - offset[row], slot = first_slot(text, size, mask);
    for (; slots[slot] != NONE; slot = (slot + 1) & mask) {
      int64_t other = first[slots[slot]];
      if (offset[other + 1] - offset[other] == size && is_same(texts + offset[other], text, size)) break;
    }
    if (slots[slot] == NONE) {
      if (2 * (known + 1) > slots_size) return NONE;
      first[known] = (int32_t)row;
      slots[slot] = (int32_t)known++;
    }
    number[row] = slots[slot];
  }
  return known;
}

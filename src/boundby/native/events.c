/* The events of a Chrome trace in JSON, from a piece of its text into columns: see events.py. What is no JSON but is
   found in real traces passes: control characters and wrong backslashes in strings, NaN, commas too many. */

#include "native.h"

#define MISSING INT64_MIN
enum { START, TOP, EVENTS, LIST, DONE };
enum { NUMBER, TEXT, RAW, NOTHING };
enum { MORE = -1, BAD = -2, FULL = -3 };

typedef struct { int64_t at, end; int kind; } Value;

static uint64_t hash_of(const uint8_t *text, int64_t length) {
    uint64_t hash = 1469598103934665603u ^ (uint64_t)length;
    for (; length >= 8; text += 8, length -= 8) {
        uint64_t word = 0;
        for (int byte = 0; byte < 8; byte++) word |= (uint64_t)text[byte] << (8 * byte);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    for (; length > 0; text++, length--) hash = (hash ^ *text) * 1099511628211u;
    return hash ^ (hash >> 32);
}

static int same(const uint8_t *one, const uint8_t *other, int64_t length) {
    for (int64_t at = 0; at < length; at++)
        if (one[at] != other[at]) return 0;
    return 1;
}

static int64_t skip_space(const Piece *s, int64_t at) {
    while (at < s->length && (s->text[at] <= ' ' || s->text[at] == ',')) at++;
    return at;
}

/* Behind the quote that ends the string whose content begins at ``at``. */
static int64_t string_end(const Piece *s, int64_t at) {
    for (; at < s->length; at++) {
        if (s->text[at] == '"') return at + 1;
        if (s->text[at] == '\\') at++;
    }
    return MORE;
}

/* A value of any kind, and where it ends. A number's text must be followed by something to be known as whole. */
static int64_t read_value(const Piece *s, int64_t at, Value *value) {
    if (at >= s->length) return MORE;
    uint8_t first = s->text[at];
    if (first == '"') {
        int64_t end = string_end(s, at + 1);
        *value = (Value){at + 1, end - 1, TEXT};
        return end;
    }
    if (first == '{' || first == '[') {
        int64_t depth = 0, begin = at;
        while (at < s->length) {
            uint8_t letter = s->text[at++];
            if (letter == '"') {
                at = string_end(s, at);
                if (at < 0) return at;
            } else if (letter == '{' || letter == '[') {
                depth++;
            } else if ((letter == '}' || letter == ']') && --depth == 0) {
                *value = (Value){begin, at, RAW};
                return at;
            }
        }
        return MORE;
    }
    int64_t begin = at;
    while (at < s->length) {
        uint8_t letter = s->text[at];
        if (letter <= ' ' || letter == ',' || letter == '}' || letter == ']') break;
        if (letter == '"' || letter == ':' || letter == '{' || letter == '[') return BAD;
        at++;
    }
    if (at >= s->length) return MORE;
    if (at == begin) return BAD;
    int is_number = (first >= '0' && first <= '9') ||
                    (first == '-' && at > begin + 1 && s->text[begin + 1] >= '0' && s->text[begin + 1] <= '9');
    *value = (Value){begin, at, is_number ? NUMBER : NOTHING};
    return at;
}

/* A key, the colon behind it, and where its value begins. */
static int64_t read_key(const Piece *s, int64_t at, Value *key) {
    if (at >= s->length) return MORE;
    if (s->text[at] != '"') return BAD;
    int64_t end = string_end(s, at + 1);
    if (end < 0) return end;
    *key = (Value){at + 1, end - 1, TEXT};
    while (end < s->length && s->text[end] <= ' ') end++;
    if (end >= s->length) return MORE;
    if (s->text[end] != ':') return BAD;
    end++;
    while (end < s->length && s->text[end] <= ' ') end++;
    return end;
}

/* A number times ten to the ``shift``, to the nearest integer; MISSING where it is none or too large. */
static int64_t number(const Piece *s, Value value, int shift) {
    int64_t at = value.at, whole = 0, power = 0;
    int negative = at < value.end && s->text[at] == '-', behind_point = 0;
    at += negative;
    for (; at < value.end; at++) {
        uint8_t letter = s->text[at];
        if (letter >= '0' && letter <= '9') {
            if (whole <= 922337203685477579) {
                whole = whole * 10 + (letter - '0');
                power -= behind_point;
            } else {
                power += !behind_point;
            }
        } else if (letter == '.' && !behind_point) {
            behind_point = 1;
        } else if (letter == 'e' || letter == 'E') {
            int64_t exponent = 0, minus = 0;
            at++;
            if (at < value.end && (s->text[at] == '-' || s->text[at] == '+')) minus = s->text[at++] == '-';
            for (; at < value.end; at++) {
                if (s->text[at] < '0' || s->text[at] > '9') return MISSING;
                if (exponent < 10000) exponent = exponent * 10 + (s->text[at] - '0');
            }
            power += minus ? -exponent : exponent;
        } else {
            return MISSING;
        }
    }
    power += shift;
    for (; power > 0 && whole; power--) {
        if (whole > 922337203685477579) return MISSING;
        whole *= 10;
    }
    int64_t last = 0;
    for (; power < 0 && (whole || last); power++) {
        last = whole % 10;
        whole /= 10;
    }
    whole += last >= 5;
    return negative ? -whole : whole;
}

/* The first number inside a string ("stream 7"), or a number itself; MISSING. */
static int64_t identity(const Piece *s, Value value) {
    if (value.kind == NUMBER) return number(s, value, 0);
    if (value.kind != TEXT) return MISSING;
    int64_t at = value.at;
    while (at < value.end && (s->text[at] < '0' || s->text[at] > '9')) at++;
    int64_t end = at;
    while (end < value.end && s->text[end] >= '0' && s->text[end] <= '9') end++;
    if (end == at) return MISSING;
    if (at > value.at && s->text[at - 1] == '-') at--;
    return number(s, (Value){at, end, NUMBER}, 0);
}

/* The number of a text among those of this piece; FULL. */
static int64_t intern(Piece *s, Value value) {
    int64_t length = value.end - value.at;
    uint64_t hash = hash_of(s->text + value.at, length);
    int64_t place = (int64_t)(hash & (uint64_t)(s->slots - 1));
    for (;; place = (place + 1) & (s->slots - 1)) {
        int64_t found = s->slot[place] - 1;
        if (found < 0) break;
        if (s->text_hash[found] == (int64_t)hash && s->text_length[found] == length &&
            same(s->text + s->text_at[found], s->text + value.at, length))
            return found;
    }
    if (s->found->texts >= s->most_texts) return FULL;
    s->text_at[s->found->texts] = value.at;
    s->text_length[s->found->texts] = length;
    s->text_hash[s->found->texts] = (int64_t)hash;
    s->slot[place] = (int32_t)++s->found->texts;
    return s->found->texts - 1;
}

static int is(const Piece *s, Value key, const char *word) {
    int64_t length = key.end - key.at, at = 0;
    for (; at < length && word[at]; at++)
        if (s->text[key.at + at] != (uint8_t)word[at]) return 0;
    return at == length && !word[at];
}

static int find_key(const Piece *s, Value key) {
    int64_t length = key.end - key.at;
    for (uint64_t place = hash_of(s->text + key.at, length) & 1023;; place = (place + 1) & 1023) {
        int found = s->key_slot[place] - 1;
        if (found < 0) return -1;
        if (s->key_at[found + 1] - s->key_at[found] == length &&
            same(s->key_text + s->key_at[found], s->text + key.at, length))
            return found;
    }
}

static int64_t read_arguments(Piece *s, int64_t at) {
    Value key, value;
    for (at++;;) {
        at = skip_space(s, at);
        if (at >= s->length) return MORE;
        if (s->text[at] == '}') return at + 1;
        at = read_key(s, at, &key);
        if (at < 0) return at;
        at = read_value(s, at, &value);
        if (at < 0) return at;
        int found = find_key(s, key);
        if (found < 0) continue;
        int64_t what = value.kind == NUMBER ? number(s, value, 0) : value.kind == NOTHING ? MISSING : intern(s, value);
        if (what == FULL && value.kind != NUMBER) return FULL;
        if (s->found->entries >= s->most_entries) return FULL;
        s->entry_row[s->found->entries] = (int32_t)s->found->rows;
        s->entry_key[s->found->entries] = (int8_t)found;
        s->entry_kind[s->found->entries] = (int8_t)value.kind;
        s->entry_value[s->found->entries++] = what;
    }
}

/* One event. Phases that tell nothing here (flows and others) leave no row. */
static int64_t read_event(Piece *s, int64_t at) {
    Value key, value, phase = {0, 0, NOTHING}, category = phase, name = phase, pid = phase, tid = phase;
    Value start = phase, duration = phase;
    int64_t arguments = -1;
    for (at++;;) {
        at = skip_space(s, at);
        if (at >= s->length) return MORE;
        if (s->text[at] == '}') break;
        at = read_key(s, at, &key);
        if (at < 0) return at;
        int64_t begin = at;
        at = read_value(s, at, &value);
        if (at < 0) return at;
        if (is(s, key, "ph")) phase = value;
        else if (is(s, key, "cat")) category = value;
        else if (is(s, key, "name")) name = value;
        else if (is(s, key, "pid")) pid = value;
        else if (is(s, key, "tid")) tid = value;
        else if (is(s, key, "ts")) start = value;
        else if (is(s, key, "dur")) duration = value;
        else if (is(s, key, "args")) arguments = value.kind == RAW && s->text[begin] == '{' ? begin : -1;
    }
    at++;
    uint8_t what = phase.kind == TEXT && phase.end == phase.at + 1 ? s->text[phase.at] : 0;
    if (what != 'X' && what != 'i' && what != 'I' && what != 'M') return at;
    if (s->found->rows >= s->most_rows) return FULL;
    int64_t entries = s->found->entries, row = s->found->rows;
    if (arguments >= 0) {
        int64_t end = read_arguments(s, arguments);
        if (end < 0) {
            s->found->entries = entries;
            return end;
        }
    }
    int64_t category_id = category.kind == TEXT ? intern(s, category) : -1;
    int64_t name_id = name.kind == TEXT ? intern(s, name) : -1;
    if (category_id == FULL || name_id == FULL) {
        s->found->entries = entries;
        return FULL;
    }
    s->phase[row] = (int8_t)what;
    s->category[row] = (int32_t)category_id;
    s->name[row] = (int32_t)name_id;
    s->pid[row] = identity(s, pid);
    s->tid[row] = identity(s, tid);
    s->start_ns[row] = start.kind == NUMBER ? number(s, start, 3) : MISSING;
    s->duration_ns[row] = duration.kind == NUMBER ? number(s, duration, 3) : MISSING;
    s->found->rows++;
    return at;
}

static int64_t read_top(Piece *s, int64_t at) {
    Value key, value;
    at = read_key(s, at, &key);
    if (at < 0) return at;
    if (is(s, key, "traceEvents")) {
        if (at >= s->length) return MORE;
        if (s->text[at] == '[') {
            s->found->state = EVENTS;
            return at + 1;
        }
    }
    at = read_value(s, at, &value);
    if (at < 0) return at;
    if (s->found->tops >= s->most_tops) return FULL;
    s->top_key[s->found->tops] = key.at;
    s->top_key_length[s->found->tops] = key.end - key.at;
    s->top_value[s->found->tops] = value.at - (value.kind == TEXT);
    s->top_value_length[s->found->tops++] = value.end - value.at + 2 * (value.kind == TEXT);
    return at;
}

EXPORT int64_t boundby_events(Piece *s) {
    for (int64_t key = 0; key < s->keys; key++) {
        uint64_t place = hash_of(s->key_text + s->key_at[key], s->key_at[key + 1] - s->key_at[key]) & 1023;
        while (s->key_slot[place]) place = (place + 1) & 1023;
        s->key_slot[place] = (int32_t)key + 1;
    }
    int64_t at = 0;
    while (s->found->state != DONE) {
        at = skip_space(s, at);
        s->found->used = at;
        if (at >= s->length) return 0;
        uint8_t first = s->text[at];
        if (s->found->state == START && (first == '{' || first == '[')) {
            s->found->state = first == '{' ? TOP : LIST;
            at++;
        } else if (s->found->state == TOP && first == '}') {
            s->found->state = DONE;
            s->found->used = ++at;
        } else if (s->found->state == TOP && first == '"') {
            at = read_top(s, at);
        } else if ((s->found->state == EVENTS || s->found->state == LIST) && first == ']') {
            s->found->state = s->found->state == EVENTS ? TOP : DONE;
            s->found->used = ++at;
        } else if ((s->found->state == EVENTS || s->found->state == LIST) && first == '{') {
            at = read_event(s, at);
        } else {
            at = BAD;
        }
        if (at < 0) {
            s->found->bad = at == BAD;
            return 0;
        }
    }
    return 0;
}

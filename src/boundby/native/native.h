/* What every file of the native core includes. No file calls the C library, allocates, or knows Python: arrays come
   in and go out by pointer, and the Python module of the same name checks their types, lengths and indices. */

#ifndef BOUNDBY_NATIVE_H
#define BOUNDBY_NATIVE_H

#include "structs.h"

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* A value of a column of 1, 2, 4 or 8 bytes each. */
static inline int64_t element(const void *column, int64_t width, int64_t row) {
    if (width == 8) return ((const int64_t *)column)[row];
    if (width == 4) return ((const int32_t *)column)[row];
    return width == 2 ? ((const int16_t *)column)[row] : ((const int8_t *)column)[row];
}

/* The first place of ascending values that is not below (``right``: that is above) what is wanted, looked for from
   ``near`` (0 to count) outwards. */
static inline int64_t place(const int64_t *values, int64_t count, int64_t wanted, int right, int64_t near) {
#define IS_BEFORE(at) (right ? values[at] <= wanted : values[at] < wanted)
    int64_t low = near, high = near, step = 1; /* all up to low lie before, nothing from high on does */
    if (near < count && IS_BEFORE(near)) {
        for (high = low + step; high < count && IS_BEFORE(high); high = low + step) {
            low = high;
            step *= 2;
        }
        if (high > count) high = count;
    } else {
        for (low = high - step; low >= 0 && !IS_BEFORE(low); low = high - step) {
            high = low;
            step *= 2;
        }
        if (low < -1) low = -1;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (IS_BEFORE(middle)) low = middle;
        else high = middle;
    }
    return high;
#undef IS_BEFORE
}

#endif

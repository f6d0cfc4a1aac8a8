/* Which sources the library was built from: Python refuses one that was built from others. */

#include "native.h"

#ifndef BOUNDBY_SOURCES
#define BOUNDBY_SOURCES 0
#endif

EXPORT uint32_t boundby_sources(void) { return BOUNDBY_SOURCES; }

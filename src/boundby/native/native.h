/* What every file of the native core includes. No file calls the C library, allocates, or knows Python: arrays come
   in and go out by pointer, and the Python module of the same name checks their types, lengths and indices. */

#ifndef BOUNDBY_NATIVE_H
#define BOUNDBY_NATIVE_H

#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#endif

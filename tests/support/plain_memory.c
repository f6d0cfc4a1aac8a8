/* Memory for NumPy's arrays straight from malloc, so that sanitizers see where each begins and ends: by itself NumPy keeps
   small arrays that are gone for the next ones. */

#include <stdint.h>
#include <stdlib.h>

static void *allocate(void *context, size_t size) { return (void)context, malloc(size); }
static void *zeros(void *context, size_t count, size_t size) { return (void)context, calloc(count, size); }
static void *resize(void *context, void *old, size_t size) { return (void)context, realloc(old, size); }
static void release(void *context, void *old, size_t size) { (void)context, (void)size, free(old); }

struct { /* NumPy's PyDataMem_Handler */
    char name[127];
    uint8_t version;
    void *context;
    void *(*allocate)(void *, size_t);
    void *(*zeros)(void *, size_t, size_t);
    void *(*resize)(void *, void *, size_t);
    void (*release)(void *, void *, size_t);
} plain_memory = {"plain", 1, NULL, allocate, zeros, resize, release};

const char plain_memory_is[] = "mem_handler"; /* what NumPy wants it to be called */

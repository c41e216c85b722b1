/* What the tests of the words (scan, oip, number, inflate) share: a printed seed and small random numbers. */
#ifndef KS_WORDS_TEST_H
#define KS_WORDS_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static uint64_t words_state;

/* KS_SEED repeats a run. */
static inline void words_seed(void)
{
    const char *fixed = getenv("KS_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    words_state = fixed ? strtoull(fixed, NULL, 0) : (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    printf("KS_SEED=%llu\n", (unsigned long long)words_state);
}

/* splitmix64 */
static inline uint64_t words_random(void)
{
    uint64_t z = words_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline size_t words_below(size_t n)
{
    return (size_t)(words_random() % n);
}
#endif

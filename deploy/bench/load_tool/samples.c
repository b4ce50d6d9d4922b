// Latencies: all are kept, so percentiles are exact, to a tenth of a microsecond.

#include "load.h"

#include <stdio.h>
#include <stdlib.h>

void add_sample(struct samples *samples, uint64_t ns)
{
    if (samples->count == samples->room) {
        samples->room = samples->room ? 2 * samples->room : 1 << 16;
        samples->all = realloc(samples->all, samples->room * sizeof *samples->all);
        if (!samples->all) {
            perror("load: samples");
            exit(2);
        }
    }
    uint64_t tenths = (ns + 50) / 100;
    samples->all[samples->count++] = tenths > UINT32_MAX ? UINT32_MAX : (uint32_t)tenths;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void sort_samples(struct samples *samples)
{
    if (samples->count)
        qsort(samples->all, samples->count, sizeof *samples->all, by_size);
}

// The nearest rank: the smallest sample that so large a share of all does not exceed.
double percentile_us(const struct samples *samples, double share)
{
    double exact = share * (double)samples->count;
    size_t rank = (size_t)exact;
    rank += exact - (double)rank > 1e-6;
    return samples->count ? samples->all[rank ? rank - 1 : 0] / 10.0 : 0.0;
}

/* One result, two forms. What has no meaning on a backend is said to be absent: "-" in the table, null in JSON. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/selftest/parts.h"

/* --- what follows from the figures -------------------------------------------------------------------------------- */

/* The device's part of one small request at least: the bare graph where there are graphs, else the work itself. */
static bool has_graphs(const ks_test *test)
{
    return test->device_limits.device.graph_flag_us > 0;
}

static double least_us(const ks_test *test)
{
    return test->cells[0].echo.p50_us +
           (has_graphs(test) ? test->device_limits.device.graph_flag_us : test->device_limits.row_us);
}

/* NaN: absent. */
static double share(double part, double whole)
{
    return part > 0 && whole > 0 ? part / whole : (double)NAN;
}

static void iso_time(char out[32])
{
    const time_t now = (time_t)(ks_wall_ns() / 1000000000);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static bool shares_cores(const ks_test *test)
{
    return test->load_threads + test->daemon->shards > test->cores;
}

/* --- table -------------------------------------------------------------------------------------------------------- */

static void put_floor(ks_text *out, const char *name, double value, const char *unit, const char *remark)
{
    if (value > 0)
        ks_text_printf(out, "  %-34s %9.2f %-4s  %s\n", name, value, unit, remark);
    else
        ks_text_printf(out, "  %-34s %9s       none on this backend\n", name, "-");
}

/* Operations a byte from which on arithmetic bounds the work and not memory; 0: not known. */
static double ridge(const ks_test *test)
{
    const double copy = test->device_limits.memory.copy_gbs;
    return copy > 0 ? test->device_limits.peak.tflops * 1e3 / copy : 0;
}

static void put_device_limits(const ks_test *test, ks_text *out)
{
    const ks_device_limits *device = &test->device_limits.device;
    ks_text_puts(out, "\nfloors of this host, medians\n");
    put_floor(out, "echo turn, 4 KiB each way", test->cells[0].echo.p50_us, "us", "a bare epoll loop over loopback");
    put_floor(out, "graph round trip, empty", device->graph_empty_us, "us", "launched .. its event seen");
    put_floor(out, "graph round trip, kernel and flag", device->graph_flag_us, "us", "4 KiB of mapped host memory");
    put_floor(out, "copy, host to device", device->h2d_gbs, "GB/s", "64 MiB, pinned");
    put_floor(out, "copy, device to host", device->d2h_gbs, "GB/s", "64 MiB, pinned");
    put_floor(out, "copies both ways at once, each", device->both_gbs, "GB/s", "64 MiB, pinned");
    put_floor(out, "memcpy on the host", test->device_limits.memcpy_gbs, "GB/s",
              "64 MiB, read and written, one thread");
    put_floor(out, "copy in the kernels' memory", test->device_limits.memory.copy_gbs, "GB/s",
              test->device_limits.memory.source);
    put_floor(out, "FP32 arithmetic", test->device_limits.peak.tflops * 1e3, "GF/s", test->device_limits.peak.source);
    put_floor(out, "ridge of the roofline", ridge(test), "", "flop a byte");
    ks_text_puts(out, "the daemon's engine without HTTP, one request after the other\n");
    put_floor(out, "softmax of one row, 4 KiB", test->device_limits.row_us, "us", "submitted .. handed back");
    put_floor(out, "softmax of a large body", test->device_limits.large_gbs, "GB/s", "one lane");
}

static void put_cells(const ks_test *test, ks_text *out)
{
    ks_text_puts(out, "\nthe daemon, and a bare epoll echo of the same bytes with as many threads; softmax, plain raw\n"
                      "  bytes each way  conn | requests/s   p50 us   p99 us    GB/s |     echo/s   p50 us    GB/s | "
                      "daemon/echo\n");
    for (int i = 0; i < KS_TEST_CELLS; i++) {
        const ks_test_cell *cell = &test->cells[i];
        ks_text_printf(out, "  %14zu %5d | %10.0f %8.1f %8.1f %7.3f | %10.0f %8.1f %7.3f | %11.2f\n", cell->bytes,
                       cell->connections, cell->daemon.per_s, cell->daemon.p50_us, cell->daemon.p99_us,
                       cell->daemon.gbs, cell->echo.per_s, cell->echo.p50_us, cell->echo.gbs,
                       cell->daemon.per_s / cell->echo.per_s);
    }
}

static void put_distance(const ks_test *test, ks_text *out)
{
    const ks_test_cell *alone = &test->cells[0], *large = &test->cells[KS_TEST_CELLS - 1];
    const double least = least_us(test);
    ks_text_printf(out,
                   "\ndistance\n  one connection: p50 %.1f us is %.2f times the floor of %.1f us, echo turn + %s\n",
                   alone->daemon.p50_us, alone->daemon.p50_us / least, least,
                   has_graphs(test) ? "graph round trip" : "the row's work");
    ks_text_printf(out, "  large: %.2f GB/s each way is %.2f of the echo", large->daemon.gbs,
                   large->daemon.gbs / large->echo.gbs);
    if (test->device_limits.device.both_gbs > 0)
        ks_text_printf(out, ", %.2f of the copies both ways\n",
                       large->daemon.gbs / test->device_limits.device.both_gbs);
    else
        ks_text_printf(out, ", %.2f of one engine's work alone\n", large->daemon.gbs / test->device_limits.large_gbs);
}

static void put_table(const ks_test *test, const char *when, ks_text *out)
{
    const ks_daemon *daemon = test->daemon;
    ks_text_printf(out, "kernserve %s self-test, %s\ndevice  %s, %s\n", KS_VERSION, when, daemon->device_info.backend,
                   daemon->device_info.name);
    ks_text_printf(out, "cores   %d; %d shard%s and %d load thread%s %s\n", test->cores, daemon->shards,
                   daemon->shards == 1 ? "" : "s", test->load_threads, test->load_threads == 1 ? "" : "s",
                   shares_cores(test) ? "share them: rates are those of server and load together"
                                      : "have one each, if nothing else runs here");
    if (test->load_average >= 0) ks_text_printf(out, "load    %.2f in the minute before\n", test->load_average);
    put_device_limits(test, out);
    put_cells(test, out);
    put_distance(test, out);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* "name":value, or null where it is absent. */
static void put_number(ks_text *out, const char *before, const char *name, double value)
{
    if (value > 0)
        ks_text_printf(out, "%s\"%s\":%.6g", before, name, value);
    else
        ks_text_printf(out, "%s\"%s\":null", before, name);
}

static void put_rate(ks_text *out, const char *name, const ks_test_rate *rate)
{
    ks_text_printf(out, ",\"%s\":{", name);
    put_number(out, "", "per_s", rate->per_s);
    put_number(out, ",", "gbs", rate->gbs);
    put_number(out, ",", "p50_us", rate->p50_us);
    put_number(out, ",", "p99_us", rate->p99_us);
    ks_text_puts(out, "}");
}

static void put_json_device_limits(const ks_test *test, ks_text *out)
{
    const ks_device_limits *device = &test->device_limits.device;
    ks_text_puts(out, ",\"floors\":{");
    put_number(out, "", "echo_turn_us", test->cells[0].echo.p50_us);
    put_number(out, ",", "graph_empty_us", device->graph_empty_us);
    put_number(out, ",", "graph_flag_us", device->graph_flag_us);
    put_number(out, ",", "copy_h2d_gbs", device->h2d_gbs);
    put_number(out, ",", "copy_d2h_gbs", device->d2h_gbs);
    put_number(out, ",", "copy_both_gbs", device->both_gbs);
    put_number(out, ",", "memcpy_gbs", test->device_limits.memcpy_gbs);
    put_number(out, ",", "copy_gbs", test->device_limits.memory.copy_gbs);
    put_number(out, ",", "peak_fp32_tflops", test->device_limits.peak.tflops);
    put_number(out, ",", "ridge_flop_per_byte", ridge(test));
    put_number(out, ",", "engine_row_us", test->device_limits.row_us);
    put_number(out, ",", "engine_large_gbs", test->device_limits.large_gbs);
    ks_text_puts(out, "}");
}

static void put_json_distance(const ks_test *test, ks_text *out)
{
    const ks_test_cell *alone = &test->cells[0], *large = &test->cells[KS_TEST_CELLS - 1];
    ks_text_printf(out, ",\"distance\":{\"floor_of\":[\"echo_turn_us\",\"%s\"]",
                   has_graphs(test) ? "graph_flag_us" : "engine_row_us");
    put_number(out, ",", "floor_us", least_us(test));
    put_number(out, ",", "p50_us", alone->daemon.p50_us);
    put_number(out, ",", "p50_per_floor", share(alone->daemon.p50_us, least_us(test)));
    put_number(out, ",", "large_per_echo", share(large->daemon.gbs, large->echo.gbs));
    put_number(out, ",", "large_per_copy_both", share(large->daemon.gbs, test->device_limits.device.both_gbs));
    put_number(out, ",", "large_per_engine", share(large->daemon.gbs, test->device_limits.large_gbs));
    ks_text_puts(out, "}");
}

static void put_json(const ks_test *test, const char *when, ks_text *out)
{
    const ks_daemon *daemon = test->daemon;
    ks_text_printf(out, "{\"kernserve\":\"%s\",\"time\":\"%s\",\"backend\":\"%s\",\"device\":", KS_VERSION, when,
                   daemon->device_info.backend);
    ks_text_json(out, daemon->device_info.name, strlen(daemon->device_info.name));
    ks_text_printf(out, ",\"cores\":%d,\"shards\":%d,\"load_threads\":%d,\"shares_cores\":%s", test->cores,
                   daemon->shards, test->load_threads, shares_cores(test) ? "true" : "false");
    if (test->load_average >= 0) ks_text_printf(out, ",\"load_average\":%.2f", test->load_average);
    put_json_device_limits(test, out);
    ks_text_puts(out, ",\"requests\":[");
    for (int i = 0; i < KS_TEST_CELLS; i++) {
        const ks_test_cell *cell = &test->cells[i];
        ks_text_printf(out, "%s{\"bytes\":%zu,\"connections\":%d", i ? "," : "", cell->bytes, cell->connections);
        put_rate(out, "daemon", &cell->daemon);
        put_rate(out, "echo", &cell->echo);
        put_number(out, ",", "ratio", share(cell->daemon.per_s, cell->echo.per_s));
        ks_text_puts(out, "}");
    }
    ks_text_puts(out, "]");
    put_json_distance(test, out);
    ks_text_puts(out, "}\n");
}

void ks_test_print(const ks_test *test, bool json, ks_text *out)
{
    char when[32];
    iso_time(when);
    if (json)
        put_json(test, when, out);
    else
        put_table(test, when, out);
}

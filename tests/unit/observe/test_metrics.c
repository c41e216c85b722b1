/* Metrics: buckets, sums over writers, both text forms, and snapshots that hold all of a request or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "observe/metrics.h"
#include "observe/metrics_cells.h"
#include "observe/overlap.h"
#include "base/model.h"
#include "base/text.h"

static ks_metrics *metrics;
static const ks_engine_stats engines[2] = {{.lanes = 2,
                                            .lanes_busy = 1,
                                            .slot_total_bytes = 100,
                                            .slot_used_bytes = 30,
                                            .captures = 3,
                                            .capture_ns = 45000,
                                            .capture_bucket = {[5] = 1, [6] = 2},
                                            .errors_memory = 4,
                                            .graph_hits = 7},
                                           {.lanes = 2,
                                            .slot_total_bytes = 100,
                                            .graph_hits = 5,
                                            .h2d_ns = 1500000000,
                                            .capture_bucket = {[KS_BOUNDS] = 1},
                                            .errors_memory = 1,
                                            .errors_device = 2}};

static int open_metrics(void **state)
{
    (void)state;
    ks_models_init();
    metrics = ks_metrics_open(3);
    return metrics == NULL;
}

static int close_metrics(void **state)
{
    (void)state;
    ks_metrics_close(&metrics);
    return metrics != NULL;
}

static const ks_overlap_sums sums = {
    .busy_compute = 2500000000, .busy_any = 3000000000, .two = 500000000, .observed = 4000000000, .overruns = 9};

/* The page, terminated; free it. */
static char *page_text(bool openmetrics)
{
    ks_document page = {.state = KS_STATE_READY,
                        .engines = engines,
                        .shards = 2,
                        .queue_capacity = 256,
                        .openmetrics = openmetrics,
                        .overlap = &sums,
                        .device_used_bytes = 1000,
                        .device_free_bytes = 24,
                        .device = {.backend = "cuda",
                                   .gpu = true,
                                   .name = "Some \"GPU\" \\ 1",
                                   .uuid = "GPU-1",
                                   .driver = "1.2",
                                   .capability = 90,
                                   .memory_bytes = 1 << 20}};
    ks_text text;
    size_t length;
    ks_text_init(&text, 64 << 20);
    ks_metrics_text(metrics, &page, &text);
    ks_text_add(&text, "", 1);
    assert_false(text.broken);
    return ks_text_take(&text, &length);
}

static void assert_line(const char *page, const char *line)
{
    char whole[512];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(page, whole)) {
        const size_t name = strcspn(line, " {");
        snprintf(whole, sizeof whole, "\n%.*s", (int)name, line);
        const char *near = strstr(page, whole);
        fail_msg("no line '%s'; the first of its name: %.200s", line, near ? near + 1 : "none");
    }
}

static ks_record record_of(int model, ks_status status)
{
    ks_record record = {
        .model = model, .status = status, .executed = status == KS_OK, .batch_count = 1, .total_ns = 100000};
    for (int p = 0; p < KS_PHASES; p++) record.phase_ns[p] = -1;
    return record;
}

static void buckets_hold_their_upper_bound(void **state)
{
    (void)state;
    ks_shard_metrics *m = ks_metrics_writer(metrics, 0);
    static const int64_t totals[] = {0,     250,     251,     5000,        5001,        10000,        10001,
                                     25000, 1000000, 1000001, 10000000000, 10000000001, INT64_MAX / 4};
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        ks_record record = record_of(0, KS_OK);
        record.total_ns = totals[i];
        ks_metrics_inference(m, &record);
    }
    char *page = page_text(false);
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"2.5e-07\"} 2");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"5e-07\"} 3");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"5e-06\"} 4");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"1e-05\"} 6");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"2.5e-05\"} 8");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"0.0005\"} 8");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"0.001\"} 9");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"0.0025\"} 10");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"10.0\"} 11");
    assert_line(page, "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"+Inf\"} 13");
    assert_line(page, "kernserve_inference_request_duration_seconds_count{model=\"softmax\"} 13");
    free(page);
}

static void writers_are_summed(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) {
        ks_shard_metrics *m = ks_metrics_writer(metrics, w);
        ks_record good = record_of(0, KS_OK), bad = record_of(-1, KS_MODEL);
        good.encoding = KS_FORMAT_LABEL_raw;
        good.phase_ns[KS_PHASE_compute] = 500000000;
        ks_metrics_inference(m, &good);
        ks_metrics_inference(m, &bad);
        ks_metrics_send(m, 0, 20000);
        ks_metrics_http(m, KS_HANDLER_infer, KS_METHOD_POST, 200, 10, 1000);
        ks_metrics_http(m, KS_HANDLER_other, KS_METHOD_GET, 404, 0, 5);
        ks_metrics_http(m, KS_HANDLER_other, KS_METHOD_OTHER, 299, 0, 5);
        ks_metrics_rejected(m, KS_NO_HOST);
        ks_metrics_rejected(m, KS_HOST); /* the same code */
        ks_metrics_add(m, KS_COUNT_aborted_send, 1);
        ks_metrics_add(m, KS_COUNT_in_flight, w == 2 ? -1 : 1);
        ks_metrics_add(m, KS_COUNT_connections, 2);
    }
    char *page = page_text(false);
    assert_line(page, "kernserve_inference_requests_total{model=\"softmax\",encoding=\"raw\",outcome=\"ok\"} 3");
    assert_line(page,
                "kernserve_inference_requests_total{model=\"unknown\",encoding=\"json\",outcome=\"client_error\"} 3");
    assert_line(page, "kernserve_inference_requests_total{model=\"matmul\",encoding=\"json\",outcome=\"timeout\"} 0");
    assert_line(page, "kernserve_inference_phase_duration_seconds_count{model=\"softmax\",phase=\"compute\"} 3");
    assert_line(page, "kernserve_inference_phase_duration_seconds_sum{model=\"softmax\",phase=\"compute\"} 1.5");
    assert_line(page, "kernserve_inference_phase_duration_seconds_count{model=\"softmax\",phase=\"h2d\"} 0");
    assert_line(page, "kernserve_inference_phase_duration_seconds_count{model=\"softmax\",phase=\"send\"} 3");
    assert_line(page, "kernserve_http_requests_total{handler=\"infer\",method=\"POST\",code=\"200\"} 3");
    assert_line(page, "kernserve_http_requests_total{handler=\"other\",method=\"GET\",code=\"404\"} 3");
    assert_line(page, "kernserve_http_requests_total{handler=\"other\",method=\"other\",code=\"other\"} 3");
    assert_line(page, "kernserve_http_response_body_bytes_total{handler=\"infer\"} 3000");
    assert_line(page, "kernserve_requests_rejected_total{code=\"host\"} 6");
    assert_line(page, "kernserve_requests_rejected_total{code=\"queue_full\"} 0");
    assert_line(page, "kernserve_requests_aborted_total{phase=\"send\"} 3");
    assert_line(page, "kernserve_inference_requests_in_flight 1");
    assert_line(page, "kernserve_http_connections 6");
    assert_line(page, "kernserve_lanes{device=\"0\",state=\"idle\"} 3");
    assert_line(page, "kernserve_pinned_memory_bytes{state=\"free\"} 170");
    assert_line(page, "kernserve_graph_cache_lookups_total{result=\"hit\"} 12");
    assert_line(page, "kernserve_graph_capture_duration_seconds_sum 4.5e-05");
    assert_line(page, "kernserve_graph_capture_duration_seconds_bucket{le=\"1e-05\"} 1");
    assert_line(page, "kernserve_graph_capture_duration_seconds_bucket{le=\"10.0\"} 3");
    assert_line(page, "kernserve_graph_capture_duration_seconds_bucket{le=\"+Inf\"} 4");
    assert_line(page, "kernserve_graph_capture_duration_seconds_count 4");
    assert_line(page, "kernserve_device_errors_total{device=\"0\",error=\"memory\"} 5");
    assert_line(page, "kernserve_device_errors_total{device=\"0\",error=\"device\"} 2");
    assert_line(page, "kernserve_device_memory_bytes{device=\"0\",state=\"used\"} 1000");
    assert_line(page, "kernserve_device_memory_bytes{device=\"0\",state=\"free\"} 24");
    assert_line(page, "kernserve_batch_seconds_total{device=\"0\",engine=\"h2d\"} 1.5");
    assert_line(page, "kernserve_engine_busy_seconds_total{device=\"0\",engine=\"compute\"} 2.5");
    assert_line(page, "kernserve_engine_busy_seconds_total{device=\"0\",engine=\"any\"} 3.0");
    assert_line(page, "kernserve_engine_overlap_seconds_total{device=\"0\",pair=\"any\"} 0.5");
    assert_line(page, "kernserve_engine_overlap_seconds_total{device=\"0\",pair=\"all\"} 0.0");
    assert_line(page, "kernserve_engine_observed_seconds_total{device=\"0\"} 4.0");
    assert_line(page, "kernserve_timeline_overruns_total 9");
    assert_line(page, "kernserve_state{kernserve_state=\"ready\"} 1");
    assert_line(page, "kernserve_device_info{device=\"0\",uuid=\"GPU-1\",model_name=\"Some \\\"GPU\\\" \\\\ 1\","
                      "compute_capability=\"9.0\",driver_version=\"1.2\"} 1");
    assert_null(strstr(page, "# EOF"));
    free(page);

    /* One shard may have taken off what another one has not added yet. */
    ks_metrics_add(ks_metrics_writer(metrics, 0), KS_COUNT_connections, -7);
    page = page_text(false);
    assert_line(page, "kernserve_http_connections 0");
    free(page);
}

/* Exemplars stand at the bucket of their time, in OpenMetrics alone; the last one of a bucket stays. */
static void a_bucket_has_an_exemplar(void **state)
{
    (void)state;
    const uint64_t first[2] = {1, 2}, second[2] = {0x0af7651916cd43dd, 0x8448eb211c80319c};
    ks_metrics_exemplar(ks_metrics_writer(metrics, 0), 0, 900000, first);
    ks_metrics_exemplar(ks_metrics_writer(metrics, 1), 0, 600000, second);
    ks_metrics_exemplar(ks_metrics_writer(metrics, 1), 0, 700, first);
    char *page = page_text(true), *at;
    const char *const lines[] = {
        "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"0.001\"} 0 "
        "# {trace_id=\"0af7651916cd43dd8448eb211c80319c\"} 0.000600000 ",
        "kernserve_inference_request_duration_seconds_bucket{model=\"softmax\",le=\"1e-06\"} 0 "
        "# {trace_id=\"00000000000000010000000000000002\"} 0.000000700 "};
    for (int i = 0; i < 2; i++) {
        assert_non_null(at = strstr(page, lines[i]));
        const double seconds = strtod(at + strlen(lines[i]), &at);
        assert_true(seconds > (double)time(NULL) - 60 && seconds < (double)time(NULL) + 60 && *at == '\n');
    }
    int count = 0;
    for (at = page; (at = strstr(at, "# {")); at++) count++;
    assert_int_equal(count, 2);
    free(page);
    page = page_text(false);
    assert_null(strstr(page, "# {"));
    free(page);
}

static long series(void)
{
    char *page = page_text(false), *rest = page;
    long lines = 0;
    for (char *line; (line = strsep(&rest, "\n"));) lines += line[0] && line[0] != '#';
    free(page);
    return lines;
}

/* A scrape of a daemon that has just started: what each of a fleet's daemons costs its Prometheus. */
static void the_number_of_series_is_known(void **state)
{
    (void)state;
    /* A histogram's lines: buckets, +Inf, count, sum. Of each operation the counters and the duration are there from the start;
     * a model's first request brings what is missing of it. Limits are those of 3 operations, and of one more. */
    enum {
        HISTOGRAM = KS_BOUNDS + 3,
        COUNTERS = KS_FORMAT_LABELS * KS_OUTCOMES,
        KERNELS = 3,
        OP_SERIES = HISTOGRAM + COUNTERS,
        OP_START = OP_SERIES + KERNELS,
        SERIES_MAX = 475 - 3 * OP_START,
        LINE_BYTES = 130,
        BYTES_MAX = 45000 - 3 * OP_START * LINE_BYTES
    };
    long ops = 0;
    while (ks_ops[ops]) ops++;
    const long idle = series();
    char *page = page_text(false);
    assert_in_range(strlen(page), 1, BYTES_MAX + ops * OP_START * LINE_BYTES);
    free(page);
    assert_in_range(idle, ops * OP_START + 100, SERIES_MAX + ops * OP_START);

    const ks_model *variant = ks_model_find("reduce_sum", strlen("reduce_sum"));
    assert_non_null(variant);
    const ks_record failed = record_of(variant->index, KS_DEADLINE), unknown = record_of(-1, KS_MODEL),
                    good = record_of(0, KS_OK);
    ks_metrics_inference(ks_metrics_writer(metrics, 2), &unknown);
    assert_int_equal(series(), idle);
    ks_metrics_inference(ks_metrics_writer(metrics, 2), &failed);
    const long with_variant = idle + COUNTERS + KERNELS + (1 + KS_PHASES) * HISTOGRAM;
    assert_int_equal(series(), with_variant);
    page = page_text(false);
    assert_line(page, "kernserve_inference_request_duration_seconds_count{model=\"reduce_sum\"} 0");
    assert_line(page,
                "kernserve_inference_requests_total{model=\"reduce_sum\",encoding=\"json\",outcome=\"timeout\"} 1");
    assert_line(page, "kernserve_inference_phase_duration_seconds_count{model=\"reduce_sum\",phase=\"send\"} 0");
    assert_line(page, "kernserve_inference_requests_total{model=\"matmul\",encoding=\"raw\",outcome=\"ok\"} 0");
    assert_null(strstr(page, "model=\"reduce_max\""));
    assert_null(strstr(page, "_seconds_count{model=\"softmax\",phase"));
    free(page);
    ks_metrics_inference(ks_metrics_writer(metrics, 0), &good);
    assert_int_equal(series(), with_variant + KS_PHASES * HISTOGRAM);
}

/* Writes the page to a file and runs a command on it; -1: the command is not there. */
static int check_with(const char *page, const char *command)
{
    char name[] = "/tmp/kernserve-metrics-XXXXXX", line[512];
    const int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, page, strlen(page)), strlen(page));
    close(fd);
    /* The command's place for the file is a mark of its own: a format that is no literal is refused by the compiler. */
    const char *mark = strstr(command, "FILE");
    snprintf(line, sizeof line, "%.*s%s%s", (int)(mark - command), command, name, mark + 4);
    const int status = system(line);
    unlink(name);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void promtool_finds_nothing(void **state)
{
    (void)state;
    if (system("command -v promtool >/dev/null") != 0) skip();
    char *page = page_text(false);
    assert_int_equal(check_with(page, "promtool check metrics < FILE"), 0);
    free(page);
}

static void a_strict_openmetrics_parser_takes_it(void **state)
{
    (void)state;
    char *page = page_text(true);
    assert_string_equal(page + strlen(page) - 6, "# EOF\n");
    assert_non_null(strstr(page, "\n# TYPE kernserve_inference_requests counter\n"));
    assert_non_null(strstr(page, "\n# UNIT kernserve_transfer_bytes bytes\n"));
    assert_non_null(strstr(page, "\n# TYPE kernserve_state stateset\n"));
    if (system("/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null") == 0)
        assert_int_equal(check_with(page, "/usr/bin/python3 -c \"from prometheus_client.openmetrics.parser import "
                                          "text_string_to_metric_families as f; n=len(list(f(open('FILE').read()))); "
                                          "assert n > 40, n\""),
                         0);
    else
        print_message("python3-prometheus-client not found: the strict parser was not asked\n");
    free(page);
}

/* --- statistics ------------------------------------------------------------------------------------------------------
 */

static void statistics_follow_the_protocol(void **state)
{
    (void)state;
    ks_model_stats stats;
    ks_metrics_stats(metrics, 1, &stats);
    assert_int_equal(stats.last_inference_ms, 0);
    for (int i = 0; i < 6; i++) { /* two batches of three, answered by two shards */
        ks_record record = record_of(1, KS_OK);
        record.batch_count = 3;
        record.phase_ns[KS_PHASE_decode] = 1;
        record.phase_ns[KS_PHASE_queue] = 10;
        record.phase_ns[KS_PHASE_h2d] = 100;
        record.phase_ns[KS_PHASE_compute] = 1000;
        record.phase_ns[KS_PHASE_d2h] = 10000;
        record.phase_ns[KS_PHASE_encode] = 100000;
        ks_metrics_inference(ks_metrics_writer(metrics, i / 3), &record);
    }
    const ks_record failed = record_of(1, KS_DEADLINE);
    ks_metrics_inference(ks_metrics_writer(metrics, 0), &failed);
    ks_metrics_stats(metrics, 1, &stats);
    assert_int_equal(stats.inference_count, 6);
    assert_int_equal(stats.execution_count, 2);
    assert_int_equal(stats.success_count, 6);
    assert_int_equal(stats.success_ns, 600000);
    assert_int_equal(stats.fail_count, 1);
    assert_int_equal(stats.fail_ns, 100000);
    assert_int_equal(stats.queue_ns, 60);
    assert_int_equal(stats.compute_input_ns, 606);
    assert_int_equal(stats.compute_infer_ns, 6000);
    assert_int_equal(stats.compute_output_ns, 660000);
    assert_in_range(stats.last_inference_ms / 1000, (uint64_t)time(NULL) - 60, (uint64_t)time(NULL) + 1);
}

/* What each end of a request counts as, and each code under its own name. */
static void every_status_and_code_has_its_place(void **state)
{
    static const struct {
        ks_status status;
        ks_outcome outcome;
    } rows[] = {{KS_OK, KS_OUTCOME_ok},
                {KS_DEVICE, KS_OUTCOME_device_error},
                {KS_CANCELLED, KS_OUTCOME_cancelled},
                {KS_DEADLINE, KS_OUTCOME_timeout},
                {KS_SLOW, KS_OUTCOME_timeout},
                {KS_BUDGET, KS_OUTCOME_rejected},
                {KS_QUEUE_FULL, KS_OUTCOME_rejected},
                {KS_DRAINING, KS_OUTCOME_rejected},
                {KS_MEMORY, KS_OUTCOME_rejected},
                {KS_UNSUPPORTED, KS_OUTCOME_rejected},
                {KS_UNAVAILABLE, KS_OUTCOME_rejected},
                {KS_JSON, KS_OUTCOME_client_error},
                {KS_WORK, KS_OUTCOME_client_error},
                {KS_MODEL, KS_OUTCOME_client_error},
                {KS_NON_FINITE, KS_OUTCOME_client_error}};
    char line[128];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(ks_outcome_of(rows[i].status), rows[i].outcome);
    ks_shard_metrics *m = ks_metrics_writer(metrics, 0);
    for (int s = 0; s < KS_STATUS_COUNT; s++)
        for (int i = 0; i < KS_CODES && ks_status_http((ks_status)s) != 499; i++) {
            if (i == KS_CODES - 1) fail_msg("the page has no code %d", ks_status_http((ks_status)s));
            if (ks_http_codes[i] == ks_status_http((ks_status)s)) break;
        }
    for (int i = 0; i < KS_CODES - 1; i++) ks_metrics_http(m, KS_HANDLER_infer, KS_METHOD_POST, ks_http_codes[i], 1, 1);
    for (int i = 0; i < 2; i++) ks_metrics_http(m, KS_HANDLER_infer, KS_METHOD_POST, 418, 1, 1);
    char *page = page_text(false);
    for (int i = 0; i < KS_CODES - 1; i++) {
        snprintf(line, sizeof line, "kernserve_http_requests_total{handler=\"infer\",method=\"POST\",code=\"%d\"} 1",
                 ks_http_codes[i]);
        assert_line(page, line);
    }
    assert_line(page, "kernserve_http_requests_total{handler=\"infer\",method=\"POST\",code=\"other\"} 2");
    free(page);
}

/* A half-answered batch is one execution, and neither goes back afterwards. */
static void executions_of_any_batch_size_add_up(void **state)
{
    (void)state;
    uint64_t executions = 0, last = 0;
    for (int n = 1; n <= KS_BATCH_MAX; n++) {
        ks_record record = record_of(2, KS_OK);
        record.batch_count = n;
        ks_model_stats stats;
        executions++;
        for (int i = 0; i < n; i++) {
            ks_metrics_inference(ks_metrics_writer(metrics, 1), &record);
            ks_metrics_stats(metrics, 2, &stats);
            assert_int_equal(stats.execution_count, executions);
            assert_true(stats.execution_count >= last);
            last = stats.execution_count;
        }
    }
}

static _Atomic bool stop;

static void *write_records(void *argument)
{
    ks_shard_metrics *m = argument;
    ks_record record = record_of(0, KS_OK);
    record.total_ns = 7;
    record.phase_ns[KS_PHASE_queue] = 3;
    record.phase_ns[KS_PHASE_h2d] = 5;
    record.phase_ns[KS_PHASE_compute] = 11;
    record.phase_ns[KS_PHASE_d2h] = 13;
    while (!atomic_load(&stop)) ks_metrics_inference(m, &record);
    return NULL;
}

static void snapshots_hold_all_of_a_request_or_none(void **state)
{
    (void)state;
    pthread_t threads[2];
    atomic_store(&stop, false);
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, write_records, ks_metrics_writer(metrics, t)), 0);
    uint64_t last = 0, changes = 0;
    int torn = 0;
    /* A time, not a number of reads: where the writers wait for a processor, a million of them see no change. */
    const time_t end = time(NULL) + 20;
    for (int i = 0; i < 20000 || (changes < 100 && time(NULL) < end); i++) {
        ks_model_stats s;
        ks_metrics_stats(metrics, 0, &s);
        const uint64_t n = s.success_count;
        torn += s.success_ns != 7 * n || s.queue_ns != 3 * n || s.compute_input_ns != 5 * n ||
                s.compute_infer_ns != 11 * n || s.compute_output_ns != 13 * n || s.execution_count != n || n < last;
        changes += n != last;
        if (n == last) sched_yield();
        last = n;
    }
    atomic_store(&stop, true);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    assert_int_equal(torn, 0);
    assert_true(changes >= 100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_metrics, close_metrics)
    const struct CMUnitTest tests[] = {
        TEST(buckets_hold_their_upper_bound),
        TEST(writers_are_summed),
        TEST(the_number_of_series_is_known),
        TEST(promtool_finds_nothing),
        TEST(a_bucket_has_an_exemplar),
        TEST(a_strict_openmetrics_parser_takes_it),
        TEST(statistics_follow_the_protocol),
        TEST(every_status_and_code_has_its_place),
        TEST(executions_of_any_batch_size_add_up),
        TEST(snapshots_hold_all_of_a_request_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

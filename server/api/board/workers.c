/* Owns       nothing.
 * Interface  workers.h */
#include "api/board/workers.h"

#include <inttypes.h>

#include "observe/metrics.h"

void ks_workers_json(const ks_workers *workers, ks_text *out)
{
    ks_text_puts(out, "{\"workers\":[");
    for (int i = 0; i < workers->count; i++) {
        const ks_worker_row *row = &workers->row[i];
        ks_text_printf(out,
                       "%s{\"device\":%d,\"uuid\":\"%s\",\"state\":\"%s\",\"pid\":%d,\"starts\":%" PRIu64
                       ",\"last_exit\":%d,\"connections\":%d}",
                       i ? "," : "", row->device, row->uuid, ks_worker_word(row, ks_state_names),
                       atomic_load(&row->pid), atomic_load(&row->starts), atomic_load(&row->exit_code),
                       ks_connections_count(&row->connections));
    }
    ks_text_puts(out, "]}");
}

static void put_row(const ks_worker_row *row, ks_text *out)
{
    const int device = row->device, last = atomic_load(&row->exit_code);
    ks_text_printf(out,
                   "<tr><th scope=\"row\"><a href=\"status?device=%d\">%d</a></th><td>%s</td><td>%s</td><td>%d</td>",
                   device, device, ks_worker_word(row, ks_state_names), row->uuid, atomic_load(&row->pid));
    ks_text_printf(out, "<td>%" PRIu64 "</td><td>", atomic_load(&row->starts));
    if (last >= 0) ks_text_printf(out, "%d", last);
    ks_text_printf(
        out,
        "</td><td>%d</td><td><a href=\"v2/plans?device=%d\">plans</a> <a href=\"v2/trace?device=%d\">trace</a>"
        "</td></tr>\n",
        ks_connections_count(&row->connections), device, device);
}

void ks_workers_page(const ks_workers *workers, ks_text *out)
{
    ks_text_puts(
        out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
             "<meta http-equiv=\"refresh\" content=\"2\"><title>kernserve: workers</title></head>\n"
             "<body><main><h1>kernserve</h1>\n<table><caption>Workers, a process for each device</caption>\n<thead><tr>"
             "<th scope=\"col\">device</th><th scope=\"col\">state</th><th scope=\"col\">GPU</th>"
             "<th scope=\"col\">process</th><th scope=\"col\">starts</th><th scope=\"col\">last exit</th>"
             "<th scope=\"col\">connections</th><th scope=\"col\">more</th></tr></thead>\n<tbody>\n");
    for (int i = 0; i < workers->count; i++) put_row(&workers->row[i], out);
    ks_text_puts(out,
                 "</tbody></table></main>\n<footer>The same for programs: <a href=\"status.json\">status.json</a>; for "
                 "Prometheus: <a href=\"metrics\">metrics</a>.</footer></body></html>\n");
}

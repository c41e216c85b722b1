"""A toy metric: kernserve_plans_made_total, the plans that the engines have made."""
import struct

from daemon import Daemon, metric, request

HEADING = "Add a metric"
NAME, HELP = "kernserve_plans_made", "Plans made, of shapes that were not in the cache."
EDITS = [
    ("server/observe/metrics.def", r"^ENGINE\(graph_launches, .*\n", r'\g<0>ENGINE(plans_made, COUNTER, "%s", "", "%s")\n' % (NAME, HELP)),
    ("server/engine/planning.c", r"^    ks_engine_count_plans\(engine\);\n(?=    \*out = plan;)", r"\g<0>    ks_counter_add(KS_COUNTER(engine, plans_made), 1);\n"),
    # documents
    ("docs/metrics.md", r"^\| `kernserve_graph_launches_total` .*\n", r"\g<0>| `%s_total` | counter | | plans made |\n" % NAME),
]


def test(kernserve, tree, command):
    with Daemon(kernserve, "--backend", "cpu", "--pinned-bytes", "16M", "--threads", "1") as daemon:
        page = daemon.metrics()
        assert "# HELP %s_total %s\n# TYPE %s_total counter\n" % (NAME, HELP, NAME) in page, page
        before = metric(page, NAME + "_total")
        for count in (3, 5, 3):  # two shapes
            with daemon.connect() as connection:
                target = "/v2/models/reduce/infer?shape=%d,77&datatype=INT32&op=max&axis=1" % count
                answer = connection.ask(request("POST", target, body=struct.pack("<i", 9) * count * 77))
            assert answer.status == 200 and answer.body == struct.pack("<i", 9) * count, answer
        made = metric(daemon.metrics(), NAME + "_total") - before
        assert made == 2, made
        assert daemon.stop() == 0

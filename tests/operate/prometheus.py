#!/usr/bin/env python3
"""A real Prometheus scrapes a loaded daemon with the files of deploy/prometheus, and Grafana's dashboard finds all that it asks for.

prometheus.py KERNSERVE [--seconds S]    with the Python of requirements.txt. Exit code 77: prometheus, promtool or a package is missing

  - promtool takes prometheus.yml, rules.yml, alerts.yml and triton-compat.yml, its linter finds nothing, and rules_test.yml passes
  - the scrape carries a token; every rule is evaluated without a fault, and no alert fires over a daemon that is well
  - each expression of the dashboard parses; its metrics are in the scrape or recorded; and the loaded daemon gives it a series
  - each alert has a description, and its runbook_url a heading
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

try:
    import promql_parser
    import yaml
except ImportError as missing:
    print("the package %s is not installed" % missing.name)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from daemon import Daemon, check, comes_to, request, wrongs
from ports import free_ports

DEPLOY = os.path.join(ROOT, "deploy", "prometheus")
RULES = ("rules.yml", "alerts.yml", "triton-compat.yml")
TOKEN = "a-token-of-this-test"
# What Grafana puts in; the interval is four scrapes here.
GIVEN = (("$__rate_interval", "4s"), ("$job", ".*"), ("$instance", ".*"))


def promtool(*words, folder=DEPLOY):
    done = subprocess.run(["promtool", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, "promtool", *words, ":", done.stdout[-2000:])


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_alerts():
    with open(os.path.join(DEPLOY, "alerts.yml")) as file:
        alerts = [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]
    with open(os.path.join(DEPLOY, "rules_test.yml")) as file:
        tried = [one for case in yaml.safe_load(file)["tests"] for one in case.get("alert_rule_test", [])]
    for alert in alerts:
        name = alert["alert"]
        document, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        with open(os.path.join(ROOT, document)) as file:
            check(anchor in {slug(heading) for heading in re.findall(r"^#+ (.*)$", file.read(), re.M)}, name, "has no heading", document, anchor)
        check(alert["labels"].get("severity") in ("critical", "warning") and alert["annotations"].get("description"), name, "lacks severity or description")
        check(any(one["alertname"] == name and one["exp_alerts"] for one in tried), "no case of rules_test.yml fires", name)
    print("%d alerts, each with a heading and a case" % len(alerts))


class Prometheus:
    """On a free port, scraping once a second; the files are those of deploy/ but for addresses, intervals and the token."""

    def __init__(self, folder, daemon):
        self.port, = free_ports(1)
        self.folder = folder
        for name in os.listdir(DEPLOY):
            with open(os.path.join(DEPLOY, name)) as file:
                text = file.read()
            if name == "rules_test.yml":
                continue
            text = re.sub(r"interval: 15s", "interval: 1s", text).replace("127.0.0.1:9090", "127.0.0.1:%d" % self.port)
            text = text.replace("127.0.0.1:8002", "127.0.0.1:%d" % daemon.admin_port).replace("# - triton-compat.yml", "- triton-compat.yml")
            text = text.replace("# authorization:", "authorization:")
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        with open(os.path.join(folder, "scrape-token"), "w") as file:
            file.write(TOKEN)
        promtool("check", "config", "prometheus.yml", folder=folder)
        self.log = open(os.path.join(folder, "log"), "wb")
        self.process = subprocess.Popen(["prometheus", "--config.file", os.path.join(folder, "prometheus.yml"), "--storage.tsdb.path", os.path.join(folder, "data"),
                                         "--web.listen-address", "127.0.0.1:%d" % self.port, "--log.level", "warn"], stdout=self.log, stderr=self.log)

    def get(self, path, **query):
        url = "http://127.0.0.1:%d/api/v1/%s?%s" % (self.port, path, urllib.parse.urlencode(query))
        with urllib.request.urlopen(url, timeout=20) as response:
            return json.load(response)["data"]

    def query(self, expression):
        return self.get("query", query=expression)["result"]

    def scrapes(self):
        """How many of the daemon succeeded so far."""
        try:
            found = self.query('sum_over_time(up{job="kernserve"}[10m])')
        except OSError:
            return 0
        return int(float(found[0]["value"][1])) if found else 0

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Load(threading.Thread):
    """Requests of several models and formats, a few of them wrong, until it is stopped."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_under, self.ends, self.count = daemon, False, 0
        self.start()

    def run(self):
        token = [("Authorization", "Bearer " + TOKEN)]
        raw = "/v2/models/%s/infer?datatype=FP32&shape="
        asked = [request("POST", raw % "softmax" + "64,256", token, bytes(4 * 64 * 256)), request("POST", raw % "reduce" + "64,256", token, bytes(4 * 64 * 256)),
                 request("POST", raw % "matmul" + "32,32&shape=32,32", token, bytes(2 * 4 * 32 * 32)), request("POST", raw % "softmax" + "3", token, b"wrong"),
                 request("POST", "/v2/models/softmax/infer", token, b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}')]
        with self.daemon_under.connect() as connection:
            while not self.ends:
                for data in asked:
                    status = connection.ask(data).status
                    check(status == 200 or (status == 400 and data is asked[3]), "the load got", status)
                    self.count += 1
                time.sleep(0.005)


def metrics_of(node, found):
    """The names of metrics in an expression that promql_parser took."""
    if isinstance(node, promql_parser.VectorSelector):
        found.add(node.name)
    for part in ("expr", "lhs", "rhs", "vector_selector", "args", "param"):
        one = getattr(node, part, None)
        for child in one if isinstance(one, list) else [one]:
            if child is not None and not isinstance(child, (str, int, float)):
                metrics_of(child, found)
    return found


def dashboard():
    """(panel, expression) of each target"""
    with open(os.path.join(ROOT, "deploy", "grafana", "kernserve-overview.json")) as file:
        board = json.load(file)
    check(board["uid"] == "kernserve-overview", "the dashboard's uid has changed")
    identities = [panel["id"] for panel in board["panels"]]
    check(len(set(identities)) == len(identities), "two panels have one id")
    for panel in board["panels"]:
        check(panel["type"] == "row" or panel.get("targets"), panel["title"], "asks for nothing")
        for target in panel.get("targets", ()):
            expression = target["expr"]
            check("{job=~\"$job\", instance=~\"$instance\"}" in expression.replace("=~\"$instance\", phase", "=~\"$instance\"}"), panel["title"], "does not follow the variables")
            for name, value in GIVEN:
                expression = expression.replace(name, value)
            yield panel["title"], expression


def check_dashboard(prometheus):
    known = set(prometheus.get("label/__name__/values"))
    count = 0
    for title, expression in dashboard():
        count += 1
        names = metrics_of(promql_parser.parse(expression), set())
        check(names, title, "names no metric:", expression)
        for name in names - known:
            check(False, title, "asks for", name, "which is neither scraped nor recorded")
        check(prometheus.query(expression), title, "has no series:", expression)
    print("%d expressions of the dashboard, each with a series" % count)


def check_rules(prometheus):
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        check(rule["health"] == "ok", rule["name"], rule.get("lastError"))
        if rule["type"] == "recording":
            needs_graphs = rule["name"] in ("kernserve:graph_hits:share5m",)  # the CPU looks nothing up
            check(prometheus.query(rule["name"]) or needs_graphs, rule["name"], "records nothing")
        else:
            fires = [alert for alert in rule["alerts"] if alert["state"] == "firing"]  # a host that stalls may make one pending
            check(not fires, rule["name"], "fires over a daemon that is well:", fires)
    print("%d rules evaluated, none with a fault, no alert" % len(rules))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--seconds", type=int, default=12, help="of load, at least (12)")
    arguments = parser.parse_args()
    for tool in ("prometheus", "promtool"):
        if not shutil.which(tool):
            print("%s is not installed" % tool)
            return 77
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
    promtool("test", "rules", "rules_test.yml")
    check_alerts()
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens")
        with open(os.open(tokens, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(TOKEN + "\n")
        with Daemon(arguments.kernserve, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M", "--token-file", tokens) as daemon:
            prometheus = Prometheus(folder, daemon)
            load = Load(daemon)
            try:
                check(comes_to(lambda: prometheus.scrapes() >= arguments.seconds, True, 60), "Prometheus scraped", prometheus.scrapes(), "times only")
                check_rules(prometheus)
                check_dashboard(prometheus)
            finally:
                load.ends = True
                load.join(20)
                prometheus.close()
            print("%d requests meanwhile" % load.count)
    print("%d wrong" % wrongs())
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What deploy/ holds for Kubernetes, KServe, Helm and Compose, by each tool that can judge it here; no cluster is needed.

manifests.py [--kserve PYTHON] [--self-test]    with the Python of requirements.txt; PYTHON: tests/compat's, which has kserve
--self-test plants a mistake for each check into a copy, and looks for its message. Exit code 77: a tool is missing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import helm_python
    import kubernetes_validate
    import yaml
except ImportError as missing:
    print("the package %s is not installed" % missing.name)
    sys.exit(77)

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.dirname(sys.executable)
OVERLAYS = ("gpu", "mig", "cpu", "keda")
KUBERNETES = "1.33"  # the version whose schemas judge
SHARED = ("deploy/k8s", "deploy/helm", "deploy/kserve", "deploy/compose.yaml", "Dockerfile", "server/base/config/options.def", "server/observe/metrics.def")
# Findings of checkov that stay, and why.
EXPLAINED = {
    "CKV_K8S_15": ("", "the policy of the image is the site's: IfNotPresent suits a version that never moves"),
    "CKV_K8S_43": ("", "the digest is the site's, which builds the image: kustomize's images, or the chart's values"),
    "CKV_K8S_21": ("", "the namespace is named when the files are applied"),
    "CKV2_K8S_6": ("Pod.default.kserve", "the gateway of KServe decides what reaches its pods"),
    "CKV_DOCKER_7": ("Dockerfile", "the images are arguments of the build, with versions in them"),
}
# Packages of the base image's own release: their versions follow it.
HADOLINT = ("--ignore", "DL3008")
# Keys of objects that no package here has a schema for: {kind: {path: keys}}, from their documents.
OWN = {
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "spec": {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod", "fallback", "triggers", "advanced"},
        "spec.scaleTargetRef": {"name", "kind", "apiVersion"}, "spec.fallback": {"failureThreshold", "replicas", "behavior"},
        "spec.triggers": {"type", "name", "metadata", "authenticationRef", "metricType", "useCachedMetrics"},
        "spec.triggers.metadata": {"serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues", "namespace"}},
    ("monitoring.coreos.com/v1", "PodMonitor"): {
        "spec": {"jobLabel", "selector", "podMetricsEndpoints", "namespaceSelector", "podTargetLabels"}, "spec.selector": {"matchLabels", "matchExpressions"},
        "spec.podMetricsEndpoints": {"port", "path", "interval", "scrapeTimeout", "authorization", "scheme", "honorLabels"},
        "spec.podMetricsEndpoints.authorization": {"type", "credentials"}, "spec.podMetricsEndpoints.authorization.credentials": {"name", "key", "optional"}},
}


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


class Tree:
    """deploy/ at a root, and what comes of it."""

    def __init__(self, root, kserve):
        self.root, self.kserve, self.made = root, kserve, {}

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def overlay(self, name):
        """(objects, what kubectl said where it failed)"""
        if name not in self.made:
            done = subprocess.run([os.path.join(BIN, "kubectl"), "kustomize", self.path("deploy/k8s/overlays", name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.made[name] = ([one for one in yaml.safe_load_all(done.stdout) if one], done.stderr.strip() if done.returncode else "")
        return self.made[name]

    def objects(self):
        for name in OVERLAYS:
            yield from (("overlays/" + name, one) for one in self.overlay(name)[0])

    def kserve_objects(self):
        for name in ("runtime.yaml", "service.yaml"):
            with open(self.path("deploy/kserve", name)) as file:
                yield yaml.safe_load(file)

    def runtime_pod(self):
        """The Pod that KServe makes of the runtime's containers."""
        runtime, service = self.kserve_objects()
        pod = {key: service["spec"]["predictor"][key] for key in ("terminationGracePeriodSeconds", "automountServiceAccountToken", "enableServiceLinks", "securityContext")}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kserve", "labels": {"app": "kserve"}},
                "spec": {**pod, "containers": runtime["spec"]["containers"], "volumes": runtime["spec"]["volumes"]}}

    def text(self, path):
        with open(self.path(path)) as file:
            return file.read()


# --- checks: each yields sentences ------------------------------------------------------------------------------------------


def check_overlays(tree):
    for name in OVERLAYS:
        objects, said = tree.overlay(name)
        if said or not objects:
            yield "overlays/%s cannot be made: %s" % (name, said)


def walk_own(value, keys, path):
    if isinstance(value, list):
        for one in value:
            yield from walk_own(one, keys, path)
    elif isinstance(value, dict) and path in keys:
        for key, one in value.items():
            if key not in keys[path]:
                yield "%s has no key %s" % (path, key)
            yield from walk_own(one, keys, path + "." + key)


def check_schemas(tree):
    objects = list(tree.objects()) + [("kserve", tree.runtime_pod())]
    for where, one in objects:
        kind = (one.get("apiVersion"), one.get("kind"))
        if kind in OWN:
            yield from ("%s: %s: %s" % (where, kind[1], fault) for fault in walk_own(one.get("spec"), OWN[kind], "spec"))
            continue
        try:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
        except Exception as fault:  # its own kinds, and jsonschema's
            yield "%s: %s/%s: %s" % (where, kind[1], one.get("metadata", {}).get("name"), str(getattr(fault, "message", fault)).split("\n")[0])


def without_labels(value):
    if isinstance(value, dict):
        return {key: without_labels(one) for key, one in value.items() if key not in ("labels", "matchLabels") and not (key == "selector" and "app.kubernetes.io/name" in one)}
    return [without_labels(one) for one in value] if isinstance(value, list) else value


def named(objects):
    return {"%s/%s" % (one["kind"], one["metadata"]["name"]): without_labels(one) for one in objects}


def check_chart(tree):
    chart = tree.path("deploy/helm/kernserve")
    report = helm_python.lint(chart, strict=True)
    yield from ("helm lint: %s: %s" % (message["path"], message["error"]) for message in report["messages"] if message["severity"] >= 2)
    try:
        made = helm_python.Chart.load(chart).render(name="kernserve")
    except helm_python.HelmError as fault:
        yield "helm: %s" % fault
        return
    rendered = named(one for text in made.values() for one in yaml.safe_load_all(text) if one)
    overlay = named(tree.overlay("gpu")[0])
    for name in sorted(set(rendered) ^ set(overlay)):
        yield "helm: %s is in the %s alone" % (name, "chart" if name in rendered else "overlay gpu")
    for name in sorted(set(rendered) & set(overlay)):
        if rendered[name] != overlay[name]:
            yield "helm: %s differs from overlays/gpu: %s" % (name, difference(rendered[name], overlay[name]))


def difference(one, other, where=""):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other)):
            if one.get(key) != other.get(key):
                return difference(one.get(key), other.get(key), where + "." + key)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other)):
            if pair[0] != pair[1]:
                return difference(*pair, "%s[%d]" % (where, at))
    return "%s: %r, there %r" % (where, one, other)


def check_kserve(tree):
    runtime, service = objects = list(tree.kserve_objects())
    if service["spec"]["predictor"]["model"].get("runtime") != runtime["metadata"]["name"]:
        yield "kserve: the service names another runtime"
    if not tree.kserve:
        return
    done = subprocess.run([tree.kserve, "-B", os.path.join(HERE, "kserve_keys.py")], input=json.dumps(objects), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        yield from ("kserve: " + line for line in (done.stdout or done.stderr).strip().splitlines())


def check_compose(tree):
    done = run(os.path.join(BIN, "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", tree.path("deploy/compose.yaml"))
    if done.returncode:
        yield "compose.yaml: %s" % " ".join(done.stdout.split())[:300]
    for path in re.findall(r"\./([\w./-]+):/", tree.text("deploy/compose.yaml")):
        if not os.path.exists(os.path.join(ROOT, "deploy", path)):
            yield "compose.yaml: no file %s" % path


def check_hardening(tree):
    """checkov, of every overlay's objects and of the Dockerfile."""
    with tempfile.TemporaryDirectory() as folder:
        for name in OVERLAYS:
            with open(os.path.join(folder, name + ".yaml"), "w") as file:
                yaml.safe_dump_all(tree.overlay(name)[0], file)
        with open(os.path.join(folder, "kserve.yaml"), "w") as file:
            yaml.safe_dump(tree.runtime_pod(), file)
        shutil.copy(tree.path("Dockerfile"), folder)
        done = subprocess.run([os.path.join(BIN, "checkov"), "-d", folder, "--framework", "kubernetes", "dockerfile", "--skip-download", "--compact", "--quiet", "-o", "json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    reports = json.loads(done.stdout)
    reports = reports if isinstance(reports, list) else [reports]
    if len(reports) != 2 or any(not report.get("summary", {}).get("passed") for report in reports):
        yield "checkov did not read both: %s" % done.stdout[:300]
        return
    found = {(one["check_id"], one["check_name"], one["resource"]) for report in reports for one in report["results"]["failed_checks"]}
    yield from ("checkov: %s, %s: %s" % one for one in sorted(found)
                if one[0] not in EXPLAINED or EXPLAINED[one[0]][0] not in one[2])


def check_dockerfile(tree):
    done = run(os.path.join(BIN, "hadolint"), *HADOLINT, tree.path("Dockerfile"))
    if done.returncode:
        yield from ("hadolint: " + line.rpartition("/")[2] for line in done.stdout.strip().splitlines())


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|)", text).groups()
    return int(number) * {"ms": 0.001, "m": 60}.get(unit, 1)


def pods(tree):
    yield from ((where, one["spec"]["template"]["spec"]) for where, one in tree.objects() if one["kind"] == "Deployment")
    yield "kserve", tree.runtime_pod()["spec"]


def check_options(tree):
    """Arguments and KERNSERVE_ variables are options that exist, and leave the daemon its time to stop."""
    options = set(re.findall(r'^(?:TEXT|LIST|SIZE|TIME|COUNT|OCTAL|FLAG|CHOICE(?:_OF)?)\(\w+,(?: \w+,)? "([\w-]+)"', tree.text("server/base/config/options.def"), re.M))
    for where, pod in pods(tree):
        container = pod["containers"][0]
        given = dict(argument.lstrip("-").partition("=")[::2] for argument in container["args"])
        given.update((one["name"][10:].lower().replace("_", "-"), one["value"]) for one in container["env"] if one["name"].startswith("KERNSERVE_"))
        yield from ("%s: no option %s" % (where, name) for name in sorted(set(given) - options))
        needs = seconds(given.get("drain-delay", "0")) + seconds(given.get("shutdown-timeout", "30s"))
        if pod["terminationGracePeriodSeconds"] <= needs:
            yield "%s: a grace of %d s, for %d s of drain and shutdown" % (where, pod["terminationGracePeriodSeconds"], needs)


def check_metrics(tree):
    """Scalers read metrics that exist."""
    defined = re.findall(r'^[A-Z]+(?:_BY)?\([^"]*?\b(COUNTER|GAUGE|HISTOGRAM)\b[^"]*"(\w+)"', tree.text("server/observe/metrics.def"), re.M)
    real = {name + suffix for kind, name in defined for suffix in {"COUNTER": ("_total",), "GAUGE": ("",), "HISTOGRAM": ("_sum", "_count", "_bucket")}[kind]}
    for where, one in tree.objects():
        if one["kind"] in ("HorizontalPodAutoscaler", "ScaledObject"):
            yield from ("%s: no metric %s" % (where, name) for name in re.findall(r"\bkernserve_\w+", json.dumps(one["spec"])) if name not in real)


CHECKS = (check_overlays, check_schemas, check_chart, check_kserve, check_compose, check_hardening, check_dockerfile, check_options, check_metrics)

# Mistakes: the check, the file, what is replaced (None: appended), by what, a part of the message.
PLANTS = (
    (check_overlays, "deploy/k8s/base/kustomization.yaml", "  - service.yaml", "  - servise.yaml", "cannot be made"),
    (check_schemas, "deploy/k8s/base/deployment.yaml", "terminationGracePeriodSeconds", "terminationGracePeriod", "terminationGracePeriod"),
    (check_schemas, "deploy/k8s/base/autoscaler.yaml", "autoscaling/v2", "autoscaling/v2beta2", "HorizontalPodAutoscaler"),
    (check_schemas, "deploy/k8s/base/service.yaml", "port: 8000", 'port: "eight"', "eight"),
    (check_schemas, "deploy/k8s/base/podmonitor.yaml", "podMetricsEndpoints", "podMetricsEndpoint", "no key podMetricsEndpoint"),
    (check_schemas, "deploy/k8s/overlays/keda/scaledobject.yaml", "ignoreNullValues", "ignoreNullValue", "no key ignoreNullValue"),
    (check_schemas, "deploy/kserve/runtime.yaml", "readOnlyRootFilesystem", "readonlyRootFilesystem", "readonlyRootFilesystem"),
    (check_chart, "deploy/helm/kernserve/templates/deployment.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 30", "Deployment/kernserve differs"),
    (check_chart, "deploy/helm/kernserve/templates/service.yaml", '"kernserve.selector"', '"kernserve.selektor"', "helm"),
    (check_kserve, "deploy/kserve/runtime.yaml", "supportedModelFormats", "supportedModelFormat", "no key supportedModelFormat"),
    (check_kserve, "deploy/kserve/service.yaml", "runtime: kernserve", "runtime: kernserve-gpu", "another runtime"),
    (check_compose, "deploy/compose.yaml", "    image: prom", "    imag: prom", "imag"),
    (check_hardening, "deploy/k8s/base/deployment.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "CKV_K8S_22"),
    (check_hardening, "deploy/k8s/base/kustomization.yaml", "  - network.yaml\n", "", "CKV2_K8S_6"),
    (check_dockerfile, "Dockerfile", None, "WORKDIR src\n", "DL3000"),
    (check_options, "deploy/k8s/base/deployment.yaml", "--drain-delay=5s", "--drain-dealy=5s", "no option drain-dealy"),
    (check_options, "deploy/k8s/base/deployment.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 30", "a grace of 30 s"),
    (check_metrics, "deploy/k8s/base/autoscaler.yaml", "kernserve_queue_depth", "kernserve_queue_deep", "no metric kernserve_queue_deep"),
)


def copy_to(folder):
    for path in SHARED:
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        (shutil.copytree if os.path.isdir(os.path.join(ROOT, path)) else shutil.copy)(os.path.join(ROOT, path), os.path.join(folder, path))


def self_test(kserve):
    missed = 0
    for check in set(CHECKS) - {plant[0] for plant in PLANTS}:
        print("MISSED  no mistake is planted for %s" % check.__name__)
        missed += 1
    for check, path, old, new, message in PLANTS:
        if check is check_kserve and not kserve and "key" in message:
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy_to(folder)
            tree = Tree(folder, kserve)
            text = tree.text(path)
            with open(tree.path(path), "w") as file:
                file.write(text.replace(old, new) if old else text + new)
            found = [fault for fault in check(tree) if message in fault] if not old or old in text else []
        print("%-7s %s" % ("caught" if found else "MISSED", found[0] if found else "%s in %s" % (message, path)))
        missed += not found
    print("%d planted, %d missed" % (len(PLANTS), missed))
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kserve", default="")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    for tool in ("kubectl", "check-jsonschema", "checkov", "hadolint"):
        if not os.access(os.path.join(BIN, tool), os.X_OK):
            print("%s is not installed beside %s" % (tool, sys.executable))
            return 77
    if arguments.self_test:
        return 1 if self_test(arguments.kserve) else 0
    tree = Tree(ROOT, arguments.kserve)
    found = [fault for check in CHECKS for fault in check(tree)]
    print("".join(fault + "\n" for fault in found), end="")
    if not arguments.kserve:
        print("the keys of KServe were not looked at: no Python with kserve")
    print("%d objects of %d overlays, a chart, a runtime, a compose file: %d faults" % (sum(1 for _ in tree.objects()), len(OVERLAYS), len(found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

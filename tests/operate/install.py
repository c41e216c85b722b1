#!/usr/bin/env python3
"""What cmake --install puts where, file by file; that it keeps a configuration file that is there; and that the version stands once: every
file that repeats it agrees with CMakeLists.txt.

install.py BUILD-FOLDER
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import tree_files  # noqa: E402

SINGLE = ["bin/kernserve", "share/man/man8/kernserve.8", "share/man/man5/kernserve.conf.5", "share/bash-completion/completions/kernserve",
          "share/zsh/site-functions/_kernserve", "share/kernserve/compose.yaml"] + ["share/doc/kernserve/" + name for name in (
              "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "kernserve.spdx.json")]
# A folder of the tree, and where all of its files are.
FOLDERS = {"docs": "share/doc/kernserve/docs", "deploy/systemd": "lib/systemd/system"}
FOLDERS.update({folder: "share/kernserve/" + os.path.basename(folder) for folder in (
    "tests/load", "tests/clients", "deploy/prometheus", "deploy/grafana", "deploy/k8s", "deploy/helm", "deploy/kserve", "deploy/haproxy", "deploy/envoy")})
# Where the version stands again: file, pattern, how often.
REPEATED = [("CHANGELOG.md", r"^## (\d\S*)", 1), ("deploy/debian/changelog", r"^kernserve \((.*)\)", 1), ("deploy/helm/kernserve/Chart.yaml", r"^version: (\S+)", 1),
            ("deploy/helm/kernserve/Chart.yaml", r'^appVersion: "(.*)"', 1), ("deploy/k8s/base/deployment.yaml", r"image: kernserve:(\S+)", 2),
            ("deploy/kserve/runtime.yaml", r"image: kernserve:(\S+)", 1), ("deploy/compose.yaml", r"image: kernserve:(\S+)", 1),
            ("docs/deploy.md", r"`kernserve:([\d.]+)`", 1)]
wrong = 0


def check(good, *said):
    global wrong
    if not good:
        wrong += 1
        print("WRONG", *said)


def run(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    check(done.returncode == 0, words, done.returncode, done.stdout[-500:], done.stderr[-500:])
    return done.stdout


def text(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def install(build, folder, prefix):
    run("cmake", "--install", build, "--prefix", prefix, DESTDIR=folder)
    return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}


def judge_list(found):
    wanted = {"usr/" + path for path in SINGLE} | {"etc/kernserve/kernserve.conf"}
    tree = tree_files.files(ROOT)
    for folder, there in FOLDERS.items():
        wanted |= {"usr/%s/%s" % (there, path[len(folder) + 1:]) for path in tree if path.startswith(folder + "/") and not path.endswith(".conf")}
    wanted |= {"usr/share/kernserve/" + path[len("deploy/"):] for path in tree if path.startswith("deploy/systemd/") and path.endswith(".conf")}
    for path in sorted(found - wanted):
        check(False, "installed, and not on the list:", path)
    for path in sorted(wanted - found):
        check(False, "not installed:", path)


def judge_units(folder, prefix, etc):
    for name in os.listdir(folder + prefix + "/lib/systemd/system"):
        unit = text(folder + prefix, "lib/systemd/system", name)
        for path in re.findall(r"(/\S*/)kernserve(?:\.conf)?(?= |$)", "\n".join(re.findall(r"^Exec.*", unit, re.M)), re.M):
            check(path in (prefix + "/bin/", etc + "/kernserve/"), name, "names", path)
        check(name.endswith(".socket") or "ExecStart=%s/bin/kernserve" % prefix in unit, name, "starts another program")


def versions(program):
    version = re.search(r"^project\(kernserve VERSION (\S+)", text(ROOT, "CMakeLists.txt"), re.M).group(1)
    for path, pattern, count in REPEATED:
        found = re.findall(pattern, text(ROOT, path), re.M)[:count]
        check(found == [version] * count, path, "has the version", found, "not", version)
    check(run(program, "--version").startswith("kernserve %s\nrevision " % version), "--version")
    check("is of version %s." % version in run(program, "--manual=8"), "kernserve(8)")
    if not shutil.which("git"):
        print("git is not installed: the version is not compared with a tag")
        return
    tag = subprocess.run(["git", "-C", ROOT, "describe", "--exact-match", "--match", "v*"], capture_output=True, text=True)
    check(tag.returncode != 0 or tag.stdout.strip() == "v" + version, "the tag", tag.stdout)


def given_revision(folder):
    """It wins over git's."""
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DKERNSERVE_CUDA=OFF", "-DBUILD_TESTING=OFF", "-DKS_REVISION=planted")
    check('KS_REVISION=\\"planted\\"' in text(folder, "build.ninja"), "-DKS_REVISION does not win")


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        at = folder + "/a"
        judge_list(install(build, at, "/usr"))
        judge_units(at, "/usr", "/etc")
        check(os.access(at + "/usr/share/kernserve/clients/curl.sh", os.X_OK), "a script is not executable")
        config = at + "/etc/kernserve/kernserve.conf"
        with open(config, "w") as file:
            file.write("queue = 5\n")
        install(build, at, "/usr")
        check(text(config) == "queue = 5\n", "a configuration file is not kept")
        install(build, folder + "/b", "/opt/kernserve")
        judge_units(folder + "/b", "/opt/kernserve", "/opt/kernserve/etc")
        check("queue" in text(folder, "b/opt/kernserve/etc/kernserve/kernserve.conf"), "the configuration file of another prefix")
        versions(at + "/usr/bin/kernserve")
        given_revision(folder + "/c")
    print("%d wrong" % wrong)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

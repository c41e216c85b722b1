#!/usr/bin/env python3
"""deploy/image.sh builds the image `cpu`, and it is run: as root, with buildah and debootstrap. Exit code 77: it cannot be done here.

image.py [--keep]    --keep leaves the images in build-test/image

Debian's base image comes from debootstrap, kept in the cache folder, so no registry is asked. The stage that builds has ccache besides, and
the host's folder of it: what earlier runs compiled need not be compiled again. The container runs in a network namespace of its own,
where it may listen on all addresses:
  - it has the numeric user, and is reached on both ports although an option is given
  - the image's health check says 0, and 1 once the daemon stands still
  - version and revision are the tree's, in the labels and in --version; SIGTERM ends it with 0
  - it has at most 60 MB more than its base
The targets `cuda` and `full` need a base image that holds a CUDA toolkit: of them the tests see the Dockerfile alone.
"""

import argparse
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
FOLDER = os.path.join(ROOT, "build-test", "image")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kernserve", "debian-12")
BUILDAH = ["buildah", "--root", FOLDER + "/root", "--runroot", FOLDER + "/run", "--storage-driver"]
IMAGE, BUILD_BASE = "localhost/kernserve:test", "localhost/debian:12-ccache"
CCACHE = os.environ.get("CCACHE_DIR") or os.path.join(os.path.dirname(os.path.dirname(CACHE)), "ccache")
GROWTH_MB = 60
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Fault(Exception):
    pass


class Unable(Exception):
    """What this host does not permit, or an archive that cannot be reached."""


def check(good, *what):
    if not good:
        raise Fault(" ".join(str(one) for one in what))


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    check(done.returncode == 0, "rc", done.returncode, "of", *words, ":", done.stdout[-3000:])
    return done.stdout.strip()


def buildah(*words):
    return run(*BUILDAH, *words)


def debian():
    """A minimal Debian 12; what apt keeps is removed, and is not kept later, as in the images that Debian publishes."""
    if os.path.exists(CACHE + "/.complete"):
        return
    shutil.rmtree(CACHE, ignore_errors=True)
    os.makedirs(os.path.dirname(CACHE), exist_ok=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", CACHE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280)
    if done.returncode:
        raise Unable("debootstrap: " + " ".join(done.stdout.splitlines()[-1:]))
    run("chroot", CACHE, "apt-get", "clean")
    shutil.rmtree(CACHE + "/var/lib/apt/lists")
    with open(CACHE + "/etc/apt/apt.conf.d/docker-clean", "w") as file:
        file.write('DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin"; };\n'
                   'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\n')
    open(CACHE + "/.complete", "w").close()


def megabytes(name):
    """Of an image's files; what buildah lists is rounded to three digits."""
    container = buildah("from", "--pull-never", name)
    mounted = buildah("mount", container)
    size = int(run("du", "-s", "--apparent-size", "--block-size=1", mounted).split()[0]) / 1e6
    buildah("rm", container)
    return size


def choose_storage():
    """Overlays where the kernel has them for us; else every layer is a copy."""
    done = subprocess.run([*BUILDAH, "overlay", "from", "scratch"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        shutil.rmtree(FOLDER + "/root")
    BUILDAH.append("vfs" if done.returncode else "overlay")


def build():
    debian()
    choose_storage()
    try:
        container = buildah("from", "scratch")
    except Fault as fault:
        raise Unable("buildah makes no container: %s" % fault) from None
    buildah("add", "--quiet", container, CACHE, "/")
    buildah("commit", "--quiet", container, "localhost/debian:12")
    buildah("tag", "localhost/debian:12", "localhost/debian:12-slim")
    enter = ("run", "--isolation", "chroot", "--network", "host", container, "--")
    try:
        buildah(*enter, "apt-get", "-q", "-o", "Acquire::Retries=2", "-o", "APT::Update::Error-Mode=any", "update")
        buildah(*enter, "apt-get", "-q", "install", "-y", "--no-install-recommends", "ccache")
    except Fault as fault:
        raise Unable("apt-get in a container: %s" % fault) from None
    buildah("config", "--env", "CCACHE_DIR=/ccache", "--env", "CCACHE_BASEDIR=/src", "--env", "CCACHE_NOHASHDIR=1", container)
    buildah("commit", "--quiet", container, BUILD_BASE)
    buildah("rm", container)
    os.makedirs(CCACHE, exist_ok=True)
    wrapper = os.path.join(FOLDER, "buildah")
    with open(wrapper, "w") as file:
        file.write('#!/bin/sh\nexec %s "$@"\n' % " ".join(BUILDAH))
    os.chmod(wrapper, 0o755)
    run(os.path.join(ROOT, "deploy", "image.sh"), "cpu", IMAGE, "--isolation", "chroot", "--network", "host", "--format", "docker", "--pull-never",
        "--build-arg", "DEBIAN_BUILD=" + BUILD_BASE, "--volume", CCACHE + ":/ccache",
        env={**os.environ, "KS_ENGINE": wrapper}, timeout=550)


def own_network():
    """Leaves the host's network: an empty one, with loopback."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        raise Unable("no network namespace")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))


def ask(path, body=None):
    with DIRECT.open(urllib.request.Request("http://127.0.0.1:" + path, data=body), timeout=5) as answer:
        return answer.read()


def daemon_pid(ancestor):
    """Of the daemon: buildah's own processes stand between."""
    waiting = [ancestor]
    while waiting:
        pid = waiting.pop()
        if os.readlink("/proc/%d/exe" % pid).endswith("/usr/local/bin/kernserve"):
            return pid
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                waiting.extend(int(child) for child in file.read().split())
    raise Fault("no daemon below process %d" % ancestor)


def ready(process):
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        try:
            ask("8000/v2/health/ready")
            return True
        except OSError:
            time.sleep(0.05)
    return False


def try_out(version, revision):
    image = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    labels, container = image["Labels"], buildah("from", "--pull-never", IMAGE)
    enter = [*BUILDAH, "run", "--isolation", "chroot", container, "--"]
    check(labels["org.opencontainers.image.version"] == version and labels["org.opencontainers.image.revision"] == revision, "labels", labels)
    said = run(*enter, "kernserve", "--version")
    check("revision " + revision in said.splitlines() and version in said.splitlines()[0], "--version:", said)
    health = image["Healthcheck"]["Test"]
    check(health[0] == "CMD", "the health check", health)
    process = subprocess.Popen([*enter, *image["Entrypoint"], "--warm", "softmax:4,4:FP32"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pid = None
    try:
        check(ready(process), "not ready")
        pid = daemon_pid(process.pid)
        with open("/proc/%d/status" % pid) as file:
            check(re.search(r"^Uid:\t65532\t65532\t65532\t65532$", file.read(), re.M), "the daemon's user is not 65532")
        row = struct.unpack("<4f", ask("8000/v2/models/softmax/infer?shape=4&datatype=FP32", struct.pack("<4f", 0, 0, 0, 0)))
        check(row == (0.25,) * 4, "softmax of zeros:", row)
        check('revision="%s"' % revision in ask("8002/metrics").decode(), "the metrics name no revision")
        check(subprocess.run([*enter, *health[1:]], stderr=subprocess.DEVNULL).returncode == 0, "the health check of a daemon that is well")
        os.kill(pid, signal.SIGSTOP)
        check(subprocess.run([*enter, *health[1:]], stderr=subprocess.DEVNULL).returncode == 1, "the health check of a daemon that stands still")
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
        check(process.wait(60) == 0, "SIGTERM:", process.returncode)
    except Exception:
        if pid and process.poll() is None:
            os.kill(pid, signal.SIGKILL)
        elif process.poll() is None:
            process.kill()
        print(process.communicate()[0][-3000:])
        raise
    buildah("rm", container)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    for program in ("buildah", "debootstrap"):
        if not shutil.which(program):
            print("%s is not installed" % program)
            return 77
    if os.geteuid() != 0:
        print("debootstrap and a network namespace need root")
        return 77
    with open("/proc/self/mountinfo") as file:
        if not any(line.split()[4] == "/" for line in file):
            print("/ is no mount point, as in a chroot: buildah cannot remount it")
            return 77
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    try:
        build()
        base, size = megabytes("localhost/debian:12"), megabytes(IMAGE)
        print("base %.0f MB, image %.0f MB" % (base, size))
        check(size - base <= GROWTH_MB, "the image has", round(size - base), "MB more than its base, allowed", GROWTH_MB)
        own_network()
        with open(os.path.join(ROOT, "CMakeLists.txt")) as file:
            version = re.search(r"^project\(kernserve VERSION ([\d.]+)", file.read(), re.M).group(1)
        git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try_out(version, git.stdout.strip() or "unknown")
    except Fault as fault:
        print("WRONG %s" % fault)
        return 1
    except Unable as reason:
        print(" ".join(str(reason).split())[-300:])
        return 77
    finally:
        if not arguments.keep:
            shutil.rmtree(FOLDER, ignore_errors=True)
    print("cpu: built and run. cuda, full: no base image with a toolkit here, their Dockerfile is judged with the manifests")
    return 0


if __name__ == "__main__":
    sys.exit(main())

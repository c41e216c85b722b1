#!/usr/bin/env python3
"""What is asked of a configuration without serving: --check-config finds all that a start would, and lists it; --healthcheck finds the
daemon of the same file and environment; a lack of permission is 77, which no supervisor retries.

engine_commands.py KERNSERVE
"""

import os
import subprocess
import sys
import tempfile

from daemon import check, cpu_daemon, daemon_path, wrongs
from ports import free_ports

HERE = {k: v for k, v in os.environ.items() if not k.startswith("KERNSERVE_")}


def run(*options, environment=None, uid=None):
    """Exit code, stdout, stderr."""
    become = (lambda: os.setuid(uid)) if uid else None
    done = subprocess.run([daemon_path(), *options], capture_output=True, text=True, timeout=60, env={**HERE, **(environment or {})}, preexec_fn=become)
    return done.returncode, done.stdout, done.stderr


def is_refused(name, code, words, *options, **how):
    """Each of the words in a line of its own, and no other line; the code is the first one's."""
    got, out, said = run("--check-config", *options, **how)
    lines = said.splitlines()
    check(got == code and not out, name, got, out, said)
    check(len(lines) == len(words) and all(word in line for word, line in zip(words, lines)), name, said)


def check_config(folder):
    data, admin = free_ports(2)
    at = ("--listen", "127.0.0.1:%d" % data, "--admin-listen", "127.0.0.1:%d" % admin)
    code, out, said = run("--check-config", *at, "--backend", "cpu", "--warm", "softmax:4,4:FP32", "--tune-cache", folder + "/cache")
    check((code, out, said) == (0, "configuration accepted: http://127.0.0.1:%d, metrics on :%d, backend cpu\n" % (data, admin), ""), "accepted", code, out, said)
    local = "unix:%s/socket" % folder
    code, out, said = run("--check-config", "--listen", local, "--admin-listen=")
    check((code, out, said) == (0, "configuration accepted: %s, backend auto\n" % local, "") and not os.listdir(folder), "a unix socket", code, out, said)

    is_refused("--warm and the tune cache", 78, ("--warm nope: no such model", "tune-cache: no/such"), *at, "--warm", "nope", "--tune-cache", "no/such/file")
    is_refused("two of --warm", 78, ("shape 1 is not like", "no such datatype"), *at, "--warm", "softmax:x", "--warm", "softmax:4:F32")
    is_refused("another machine's address", 75, ("cannot listen on 192.0.2.1", "--warm nope"), "--listen", "192.0.2.1:%d" % data, "--admin-listen=",
               "--allow-unauthenticated", "--warm", "nope")
    is_refused("no address", 78, ("no address to listen on", "token-file"), "--listen=", "--token-file", folder + "/none")
    is_refused("a unix socket's folder", 78, ("cannot listen on unix:/no/such",), "--listen", "unix:/no/such/socket", "--admin-listen=")
    is_refused("a library", 78, ("cublaslt: %s/none" % folder,), *at, "--cublaslt", folder + "/none")
    is_refused("the device", 78, ("device: 'first'",), *at, "--device", "first")
    is_refused("memory", 78, ("memory: pinned-bytes",), *at, "--pinned-bytes", "256G", "--inflight-bytes", "1024G")
    code, out, said = run("--check-config", *at, environment={"KERNSERVE_MAX_BODYY": "1"})
    check(code == 0 and "warning: no option has the variable KERNSERVE_MAX_BODYY; the nearest is KERNSERVE_MAX_BODY\n" in said, "a variable", code, out, said)


def without_permission(folder):
    """Where the test runs with every right."""
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
        bound = int(file.read()) > 80
    if os.getuid() != 0 or subprocess.run(["/bin/true"], preexec_fn=lambda: os.setuid(65534)).returncode or not os.access(daemon_path(), os.X_OK):
        return
    try:
        run("--version", uid=65534)
    except PermissionError:
        return  # the build's folder is closed to others
    if bound:
        is_refused("port 80", 77, ("127.0.0.1:80: Permission denied",), "--listen", "127.0.0.1:80", "--admin-listen=", uid=65534)
        for supervise in ((), ("--supervise",)):
            code, _, said = run("--backend", "cpu", "--listen", "127.0.0.1:80", "--admin-listen=", *supervise, uid=65534)
            check(code == 77 and "Permission denied" in said and "again" not in said, "port 80, started", supervise, code, said)
    is_refused("a folder of the tune cache", 77, ("tune-cache: %s" % folder,), "--listen", "127.0.0.1:%d" % free_ports(1)[0], "--admin-listen=",
               "--tune-cache", folder + "/cache", uid=65534)
    is_refused("a folder of a socket", 77, ("cannot listen on unix:",), "--listen", "unix:%s/socket" % folder, "--admin-listen=", uid=65534)


def healthcheck(folder):
    local, conf = "unix:%s/socket" % folder, folder + "/kernserve.conf"
    with cpu_daemon("--threads", "1", "--listen", local) as daemon:
        data, admin = "127.0.0.1:%d" % daemon.port, "127.0.0.1:%d" % daemon.admin_port
        nobody = "127.0.0.1:%d" % free_ports(1)[0]
        with open(conf, "w") as file:
            file.write("listen = %s\nlisten = %s\nadmin-listen = %s\n" % (nobody, data, nobody))
        ways = (("the second listener", (), {"KERNSERVE_LISTEN": nobody, "KERNSERVE_ADMIN_LISTEN": admin}),
                ("a data listener", (), {"KERNSERVE_LISTEN": data, "KERNSERVE_ADMIN_LISTEN": ""}),
                ("a unix socket", (), {"KERNSERVE_LISTEN": local, "KERNSERVE_ADMIN_LISTEN": nobody}),
                ("all addresses", (), {"KERNSERVE_LISTEN": "0.0.0.0:%d" % daemon.port, "KERNSERVE_ADMIN_LISTEN": ""}),
                ("a file", ("--config", conf), {}), ("a file of the environment", (), {"KERNSERVE_CONFIG": conf}),
                ("the command line", ("--listen", data, "--admin-listen="), {}),
                ("a URL, whatever else is wrong", ("http://%s/v2/health/live" % data,), {"KERNSERVE_QUEUE": "many"}))
        for name, options, environment in ways:
            for question in ("--healthcheck", "--healthcheck=live", "--healthcheck=ready"):
                words = (question, *options) if options and options[0].startswith("http") else (*options, question)
                code, _, said = run(*words, environment=environment)
                check(code == 0 and not said, name, question, code, said)
        code, _, said = run("--healthcheck", environment={"KERNSERVE_QUEUE": "many"})
        check(code == 1 and "KERNSERVE_QUEUE" in said, "a configuration that is none", code, said)
        check(run("--healthcheck", "http://%s/v2/health/nope" % data)[0] == 1, "404")
        check(daemon.stop() == 0, "the exit code")
        for name, options, environment in ways[:-1]:
            code, _, said = run(*options, "--healthcheck", environment=environment)
            check(code == 1 and "nothing listens on" in said, name + ": after the end", code, said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_config(folder)
        without_permission(folder)
        healthcheck(folder)
    sys.exit(wrongs() > 0)


main()

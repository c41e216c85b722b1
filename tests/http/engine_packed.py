#!/usr/bin/env python3
"""PUT with for=matmul: a resident operand whose rows do not begin on 16 bytes is put so, once. Products by it have the values of the same
operand without a form, in every datatype, transposed or not, alone and joined; forms are counted, shared by equal contents, left
out where there is no room, and go with their content.

engine_packed.py KERNSERVE [--backend NAME]
"""

import json
import sys

from daemon import Daemon, check, metric, request, seed, settle, wrongs
from tensors import SIZES

MATMUL = "/v2/models/matmul/infer"
MIB = 1 << 20


def ask(connection, method, target, body=b"", *headers):
    return connection.ask(request(method, target, [*headers] + ([("Content-Length", 0)] if method == "PUT" and not body else []), body), method)


def entry_of(answer):
    return json.loads(answer.body)


def put(connection, name, dims, datatype, data, more=""):
    answer = ask(connection, "PUT", "/v2/tensors/%s?shape=%s&datatype=%s%s" % (name, ",".join(map(str, dims)), datatype, more), data)
    check(answer.status in (200, 201), "PUT", name, dims, datatype, more, answer)
    return entry_of(answer)


def values(generator, datatype, count):
    """Small numbers, as bits: sums of them are exact in every datatype."""
    few = {"FP16": (b"\0\0", b"\0\x3c", b"\0\x40", b"\0\xbc"), "BF16": (b"\0\0", b"\x80\x3f", b"\0\x40", b"\x80\xbf"),
           "FP32": (b"\0\0\0\0", b"\0\0\x80\x3f", b"\0\0\0\x40", b"\0\0\x80\xbf"), "FP64": (bytes(8), bytes(6) + b"\xf0\x3f", bytes(7) + b"\x40", bytes(6) + b"\xf0\xbf")}[datatype]
    return b"".join(generator.choice(few) for _ in range(count))


def product(connection, left, right, more=""):
    """left: dims and bytes of the body, or a name; right: a name."""
    body, shape = (left[1], "shape=%s&" % ",".join(map(str, left[0]))) if isinstance(left, tuple) else (b"", "INPUT0=@%s&" % left)
    answer = ask(connection, "POST", "%s?%sINPUT1=@%s%s" % (MATMUL, shape, right, more), body)
    check(answer.status == 200, "a product", more, answer)
    return answer.body


def products(connection, generator):
    for datatype in ("FP16", "BF16", "FP32", "FP64"):
        for k, n in ((70, 131), (33, 257), (64, 65), (129, 200)):
            m = generator.choice((1, 2, 5, 17))
            for transposed in (False, True):
                dims = [n, k] if transposed else [k, n]
                more = "&transpose_b=true" if transposed else ""
                odd = dims[1] * SIZES[datatype] >= 128 and dims[1] * SIZES[datatype] % 16 != 0
                data, x = values(generator, datatype, k * n), ([m, k], values(generator, datatype, m * k))
                plain = put(connection, "plain", dims, datatype, data)
                check(plain["forms"] == [], "a form that nobody asked for", plain)
                want = product(connection, x, "plain", more)
                ask(connection, "DELETE", "/v2/tensors/plain")
                formed = put(connection, "formed", dims, datatype, data, "&for=matmul")
                check(formed["forms"] == (["matmul"] if odd else []) and formed["etag"] == plain["etag"], "its form", datatype, dims, formed)
                check(product(connection, x, "formed", more) == want, "values by the form", datatype, m, dims, transposed)
                put(connection, "x", *((x[0], datatype, x[1])), "&for=matmul")
                check(product(connection, "x", "formed", more) == want, "values by two forms", datatype, m, dims, transposed)
                check(ask(connection, "GET", "/v2/tensors/formed").body == data, "the bytes stay as they are")
                plan = entry_of(ask(connection, "GET", "/v2/models/matmul/plan?shape=%d,%d&INPUT1=@formed%s" % (m, k, more)))
                check(plan["inputs"][1]["resident"] is True and plan["inputs"][1]["shape"] == dims, "/plan", plan["inputs"])
                for name in ("formed", "x"):
                    ask(connection, "DELETE", "/v2/tensors/" + name)


def figures(daemon):
    text = daemon.metrics()
    return metric(text, "kernserve_resident_bytes", kind="tensor"), metric(text, "kernserve_resident_bytes", kind="form")


def counted(daemon, connection, generator):
    """70 rows of 131 FP32: 524 bytes, 640 apart."""
    data = values(generator, "FP32", 70 * 131)
    put(connection, "a", [70, 131], "FP32", data)
    check(figures(daemon) == (36680, 0), "no form", figures(daemon))
    entry = put(connection, "b", [70, 131], "FP32", data, "&for=matmul")
    check(entry["forms"] == ["matmul"] and figures(daemon) == (36680, 44800), "equal contents are one, and have the form", entry, figures(daemon))
    check(entry_of(ask(connection, "GET", "/v2/tensors/a", b"", ("Accept", "application/json")))["forms"] == ["matmul"], "by each name")
    again = put(connection, "a", [70, 131], "FP32", data, "&for=matmul")
    check(again["forms"] == ["matmul"] and figures(daemon) == (36680, 44800), "a second form goes", again, figures(daemon))
    linked = ask(connection, "PUT", "/v2/tensors/c?etag=" + entry["etag"])
    check(linked.status == 201 and entry_of(linked)["forms"] == ["matmul"], "a link", linked)
    for target, code in (("/v2/tensors/d?etag=%s&for=matmul" % entry["etag"], "parameter"), ("/v2/tensors/d?shape=1&datatype=UINT8&for=softmax", "parameter"),
                         ("/v2/tensors/d?shape=1&datatype=UINT8&for=nothing", "parameter"), ("/v2/tensors/d?shape=1&datatype=UINT8&for=", "parameter")):
        answer = ask(connection, "PUT", target, b"" if "etag" in target else b"1")
        check((answer.status, answer.header("kernserve-error")) == (400, code), "refused", target, answer)
    for name in "abc":
        check(ask(connection, "DELETE", "/v2/tensors/" + name).status == 204, "DELETE", name)
    check(figures(daemon) == (0, 0), "all is gone", figures(daemon))


def without_room(daemon, connection):
    """Of 16 MiB one of 9 fits, and not its form; a small one beside it has one."""
    data = bytes(9 * MIB // 1000 * 1000)
    entry = put(connection, "wide", [len(data) // 1000, 250], "FP32", data, "&for=matmul")
    check(entry["forms"] == [] and figures(daemon)[1] == 0, "no room for a form", entry, figures(daemon))
    answer = ask(connection, "POST", MATMUL + "?shape=1,%d&INPUT1=@wide" % (len(data) // 1000), bytes(len(data) // 250))
    check(answer.status == 200, "it is used without", answer)
    check(put(connection, "small", [4, 250], "FP32", bytes(4000), "&for=matmul")["forms"] == ["matmul"], "a small one has")
    for name in ("wide", "small"):
        ask(connection, "DELETE", "/v2/tensors/" + name)
    check(figures(daemon) == (0, 0), "all is gone", figures(daemon))


def main():
    generator = seed()
    with Daemon(sys.argv[1], *sys.argv[2:], "--resident-bytes", "16M") as daemon:
        with daemon.connect(60) as connection:
            products(connection, generator)
            counted(daemon, connection, generator)
            without_room(daemon, connection)
        check(settle(daemon) == 0 and daemon.stop() == 0, "the daemon ends well")
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())

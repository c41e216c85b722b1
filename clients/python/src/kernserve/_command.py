"""kernserve-client: operations on .npy files, tensors that the daemon keeps, and a look at a daemon."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ._client import Client
from ._errors import BadRequest, Busy, Deadline, Error, Forbidden, Full, NotFound, Precondition, Unreachable
from ._tensor import Tensor

# sysexits.h
USAGE, DATA, NO_INPUT, UNAVAILABLE, SOFTWARE, IO_ERROR, AGAIN, NO_PERMISSION = 64, 65, 66, 69, 70, 74, 75, 77
EXITS = ((Forbidden, NO_PERMISSION), (BadRequest, DATA), (NotFound, DATA), (Precondition, DATA), (Full, UNAVAILABLE), (Busy, AGAIN), (Deadline, AGAIN),
         (Unreachable, UNAVAILABLE), (Error, SOFTWARE))


class NoFile(Exception):
    pass


def read(path: str) -> np.ndarray:
    try:
        return np.asarray(np.load(io.BytesIO(sys.stdin.buffer.read()) if path == "-" else path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise NoFile("%s: %s" % (path, error)) from None


def operand(client: Client, word: str) -> Any:
    """@NAME is a tensor of the daemon, anything else a file."""
    return client.tensor(word[1:]) if word.startswith("@") else read(word)


def stored(word: str) -> Dict[str, Any]:
    """Options of an operation whose result goes to `word`: @NAME stays with the daemon."""
    return {"store": word[1:]} if word.startswith("@") else {}


def write(path: str, values: Any) -> None:
    if isinstance(values, Tensor):
        return  # it is where it shall be
    if path == "-":
        data = io.BytesIO()
        np.save(data, np.asarray(values))
        sys.stdout.buffer.write(data.getvalue())
        sys.stdout.flush()
        return
    with open(path, "wb") as file:  # np.save would add .npy to the name
        np.save(file, np.asarray(values))


def axes_of(text: str) -> Any:
    return () if text == "all" else int(text) if "," not in text else tuple(int(part) for part in text.split(","))


def softmax(client: Client, given: argparse.Namespace) -> None:
    mask, lengths = (operand(client, word) if word else None for word in (given.mask, given.lengths))
    write(given.output, client.softmax(operand(client, given.x), mask, lengths, axis=given.axis, log=given.log, scale=given.scale, causal=given.causal,
                                       masked_rows=given.masked_rows, out_datatype=given.out_datatype, **stored(given.output)))


def reduce(client: Client, given: argparse.Namespace) -> None:
    segments = operand(client, given.segments) if given.segments else None
    write(given.output, client.reduce(operand(client, given.x), given.op, segments, axis=given.axis, keepdims=given.keepdims, ddof=given.ddof, p=given.p,
                                      **stored(given.output)))


def matmul(client: Client, given: argparse.Namespace) -> None:
    a, b, bias = (operand(client, word) if word else None for word in (given.a, given.b, given.bias))
    write(given.output, client.matmul(a, b, bias, transpose_a=given.transpose_a, transpose_b=given.transpose_b, alpha=given.alpha,
                                      activation=given.activation, precision=given.precision, **stored(given.output)))


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def infer(client: Client, given: argparse.Namespace) -> None:
    pairs = [word.partition("=") for word in given.input + given.parameter]
    if any(not name or not equals for name, equals, _ in pairs):
        raise SystemExit(USAGE)
    inputs: Dict[str, Any] = {name: operand(client, path) for name, _, path in pairs[:len(given.input)]}
    results = client.infer(given.model, parameters={name: value_of(text) for name, _, text in pairs[len(given.input):]}, **inputs)
    if given.output == "-" and len(results) > 1:
        raise SystemExit("several outputs: name a folder or a prefix by -o")
    for name, values in results.items():
        write(given.output if len(results) == 1 else "%s%s.npy" % (given.output, name), values)


def put(client: Client, given: argparse.Namespace) -> None:
    life = {"ttl": given.ttl, "evictable": given.evictable, "device": given.device, "form": given.form}
    if given.file.endswith(".safetensors"):
        if given.name:
            raise ValueError("a safetensors file has names of its own: --prefix")
        try:
            made = client.put_file(given.file, given.prefix, **life)
        except OSError as error:
            raise NoFile(str(error)) from None
    else:
        if given.file == "-" and not given.name:
            raise ValueError("standard input has no name: --name")
        name = given.name or os.path.splitext(os.path.basename(given.file))[0]
        made = [client.put(given.prefix + name, read(given.file), **life)]
    print("\n".join(tensor.name for tensor in made))


def load(client: Client, given: argparse.Namespace) -> None:
    name = given.name or os.path.splitext(os.path.basename(given.file))[0]
    try:
        print(json.dumps(client.load(name, given.file)))
    except FileNotFoundError as error:
        raise NoFile(str(error)) from None


def unload(client: Client, given: argparse.Namespace) -> None:
    for name in given.name:
        client.unload(name)


def get(client: Client, given: argparse.Namespace) -> None:
    write(given.output, client.get(given.name))


def ls(client: Client, given: argparse.Namespace) -> None:
    for tensor in client.tensors(given.prefix):
        entry = tensor.entry
        if entry.get("lost"):
            print("%-40s lost" % tensor.name)
            continue
        left = "%d s" % entry["expires_in"] if entry["expires_in"] else "for ever"
        print("%-40s %-8s %-20s %12d  %s" % (tensor.name, tensor.datatype, ",".join(map(str, tensor.shape)) or "scalar", entry["bytes"], left))


def rm(client: Client, given: argparse.Namespace) -> None:
    for name in given.name:
        client.delete(name)


def models(client: Client, _: argparse.Namespace) -> None:
    print("\n".join(client.models()))


def plan(client: Client, given: argparse.Namespace) -> None:
    parameters = dict(word.split("=", 1) for word in given.parameter)
    print(json.dumps(client.plan(given.model, *[shape.split(",") for shape in given.shape], datatype=given.datatype, **parameters), indent=2))


def health(client: Client, _: argparse.Namespace) -> int:
    good = client.ready()
    print("ready" if good else "not ready")
    return 0 if good else 1


# --- top --------------------------------------------------------------------------------------------------------------------

Sample = Dict[Tuple[str, str], float]  # (family, labels): value


def sample(client: Client) -> Sample:
    found = re.findall(r"^(\w+)(?:\{([^\n]*)\})? (\S+)$", client.metrics(), re.M)
    return {(name, labels): float(value) for name, labels, value in found}


def total(now: Sample, family: str, label: str = "") -> float:
    return sum(value for (name, labels), value in now.items() if name == family and label in labels)


def median_us(now: Sample, before: Sample, model: str) -> float:
    """Of a histogram's difference: the bound below which half of it lies, by a straight line within its bucket."""
    name = "kernserve_inference_request_duration_seconds_bucket"
    buckets: List[Tuple[float, float]] = []
    for (family, labels), value in now.items():
        bound = re.search(r'le="([^"]+)"', labels)
        if family == name and bound and 'model="%s"' % model in labels:
            buckets.append((float(bound.group(1).replace("+Inf", "inf")), value - before.get((family, labels), 0.0)))
    buckets.sort()
    if not buckets or buckets[-1][1] <= 0:
        return math.nan
    half, low, below = buckets[-1][1] / 2, 0.0, 0.0
    for high, count in buckets:
        if count >= half:
            return (low + (high - low) * (half - below) / (count - below)) * 1e6 if high < math.inf else math.inf
        low, below = high, count
    return math.nan


def screen(now: Sample, before: Sample, seconds: float) -> List[str]:
    family = "kernserve_inference_request_duration_seconds_count"
    rows = []
    for (name, labels), value in sorted(now.items()):
        match = re.search(r'model="([^"]+)"', labels)
        rate = (value - before.get((name, labels), 0.0)) / seconds
        if name == family and match and rate > 0:
            rows.append((rate, match.group(1)))
    refused = (total(now, "kernserve_requests_rejected_total") - total(before, "kernserve_requests_rejected_total")) / seconds
    moved = [(total(now, name) - total(before, name)) / seconds / 1e6
             for name in ("kernserve_http_request_body_bytes_total", "kernserve_http_response_body_bytes_total")]
    lines = ["in flight %d   queue %d of %d   connections %d   refused %.0f/s   in %.1f MB/s   out %.1f MB/s" % (
        total(now, "kernserve_inference_requests_in_flight"), total(now, "kernserve_queue_depth"), total(now, "kernserve_queue_capacity"),
        total(now, "kernserve_http_connections"), refused, *moved)]
    if ("kernserve_resident_limit_bytes", "") in now:
        joined = (total(now, "kernserve_joined_requests_total") - total(before, "kernserve_joined_requests_total")) / seconds
        lines.append("tensors %d   resident %.1f of %.0f MB   joined %.0f/s" % (
            total(now, "kernserve_resident_tensors"), total(now, "kernserve_resident_bytes") / 1e6, total(now, "kernserve_resident_limit_bytes") / 1e6,
            joined))
    lines.append("%-24s %12s %12s" % ("model", "requests/s", "p50 us"))
    lines += ["%-24s %12.0f %12.1f" % (model, rate, median_us(now, before, model)) for rate, model in sorted(rows, reverse=True)]
    return lines


def top(client: Client, given: argparse.Namespace) -> None:
    before, then, turns = sample(client), time.monotonic(), 0
    while given.count == 0 or turns < given.count:
        time.sleep(given.interval)
        now, at = sample(client), time.monotonic()
        if sys.stdout.isatty():
            print("\x1b[H\x1b[J", end="")
        print("\n".join(screen(now, before, at - then)), flush=True)
        before, then, turns = now, at, turns + 1


# --- the command line -------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        self.exit(USAGE, "%s: %s\n" % (self.prog, message))


def parser() -> Parser:
    main = Parser(prog="kernserve-client", description="Operations of a kernserve daemon on .npy files, and a look at the daemon. "
                  "'-' is standard input or output, @NAME as an operand a tensor that the daemon keeps. Exit codes are those of sysexits.h.")
    main.add_argument("--url", help="http://HOST:PORT, https://HOST:PORT or unix:/PATH ($KERNSERVE_URL, else http://127.0.0.1:8000)")
    main.add_argument("--timeout", type=float, default=30.0, help="seconds (30)")
    commands = main.add_subparsers(required=True, dest="command", parser_class=Parser)

    def command(function: Any, about: str, *operands: str) -> Parser:
        made = commands.add_parser(function.__name__, help=about, description=about)
        made.set_defaults(run=function)
        for operand in operands:
            made.add_argument(operand)
        return made

    def with_output(made: Parser) -> Parser:
        made.add_argument("-o", "--output", default="-", help="where the result goes (standard output); @NAME: it stays with the daemon")
        return made

    one = with_output(command(softmax, "softmax along an axis", "x"))
    one.add_argument("--axis", type=int)
    one.add_argument("--log", action="store_true", default=None)
    one.add_argument("--scale", type=float)
    one.add_argument("--mask")
    one.add_argument("--lengths")
    one.add_argument("--causal")
    one.add_argument("--masked-rows")
    one.add_argument("--out-datatype")
    one = with_output(command(reduce, "sum, mean, max, ... along axes", "x"))
    one.add_argument("--segments")
    one.add_argument("--op")
    one.add_argument("--axis", type=axes_of, help="an integer, several as 0,2, or all")
    one.add_argument("--keepdims", action="store_true", default=None)
    one.add_argument("--ddof", type=float)
    one.add_argument("--p", type=float)
    one = with_output(command(matmul, "activation(alpha * a @ b + bias)", "a", "b"))
    one.add_argument("--bias")
    one.add_argument("--transpose-a", action="store_true", default=None)
    one.add_argument("--transpose-b", action="store_true", default=None)
    one.add_argument("--alpha", type=float)
    one.add_argument("--activation")
    one.add_argument("--precision")
    one = with_output(command(infer, "any model, inputs by name", "model"))
    one.add_argument("input", nargs="+", metavar="NAME=FILE")
    one.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE")
    one = command(put, "makes or replaces tensors that the daemon keeps: of a .npy file, or all of a .safetensors file", "file")
    one.add_argument("--name", help="of a .npy file's tensor (the file's, without .npy)")
    one.add_argument("--prefix", default="", help="in front of the name, or of the file's keys")
    one.add_argument("--ttl", type=int, help="seconds after the last use, 0: for ever (the daemon's preset)")
    one.add_argument("--evictable", action="store_true", default=None, help="it may go when others need the room")
    one.add_argument("--device", type=int, help="of several, the one that is to have it alone (all)")
    one.add_argument("--for", dest="form", metavar="OPERATION", help="matmul or search, by which the tensor is read")
    one = command(get, "a tensor that the daemon keeps, as a .npy file", "name")
    one.add_argument("-o", "--output", default="-", help="where it goes (standard output)")
    one = command(ls, "the tensors that the daemon keeps: name, datatype, shape, bytes, time left")
    one.add_argument("prefix", nargs="?", default="")
    one = command(rm, "frees tensors' names")
    one.add_argument("name", nargs="+")
    command(models, "the models' names")
    one = command(load, "loads or replaces a model: of a .json definition, or of a .safetensors file that holds one", "file")
    one.add_argument("--name", help="of the model (the file's, without its ending)")
    one = command(unload, "unloads models")
    one.add_argument("name", nargs="+")
    one = command(plan, "what the daemon has chosen for a shape", "model")
    one.add_argument("shape", nargs="+", help="such as 64,1024")
    one.add_argument("--datatype", default="FP32")
    one.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE")
    command(health, "exit code 0 if the daemon is ready, 1 if it is not")
    one = command(top, "rates, medians, queue and connections, again and again")
    one.add_argument("--interval", type=float, default=1.0, help="seconds (1)")
    one.add_argument("--count", type=int, default=0, help="end after so many (0: never)")
    return main


def main(words: Optional[Sequence[str]] = None) -> int:
    given = parser().parse_args(words)
    try:
        with Client(given.url, timeout=given.timeout) as client:
            return given.run(client, given) or 0
    except KeyboardInterrupt:
        return 130
    except NoFile as error:
        fault, code = str(error), NO_INPUT
    except (ValueError, TypeError) as error:
        fault, code = str(error), USAGE
    except OSError as error:
        fault, code = str(error), IO_ERROR
    except Error as error:
        fault, code = str(error), next(code for kind, code in EXITS if isinstance(error, kind))
    print("kernserve-client: %s" % fault, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

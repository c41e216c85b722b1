#!/usr/bin/env python3
"""Each operation by tritonclient, curl, the Python client and wrk, its values against float64: every_operation.py KERNSERVE

  --seed N       the draw of shapes and values; a new one each time, which is printed
  --rounds N     as many draws (2); --only OPERATION, --clients tritonclient,curl,kserve...: fewer rows, fewer clients
  --answers N    of wrk, for each request (8)
  -- OPTION...   of the daemon

Every row of every_table.py goes by every client, and so does a model with attention over keys that stay and a product in INT8. A client says what it can: tritonclient
bytes, curl JSON where the datatypes have words and bytes by the query, a command for each output; the Python client its method for the operation. wrk sends curl's
requests again, many at a time, and each answer must have the bytes that were right before. Server-Timing's phases make up its total, client by client.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote

import numpy as np
import tritonclient.http as httpclient

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "http"), os.path.join(HERE, "..", "..", "clients", "python", "src")]
import every_table as table  # noqa: E402
import kernserve  # noqa: E402
from daemon import Daemon, check, settle, wrongs  # noqa: E402
from kernserve._model import body_of  # noqa: E402

WORDS = ("FP32", "FP64", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP8E4M3", "FP8E5M2")  # what JSON can say here
TO_NUMPY = {name: dtype for dtype, name in table.DATATYPES.items()}


def plain(value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def array_of(data, kind, shape):
    return np.frombuffer(data, TO_NUMPY[kind]).reshape(shape)


class Timings:
    """What Server-Timing said to one client: milliseconds of phases together, the total, and how many phases there were."""

    def __init__(self):
        self.rows = []

    def add(self, text, case):
        parts = {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([0-9.]+)", text or "")}
        total = parts.pop("total", None)
        if total is None or "compute" not in parts:
            check(False, case, "Server-Timing is", text)
        else:
            self.rows.append((sum(parts.values()), total, len(parts)))

    def judge(self, client):
        """Within 2 % at the median, and half a microsecond for each number that is printed in whole ones."""
        if not self.rows:
            return "none"
        over = statistics.median(max(0, abs(phases - total) - 0.0005 * (count + 1)) / max(total, 0.001) for phases, total, count in self.rows)
        check(over <= 0.02, client, "phases are", over, "from the total at the median")
        return "%.4f of %.3f ms" % (sum(row[0] for row in self.rows) / sum(row[1] for row in self.rows), sum(row[1] for row in self.rows))


class Tritonclient(httpclient.InferenceServerClient):
    """As it is, but that it keeps the fields of the last answer, which the library does not hand on."""

    name = "tritonclient"

    def __init__(self, daemon, _folder):
        super().__init__("127.0.0.1:%d" % daemon.port)
        self.daemon, self.timings = daemon, Timings()

    def _post(self, *arguments, **named):
        self.fields = super()._post(*arguments, **named)
        return self.fields

    def send(self, case, stay):
        given, asked = [], []
        for name, array in case.inputs.items():
            given.append(httpclient.InferInput(name, list(array.shape), table.datatype(array)))
            if name in stay:
                given[-1].set_shared_memory("tensor:" + stay[name], array.nbytes)
            else:
                given[-1].set_data_from_numpy(array)
        for name, wanted in case.outputs.items():
            asked.append(httpclient.InferRequestedOutput(name))
            if wanted.datatype.startswith("FP8"):  # for which it has no type of NumPy's
                asked[-1].set_shared_memory("tensor:triton.fp8", int(np.prod(wanted.shape)))
        result = self.infer(case.model, given, outputs=asked, parameters=case.parameters or None)
        self.timings.add(self.fields.get("server-timing"), case)
        return {name: self._kept("triton.fp8", wanted) if wanted.datatype.startswith("FP8") else result.as_numpy(name) for name, wanted in case.outputs.items()}

    def _kept(self, name, wanted):
        return array_of(self.daemon.get("/v2/tensors/" + name).body, wanted.datatype, wanted.shape)

    def load(self, name, definition, weights):
        self.load_model(name, config=json.dumps(definition), files={"file:weights.safetensors": b"".join(bytes(part) for part in body_of({}, weights)[0])})


class Curl:
    name = "curl"

    def __init__(self, daemon, folder):
        self.url, self.folder, self.timings, self.requests = "http://127.0.0.1:%d" % daemon.port, folder, Timings(), []
        self.known = {}

    def run(self, *words, data=None):
        """Status, what -w asks for, and the body."""
        path = self.folder + "/out"
        done = subprocess.run(["curl", "-sS", "-o", path, "-w", r"%{http_code}|%header{server-timing}|%header{kernserve-shape}|%header{kernserve-datatype}", *words], input=data,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        with open(path, "rb") as file:
            body = file.read()
        status, *fields = done.stdout.decode().split("|")
        if done.returncode or status not in ("200", "201"):
            raise RuntimeError("curl %s: exit code %d, %s %s %s" % (" ".join(words), done.returncode, status, body[:300], done.stderr))
        return (*fields, body)

    def send(self, case, stay):
        said = [table.datatype(array) for name, array in case.inputs.items() if name not in stay] + [wanted.datatype for wanted in case.outputs.values()]
        if set(said) <= set(WORDS):
            yield self.as_json(case, stay)
        yield {name: self.as_bytes(case, stay, name) for name in case.outputs}

    def as_json(self, case, stay):
        document = {"inputs": [{"name": name, "parameters": {"tensor": stay[name]}} if name in stay else
                               {"name": name, "datatype": table.datatype(array), "shape": list(array.shape), "data": (array.astype(float) if array.dtype.kind == "V" else array).tolist()} for name, array in case.inputs.items()]}
        if case.parameters:
            document["parameters"] = case.parameters
        timing, _, _, body = self.run(self.url + "/v2/models/%s/infer" % case.model, "-d", "@-", data=json.dumps(document).encode())
        self.timings.add(timing, case)
        return {each["name"]: np.array(each["data"], TO_NUMPY[each["datatype"]]).reshape(each["shape"]) for each in json.loads(body)["outputs"]}

    def declared(self, model):
        """Datatypes by inputs that the metadata has."""
        if model not in self.known:
            self.known[model] = {each["name"]: each["datatype"] for each in json.loads(self.run(self.url + "/v2/models/" + model)[3])["inputs"]}
        return self.known[model]

    def as_bytes(self, case, stay, output):
        """No more than is needed: datatypes and names of inputs are left out where they are the model's own. A definition's inputs have places in a query."""
        declared = self.declared(case.model)
        places = {name: name if name.startswith("INPUT") else "INPUT%d" % i for i, name in enumerate(case.inputs)}
        sent = {name: array for name, array in case.inputs.items() if name not in stay}
        query = ["shape=" + plain(list(array.shape)) for array in sent.values()]
        if any(table.datatype(array) != declared.get(name) for name, array in case.inputs.items()):
            query += ["datatype=" + table.datatype(array) for array in sent.values()]
        if list(sent) != [name for name in declared if name not in stay][:len(sent)]:
            query += ["input=" + places[name] for name in sent]
        query += ["%s=@%s" % (places[name], stay[name]) for name in case.inputs if name in stay]
        query += ["%s=%s" % (name, quote(plain(value), safe=",")) for name, value in case.parameters.items()]
        query += ["output=" + output] if len(case.outputs) > 1 else []
        target = "/v2/models/%s/infer?%s" % (case.model, "&".join(query))
        body = b"".join(array.tobytes() for array in sent.values())
        timing, shape, kind, answer = self.run(self.url + target, "--data-binary", "@-", data=body)
        self.timings.add(timing, case)
        self.requests.append((target, body, answer, case))
        return array_of(answer, kind, [int(each) for each in shape.split(",") if each not in ("", "scalar")])

    def load(self, name, definition, weights):
        """The definition in the head of a file with its weights."""
        parts, kind = body_of(definition, weights)
        self.run("-T", "-", "-H", "Content-Type: " + kind, self.url + "/v2/models/" + name, data=b"".join(bytes(part) for part in parts))


class Package:
    """clients/python."""

    name = "kernserve"
    OPERANDS = {"softmax": "x mask lengths", "reduce": "x segments", "matmul": "a b bias scale_a scale_b residual", "norm": "x weight bias residual pre_bias", "map": "x y z",
                "gather": "table indices offsets weights", "search": "queries matrix bias mask", "attention": "query key value mask lengths"}

    def __init__(self, daemon, _folder):
        self.client, self.timings = kernserve.Client("127.0.0.1:%d" % daemon.port), Timings()

    def send(self, case, stay):
        operands = {name: self.client.tensor(stay[name]) if name in stay else array for name, array in case.inputs.items()}
        results = list(self.by_method(case, operands)) if case.op else [self.client.infer(case.model, parameters=case.parameters, **operands)[name] for name in case.outputs]
        self.timings.add(results[0]._fields[b"server-timing"].decode(), case)
        timing = results[0].timing
        check(timing.total > 0 and timing.compute is not None, case, "its timing", timing)
        return dict(zip(case.outputs, results))

    def by_method(self, case, operands):
        parameters = {name: (() if value == "all" else value) if name == "axis" else value for name, value in {**case.preset, **case.parameters}.items()}
        if case.op == "layout":
            results = self.client.layout(parameters.pop("op"), *operands.values(), **parameters)
        else:
            names = self.OPERANDS.get(case.op, "x scale").split()
            results = getattr(self.client, case.op)(**{names[int(name[5:])]: each for name, each in operands.items()}, **parameters)
        return results if isinstance(results, tuple) else (results,)

    def load(self, name, definition, weights):
        self.client.load(name, definition, weights)


CLIENTS = {each.name: each for each in (Tritonclient, Curl, Package)}


class Round:
    """One draw by all clients."""

    def __init__(self, daemon, clients, seed, only):
        self.daemon, self.clients, self.seed, self.only, self.count = daemon, clients, seed, only, {each.name: 0 for each in clients}
        self.keeper = kernserve.Client("127.0.0.1:%d" % daemon.port)

    def run(self):
        rows = table.cases(np.random.default_rng(self.seed), self.only)
        for number, case in enumerate(rows):
            # FP8 comes to tritonclient's requests as tensors that stay
            eight = {name for name, array in case.inputs.items() if table.datatype(array).startswith("FP8")}
            kept = {name: "c%d.%s" % (number, name) for name in case.stay | eight}
            for name, tensor in kept.items():
                self.keeper.put(tensor, case.inputs[name], form=case.op if case.op in ("matmul", "search") else None)
            for client in self.clients:
                self.ask(client, case, {name: tensor for name, tensor in kept.items() if name in case.stay or client.name == "tritonclient"})
        if not self.only:
            self.model()
        return rows

    def ask(self, client, case, stay):
        try:
            answers = client.send(case, stay)
            for got in [answers] if isinstance(answers, dict) else answers:
                self.count[client.name] += 1
                found = [table.wrong(case, name, got[name]) for name in case.outputs] if set(got) == set(case.outputs) else ["outputs are %s" % list(got)]
                found.append(None if any(found) or not case.also else case.also(got))
                for each in filter(None, found):
                    check(False, "seed", self.seed, client.name, each, "of", case)
        except Exception as error:  # noqa: BLE001: whatever a client raises
            check(False, "seed", self.seed, client.name, repr(error), "of", case)

    def model(self):
        definition, weights, case = table.decoder(table.Draw(np.random.default_rng((self.seed, 1))))
        for name in case.stay:
            self.keeper.put("decoder." + name, case.inputs[name])
        for client in self.clients:
            case.model = "decoder.%s" % client.name
            client.load(case.model, definition, weights)
            self.ask(client, case, {name: "decoder." + name for name in case.stay})
            # without tensors that stay: the same request, the same values
            self.ask(client, case, {})


def again_by_wrk(daemon, requests, answers, seed, timings):
    """curl's requests, each about `answers` times: the status and the bytes. How many there were."""
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/requests", "w") as file:
            file.write("".join(target + "\n" for target, *_ in requests))
        for number, (_, body, answer, _) in enumerate(requests):
            for ending, data in (("body", body), ("answer", answer)):
                with open("%s/%d.%s" % (folder, number + 1, ending), "wb") as file:
                    file.write(data)
        seen = [0] * len(requests)
        end = time.monotonic() + 60
        while min(seen) == 0 and time.monotonic() < end:
            done = subprocess.run(["wrk", "-t1", "-c4", "-d1s", "-s", os.path.join(HERE, "every_operation.lua"), "http://127.0.0.1:%d" % daemon.port, "--", folder, str(answers * len(requests))],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60)
            seen = [before + int(now) for before, now in zip(seen, re.findall(r"^seen (\d+)$", done.stdout, re.M))]
            wrong = re.search(r"^wrongs (\d+) ?(.*)$", done.stdout, re.M)
            if done.returncode or not wrong or int(wrong[1]):
                number = re.match(r"request (\d+)", wrong[2]) if wrong else None
                check(False, "seed", seed, "wrk:", wrong[0] if wrong else done.stdout[-500:], "of", requests[int(number[1]) - 1][0] if number else "")
                break
            for text in re.findall(r"^timing (.*)$", done.stdout, re.M):
                timings.add(text, "wrk")
        check(min(seen) > 0, "wrk has no answer of", requests[seen.index(0)][0] if 0 in seen else "")
        return sum(seen)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("kernserve")
    words.add_argument("--seed", type=int, default=int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007))
    words.add_argument("--rounds", type=int, default=2)
    words.add_argument("--answers", type=int, default=8)
    words.add_argument("--only", choices=sorted(table.OPERATIONS))
    words.add_argument("--clients", default="tritonclient,curl,kernserve,wrk")
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    asked, options = words.parse_args(sys.argv[1:cut]), sys.argv[cut + 1:]
    print("--seed %d" % asked.seed)
    named = asked.clients.split(",")
    has_wrk = "wrk" in named and shutil.which("wrk") is not None
    with open(os.path.join(HERE, "..", "..", "kernels", "ops", "ops.def")) as file:
        check(set(re.findall(r"^OP\((\w+)\)", file.read(), re.M)) == set(table.OPERATIONS), "ops.def has other operations than the table")
    with tempfile.TemporaryDirectory() as folder, Daemon(asked.kernserve, "--pinned-bytes", "64M", *options) as daemon:
        clients = [CLIENTS[name](daemon, folder) for name in named if name in CLIENTS]
        counts, by_wrk, wrk_timings = {each.name: 0 for each in clients}, 0, Timings()
        for seed in range(asked.seed, asked.seed + asked.rounds):
            one = Round(daemon, clients, seed, asked.only)
            rows = one.run()
            counts = {name: counts[name] + one.count[name] for name in counts}
            for curl in clients:
                if curl.name == "curl" and has_wrk and not wrongs():
                    by_wrk += again_by_wrk(daemon, curl.requests, asked.answers, seed, wrk_timings)
                    curl.requests.clear()
        print("%d rows, %d draws" % (len(rows), asked.rounds))
        for client in clients:
            print("%s: %d answers, phases make up %s" % (client.name, counts[client.name], client.timings.judge(client.name)))
        print("wrk: %d answers, phases make up %s" % (by_wrk, wrk_timings.judge("wrk")) if has_wrk else "wrk was not asked for, or is not installed")
        check(settle(daemon) == 0, "slots are in use at the end")
        check(daemon.stop() == 0, "the daemon's end")
    sys.exit(wrongs() > 0)


main()

"""Random requests of every kind that the daemon knows: operations, ranks 0 to 8, datatypes, forms, options, faults, routes.

Interface  Draw(random, profile).request() gives a Drawn: method, target, fields and body, and how the body is framed. Nothing here
           opens a socket. What a request is for, and whether it is right, nobody is told: two readers must agree on it.
"""

import gzip
import json
import zlib
from types import SimpleNamespace

import files
import forms
from tensors import SIZES, count, decode

DATATYPES = sorted(SIZES)
MODELS = ("softmax", "reduce", "matmul")
COMPAT = ("simple", "simple_identity", "simple_string", "identity_fp32")
PAGES = ("/", "/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/livez", "/readyz", "/healthz", "/openapi.json", "/v2/models/stats", "/v2/logging", "/v2/trace/setting",
         "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/v2/systemsharedmemory/region/r/status", "/metrics", "/nowhere", "/v2/models", "/v2/models/", "/v2//health/live", "/v2/../v2")
OF_MODEL = ("", "/ready", "/config", "/stats", "/plan", "/trace/setting", "/versions/1", "/versions/1/ready", "/versions/01/config", "/versions/2", "/versions/v1", "/nothing", "/infer", "/versions/1/infer")
WORKS = ("/v2/repository/index", "/v2/repository/models/softmax/load", "/v2/repository/models/nope/unload", "/v2/systemsharedmemory/unregister", "/v2/systemsharedmemory/region/r/unregister",
         "/v2/systemsharedmemory/region/r/register", "/v2/cudasharedmemory/region/r/register", "/v2/logging", "/v2/trace/setting", "/v2/health/live", "/v2/models/softmax/generate")
WORDS = (b"", b"{}", b"[]", b'{"ready":true}', b'{"ready":1}', b'{"x":', b'{"parameters":{"unload_dependents":true}}', b'{"log_info":true}', b'{"log_verbose_level":0}', b'{"log_file":"x"}',
         b'{"key":"/k","offset":0,"byte_size":64}', b'{"raw_handle":{"b64":"AAAA"},"device_id":0,"byte_size":64}', b"\xff\xfe", b'{"ready":true}x')
HOSTS = ("localhost", "localhost:8000", "127.0.0.1", "[::1]:80", "LocalHost", "evil.example", "")


class Drawn:
    """framing: "length", "chunked" or "none" (no body, no field). expects: the body follows a 100 only."""

    def __init__(self, method, target, headers=(), body=b"", framing="length", name=""):
        self.method, self.target, self.headers, self.body, self.framing, self.name = method, target, list(headers), body, framing, name
        self.pieces, self.host, self.raw, self.row, self.expects, self.ends = [], "localhost", None, None, False, False

    def head(self):
        lines = ["%s %s HTTP/1.1" % (self.method, self.target), "Host: %s" % self.host]
        lines += ["%s: %s" % pair for pair in self.headers]
        if self.expects:
            lines.append("Expect: 100-continue")
        if self.framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        elif self.framing == "length":
            lines.append("Content-Length: %d" % len(self.body))
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def framed(self):
        """The body as it goes out."""
        if self.framing == "none":
            return b""
        if self.framing != "chunked":
            return self.body
        return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in self.pieces if p) + b"0\r\n\r\n"

    def bytes(self):
        return self.raw if self.raw is not None else self.head() + self.framed()

    def __str__(self):
        return "%s %s %s [%s]" % (self.method, self.target[:100], " ".join("%s: %s;" % (n, str(v)[:40]) for n, v in self.headers), self.name)


def _tensor(random, datatype, shape):
    """Random bits; of floats every second tensor is tame, so that an answer without NaN is seen too."""
    n = count(shape)
    size = n * SIZES[datatype]
    data = random.getrandbits(8 * size).to_bytes(size, "little") if size else b""
    if datatype in ("FP32", "FP64", "FP16", "BF16") and random.random() < 0.6:
        step = SIZES[datatype]
        data = bytearray(data)
        for i in range(step - 1, len(data), step):
            data[i] = random.choice((0x3F, 0xBF, 0x3E)) if datatype != "FP16" else random.choice((0x3B, 0xB8, 0x34))
    if datatype[:2] in ("FP", "BF") and n and random.random() < 0.15:
        step, at = SIZES[datatype], random.randrange(n)
        data = bytes(data[:at * step]) + b"\xff" * step + bytes(data[(at + 1) * step:])
    return SimpleNamespace(datatype=datatype, shape=list(shape), data=bytes(data), values=decode(datatype, bytes(data)))


class Draw:
    def __init__(self, random, rows=(), models=MODELS, token=None, compat=False):
        self.random, self.rows, self.models, self.token, self.compat = random, list(rows), models, token, compat

    def _shape(self, most=9):
        r = self.random
        rank = r.randint(1, most - 1) if r.random() < 0.95 else r.choice((0, 9))
        shape = [r.choice((1, 1, 2, 2, 3, 4, 5, 7)) for _ in range(rank)]
        while count(shape) > 600:
            shape[r.randrange(rank)] = 1
        if rank and r.random() < 0.06:
            shape[r.randrange(rank)] = r.choice((0, 64, 257))
        return shape

    def _parameters(self, model, datatype, rank):
        r, found = self.random, {}
        axis = r.randint(-rank - 1, rank) if r.random() < 0.15 or rank == 0 else r.randrange(-rank, rank)
        if "softmax" in model:
            if r.random() < 0.7:
                found["axis"] = axis
            if r.random() < 0.2:
                found["log"] = r.random() < 0.7
            if r.random() < 0.2:
                found["scale"] = r.choice((0.5, 2, -1.5, 0, "x"))
        elif "reduce" in model:
            if r.random() < 0.8:
                found["op"] = r.choice(forms.FLOAT_OPS if datatype[:2] in ("FP", "BF") else forms.INTEGER_OPS) if r.random() < 0.97 else "median"
            if r.random() < 0.8:
                found["axis"] = r.choice((axis, axis, "all", "all", "0,1", "-1,0"))
            if r.random() < 0.4:
                found["keepdims"] = r.random() < 0.5
        else:
            for name in ("transpose_a", "transpose_b"):
                if r.random() < 0.2:
                    found[name] = True
            if r.random() < 0.2:
                found["alpha"] = r.choice((0.5, -2, 3.25))
            if r.random() < 0.2:
                found[r.choice(("activation", "precision"))] = r.choice(("relu", "gelu", "silu", "none", "tf32", "fp32", "x"))
        if r.random() < 0.12:
            name, value = r.choice((("priority", 1), ("priority", -1), ("sequence_id", 7), ("sequence_id", True), ("timeout", 1), ("timeout", 10 ** 12), ("colour", "red"), ("colour", 1.5), ("triton_x", 1),
                                    ("binary_data_output", True), ("binary_data_output", False)))
            found[name] = value
        return found

    def _work(self):
        """A model, its inputs and parameters; mostly right, now and then not."""
        r = self.random
        model = r.choice(self.models)
        datatype = r.choice(("FP32", "FP32", "FP64", "FP16", "BF16")) if "reduce" not in model or r.random() < 0.5 else r.choice(DATATYPES)
        if r.random() < 0.04:
            datatype = r.choice(DATATYPES)
        if model.endswith(("_fp16", "_bf16", "_fp64")) and r.random() < 0.9:
            datatype = model[-4:].upper()
        if "matmul" in model:
            inputs = self._factors(datatype)
        else:
            inputs = [_tensor(r, datatype, [r.randint(0, 40)] if model.endswith("_vec") and r.random() < 0.9 else self._shape())]
        work = SimpleNamespace(model=model, inputs=inputs, parameters=self._parameters(model, datatype, len(inputs[0].shape)),
                               names=["INPUT%d" % i for i in range(len(inputs))], gaps=False)
        version = r.choice(("/versions/1", "/versions/1", "/versions/01", "/versions/3")) if r.random() < 0.1 else ""
        work.target = lambda: "/v2/models/%s%s/infer" % (model, version)
        return work

    def _factors(self, datatype):
        r = self.random
        lead = [r.randint(1, 3) for _ in range(r.choice((0, 0, 0, 1, 2, 3, 6)))]
        while count(lead) > 12:
            lead[r.randrange(len(lead))] = 1
        m, n, k = (r.choice((0, 1, 2, 3, 5, 8, 16)) if r.random() < 0.9 else 33 for _ in range(3))
        other = [1 if r.random() < 0.3 else d for d in lead[r.choice((0, 0, len(lead))):]]
        inputs = [_tensor(r, datatype, lead + [m, k]), _tensor(r, datatype, other + [k if r.random() < 0.95 else k + 1, n])]
        if r.random() < 0.15:
            inputs.append(_tensor(r, datatype, [n]))
        return inputs

    def _document(self, work):
        """A request in JSON, its inputs as words or as bytes; outputs of every sort."""
        r = self.random
        words = work.inputs[0].datatype in forms.JSON_TYPES or r.random() < 0.05
        chance = r.choice((0, 0, 1, 1, 0.5)) if words else 1
        as_bytes = {i for i in range(len(work.inputs)) if r.random() < chance}
        _, headers, body = forms._body(work, None, as_bytes, r.choice((None, None, True, False)) if words else True)
        size = int(dict(headers).get("Inference-Header-Content-Length", len(body)))
        document = json.loads(body[:size])
        if r.random() < 0.4:
            document["id"] = r.choice(("", "7", "the id", "\u00e9\u4e2d\U0001f600", "a\\b\"c\n", "x" * 300) if r.random() < 0.97 else (5, ["a"]))
        if r.random() < 0.12:
            document["outputs"] = r.choice(([], [{"name": "OUTPUT0", "parameters": {"classification": r.choice((1, 2, 3, 0, -1, "x"))}}], [{"name": "OUTPUT1"}], [{"name": "OUTPUT0"}, {"name": "OUTPUT0"}],
                                            [{"name": "OUTPUT0", "parameters": {"classification": 2, "binary_data": True}}], {}, ["OUTPUT0"]))
        if r.random() < 0.05:
            document.pop(r.choice(sorted(document)))
        text = json.dumps(document, ensure_ascii=r.random() < 0.5).encode("utf-8")
        if r.random() < 0.03:
            at = r.randrange(len(text))
            text = text[:at] + r.choice((b"", b"\0", b'"', b"[", b"NaN", b"\xff", b"9" * 30)) + text[at + r.randint(0, 3):]
        headers = []
        if as_bytes or r.random() < 0.1:
            headers.append(("Inference-Header-Content-Length", r.choice((len(text),) * 12 + (0, len(text) - 1, len(text) + 1, 99999, "x", "-1", ""))))
        return work.target(), headers, text + body[size:]

    @staticmethod
    def _fitting(form, work):
        """The form, or one that can carry the work."""
        if form == "oip_raw" and not work.model.endswith("_vec"):
            return "plain_raw"
        if form.startswith("npy") and len(work.inputs) > 1:
            return "safetensors"
        return form

    def _inference(self):
        r, work = self.random, self._work()
        form = r.choice(("document", "document", "document", "plain_raw", "plain_raw", "oip_raw", "npy", "npy_fortran", "safetensors"))
        if form == "document":
            target, headers, body = self._document(work)
        else:
            if r.random() < 0.95:
                form = self._fitting(form, work)
            if form.startswith("npy") and work.inputs[0].datatype not in files.NPY:
                form = "safetensors"
            if form == "npy_fortran" and count(work.inputs[0].shape) == 0:
                form = "npy"
            target, headers, body = forms.FORMS[form](work, None)
        if form == "plain_raw" and r.random() < 0.06:
            target = target.replace(*r.choice((("datatype=", "datatype=X"), ("shape=", "shape=-"), ("shape=", "shap="), ("?", "?x=1&"), ("=", "%3d"), ("?", "?%zz&"), ("datatype", "d%61tatype"), ("&", "&&"))))
        drawn = Drawn("POST", target, headers, body, name=form)
        if r.random() < 0.05:
            drawn.body = r.choice((body[:-1], body + b"x", body[:len(body) // 2], b"", body + bytes(5000)))
        if r.random() < 0.3:
            drawn.headers.append(("Accept", r.choice(("*/*", "application/json", "application/x-npy", "application/x-safetensors", "application/octet-stream", "application/json, text/plain", "text/html", "",
                                                      "application/x-npy;q=0.5", "APPLICATION/JSON"))))
        self._encode(drawn)
        return drawn

    def _encode(self, drawn):
        r = self.random
        if r.random() < 0.12:
            kind = r.choice(("gzip", "gzip", "gzip", "deflate", "deflate", "identity", "GZIP", "br", "gzip, deflate", ""))
            if r.random() < 0.9 and kind in ("gzip", "deflate", "GZIP"):
                drawn.body = zlib.compress(drawn.body, 1) if kind == "deflate" else gzip.compress(drawn.body, 1)
                if r.random() < 0.1:
                    drawn.body = drawn.body[:-1] + r.choice((b"", b"x", b"xx"))
                if r.random() < 0.1:
                    drawn.body += r.choice((b"x", gzip.compress(b""), drawn.body))
            drawn.headers.append(("Content-Encoding", kind))
        if r.random() < 0.15:
            drawn.headers.append(("Accept-Encoding", r.choice(("gzip", "deflate", "gzip;q=0, deflate", "*", "identity", "br, gzip;q=0.1", ""))))

    def _page(self):
        r = self.random
        model = r.choice(self.models + ("nope", "%73oftmax", "x%00y", "stats", "a" * 90, "%c3%a9", "%ff"))
        target = r.choice(PAGES) if r.random() < 0.5 else "/v2/models/%s%s" % (model, r.choice(OF_MODEL))
        if "/plan" in target or r.random() < 0.1:
            target += "?" + r.choice(("shape=2,3&datatype=FP32", "shape=4,4&shape=4,4&datatype=FP64", "shape=4&datatype=INT8&op=max&axis=all", "shape=x", "", "datatype=FP32", "shape=2,2&datatype=FP32&axis=5"))
        drawn = Drawn(r.choice(("GET", "GET", "GET", "HEAD", "HEAD", "POST", "DELETE", "PUT", "OPTIONS", "BREW")), target, framing="none", name="page")
        if drawn.method == "POST" or r.random() < 0.08:
            drawn.body, drawn.framing = r.choice(WORDS), r.choice(("length", "chunked"))
        if target == "/metrics" and r.random() < 0.5:
            drawn.headers.append(("Accept", "application/openmetrics-text; version=1.0.0"))
        return drawn

    def _control(self):
        r = self.random
        drawn = Drawn("POST", r.choice(WORKS), body=r.choice(WORDS), framing=r.choice(("length", "length", "chunked", "none")), name="control")
        if drawn.framing == "none":
            drawn.body = b""
        if r.random() < 0.05:
            self._encode(drawn)
        return drawn

    def _compat(self):
        r = self.random
        model = r.choice(COMPAT)
        values = list(range(16)) if model == "simple" else ["a", "b"] if "identity" in model and "fp32" not in model else [str(i) for i in range(16)] if model == "simple_string" else [1.5, 2.5]
        datatype = {"simple": "INT32", "identity_fp32": "FP32"}.get(model, "BYTES")
        inputs = [{"name": "INPUT%d" % i, "shape": [1, len(values)], "datatype": r.choice((datatype,) * 9 + ("INT8",)), "data": values} for i in range(2 if model in ("simple", "simple_string") else 1)]
        body = json.dumps({"inputs": inputs, "id": r.choice(("", "7"))}).encode()
        drawn = Drawn("POST", "/v2/models/%s/infer" % model, body=body[:r.choice((len(body),) * 9 + (20,))], name="compat")
        self._encode(drawn)
        return drawn

    @staticmethod
    def row(row):
        """The bytes of a row of refusal_rows.py as they stand."""
        words = row.data.split(b"\r\n", 1)[0].decode("latin-1").split(" ") + [""]
        drawn = Drawn(words[0], words[1], name="row: " + row.name)
        drawn.raw, drawn.row, drawn.ends = row.data, row, row.then != "stays"
        return drawn

    def scalars(self):
        """Answers of rank 0, of every datatype in every form that can carry it."""
        found = []
        for datatype in DATATYPES:
            work = SimpleNamespace(model="reduce", inputs=[_tensor(self.random, datatype, [2, 3])], parameters={"op": "max", "axis": "all"}, names=["INPUT0"], gaps=False,
                                   target=lambda: "/v2/models/reduce/infer")
            for form in ("plain_raw", "binary", "safetensors") + (("npy",) if datatype in files.NPY else ()) + (("json",) if datatype in forms.JSON_TYPES else ()):
                found.append(Drawn("POST", *forms.FORMS[form](work, None), name="scalar, " + form))
        return found

    def _decorate(self, drawn):
        """Fields that any request may have."""
        r = self.random
        if r.random() < 0.3:
            drawn.headers.append(("X-Request-Id", r.choice(("id-%d" % r.getrandbits(40), "a b", "x" * 128, "x" * 200, "", "caf\xe9", "-._~"))))
        if r.random() < 0.1:
            drawn.headers.append(("traceparent", r.choice(("00-%032x-%016x-01" % (r.getrandbits(128) | 1, r.getrandbits(64) | 1), "00-0-0-0", "zz"))))
        if r.random() < 0.05:
            drawn.headers.append(("Origin", r.choice(("http://localhost", "http://evil.example", "null"))))
        if r.random() < 0.06:
            drawn.host = r.choice(HOSTS)
        if r.random() < 0.2:
            drawn.headers += [(r.choice(("X-A", "User-Agent", "Cookie", "accept-language")), "v" * r.choice((0, 1, 30, 900, 3000))) for _ in range(r.randint(1, 3))]
        if r.random() < 0.1:
            drawn.headers.append(("Content-Type", r.choice(("application/json", "application/octet-stream", "text/plain", "application/x-npy"))) if not any(n == "Content-Type" for n, _ in drawn.headers)
                                 else ("X-B", "b"))
        if r.random() < 0.05:
            drawn.headers.append(("Connection", r.choice(("keep-alive", "Keep-Alive", "close", "TE"))))
        if self.token and r.random() < 0.8:
            drawn.headers.append(("Authorization", r.choice(("Bearer " + self.token,) * 8 + ("Bearer wrong", "bearer " + self.token, "Basic eDp5", "Bearer", "Bearer  " + self.token))))
        r.shuffle(drawn.headers)

    def _resident(self):
        """A tensor that stays, among a few names; both readers' daemons see the same calls."""
        r = self.random
        target = "/v2/tensors/" + r.choice(("a", "b", "c", "d%2Fe", ".x", ""))
        method = r.choice(("PUT", "PUT", "PUT", "GET", "GET", "HEAD", "DELETE"))
        condition = r.choice(((), (), (("If-None-Match", "*"),), (("If-Match", '"%s"' % ("0" * 64)),)))
        if method != "PUT":
            return Drawn(method, target, condition, framing="none", name="resident")
        tensor = _tensor(r, r.choice(DATATYPES), self._shape())
        body = tensor.data if r.random() < 0.9 else tensor.data[1:]
        query = "?shape=%s&datatype=%s" % (",".join(map(str, tensor.shape)), tensor.datatype)
        return Drawn(method, target + (query if r.random() < 0.95 else ""), condition, body, r.choice(("length", "chunked")), "resident")

    def request(self):
        r = self.random
        kind = r.random()
        if self.rows and kind < 0.1:
            return self.row(r.choice(self.rows))
        drawn = self._inference() if kind < 0.66 else self._resident() if kind < 0.7 else self._page() if kind < 0.86 else self._compat() if self.compat and kind < 0.93 else self._control()
        self._decorate(drawn)
        if drawn.framing == "length" and drawn.method == "POST" and r.random() < 0.25:
            drawn.framing = "chunked"
        drawn.pieces = forms.in_pieces(r, drawn.body) if drawn.framing == "chunked" else []
        drawn.expects = drawn.framing != "none" and len(drawn.body) > 0 and r.random() < 0.05
        drawn.ends = drawn.expects or any(name == "Connection" and value.lower() == "close" for name, value in drawn.headers)
        return drawn

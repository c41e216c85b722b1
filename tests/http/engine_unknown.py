#!/usr/bin/env python3
"""A misspelt parameter never gets the preset's answer unsaid: forty misspellings in each of six formats and in /plan, under each
--strict-parameters. Our own formats refuse it and name the right one; Open Inference Protocol bodies are warned, each time, also
where the head was read before; what stands in the query beside JSON would have no effect, and is refused.

engine_unknown.py KERNSERVE
"""

import json
import struct
import sys

import files
from daemon import check, cpu_daemon, metric, request, settle, wrongs
from tensors import Tensor

# model, the right name, how it is misspelt
WORDS = (("softmax", "axis", "axsi axes axs Axis aixs axis_ xaxis axi"),
         ("softmax", "scale", "scal sclae scales Scale scalle"),
         ("softmax", "log", "lgo Log logs lo"),
         ("reduce", "keepdims", "keepdim keep_dims keepDims kepdims keepdmis keepdims_"),
         ("matmul", "alpha", "alhpa aplha Alpha alpah"),
         ("matmul", "transpose_a", "transpose-a tranpose_a transposea trasnpose_a"),
         ("matmul", "transpose_b", "transpse_b Transpose_b transposeb"),
         ("reduce", "priority", "priorty prioritiy pirority"),
         ("reduce", "timeout", "timout time_out timeuot"))
ROWS = [(model, right, wrong) for model, right, words in WORDS for wrong in words.split()]
VALUES = (0.5, 1.25, -3.0, 2.0)
BYTES = struct.pack("<4f", *VALUES)


def inputs_of(model):
    return 2 if model == "matmul" else 1


def target(model, query=""):
    return "/v2/models/%s/infer%s" % (model, "?" + query if query else "")


def json_body(model, more, binary):
    inputs = [{"name": "INPUT%d" % i, "shape": [2, 2], "datatype": "FP32",
               **({"parameters": {"binary_data_size": 16}} if binary else {"data": VALUES})} for i in range(inputs_of(model))]
    return json.dumps({"inputs": inputs, **more}).encode()


def of_json(model, query, more):
    return request("POST", target(model, query), [("Content-Type", "application/json")], json_body(model, more, False))


def of_binary(model, query, more):
    head = json_body(model, more, True)
    return request("POST", target(model, query), [("Inference-Header-Content-Length", len(head))], head + BYTES * inputs_of(model))


def of_plain_raw(model, query, _):
    shape = "&".join(["shape=2,2"] * inputs_of(model)) + "&datatype=FP32"
    return request("POST", target(model, shape + "&" + query), (), BYTES * inputs_of(model))


def of_oip_raw(model, query, _):
    return request("POST", target(model + "_vec", query), [("Inference-Header-Content-Length", 0)], BYTES)


def of_npy(model, query, _):
    return request("POST", target(model, query), [("Content-Type", "application/x-npy")], files.write_npy(Tensor("FP32", [2, 2], VALUES)))


def of_safetensors(model, query, _):
    tensors = {"INPUT%d" % i: Tensor("FP32", [2, 2], VALUES) for i in range(inputs_of(model))}
    return request("POST", target(model, query), [("Content-Type", "application/x-safetensors")], files.write_safetensors(tensors))


def of_plan(model, query, _):
    shape = "&".join(["shape=2,2"] * inputs_of(model))
    return request("GET", "/v2/models/%s/plan?%s&%s" % (model, shape, query))


OWN = {"plain raw": of_plain_raw, "npy": of_npy, "safetensors": of_safetensors, "plan": of_plan}
IN_BODY = {"json": of_json, "binary": of_binary}
IN_QUERY = {**OWN, "oip raw": of_oip_raw}


def fits(name, model):
    """One input is all that a file of numpy holds, and what OIP's raw request can say."""
    return model != "matmul" or name not in ("npy", "oip raw")


def messages(name, model, wrong):
    """What is sent with a misspelling in this format, and the same without it."""
    if name in IN_BODY:
        return IN_BODY[name](model, "", {"parameters": {wrong: 1}}), IN_BODY[name](model, "", {})
    return IN_QUERY[name](model, wrong + "=1", {}), IN_QUERY[name](model, "", {})


def refused(answer, *words):
    sentence = json.loads(answer.body)["error"] if answer and answer.status == 400 else ""
    return answer is not None and answer.header("kernserve-error") == "parameter" and all(word in sentence for word in words)


def warned(answer, wrong, right):
    said = 'unknown-parameter; name="%s"; nearest="%s"' % (wrong, right)
    return answer.status == 200 and answer.header("kernserve-warning") == said


def ask_all(connection, rule):
    """Returns how many answers had a warning."""
    warnings = 0
    for name in (*IN_BODY, *IN_QUERY):
        for model, right, wrong in ROWS:
            if not fits(name, model):
                continue
            misspelt, good = messages(name, model, wrong)
            answer, plain = connection.ask(misspelt), connection.ask(good)
            what = "%s: %s of %s as %s" % (rule, name, model, wrong)
            check(plain.status == 200 and plain.header("kernserve-warning") is None, what + ": without it", plain)
            if rule == "off":
                check(answer.status == 200 and answer.header("kernserve-warning") is None, what, answer)
            elif rule == "all" or name in OWN:
                listed = "it has " if right not in ("priority", "timeout") else ""
                check(refused(answer, "no parameter '%s'; the nearest is '%s'" % (wrong, right), listed), what, answer)
            else:
                check(warned(answer, wrong, right) and answer.body == plain.body, what, answer)
                check(warned(connection.ask(misspelt), wrong, right), what + ", again", answer)
                warnings += 2
    return warnings


def beside_json(connection, rule):
    """Returns how many answers had a warning."""
    warnings = 0
    for name, of in IN_BODY.items():
        for query in ("axis=0", "datatype=FP32", "scale=2", "axis=0&x=1") + (("shape=2,2",) if name == "binary" else ()):
            answer = connection.ask(of("softmax", query, {}))
            check(answer.status == 200 if rule == "off" else refused(answer, "parameters stand in the JSON"), "%s: ?%s beside %s" % (rule, query, name), answer)
        for query, more, said in (("colour=1", {}, 'name="colour"'), ("priority=1", {}, 'name="priority"'), ("%zz", {}, 'name="?"'),
                                  ("x=1", {"parameters": {"axsi": 1}}, 'name="x"'), ("", {"inputz": 1}, 'name="inputz"; nearest="inputs"'),
                                  ("", {"model_name": "softmax"}, None), ("", {"id": "a", "parameters": {"sequence_id": 7}}, None),
                                  ("", {"parameters": {'a"b\\': 1}}, 'name="a?b?"')):
            answer = connection.ask(of("softmax", query, more))
            if rule == "all" and said:
                check(refused(answer), "all: %s %s %s" % (name, query, more), answer)
                continue
            said = "unknown-parameter; " + said if said and rule == "own" else None
            warnings += said is not None
            check(answer.status == 200 and answer.header("kernserve-warning") == said, "%s: %s %s %s" % (rule, name, query, more), answer)
            answer = connection.ask(of("softmax", "", {}))
            check(answer.status == 200 and answer.header("kernserve-warning") is None, "behind one that was warned for its query, or for its head", answer)
    return warnings


def main():
    for rule in ("own", "all", "off"):
        options = () if rule == "own" else ("--strict-parameters", rule)
        with cpu_daemon("--threads", "1", *options) as daemon:
            with daemon.connect() as connection:
                warnings = ask_all(connection, rule) + beside_json(connection, rule)
                check(refused(connection.ask(of_plain_raw("softmax", "%zz=1", {}))) == (rule != "off"), "%s: a name that is no text" % rule)
                check(connection.ask(of_plain_raw("softmax", "&axis=0&", {})).status == 200, "%s: empty pairs" % rule)
            counted = metric(daemon.metrics(), "kernserve_requests_warned_total", code="unknown-parameter") or 0
            check(counted == warnings, "%s: %d answers with a warning" % (rule, warnings), counted)
            settle(daemon)
            check(daemon.stop() == 0, "the exit code")
    check(len(ROWS) >= 40, "forty misspellings", len(ROWS))
    sys.exit(wrongs() > 0)


main()

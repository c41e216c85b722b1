#!/usr/bin/env python3
"""The words of the glossary (docs/architecture.md), held in the code. check_words.py [ROOT] [--self-test]

Fails on a name that the glossary has replaced, in code, comments and documents, and on a comment of the server, the kernels or the
public headers that makes a person of a machine ("who", "nobody", "told") or names a source that is not there. CHANGELOG.md, docs/decisions.md and results of benchmarks
tell of older names and are left out, as are recorded texts of planted faults.
"""
import os
import re
import sys

import tree_files

# a name, by what it matches whole; what stands for it now
RETIRED = [
    (r"ks_slot_line\w*", "ks_slot_queue"), (r"ks_talk\w*", "ks_plain_conn"), (r"ks_direct\w*", "ks_plain"), (r"ks_pieces?(_\w+)?", "ks_ring_buffer, ks_io"),
    (r"KS_PIECE_\w+", "KS_CHUNK_, KS_RING_BUFFER_"), (r"ks_gate_\w+", "ks_check_"), (r"ks_page(_\w+)?", "ks_document"), (r"ks_reply\w*", "ks_response"),
    (r"ks_oip(_\w+)?", "ks_codec, ks_document"), (r"ks_ask(_\w+)?", "ks_infer_request"), (r"ks_answer(_\w+)?", "ks_response_body"),
    (r"ks_forms?", "ks_body_format"), (r"KS_FORM_\w+", "KS_BODY_FORMAT_"), (r"ks_encoding(_\w+)?", "ks_format_label"), (r"ks_word_limits", "ks_codec_limits"),
    (r"ks_pack(ing\w*)?", "ks_compression"), (r"ks_streams?(_\w+)?", "ks_large_request"), (r"ks_areas?", "ks_device_buffer"), (r"ks_ways?", "ks_algorithm"),
    (r"ks_pick", "ks_kernel_info"), (r"KS_CHOICE_BYTES", "KS_ALGORITHM_BYTES"), (r"ks_floors?(_\w+)?", "ks_device_limits"), (r"ks_stage", "ks_conn_state, ks_staged_phase"),
    (r"ks_settle_\w+", "ks_defaults_"), (r"ks_tune_line\w*", "ks_tune_entry"), (r"KS_LINE_BYTES", "KS_COMPLETION_BYTES"), (r"\w*skeleton\w*", "JSON head"),
    (r"memos", "head cache"), (r"ks_encode_state|KS_ENCODE_\w+", "ks_infer_state"), (r"open_house|rooms\[\]", "start steps")]
KEPT = {"max_skeleton", "max-skeleton", "MAX_SKELETON"}  # the option keeps its name
PERSONS = r"who|whoever|nobody|somebody|anybody|everybody|told|hears|tells|meets|company|patience|patient|judged|judges"
ELSEWHERE = {"NAME.c", "NAME.cu", "fast.cu", "sysexits.h", "tcp.h"}  # placeholders, other projects', the system's
LEFT_OUT = ("CHANGELOG.md", "docs/decisions.md", "tests/bench/results/", "tests/fuzz/corpus/", "tests/check_words.py", "tests/check_docs.py", "tests/planted.def", ".git-blame-ignore-revs")

retired = re.compile(r"(?<![\w-])(?:%s)(?![\w-])" % "|".join("(?:%s)" % name for name, _ in RETIRED))
person = re.compile(r"\b(?:%s)\b" % PERSONS, re.I)
source = re.compile(r"[\w-]+\.(?:cuh|cu|cc|c|h|def|py|sh)\b(?![.(])")
comment = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(/\*.*?\*/|//[^\n]*)', re.S)


def stands_for(name):
    return next(now for old, now in RETIRED if re.fullmatch(old, name))


def faults(path, text, names):
    """Yields (line, sentence). names: of all files."""
    for found in retired.finditer(text):
        if found.group(0) not in KEPT:
            yield text.count("\n", 0, found.start()) + 1, "'%s' is now %s" % (found.group(0), stands_for(found.group(0)))
    if not re.match(r"(server|kernels|include)/.*\.(c|h|cc|cu|cuh|def)$", path):
        return
    for found in comment.finditer(text):
        for word in person.finditer(found.group(1) or ""):
            at = text.count("\n", 0, found.start() + word.start()) + 1
            yield at, "a comment says '%s': name the thing that does it, or that it is done to" % word.group(0)
        for name in source.finditer(found.group(1) or ""):
            if name.group(0) not in names and name.group(0) not in ELSEWHERE:
                at = text.count("\n", 0, found.start() + name.start()) + 1
                yield at, "a comment names %s, which is not there" % name.group(0)


def self_test():
    bad = [("server/x.c", "static ks_talk *t;"), ("docs/x.md", "a `ks_slot_line` waits"), ("server/x.h", "/* Nobody asks. */"),
           ("kernels/x.cu", "int a; // the host is told\n"), ("tests/x.py", "ks_oip_begin"), ("server/codec/x.c", "size_t skeleton_max;"),
           ("server/x.h", "/* What y.c shares with x.c. */")]
    good = [("server/x.c", 'puts("who");'), ("server/x.c", "config->max_skeleton"), ("docs/x.md", "who reads this"), ("server/x.c", "ks_large_begin(&request);"),
            ("server/x.h", "/* What x.c shares, as NAME.c does. */ char name[] = \"y.c\";")]
    for path, text in bad:
        assert list(faults(path, text, {"x.c"})), (path, text)
    for path, text in good:
        assert not list(faults(path, text, {"x.c"})), (path, text)
    print("%d faults found, %d texts passed" % (len(bad), len(good)))


def main():
    if "--self-test" in sys.argv:
        return self_test()
    root = next((word for word in sys.argv[1:] if not word.startswith("-")), os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    count = checked = 0
    paths = list(tree_files.files(root))
    names = set(map(os.path.basename, paths))
    for path in paths:
        if path.startswith(LEFT_OUT):
            continue
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            text = file.read()
        checked += 1
        for line, sentence in faults(path, text, names):
            count += 1
            print("%s:%d: %s" % (path, line, sentence))
    print("%d files, %d faults" % (checked, count))
    return count > 0


if __name__ == "__main__":
    sys.exit(main())

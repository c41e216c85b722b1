#!/usr/bin/env python3
"""Keys of KServe's objects that the kserve package does not know: kserve_keys.py < OBJECTS.json. With the Python of tests/compat.

Prints a line each; exit code 1 when there is one, 77 without the package.
"""

import json
import re
import sys

try:
    import kserve.models
    import kubernetes.client.models
except ImportError as missing:
    print("the package %s is not installed" % missing.name)
    sys.exit(77)


def class_of(name):
    return getattr(kserve.models, name, None) or getattr(kubernetes.client.models, name, None)


def faults(value, kind, where):
    many = re.fullmatch(r"list\[(.*)\]", kind)
    if many and isinstance(value, list):
        for at, one in enumerate(value):
            yield from faults(one, many.group(1), "%s[%d]" % (where, at))
        return
    known = class_of(kind)
    if known is None:
        if kind in ("str", "int", "bool") and type(value).__name__ != kind:
            yield "%s: %r is no %s" % (where, value, kind)
        return
    if not isinstance(value, dict):
        yield "%s: %r is no %s" % (where, value, kind)
        return
    names = {key: name for name, key in known.attribute_map.items()}
    for key, one in value.items():
        if key not in names:
            yield "%s: %s has no key %s" % (where, kind, key)
        else:
            yield from faults(one, known.openapi_types[names[key]], where + "." + key)


def main():
    found = []
    for one in json.load(sys.stdin):
        kind = one["apiVersion"].rsplit("/", 1)[-1].capitalize() + one["kind"]
        found += faults(one, kind, one["kind"]) if class_of(kind) else ["no such object: %s" % kind]
    print("\n".join(found))
    sys.exit(1 if found else 0)


main()

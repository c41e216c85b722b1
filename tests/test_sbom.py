#!/usr/bin/env python3
"""The SBOM names every library that the program loads, with its version, and is SPDX; and the build refuses a cJSON whose
faults are known.

test_sbom.py KERNSERVE SBOM CMAKE FOLDER-OF-CMAKE-SCRIPTS [STATIC-PART:VERSION]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

WRONG = []


def check(right, *words):
    if not right:
        WRONG.append(words)
        print("WRONG", *words)


def loaded(program):
    """Paths of the shared libraries, as the loader finds them."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", said, re.M)


def owner_in(found):
    """The first package in what dpkg-query --search says: "libc6:amd64, other: /path". A line "diversion by base-files from: /path"
    may stand before it, or alone, and names no owner."""
    for line in found.splitlines():
        if ": " in line and not line.startswith(("diversion by ", "local diversion ")):
            return line.split(": ")[0].split(", ")[0]
    return None


def dpkg(*words):
    done = subprocess.run(["dpkg-query", *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def package_of(library):
    """(package, version, True) as dpkg has them; where no package owns it the library's own names, and False. Of its version a
    file's name has the beginning at most."""
    real = os.path.realpath(library)
    for path in (library, real, real.replace("/usr/lib", "/lib", 1), "/usr" + library) if shutil.which("dpkg-query") else ():
        package = owner_in(dpkg("--search", path))
        version = package and dpkg("--show", "--showformat=${Version}", package)
        if version:
            return package.split(":")[0], version, True
    name, _, version = os.path.basename(real).rpartition(".so")
    return name, version.lstrip(".") or "unknown", False


def owners():
    """What dpkg says where /lib is /usr/lib, where two packages share a folder, and of nothing."""
    for said, owner in (("diversion by base-files from: /lib64/l.so\ndiversion by base-files to: /lib64/l.so.usr-is-merged\n", None),
                        ("diversion by a from: /l.so\ndiversion by a to: /m.so\nlibc6:amd64: /l.so\n", "libc6:amd64"),
                        ("local diversion from: /l.so\nlocal diversion to: /m.so\n", None), ("a:amd64, b:amd64: /usr/lib\n", "a:amd64"), ("", None)):
        check(owner_in(said) == owner, "owner", owner_in(said), "and not", owner, "in", said)


def fits(version, said, without):
    return said.startswith(version) or (without and (said == "unknown" or (version + ".").startswith(said + ".")))


def sbom(program, file, static):
    with open(file) as text:
        document = json.load(text)
    check(document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0" and document["SPDXID"] == "SPDXRef-DOCUMENT", "head")
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"]), document["creationInfo"])
    check(document["creationInfo"]["creators"] and document["documentNamespace"].startswith("https://"), "creators, namespace")
    packages = {p["name"]: p for p in document["packages"]}
    ids = [p["SPDXID"] for p in document["packages"]]
    check(len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", i) for i in ids), "ids", ids)
    for p in document["packages"]:
        check(p["downloadLocation"] and p["versionInfo"], p)
    related = {r["relatedSpdxElement"] for r in document["relationships"]}
    check(related == set(ids), "each package has its relation", set(ids) ^ related)
    without = set()
    for library in loaded(program):
        name, version, owned = package_of(library)
        if not owned:
            print("without package:", library)
            without.add(name)
        check(name in packages and packages[name]["versionInfo"] == version, library, "is", name, version, "and not", packages.get(name))
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    own = said.split()[1]
    check(packages["kernserve"]["versionInfo"] == own, "its own version", own)
    for library, name in (("libmicrohttpd", "libmicrohttpd"), ("oneDNN", "libdnnl")):
        version = re.search(library + r" (\d[\d.]*)", said)
        entry = [p["versionInfo"] for n, p in packages.items() if n.startswith(name)]
        check(not version or (entry and fits(version.group(1), entry[0], name in without)), library, version, "is", entry)
    for part in static:
        name, version = part.split(":")
        check(packages.get(name, {}).get("versionInfo") == version, "static part", part)
    print("%d packages: %s" % (len(packages), ", ".join("%s %s" % (n, p["versionInfo"]) for n, p in sorted(packages.items()))))


def cjson(cmake, folder):
    rows = (("1.7.15", "", True), ("1.7.15", "1.7.15-1+deb12u4", True), ("1.7.15", "1.7.15-1+deb12u10", True), ("1.7.19", "1.7.19-1", True),
            ("1.8.0", "", True), ("1.7.15", "1.7.15-1ubuntu0.1", True), ("1.7.14", "", False), ("1.6.20", "", False), ("0.9.99", "", False),
            ("1.7.15", "1.7.15-1", False), ("1.7.15", "1.7.15-1+deb12u1", False), ("1.7.15", "1.7.15-1+deb12u3", False), ("none", "", False))
    with tempfile.TemporaryDirectory() as scratch:
        header = os.path.join(scratch, "cJSON.h")
        for version, package, good in rows:
            with open(header, "w") as file:
                for name, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".")):
                    file.write("#define CJSON_VERSION_%s %s\n" % (name, number))
            done = subprocess.run([cmake, "-D", "HEADER=" + header, "-D", "PACKAGE=" + package, "-P", os.path.join(folder, "cjson.cmake")],
                                  capture_output=True, text=True)
            check((done.returncode == 0) == good, version, package, "exit", done.returncode, done.stderr)
            check(good or "is the least" in " ".join(done.stderr.split()), version, package, done.stderr)


def main():
    program, file, cmake, folder, *static = sys.argv[1:]
    if not shutil.which("ldd"):
        print("ldd is not there")
        sys.exit(77)
    owners()
    sbom(program, file, static)
    cjson(cmake, folder)
    sys.exit(1 if WRONG else 0)


if __name__ == "__main__":
    main()

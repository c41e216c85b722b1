"""A toy option: --note, a text in the log line that says ready."""
import os
import subprocess
import tempfile

from daemon import Daemon

HEADING = "Add an option"
HELP = "text in the log line that says ready"
EDITS = [
    ("server/base/config/options.def", r"^TEXT\(server_name, .*\n", r'\g<0>TEXT(note, "note", "", LIFE, REST, "", "%s")\n' % HELP),
    ("server/main.c", r'KS_LOG\(KS_LOG_INFO, "ready", ', r'\g<0>KS_TEXT("note", config->note), '),
    # documents, and what --dump-config=sample prints
    ("docs/operate.md", r"^\| `--server-name` .*\n", r"\g<0>| `--note` |  | %s |\n" % HELP),
    ("deploy/config/kernserve.conf", r"^#self-test-time = .*\n", r"\g<0>\n# %s\n# no preset\n#note =\n" % HELP),
]


def said(kernserve, options=(), environment=None):
    with Daemon(kernserve, "--backend", "cpu", "--pinned-bytes", "16M", *options, environment=environment) as daemon:
        assert daemon.stop() == 0
        return daemon.said()


def run(kernserve, *words):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KERNSERVE_")}
    return subprocess.run([kernserve, *words], capture_output=True, text=True, env=environment, check=True).stdout


def test(kernserve, tree, command):
    help_text = run(kernserve, "--help=all")
    assert "--note" in help_text and HELP in help_text, help_text
    with open(os.path.join(tree, "deploy", "config", "kernserve.conf")) as file:
        assert file.read() == run(kernserve, "--dump-config=sample")
    assert "note=tea" in said(kernserve, ["--note", "tea"])
    assert "note=coffee" in said(kernserve, environment={"KERNSERVE_NOTE": "coffee"})
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("note = cocoa\n")
        file.flush()
        assert "note=cocoa" in said(kernserve, ["--config", file.name])
        assert "note=water" in said(kernserve, ["--config", file.name, "--note", "water"])
    assert "tea" not in said(kernserve)

#!/usr/bin/env python3
"""The manual pages and the completions that kernserve prints: mandoc finds nothing, every option, command, exit code and error code is
there, and a bash and a zsh on a terminal complete a command line by them.

manual.py KERNSERVE        exit code 77: neither mandoc nor a shell is here
"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# As root, mandoc looks whether what a page names is installed here.
ELSEWHERE = re.compile(r"outdated mandoc.db|referenced manual not found")
# What is typed on the terminal, <TAB> for the key; what stands there then. A command word cut short has one completion.
TYPED = [("--back<TAB>cp<TAB>", "--backend cpu"), ("--backend=cu<TAB>", "--backend=cuda"), ("--self-test=js<TAB>", "--self-test=json"), ("--no-sc<TAB>", "--no-scrub"),
         ("--token-file tok<TAB>", "--token-file tokens.txt"), ("--log-level deb<TAB> --accep<TAB>", "--log-level debug --accept-host"), ("--manual=8<TAB>", "--manual=8")]
BASH = "PS1='> '; bind 'set bell-style none'; . ./completion\n"
ZSH = "PS1='> '; unsetopt beep prompt_sp list_beep; bindkey -e; fpath=($PWD $fpath); autoload -Uz compinit && compinit -u -d $PWD/dump; zstyle ':completion:*' menu no\n"
wrong = 0


def check(good, *said):
    global wrong
    if not good:
        wrong += 1
        print("WRONG", *said)


def printed(kernserve, *options):
    done = subprocess.run([kernserve, *options], capture_output=True, text=True, timeout=30)
    check(done.returncode == 0 and not done.stderr, options, done.returncode, done.stderr)
    return done.stdout


def names(path, pattern):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return re.findall(pattern, file.read(), re.M)


def manual(kernserve, folder):
    pages = {section: printed(kernserve, "--manual=" + section) for section in ("8", "5")}
    for option in names("server/base/config/options.def", r'^[A-Z_]+\(\w+,(?: \w+,)? "([\w-]+)"'):
        check("\n.It Ic %s No =" % option in pages["5"], "kernserve.conf(5) lacks", option)
    for command in names("server/base/config/value.c", r'^    \{"([\w-]+)", "[^"]*", "[^"]*", KS_COMMAND_'):
        check("\n.It Fl -%s" % command in pages["8"], "kernserve(8) lacks", command)
    for code in names("server/base/config/config.h", r"^    X\(\w+, (\d+), (?:true|false),"):
        check("\n.It %s\n" % code in pages["8"], "kernserve(8) lacks the exit code", code)
    for http, code in names("include/kernserve/status.h", r'X\(\w+, (4\d\d|50[1-9]), "(\w+)"'):
        at = re.search(r"\n\.It %s\n((?:[^.].*\n)+)" % http, pages["8"])
        check(http == "499" or (at and re.search(r"\b%s\b" % code, at.group(1))), "kernserve(8) lacks", http, code)
    if not shutil.which("mandoc"):
        print("no mandoc here: the pages were not judged by it")
        return
    for section, text in pages.items():
        path = os.path.join(folder, "page." + section)
        with open(path, "w") as file:
            file.write(text)
        done = subprocess.run(["mandoc", "-T", "lint", path], capture_output=True, text=True, timeout=30)
        said = [line for line in (done.stdout + done.stderr).splitlines() if not ELSEWHERE.search(line)]
        check(not said, *said)


class Terminal:
    """A shell on a terminal of its own, in the folder."""

    def __init__(self, words, folder, begin):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": folder, "LC_ALL": "C"})
        self.send(begin + "echo be'gun'\n")
        self.read_until("begun")

    def send(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, pattern, seconds=20):
        end, got = time.monotonic() + seconds, ""
        while not re.search(pattern, got) and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                got += os.read(self.fd, 4096).decode(errors="replace")
        return got

    def completed(self, typed):
        """The line that stands there at the end: the beginning of the line makes echo's words of it."""
        self.send("kernserve " + typed.replace("<TAB>", "\t"))
        time.sleep(0.3)  # keys that arrive while the shell completes are its own
        self.send("\x01echo 'line:' \x05 ':end'\n")
        got = self.read_until(r"\nline: .*:end\r")
        at = re.search(r"\nline: kernserve (.*?) *:end\r", got)
        return at.group(1) if at else got

    def close(self):
        self.send("\x15exit\n")
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def completion(shell, words, begin, kernserve, folder):
    if not shutil.which(shell):
        print("no %s here" % shell)
        return
    with open(os.path.join(folder, "completion" if shell == "bash" else "_kernserve"), "w") as file:
        file.write(printed(kernserve, "--completion=" + shell))
    terminal = Terminal(words, folder, begin)
    for typed, wanted in TYPED:
        got = terminal.completed(typed)
        check(re.sub(r"^(--[a-z]+)=", r"\1 ", got) == re.sub(r"^(--[a-z]+)=", r"\1 ", wanted), shell, typed, "gives", repr(got))
    terminal.close()


def main():
    kernserve = os.path.abspath(sys.argv[1])
    if not any(map(shutil.which, ("mandoc", "bash", "zsh"))):
        print("neither mandoc nor a shell is here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "tokens.txt"), "w").close()
        manual(kernserve, folder)
        completion("bash", ["bash", "--norc", "--noprofile", "-i"], BASH, kernserve, folder)
        completion("zsh", ["zsh", "-f", "-i"], ZSH, kernserve, folder)
        if shutil.which("shellcheck") and os.path.exists(os.path.join(folder, "completion")):
            done = subprocess.run(["shellcheck", os.path.join(folder, "completion")], capture_output=True, text=True, timeout=60)
            check(done.returncode == 0, done.stdout)
    print("%d wrong" % wrong)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

"""The files of a checkout: those that git knows or would take; where git is missing, or the tree is no checkout, all but build folders."""
import os
import subprocess


def walk(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in (".git", "__pycache__") and not (folder == root and f.startswith("build"))]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in names)


def files(root):
    try:
        listing = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        paths = listing.stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        paths = walk(root)
    return sorted(path for path in set(paths) if path and os.path.isfile(os.path.join(root, path)))

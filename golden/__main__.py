"""Build an older commit beside this checkout, and compare what both compute: `python -m golden COMMIT`."""

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from golden.compare import declared_changes, differences, read

GOLDEN = Path(__file__).parent
ROOT = GOLDEN.parent
BUILD = ROOT / "build" / "golden"


def run(*command: str | Path, **options) -> str:
    """Run a command and return what it prints."""
    return subprocess.run([*map(str, command)], check=True, text=True, stdout=subprocess.PIPE, **options).stdout.strip()


def checkout(commit: str) -> Path:
    """Return a work tree of a commit."""
    sha = run("git", "rev-parse", "--verify", f"{commit}^{{commit}}", cwd=ROOT)
    tree = BUILD / sha / "tree"
    if not tree.exists():
        run("git", "worktree", "prune", cwd=ROOT)
        run("git", "worktree", "add", "--force", "--detach", tree, sha, cwd=ROOT)
    return tree


def environment_of(tree: Path) -> Path:
    """Return the Python of an environment that has this tree's package, and ours for everything else."""
    place = tree.parent / "environment"
    python = place / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    if not (packages / "replaylab").exists():
        print(f"==> building {tree.parent.name[:9]}")
        run(sys.executable, "-m", "venv", "--without-pip", place)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run(*pip, "--no-deps", "--no-build-isolation", "--target", packages, tree, stderr=subprocess.DEVNULL)
        # A plain path: what is linked into our own environment (this checkout's package) is not found through it.
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def collected(tree: Path, python: Path, out: Path) -> Path:
    """Return the file of what a tree computes, by this checkout's collector."""
    out.parent.mkdir(parents=True, exist_ok=True)
    print(f"==> collecting in {tree.parent.name[:9] if tree != ROOT else 'this checkout'}", flush=True)
    subprocess.run(
        [python, GOLDEN / "collect.py", out], check=True, cwd=tree, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    return out


def main() -> int:
    """Compare; return the exit code."""
    if len(sys.argv) != 2:
        print("usage: make golden BASE=<commit>")
        return 2
    tree = checkout(sys.argv[1])
    collector = b"".join((GOLDEN / name).read_bytes() for name in ("collect.py", "scene.py"))
    before = tree.parent / f"values-{hashlib.sha256(collector).hexdigest()[:9]}.npz"
    if not before.exists():
        collected(tree, environment_of(tree), before)
    after = collected(ROOT, Path(sys.executable), BUILD / "values.npz")
    changed = differences(read(before), read(after), declared_changes())
    print("\n".join(changed[:200]))
    print(f"{len(changed)} undeclared differences from {sys.argv[1]}")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())

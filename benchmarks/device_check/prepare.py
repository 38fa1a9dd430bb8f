"""Makes this checkout's library importable for the check, without a package index: `make device-check` runs it first.

It needs pip, scikit-build-core, nanobind, CMake and a compiler; all but the compiler may be among the wheels. If a
wheel of replaylab is among them, nothing is built. An interpreter that imports this checkout's `src` already, as that
of a development environment does, is unchanged.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps")


def imports_checkout(site: Path) -> bool:
    """Return whether the interpreter imports replaylab, with its core, from this checkout's sources."""
    command = [sys.executable, "-c", "import replaylab; print(replaylab.__file__)"]
    environment = {**os.environ, "PYTHONPATH": python_path(site)}
    ran = subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode == 0 and Path(ran.stdout.strip()).is_relative_to(ROOT / "src")


def python_path(site: Path) -> str:
    """Return PYTHONPATH with a folder in front."""
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])


def prepare(site: Path, wheels: Path | None) -> None:
    """Install wheels, if a folder is given, and build and install the library where that is needed."""
    site.mkdir(parents=True, exist_ok=True)
    wheel_files = [] if wheels is None else sorted(map(str, wheels.glob("*.whl")))
    if wheel_files:
        print(f"==> installing {len(wheel_files)} wheels from {wheels}", flush=True)
        subprocess.run([*PIP, "--no-compile", "--upgrade", "--target", str(site), *wheel_files], check=True)
    if imports_checkout(site) or any(Path(file).name.startswith("replaylab-") for file in wheel_files):
        return
    print("==> building the C++ core", flush=True)
    build = site.parent / "build"
    where = ["--no-build-isolation", f"--config-settings=build-dir={build}", "--upgrade", "--target", str(site)]
    tools = {"PYTHONPATH": python_path(site), "PATH": os.pathsep.join([str(site / "bin"), os.environ.get("PATH", "")])}
    subprocess.run([*PIP, *where, str(ROOT)], env={**os.environ, **tools}, check=True)


def main() -> None:
    """Prepare as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "build/device-check/site", help="where to install")
    parser.add_argument("--wheels", type=Path, default=None, help="a folder of wheels")
    options = parser.parse_args()
    prepare(options.site.resolve(), options.wheels)


if __name__ == "__main__":
    main()

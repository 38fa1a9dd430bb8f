#!/usr/bin/env bash
# Runs tests of the core built with sanitizers; any report fails.   Usage: run.sh PYTHON [JOBS]
#
#   address   AddressSanitizer and UndefinedBehaviorSanitizer: tests/replay, and of tests/learners and tests/envs those of
#             what is in the core, except for the slow tests
#   thread    ThreadSanitizer: the tests of several threads, the slow ones too
#
# Neither runs the tests marked `no_sanitizer`: they measure memory or time, of which a sanitizer takes its own, or kill
# processes, which would still be loading then.
# Each builds in its own folder and virtual environment under build/sanitize/, over the packages PYTHON sees, and
# leaves PYTHON's own build alone. Leaks are not looked for: the interpreter itself keeps memory to its end.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1 jobs=${2:-2}
root=$PWD/build/sanitize
cxx=${CXX:-c++}
threads=(tests/replay/threads/test_threads.py)
for file in tests/replay/*/test_*thread*.py tests/replay/test_*prefetch*.py; do
    if [[ -e $file && $file != "${threads[0]}" ]]; then threads+=("$file"); fi
done

build() { # name, sanitizers
    home=$root/$1 sanitizers=$2 reports=$root/$1/reports
    echo "==> building the core with -fsanitize=$sanitizers"
    [[ -x $home/venv/bin/python ]] || "$python" -m venv "$home/venv"
    "$python" -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
        >"$("$home/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/base.pth"
    "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
        --config-settings build-dir="$home/cmake" --config-settings cmake.build-type=RelWithDebInfo \
        --config-settings cmake.define.REPLAYLAB_SANITIZE="$sanitizers" \
        --editable .
    # An interpreter without the sanitizer must load its library first, and the one exceptions are thrown with.
    local core
    core=$("$home/venv/bin/python" -c 'from importlib.util import find_spec; print(find_spec("replaylab._core").origin)' \
        2>/dev/null || find "$home/venv" -name '_core*.so' | head -n 1)
    preload=$(ldd "$core" | awk '/lib(asan|ubsan|tsan|stdc\+\+)\.so/ { printf "%s ", $3 }')
    [[ $preload == *san* ]] || { echo "$cxx has no sanitizer libraries to load; use GCC on Linux: CXX=g++"; exit 1; }
    rm -rf "$reports"
    mkdir -p "$reports"
    export ASAN_OPTIONS="detect_leaks=0 detect_stack_use_after_return=1 log_path=$reports/asan"
    export UBSAN_OPTIONS="print_stacktrace=1"
    export TSAN_OPTIONS="suppressions=$PWD/tests/sanitize/thread.supp log_path=$reports/tsan"
    export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
}

sanitized() { LD_PRELOAD=$preload "$home/venv/bin/python" "$@"; }

# The run means nothing unless a bug is reported: each of these is one.
canary() { # functions
    "$cxx" -std=c++17 -g -O1 -shared -fPIC -pthread -fsanitize="$sanitizers" -fno-sanitize-recover=all \
        tests/sanitize/canary.cpp -o "$home/canary.so"
    for bug in "$@"; do
        sanitized -c "import ctypes; ctypes.CDLL('$home/canary.so').$bug()" >"$reports/stderr" 2>&1 || true
        grep -Eqs 'AddressSanitizer|ThreadSanitizer|runtime error' "$reports"/* ||
            { cat "$reports"/*; echo "the sanitizer missed a planted bug: $bug"; exit 1; }
        rm -f "$reports"/*
    done
}

finish() { # exit status of the tests
    if compgen -G "$reports/*" >/dev/null; then
        cat "$reports"/*
        echo "==> -fsanitize=$sanitizers reported the above"
        exit 1
    fi
    [[ $1 == 0 ]] || exit "$1"
    echo "==> -fsanitize=$sanitizers: nothing to report"
}

# The streams are captured as Python objects only, so that a report made while the process dies is still seen.
tests() { # pytest's arguments
    local status=0
    sanitized -m pytest -q -p no:cacheprovider -p tests.sanitize.quick --capture=sys --durations=5 "$@" || status=$?
    finish $status
}

build address address,undefined
canary heap_overflow signed_overflow
tests -n "$jobs" -m "not slow and not cuda and not no_sanitizer" tests/replay \
    tests/learners/dqn/test_perceptrons.py tests/learners/dqn/test_filters.py tests/learners/dqn/test_convolutions.py tests/learners/tabular/test_temporal_difference.py \
    tests/envs/pixels/test_minatar.py

build thread thread
canary data_race
tests -m "not no_sanitizer" "${threads[@]}"

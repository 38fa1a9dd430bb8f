# Everything a clone needs: each target first builds what it needs, once, and prints what it does.
#
#   make study    build, install and run the quick study; prints the path of its report
#   make test     build, install and run the tests, except the slow ones (SLOW_TENTH=0 to 9: also a tenth of the slow ones)
#   make test-cuda  the tests that need a GPU, each reported as skipped if PyTorch finds none
#   make test-readme  the blocks of README and the first pages, in environments that have only what their commands install
#   make test-wheel    a source distribution, and wheels from it, each tested in an empty environment (PYTHONS="python3.11 ...")
#   make test-aarch64  compare the draws of every sampler on an emulated 64-bit Arm processor (needs a cross-compiler and QEMU)
#   make results  recompute the tables of published studies from their rows, and compare the pages' numbers with them
#   make reports  write the reports of published studies from their rows into build/reports
#   make bench    time the buffer beside its peers (installs them; ARGS=... for options)
#   make device-check  measure the replay on a GPU against its targets, small without one (ARGS="kernels peers", WHEELS=<folder>)
#   make lint     formatting, lint, layers and words, in an environment of their own (seconds)
#   make types    mypy, and the core's generated stubs
#   make format   apply the formatters
#   make docs     execute the tutorials and build the documentation into build/docs
#   make notebooks  write the tutorials, and the texts of examples/originals, as notebooks
#   make pictures make the pictures of the documentation (needs chromium)
#   make coverage run the replay library's tests and list the lines and branches that they miss
#   make sanitize run tests of the core under address, undefined-behavior and thread sanitizers
#   make golden   build an older commit too and compare the values that both compute, except those that golden/changes.toml lists (BASE=<commit>)
#   make fuzz     read mutated snapshots and files of rows, for a minute (ARGS="--mutations 1000000": a million); and
#                 compare 100,000 random calls with the oracle
#   make clean    remove what these targets wrote

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# Tests start a few hundred processes, which share what the first ones compiled.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q
CORE := $(wildcard cpp/*/*.cpp cpp/*/*.hpp) CMakeLists.txt pyproject.toml constraints.txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
STUBS := src/replaylab/_core.pyi
LINT := build/lint

.PHONY: study results reports test test-slow test-cuda test-readme test-wheel test-aarch64 bench bench-training bench-minatar device-check lint types format stubs docs notebooks pictures coverage sanitize fuzz golden clean
.DELETE_ON_ERROR:

study: $(VENV)/.lab
	@echo "==> running the quick study"
	@$(BIN)/replaylab study run quick

test: $(VENV)/.test
	@echo "==> running the tests ($(JOBS) processes$(if $(SLOW_TENTH),; and the slow tests of SLOW_TENTH=$(SLOW_TENTH)))"
	@$(PYTEST) -n $(JOBS) --dist worksteal -m "$(if $(SLOW_TENTH),,not slow and )not cuda" $(SLOW_TENTH:%=--slow-tenth %)

test-slow: $(VENV)/.test
	@echo "==> running all tests, also the slow ones"
	@$(PYTEST) -n $(JOBS)

test-cuda: $(VENV)/.test
	@echo "==> running the tests that need a GPU"
	@$(PYTEST) -m cuda tests

test-readme: $(VENV)/.core
	@echo "==> following README and the first pages in empty environments"
	@rm -rf build/readme
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir build/readme .
	@$(BIN)/python tests/wheels/readme.py build/readme/*.whl --constraint constraints.txt

test-wheel:
	@tests/wheels/empty_environment.sh $(or $(PYTHONS),$(PYTHON))

test-aarch64:
	@tests/wheels/emulated.sh

results: $(VENV)/.test
	@echo "==> recomputing the published results"
	@$(PYTEST) tests/docs/test_published_numbers.py

reports: $(VENV)/.lab
	@set -e; for folder in $(patsubst docs/results/%/rows.parquet,%,$(wildcard docs/results/*/rows.parquet docs/results/*/*/rows.parquet)); do \
		echo "==> $$folder"; $(BIN)/replaylab study report docs/results/$$folder --out build/reports/$$folder; done

bench: $(VENV)/.bench
	@$(BIN)/python -m benchmarks.replay $(ARGS)

bench-training: $(VENV)/.bench
	@$(BIN)/python -m benchmarks.training $(ARGS)

bench-minatar: $(VENV)/.bench
	@$(BIN)/python -m benchmarks.minatar_training $(ARGS)

# Without a package index: with the environment here if there is one, else with PYTHON and what it has.
CHECKED := $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
device-check:
	@$(CHECKED) -m benchmarks.device_check.prepare $(WHEELS:%=--wheels %)
	@PYTHONPATH=build/device-check/site$${PYTHONPATH:+:$$PYTHONPATH} $(CHECKED) -m benchmarks.device_check $(ARGS) $(WHEELS:%=--wheels %)

docs: $(VENV)/.docs
	@echo "==> building the documentation"
	@$(BIN)/python -m sphinx -W --keep-going -n -q -j 2 -b html docs build/docs
	@echo "build/docs/index.html"

notebooks:
	@$(PYTHON) docs/make_notebooks.py

pictures: $(VENV)/.docs
	@$(BIN)/python docs/make_pictures.py

coverage: $(VENV)/.test
	@$(PYTEST) -n $(JOBS) -m "not slow and not cuda" --cov --cov-report=term-missing:skip-covered tests/replay tests/docs src/replaylab/replay

sanitize: $(VENV)/.test
	@tests/sanitize/run.sh $(BIN)/python $(JOBS)

fuzz: $(VENV)/.test
	@$(BIN)/python -m tests.fuzz $(ARGS)
	@$(BIN)/python -m tests.fuzz.calls

golden: $(VENV)/.test
	@$(BIN)/python -m golden $(BASE)

lint: $(LINT)/.installed
	@echo "==> ruff, clang-format, layers, words"
	@$(LINT)/bin/ruff check .
	@$(LINT)/bin/ruff format --check .
	@$(LINT)/bin/clang-format --dry-run -Werror cpp/*/*.cpp cpp/*/*.hpp
	@PYTHONPATH=src $(LINT)/bin/lint-imports --no-cache
	@$(LINT)/bin/python -m tests.plain_language

format: $(LINT)/.installed
	@$(LINT)/bin/ruff check --fix-only .
	@$(LINT)/bin/ruff format .
	@$(LINT)/bin/clang-format -i cpp/*/*.cpp cpp/*/*.hpp

types: $(VENV)/.dev
	@echo "==> mypy, stubs"
	@$(BIN)/mypy
	@mkdir -p build
	@$(BIN)/python -m nanobind.stubgen -q -m replaylab._core -o build/_core.pyi
	@diff $(STUBS) build/_core.pyi || { echo "$(STUBS) differs from the core; run: make stubs"; exit 1; }

stubs: $(VENV)/.dev
	@$(BIN)/python -m nanobind.stubgen -q -m replaylab._core -o $(STUBS)

clean:
	rm -rf $(VENV) build dist results

# One virtual environment; the stamps record which extras it has. Python sources are linked, not copied, so only
# a change of the core, of the metadata or of the pins installs again. setuptools is for a dependency of rl-zoo3 that
# comes only as source (moviepy).
$(VENV)/.core: $(CORE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "replaylab needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@command -v "$${CXX:-c++}" >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1 || \
	  { echo "replaylab needs a C++17 compiler; install one: 'apt install g++' (Debian, Ubuntu), 'dnf install gcc-c++' (Fedora), 'xcode-select --install' (macOS)"; exit 1; }
	@test -x $(BIN)/python || { echo "==> creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "==> installing the build tools"
	@$(INSTALL) scikit-build-core nanobind numpy cmake ninja setuptools
	@echo "==> building the C++ core (one to three minutes)"
	@$(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

$(LINT)/.installed: constraints.txt
	@echo "==> installing the linters"
	@$(PYTHON) -m venv $(LINT)
	@$(LINT)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt clang-format import-linter ruff
	@touch $@

$(VENV)/.lab: $(VENV)/.core
	@test -f $(VENV)/.test || { echo "==> installing the laboratory's dependencies (PyTorch among them: minutes)"; $(INSTALL) --no-build-isolation --editable '.[lab]'; }
	@touch $@

$(VENV)/.test: $(VENV)/.core
	@echo "==> installing the laboratory's and the tests' dependencies (PyTorch among them: minutes)"
	@$(INSTALL) --no-build-isolation --editable '.[test]'
	@touch $@ $(VENV)/.lab

$(VENV)/.dev: $(VENV)/.core
	@echo "==> installing the developers' tools"
	@$(INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@ $(VENV)/.lab $(VENV)/.test

$(VENV)/.docs: $(VENV)/.test
	@echo "==> installing what builds the documentation"
	@$(INSTALL) --no-build-isolation --editable '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.lab
	@echo "==> installing the peers"
	@$(INSTALL) --no-build-isolation --editable '.[bench,bench-jax]'
	@touch $@

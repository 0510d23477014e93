# Two commands: `make demo` and `make test`. Each first sets up whatever is missing.
#   PYTHON=python3.12   the Python to use (default: the first supported one that runs)
#   VENV=.venv          where the environment is
#   PAIR=en-fr          the languages of the demo and of Multi30k (default en-de)
#   MULTI30K=FOLDER     the corpus for `make multi30k` (default: downloaded)
#   JOBS=auto            processes that run the tests, 4 at most (default: one per core)
#   BENCH="train --full" what `make bench` measures (default: everything, in a quarter of an hour or more)
#   MUTANTS="NAME ..."   which planted bugs `make mutants` tries (default: all)
PYTHON ?=
VENV ?= .venv
PAIR ?= en-de
BENCH ?=
JOBS ?= auto
MUTANTS ?=
MULTI30K ?=

export PYTHON VENV
BIN := $(abspath $(VENV))/bin
RUN := PATH="$(BIN):$$PATH"
# a file's tests stay in one process: they share fixtures that take long to make; the longest files
# come first, in the order of testpaths, so that the processes end together
PYTEST := python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# What compares sums, or what was found by them, and what trains a model and then asks for quality;
# and older processors to repeat it as, as far as libraries let a newer one be told: AVX2 with two
# threads, and none of its instructions.
TRAINED := tests/system tests/unit/test_systems.py tests/integration/test_walk_through.py \
    tests/integration/test_sentencepiece.py \
    tests/integration/test_reproduce.py::test_english_german_to_bleu \
    tests/integration/test_distributed.py::test_losses_are_those_of_one_process \
    tests/integration/test_distributed.py::test_bleu_is_of_the_sentences_of_both_processes \
    tests/integration/test_check_command.py::test_the_template_passes_every_check_without_fairseq
ROUNDING := tests/parity tests/plain tests/unit/test_export.py \
    tests/integration/test_export_ctranslate2.py tests/integration/test_export_fairseq.py \
    tests/integration/test_translate.py tests/integration/test_generate_workers.py \
    tests/integration/test_translations.py tests/integration/test_generation_options.py \
    $(TRAINED)
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 CT2_FORCE_CPU_ISA=AVX2
GENERIC := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE \
    CT2_FORCE_CPU_ISA=GENERIC

.PHONY: setup demo demo-model test test-processors test-all check bench gpu-check mutants multi30k clean

setup:
	@scripts/setup.sh

demo: setup
	@$(RUN) scripts/demo.sh $(PAIR)

demo-model: setup
	@$(RUN) python scripts/shipped_model.py demo_en_de

test: setup
	@$(RUN) $(PYTEST)

test-processors: setup
	@$(RUN) env $(AVX2) OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive $(PYTEST) $(ROUNDING)
	@$(RUN) env $(GENERIC) OMP_NUM_THREADS=1 $(PYTEST) $(ROUNDING)

test-all: setup
	@$(RUN) $(PYTEST) -m "slow or not slow"

check: setup
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) shellcheck -x scripts/*.sh scripts/*/*.sh scripts/*/*.sbatch .ci/run .ci/plain
	@$(RUN) lint-imports --no-cache

bench: setup
	@$(RUN) python -m benchmarks.run $(BENCH)

gpu-check: setup
	@$(RUN) python -m benchmarks.gpu_check

mutants: setup
	@$(RUN) python -m scripts.planted_bugs $(MUTANTS)

multi30k: setup
	@$(RUN) PAIR=$(PAIR) scripts/multi30k.sh $(MULTI30K)

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .nox

#!/usr/bin/env bash
# Makes the environment everything else runs in: a supported Python that really runs, the pinned
# stack for that Python, the plugin in editable mode. Does nothing if nothing has changed; completes
# or rebuilds an environment that was interrupted, moved or damaged.
#
#   scripts/setup.sh                    the first supported Python found, environment in .venv
#   PYTHON=3.12 VENV=DIR scripts/setup.sh     that Python (a version or a path), environment in DIR
#   scripts/setup.sh --find [VERSION]   prints the Python it would use; exit 1 if there is none
#
# pip's own settings (pip.conf, PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, ...) apply.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" # constraints are named relative to it: pip splits PIP_CONSTRAINT at spaces
VENV=${VENV:-.venv}
case $VENV in /*) ;; *) VENV=$ROOT/$VENV ;; esac
STAMP=$VENV/setup.stamp
LOG=$VENV/setup.log # why the stack does not import; also marks an environment made by this script

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# ---- which Python -------------------------------------------------------------------------------

# Prints "VERSION HEADERS EXECUTABLE" for a Python that runs and can make environments. A version
# manager's shim may exist but fail, so it is run; and _base_executable keeps an activated .venv
# from becoming its own parent.
probe() {
    "$1" -c '
import ensurepip, os, sys, sysconfig, venv
headers = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
base = getattr(sys, "_base_executable", None) or sys.executable
print("%d.%d" % sys.version_info[:2], "headers" if headers else "bare", base)
' 2>/dev/null </dev/null
}

# Every place a Python of version $1 is likely to be: PATH first, then version managers' own folders.
candidates() {
    local version=$1 name
    for name in "python$version" python3 python; do
        type -ap "$name" || true
    done
    compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version*/bin/python" || true
    compgen -G "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}/cpython-$version*/bin/python" || true
    compgen -G "${ASDF_DATA_DIR:-$HOME/.asdf}/installs/python/$version*/bin/python" || true
    compgen -G "$HOME/.local/share/mise/installs/python/$version*/bin/python" || true
    compgen -G "$HOME/*conda3/envs/*/bin/python$version" || true
    compgen -G "$HOME/*conda3/bin/python$version" || true
}

has_compiler() { command -v "${CC:-cc}" >/dev/null && command -v "${CXX:-c++}" >/dev/null; }

# Sets VERSION, HEADERS and BASE to the first suitable Python of the versions $@; one that can
# install fairseq as it is takes precedence over one that lacks a compiler or headers.
pick_python() {
    local version candidate found first=""
    for version in "$@"; do
        while IFS= read -r candidate; do
            found=$(probe "$candidate") || continue
            [ "${found%% *}" = "$version" ] || continue
            first=${first:-$found}
            read -r VERSION HEADERS BASE <<<"$found"
            if can_build; then return; fi
        done < <(candidates "$version")
    done
    if [ -z "$first" ]; then
        # a recent system may have only a newer one
        found=$(probe python3) && found=${found%% *} && [ "${found#3.}" -gt 12 ] &&
            die "python3 is Python $found, but fairseq runs on 3.10, 3.11 and 3.12 only: install one" \
                "of them beside it (uv python install 3.11, pyenv install 3.11, conda create python=3.11)," \
                "which is then found, or name it: make setup PYTHON=/path/to/python3.11"
    fi
    [ -n "$first" ] || die "no Python that runs, with its venv module, was found (looked for: $*);" \
        "install one (Debian, Ubuntu: apt install python3-venv python3-dev) or name it:" \
        "make setup PYTHON=/path/to/python3.11"
    read -r VERSION HEADERS BASE <<<"$first"
}

# The Python the user asked for: nothing, a version, or a command.
choose_python() {
    local found
    case ${PYTHON:-} in
    "") pick_python 3.11 3.12 3.10 ;;
    3.10 | 3.11 | 3.12) pick_python "$PYTHON" ;;
    [0-9].[0-9]*)
        die "PYTHON=$PYTHON: fairseq runs on Python 3.10, 3.11 and 3.12 only: name one of these."
        ;;
    *)
        found=$(probe "$PYTHON") || die "PYTHON=$PYTHON does not run, or lacks its venv module;" \
            "name a Python 3.10, 3.11 or 3.12 that does, or leave PYTHON out."
        read -r VERSION HEADERS BASE <<<"$found"
        ;;
    esac
    case $VERSION in
    3.10 | 3.11 | 3.12) ;;
    *) die "PYTHON=$PYTHON is Python $VERSION; fairseq runs on 3.10, 3.11 and 3.12: name one of these." ;;
    esac
}

# fairseq-fixed has a wheel for Python 3.12 on Linux; elsewhere fairseq is compiled.
has_wheel() { [ "$VERSION $(uname -sm)" = "3.12 Linux x86_64" ]; }

can_build() { has_wheel || { has_compiler && [ "$HEADERS" = headers ]; }; }

check_compiler() {
    if can_build; then return; fi
    has_compiler || die "fairseq is compiled on Python $VERSION and no C++ compiler is on PATH;" \
        "install one (Debian, Ubuntu: apt install g++; macOS: xcode-select --install)" \
        "or, on Linux, use Python 3.12, which needs none."
    die "fairseq is compiled on Python $VERSION and $BASE has no header Python.h;" \
        "install it (Debian, Ubuntu: apt install python$VERSION-dev) or, on Linux, use Python 3.12, which needs none."
}

stack_of() { if [ "$1" = 3.10 ]; then echo official; else echo modern; fi; }

# ---- is there anything to do? -------------------------------------------------------------------

# What an environment was made from: its Python, its path, this checkout, and the files that
# determine its contents. $1 is the Python's version.
fingerprint() {
    printf '%s\n' "python $1" "environment $VENV" "checkout $ROOT"
    cksum "scripts/constraints/$(stack_of "$1").txt" setup.py scripts/setup.sh
}

up_to_date() {
    local version
    [ -f "$STAMP" ] && [ -x "$VENV/bin/fairseq-train" ] && [ -x "$VENV/bin/vaswani" ] || return 1
    version=$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    [ "$(cat "$STAMP")" = "$(fingerprint "$version")" ] || return 1
    # If PYTHON is given, the environment must have that one.
    case ${PYTHON:-} in
    "" | "$version") ;;
    *) [ "$(probe "$PYTHON" | cut -d' ' -f1)" = "$version" ] ;;
    esac
}

# Whether the environment is intact, with this Python and at this path, so that it can be completed.
usable() {
    [ "$("$VENV/bin/python" -c 'import pip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$VERSION" ] &&
        grep -qF "$VENV/bin/python" "$VENV/bin/pip" # else it was moved here: its commands point elsewhere
}

# ---- installing ---------------------------------------------------------------------------------

# pip_install WHAT ARGUMENTS...: pip with our pins, also inside the isolated builds it starts.
pip_install() {
    local what=$1
    shift
    PIP_CONSTRAINT="$CONSTRAINTS" PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "$VENV/bin/python" -m pip install "$@" ||
        die "pip could not install $what, as it says above; run it again: it continues where it stopped."
}

# Installs fairseq, which is compiled, except where there is a wheel: one of its authors', or one
# that pip made and cached in an earlier set-up. Nobody reads the debugging information that Python's
# own flags ask for: without it the largest file takes a quarter less time, and all files a thirtieth of the space.
install_fairseq() {
    local takes=$1
    shift
    if ! has_wheel && ! [ -x "$VENV/bin/fairseq-train" ]; then
        say "2/3 compiling fairseq takes $takes on Python $VERSION (once: pip keeps the result)"
    fi
    # Where CUDA_HOME is set, fairseq-fixed builds extensions whose sources are not in its sdist.
    # What fairseq needs comes with our extras, except torchaudio, which it imports only for speech.
    unset CUDA_HOME
    CPPFLAGS="-g0 ${CPPFLAGS:-}" pip_install "$@" --no-deps
}

install_stack() {
    CONSTRAINTS="scripts/constraints/$STACK.txt${PIP_CONSTRAINT:+ $PIP_CONSTRAINT}"
    if [ "$STACK" = official ]; then
        pip_install pip 'pip<24.1' # newer ones refuse omegaconf 2.0.6's metadata
    fi
    say "1/3 torch and numpy (for CUDA torch takes 5.5 GB; docs/install.md: how to get its build for CPUs)"
    pip_install torch torch numpy wheel setuptools cython
    if [ "$STACK" = official ]; then
        # If it sees torch, its setup needs sources that were never published: build it in isolation.
        install_fairseq "about a minute" fairseq fairseq
    else
        # In isolation, it would download a second torch to build against.
        install_fairseq "about two minutes" fairseq-fixed --no-build-isolation fairseq-fixed
    fi
    say "3/3 the plugin and its tools (pip reports that fairseq requires torchaudio, as an error:" \
        "ignore it, only fairseq's speech models import torchaudio)"
    pip_install "the plugin" --no-build-isolation -e ".[$STACK,text,plots,export,dev]"
}

# Whether the stack imports, compiled parts included: a kill in the middle of pip may have broken it.
works() {
    "$VENV/bin/python" -W ignore -c '
import matplotlib, pytest, requests, sacrebleu, sacremoses, sentencepiece, sentencex, subword_nmt, torch
import fairseq.data.data_utils_fast, fairseq.data.token_block_utils_fast, fairseq.tasks' >>"$LOG" 2>&1
}

# Removes an environment, but never a folder that this script did not make.
discard() {
    if [ -e "$VENV" ] && [ ! -e "$LOG" ] && [ -n "$(ls -A "$VENV")" ]; then
        die "VENV=$VENV exists and is not an environment made by make setup; name another folder or remove it."
    fi
    rm -rf "$VENV"
}

build() {
    if ! usable; then
        check_compiler
        discard
        say "making $VENV with $BASE (Python $VERSION, $STACK stack)"
        { mkdir -p "$VENV" && : >"$LOG"; } || die "cannot write to $VENV; name another place: make setup VENV=..."
        "$BASE" -m venv "$VENV" || die "$BASE could not make an environment in $VENV, as it says above;" \
            "correct that or name another Python: make setup PYTHON=..."
    elif [ ! -x "$VENV/bin/fairseq-train" ]; then
        check_compiler
    fi
    install_stack
}

main() {
    local VERSION HEADERS BASE STACK CONSTRAINTS
    if [ "${1:-}" = --find ]; then
        PYTHON=${2:-}
        choose_python
        echo "$VERSION $BASE"
        return
    fi
    if up_to_date; then return; fi
    if command -v flock >/dev/null; then # of two at once, the second waits, then finds all done
        mkdir -p "$(dirname "$VENV")" || die "cannot write beside $VENV; name another place: make setup VENV=..."
        exec 9<"$(dirname "$VENV")"
        flock -n 9 || { say "another set-up is at work here; waiting for it" && flock 9; }
        if up_to_date; then return; fi
    fi
    choose_python
    STACK=$(stack_of "$VERSION")
    rm -f "$STAMP"
    build
    if ! works; then
        say "the environment is damaged; making it again"
        discard
        build
        works || die "the installed stack does not import; the reason is at the end of $LOG."
    fi
    fingerprint "$VERSION" >"$STAMP.part" && mv "$STAMP.part" "$STAMP"
    say "ready: $VENV (Python $VERSION, $STACK stack)"
}

main "$@"

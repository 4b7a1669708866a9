#!/usr/bin/env bash
# Makes .venv at the root: the locked dependencies, and this project in editable form.
#
# PYTHON=/path/to/python chooses the interpreter; otherwise the first of 3.11 or later that is found.
# On Debian, what the system lacks is installed where that needs no password.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
ready=$venv/.ready

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# --- what the system must offer -------------------------------------------------------------------

python_is_recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [[ -n ${PYTHON:-} ]]; then
        python_is_recent "$PYTHON" || die "PYTHON=$PYTHON does not run, or is older than Python 3.11."
        echo "$PYTHON"
        return
    fi
    local name
    # 3.11 first: it is the version the project is tested with. A name that is found may still not
    # run (pyenv's shims), so each is tried.
    for name in python3.11 python3.12 python3.13 python3; do
        if python_is_recent "$name"; then
            command -v "$name"
            return
        fi
    done
    return 1
}

python_makes_venvs() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

find_java() {
    local java=java version
    [[ -z ${JAVA_HOME:-} ]] || java=$JAVA_HOME/bin/java
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || return 1
    # Spark 4 needs Java 17. (Java 8 and before call themselves 1.8 and so on.)
    [[ -n $version && $version -ge 17 ]]
}

# --- installing it, where that is allowed ---------------------------------------------------------

as_root() {
    if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    command -v apt-get >/dev/null || return 1
    [[ $(id -u) -eq 0 ]] || sudo -n true 2>/dev/null
}

apt_updated=
apt_install() {
    may_install || return 1
    if [[ -z $apt_updated ]]; then
        # A repository that does not answer need not be the one that has the package.
        as_root apt-get -q -o DPkg::Lock::Timeout=300 update >&2 || true
        apt_updated=yes
    fi
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" >&2
}

need_python() {
    if ! python=$(find_python); then
        [[ -z ${PYTHON:-} ]] || exit 1
        apt_install python3 python3-venv || true
        python=$(find_python) || die "Python 3.11 or later is missing. Install it" \
            "(Debian: apt-get install python3 python3-venv), or name one: make setup PYTHON=…"
    fi
    python_makes_venvs "$python" && return
    # Debian splits venv off into a package of its own for each version.
    local version
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt_install "python$version-venv" || apt_install python3-venv || true
    python_makes_venvs "$python" || die "$python cannot make virtual environments." \
        "Install its venv module (Debian: apt-get install python$version-venv) and run make setup again."
}

want_java() {
    find_java && return
    # Older Debian has a default Java below 17, newer has no 17 any more.
    apt_install openjdk-17-jre-headless || apt_install default-jre-headless || true
    find_java || say "warning: no Java 17 or later was found. All but Spark works without it." \
        "To get it (Debian): apt-get install openjdk-17-jre-headless, or default-jre-headless;" \
        "or set JAVA_HOME."
}

want_browser() {
    # Tests of pages are skipped without one: fine for a developer, but not where changes are judged.
    [[ -n ${CI:-} ]] || return 0
    command -v chromium >/dev/null || apt_install chromium || true
    command -v chromium >/dev/null || say "warning: no Chromium was found: tests of pages are skipped."
}

# --- the environment ------------------------------------------------------------------------------

venv_is_sound() {
    # A copied or moved checkout brings a .venv whose scripts run the code of the old place.
    [[ -f $venv/.root && $(<"$venv/.root") == "$root" ]] || return 1
    python_is_recent "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

make_venv() {
    venv_is_sound && return
    need_python
    say "making .venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    printf '%s\n' "$root" >"$venv/.root"
}

pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_locked() {
    say "installing the locked dependencies; the first time this takes some minutes"
    # pyspark comes as source and is built with setuptools. Left to itself pip would fetch whichever
    # setuptools is newest, unchecked, into an isolated build; so the locked one goes in first, and
    # builds use it (--use-pep517: without it an old pip runs pyspark's setup.py itself).
    awk '/^setuptools==/ { on = 1 } on { print } on && !/\\$/ { exit }' requirements.lock \
        >"$venv/.build-requirements"
    pip_install --require-hashes -r "$venv/.build-requirements"
    pip_install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
    pip_install --no-deps --no-build-isolation --editable .
}

rm -f "$ready"
make_venv
want_java
want_browser
install_locked
[[ -x $venv/bin/streamshed ]] || die "the install left no command streamshed in .venv/bin."
printf '%s\n' "$root" >"$ready"
say "done: .venv/bin/streamshed"

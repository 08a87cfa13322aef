#!/usr/bin/env bash
# Checks dependencies against deny.toml; installs cargo-deny first if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo deny --version >/dev/null 2>&1; then
    echo "lint: installing cargo-deny (once, about a minute)"
    cargo install cargo-deny --locked --debug --quiet
fi
exec cargo deny --log-level error check bans licenses sources

#!/usr/bin/env bash
# Checks packaging/kubernetes/numaherd.yaml against the schemas of several versions of Kubernetes, with the Python package
# kubernetes-validate, which contains them; installs it into target/manifests the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${CARGO_TARGET_DIR:-target}/manifests
if [ ! -x "$tools/bin/kubernetes-validate" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet kubernetes-validate==1.37.0
fi
for version in 1.30 1.32 1.34 1.37; do
    "$tools/bin/kubernetes-validate" --strict --kubernetes-version "$version" packaging/kubernetes/numaherd.yaml
done

